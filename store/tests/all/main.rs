//! The tests of the store: one suite for both databases, then faults of each database, races, crashes and
//! large stores.
#![expect(clippy::print_stdout, reason = "tests say what they measured and skipped")]

mod conformance;
mod crash;
mod gateway_races;
mod migration;
mod model;
mod postgres;
mod postgres_server;
mod races;
mod scale;
mod space_scale;
mod sqlite;
