//! Outputs that are too long: their truncation, and the right to read the rest.

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{Caller, ToolRegistry, ToolResult};
use portcullis_types::{
    ToolErrorKind::{self, Denied, InvalidArguments, NotFound},
    ToolOutput,
};
use serde_json::{Value, json};

use crate::support::{
    Spy, caller, fixture_enabling, native_registry, output_limit, raw_call, snapshot, with_commas,
};

const BYTES: usize = 142_857;

fn content() -> String {
    let mut text: String = (0..BYTES / 6).map(|number| format!("line {number}\n")).collect();
    text.truncate(BYTES);
    text
}

async fn read_long_file(fixture: &Fixture) -> (ToolRegistry, ToolResult) {
    fixture.put("long.txt", content());
    let registry = fixture.registry().await;
    let result =
        registry.execute_with_policy(raw_call("file_read", r#"{"path":"long.txt"}"#), &caller()).await;
    (registry, result)
}

async fn read_page(registry: &ToolRegistry, caller: &Caller, arguments: Value) -> ToolResult {
    registry.execute_with_policy(raw_call("output_read", &arguments.to_string()), caller).await
}

#[track_caller]
fn assert_refused(result: &ToolResult, kind: ToolErrorKind, code: &str) {
    match &result.outcome.clone().into_result() {
        Err(error) => assert_eq!((error.kind(), error.code()), (kind, code), "{error}"),
        Ok(output) => panic!("expected {code}, got {} bytes", output.joined_text().len()),
    }
}

#[tokio::test]
async fn a_long_output_is_cut_at_the_limit_with_the_specified_mark() {
    let fixture = Fixture::new();
    fixture.put("long.txt", content());
    let before = snapshot(&fixture.workspace());
    let (_, result) = read_long_file(&fixture).await;
    let expected =
        format!("{}\n[output truncated — original size: 142,857 bytes]", &content()[..output_limit()]);
    assert_eq!(result.model_text(), expected);
    assert!(result.truncated);
    assert_eq!(result.original_bytes, BYTES as u64);
    let id = result.details["output_id"].as_str().expect("an id");
    assert!(!result.model_text().contains(id), "details are not for the model");
    assert_eq!(snapshot(&fixture.workspace()), before, "nothing of it is in a mount");
    let row = fixture.rows().pop().expect("a row");
    assert_eq!((row.bytes_out, row.truncated), (Some(BYTES as u64), Some(true)));
}

#[tokio::test]
async fn output_read_pages_the_whole_output_exactly() {
    let fixture = Fixture::new();
    let (registry, result) = read_long_file(&fixture).await;
    for limit in [1_000, output_limit(), 50_000, 1 << 20] {
        let (mut all_text, mut offset) = (String::new(), 0);
        loop {
            let arguments = json!({"call_id": result.details["output_id"], "offset": offset, "limit": limit});
            let page = read_page(&registry, &caller(), arguments).await;
            assert!(!page.truncated, "a page is never cut a second time");
            all_text.push_str(&page.model_text());
            assert_eq!(page.details["total_bytes"], BYTES);
            match page.details["next_offset"].as_u64() {
                Some(next) => {
                    assert!(next > offset, "it goes on");
                    offset = next;
                }
                None => break,
            }
        }
        assert!(all_text == content(), "{limit}: {} bytes", all_text.len());
    }
    let arguments = json!({"call_id": result.details["output_id"], "limit": (1 << 20) + 1});
    assert_refused(&read_page(&registry, &caller(), arguments).await, InvalidArguments, "invalid_arguments");
}

#[tokio::test]
async fn an_output_is_only_there_for_the_agent_and_run_that_made_it() {
    let fixture = Fixture::new();
    let (registry, result) = read_long_file(&fixture).await;
    let arguments_for = |id: &Value| json!({"call_id": id});
    let id = &result.details["output_id"];
    for (agent, run) in [("other", "run"), ("tester", "other"), ("", ""), ("tester", ""), ("run", "tester")] {
        let stranger = Caller::new(agent, run);
        assert_refused(&read_page(&registry, &stranger, arguments_for(id)).await, NotFound, "not_found");
    }
    for guess in ["", "out_", ".", "../audit.jsonl", "/etc/passwd", "out_\0", &"x".repeat(300)] {
        assert_refused(
            &read_page(&registry, &caller(), arguments_for(&guess.into())).await,
            NotFound,
            "not_found",
        );
    }
    // The provider chooses the call's id, so the id names no output.
    assert_refused(
        &read_page(&registry, &caller(), arguments_for(&result.call_id.into())).await,
        NotFound,
        "not_found",
    );
    let own_page = read_page(&registry, &caller(), arguments_for(id)).await;
    assert_eq!(own_page.model_text(), content()[..output_limit()]);
}

#[tokio::test]
async fn an_output_outlives_its_registry_but_not_its_grant() {
    let fixture = Fixture::new();
    let (registry, result) = read_long_file(&fixture).await;
    drop(registry);
    let arguments = json!({"call_id": result.details["output_id"]});
    let later_page = read_page(&fixture.registry().await, &caller(), arguments.clone()).await;
    assert_eq!(later_page.model_text(), content()[..output_limit()], "the next process still has it");

    // A read needs the tool's grants at the time of the read, however they were withdrawn.
    let read_only =
        "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\", vault = \"read\" }";
    let entry = "# per tool: profile, approval, timeout, memory, max_output_bytes, enabled\nprofile = \"FileReadOnly\"";
    for (original, restricted) in [
        (read_only, "[profiles.FileReadOnly]\nmounts = { tmp = \"read\", vault = \"read\" }".to_owned()),
        (read_only, "[profiles.FileReadOnly]".to_owned()),
        (entry, format!("{entry}\nenabled = false")),
        (entry, format!("{entry}\napproval = \"deny\"")),
        (entry, "\nprofile = \"Nothing\"".to_owned()),
        (entry, "\nprofile = \"WorkspaceRead\"".to_owned()),
    ] {
        let overlaid = Fixture::new().with_policy_edit(original, &restricted);
        let mut envelope = overlaid.envelope();
        envelope.state = fixture.state();
        let registry = portcullis_tools::bootstrap_runtime_tools(&envelope).await.expect("bootstraps");
        assert_refused(&read_page(&registry, &caller(), arguments.clone()).await, Denied, "grant_revoked");
    }
}

#[tokio::test]
async fn the_output_limit_holds_for_every_tool_and_splits_no_char() {
    let fixture = fixture_enabling(&["spy"]).with_policy("[tools.echo]\nmax_output_bytes = \"10B\"");
    let spy = Spy::new("spy", |_, args| async move {
        let count = args.value()["count"].as_u64().unwrap_or_default();
        Ok(ToolOutput::text("€".repeat(usize::try_from(count).unwrap_or_default())))
    });
    let spy = spy.parameters(json!({"type": "object", "properties": {"count": {"type": "integer"}}}));
    let registry = native_registry(&fixture, [spy]);
    let run = async |count: usize| CallOutcome::run(&registry, "spy", json!({"count": count})).await;
    // `€` has three bytes, and the limit is not a multiple of three.
    let fitting = output_limit() / 3;
    assert_ne!(fitting * 3, output_limit());
    let fits = run(fitting).await;
    assert_eq!((fits.text().len(), fits.0.truncated, &fits.0.details), (fitting * 3, false, &json!({})));
    let cut_output = run(fitting + 1).await;
    let bytes = with_commas((fitting + 1) * 3);
    let expected = format!("{}\n[output truncated — original size: {bytes} bytes]", "€".repeat(fitting));
    assert_eq!((cut_output.text(), cut_output.0.truncated), (expected, true));
    let echoed = CallOutcome::run(&registry, "echo", json!({"message": "a long message"})).await;
    assert_eq!(echoed.text(), "{\"echoed\":\n[output truncated — original size: 39 bytes]");
}

#[tokio::test]
async fn exactly_the_limit_is_not_cut() {
    let fixture = Fixture::new();
    let limit = output_limit();
    fixture.put("limit.txt", "x".repeat(limit));
    fixture.put("over.txt", "x".repeat(limit + 1));
    let registry = fixture.registry().await;
    let uncut_output = CallOutcome::run(&registry, "file_read", json!({"path": "limit.txt"})).await;
    assert_eq!((uncut_output.text().len(), uncut_output.0.truncated), (limit, false));
    let cut_output = CallOutcome::run(&registry, "file_read", json!({"path": "over.txt"})).await;
    let mark = format!("x\n[output truncated — original size: {} bytes]", with_commas(limit + 1));
    assert!(cut_output.text().ends_with(&mark));
}
