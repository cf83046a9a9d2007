//! Runs that Temporal drives on a real server. They end like runs of a single process, even if workers die.
#![expect(clippy::print_stdout, reason = "tests say what they skipped")]

mod bad_input;
mod driving;
mod failures;
mod kills;
// The same model as in the tests of the single-process driver, so that histories can be compared.
#[path = "../../../runs/tests/all/model.rs"]
#[allow(dead_code, reason = "only the tests of the single-process driver have a broken turn")]
mod model;
mod people;
mod placement;
mod replay;
mod scripts;
mod server;
mod tools;
mod world;
