//! Tests of the gateway through its interface: agents with scripted models, real stores, the real pipeline.

#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

mod access;
mod cycles;
mod events;
mod hostile;
#[path = "../../../store/tests/all/postgres_server.rs"]
mod postgres_server;
mod restart;
mod traces;
mod world;
