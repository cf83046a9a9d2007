//! Runs that Temporal drives, on a real server: they end as those of one process do, whatever happens to the workers.
#![expect(clippy::print_stdout, reason = "tests say what they skipped")]

mod bad_input;
mod driving;
mod failures;
mod kills;
// The model of the driver of one process, so that histories can be compared.
#[path = "../../../runs/tests/all/model.rs"]
mod model;
mod people;
mod placement;
mod replay;
mod scripts;
mod server;
mod tools;
mod world;
