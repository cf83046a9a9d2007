//! Runs in a PostgreSQL database, which programs on two machines share.
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

#[path = "../../../../store/tests/all/postgres_server.rs"]
mod server;

use std::fs;

use portcullis_testing::{Fixture, wait_until};

use super::{
    durable::{answered, detach_with, json, kill},
    model::{Model, calls, text},
};
use crate::modules::{portcullis, stderr};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_is_approved_on_another_machine_and_resumed() {
    let Some(server) = server::Server::start() else { return };
    let database = server.new_database().await;
    // Each machine has its own folders. They share the database.
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let store = ["--store", &*database];
    let with_store = |words: &[&'static str]| [words, &store[..]].concat();
    let command = r#"{"command": "echo once >> /shared/log"}"#;
    let model = Model::answering(vec![calls(&[("shell_exec", command)]), text("Done.")]);
    let id = detach_with(&fixture, &model, &store);
    let asked = || json(&other, &with_store(&["approvals", "list", "--json"]));
    wait_until("a question waits", || asked()[0]["id"].is_string());
    let question = asked()[0]["id"].as_str().expect("an id").to_owned();
    kill(&fixture);
    let approve = [&["approvals", "approve", &question], &store[..]].concat();
    assert!(answered(&portcullis(&other, &approve)).starts_with("approved: the call of shell_exec"));

    let resume = ["runs", "resume", &id, "--model", "m", "--base-url", model.address()];
    let output = portcullis(&fixture, &[&resume[..], &store].concat());
    assert_eq!(answered(&output), "Done.\n", "{}", stderr(&output));
    assert_eq!(fs::read_to_string(fixture.shared("log")).expect("written"), "once\n");
    let runs = json(&other, &with_store(&["runs", "list", "--json"]));
    assert_eq!((runs[0]["id"].as_str(), runs[0]["shown_as"].as_str()), (Some(&*id), Some("completed")));
    let export = json(&other, &[&["runs", "export", &id], &store[..]].concat());
    assert_eq!(export["calls"].as_array().map(Vec::len), Some(1));
    assert!(!fixture.state().join("runs.db").exists(), "nothing is stored in a file");

    // An unreachable database is an error, and no run begins in another store.
    server.stop();
    let begun = ["agent", "Hello", "--model", "m", "--base-url", model.address()];
    let output = portcullis(&fixture, &[&begun[..], &store].concat());
    assert!(!output.status.success(), "{}", stderr(&output));
    assert_eq!(model.requests().len(), 2, "the model is not asked");
}
