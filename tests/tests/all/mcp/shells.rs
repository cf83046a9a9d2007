//! Shell sessions of clients with the same name: each client has its own session, which ends with the client.

use portcullis_testing::{Fixture, wait_until};
use serde_json::{Value, json};

use super::{
    client::{end_rows, text},
    http::Server,
};

fn command(command: &str) -> Value {
    json!({ "command": command })
}

#[test]
fn clients_of_one_name_do_not_share_a_shell() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &["--approve"]);
    let (first, second) = (server.begin(), server.begin());
    let run = |session: &str, line: &str| server.call(session, "shell_exec", &command(line));
    assert_eq!(run(&first, "export SECRET=s3cret; cd /tmp")["isError"], false);
    let second_output = run(&second, "echo [$SECRET]; git() { echo planted; }; export -f git");
    assert_eq!(text(&second_output), "[]\n", "the other's variable is not there");
    let type_query = run(&first, "type -t git || echo no function");
    assert!(
        !text(&type_query).contains("function\n") || text(&type_query).contains("no function"),
        "{type_query}"
    );
    assert_eq!(text(&run(&first, "echo [$SECRET]")), "[s3cret]\n", "the own one is");
    let default_session_call = json!({"command": "echo [$SECRET]", "session": "default"});
    assert_eq!(text(&server.call(&second, "shell_exec", &default_session_call)), "[]\n");
    // Both rows still have the client's name as a label for readers.
    let rows = end_rows(&fixture, "shell_exec");
    assert!(rows.iter().all(|row| row.agent.as_deref() == Some("mcp:tester")));
    assert_ne!(rows[0].run_id, rows[1].run_id);
}

#[test]
fn a_client_that_leaves_leaves_no_shell_behind() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &["--approve"]);
    let (leaves, stays) = (server.begin(), server.begin());
    let hold_lock = |name: &str| command(&format!("exec 9> {name}; flock 9; sleep 1000 >&- 2>&- &"));
    for (session, name) in [(&leaves, "leaves"), (&stays, "stays")] {
        assert_eq!(server.call(session, "shell_exec", &hold_lock(name))["isError"], false);
    }
    let is_free = |name: &str| {
        let lock = std::fs::File::open(fixture.shared(name)).expect("the file can be opened");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    assert!(!is_free("leaves") && !is_free("stays"), "the control");
    assert_eq!(server.request("DELETE", &[("mcp-session-id", &leaves)], "").status, 204);
    wait_until("the client's session has ended", || is_free("leaves"));
    assert!(!is_free("stays"));
}

#[test]
fn clients_of_one_name_have_separate_rate_limits() {
    let fixture = Fixture::new().with_policy_edit("calls_per_minute = 600", "calls_per_minute = 3");
    let server = Server::start(&fixture, &[]);
    let (first, second) = (server.begin(), server.begin());
    let call = |session: &str| server.call(session, "echo", &json!({"message": "x"}))["isError"] == false;
    assert_eq!([(); 4].map(|()| call(&first)), [true, true, true, false]);
    assert!(call(&second), "of the same name, and not the same client");
}
