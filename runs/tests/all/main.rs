//! A run that is killed at any point is resumed by another process, with the same history and each effect at
//! most once.
#![expect(clippy::print_stdout, reason = "tests say what they skipped")]

mod crash;
mod crashing_store;
mod external;
mod model;
// The store's tests start the same server.
#[path = "../../../store/tests/all/postgres_server.rs"]
mod postgres_server;
mod questions;
mod stepwise;
mod world;
