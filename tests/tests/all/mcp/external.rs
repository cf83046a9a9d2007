//! External tools of a server: their results are submitted from another terminal.

use portcullis_testing::Fixture;
use serde_json::{Value, json};

use super::{
    client::{end_rows, text},
    http::Server,
};
use crate::agent::external::{open_call, submit, tool_file};

fn arguments() -> Value {
    json!({"message": "Confirm booking?"})
}

#[test]
fn a_client_waits_for_a_result_and_learns_of_a_later_one() {
    for is_async in [false, true] {
        let fixture = Fixture::new();
        let file = tool_file(&fixture, &json!({"isAsync": is_async, "timeout": 600_000}));
        let server = Server::start(&fixture, &["--tool-file", file.to_str().expect("the path is UTF-8")]);
        let session = server.begin();
        let called = std::thread::scope(|scope| {
            let calling = scope.spawn(|| server.call(&session, "confirm_action", &arguments()));
            let call = open_call(&fixture);
            assert_eq!(call["agent"], "mcp:tester");
            assert!(submit(&fixture, &call, r#"{"confirmed":true}"#).status.success());
            (calling.join().expect("answered"), call)
        });
        let (answer, call) = called;
        assert_eq!(answer["isError"], false);
        let pending = json!({"status": "pending", "pendingToolCallId": call["id"]});
        let expected = if is_async { pending } else { json!({"confirmed": true}) };
        assert_eq!(serde_json::from_str::<Value>(text(&answer)).expect("JSON"), expected);
        assert_eq!(answer["structuredContent"], expected);
        let row = end_rows(&fixture, "confirm_action").remove(0);
        let outcome = if is_async { "pending" } else { "ok" };
        assert_eq!(row.outcome.map(|outcome| outcome.as_str()), Some(outcome));
    }
}
