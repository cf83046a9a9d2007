//! Outputs that are too long: their truncation, and the right to read the rest.

use portcullis_testing::{CallOutcome, World};
use portcullis_tools::{Caller, ToolRegistry, ToolResult};
use portcullis_types::{
    ToolErrorKind::{self, Denied, InvalidArguments, NotFound},
    ToolOutput,
};
use serde_json::{Value, json};

use crate::support::{Spy, caller, natives, raw, snapshot, world_enabling};

const BYTES: usize = 142_857;

fn content() -> String {
    let mut text: String = (0..BYTES / 6).map(|number| format!("line {number}\n")).collect();
    text.truncate(BYTES);
    text
}

async fn cut(world: &World) -> (ToolRegistry, ToolResult) {
    world.put("long.txt", content());
    let registry = world.registry().await;
    let result = registry.execute_with_policy(raw("file_read", r#"{"path":"long.txt"}"#), &caller()).await;
    (registry, result)
}

async fn page(registry: &ToolRegistry, caller: &Caller, arguments: Value) -> ToolResult {
    registry.execute_with_policy(raw("output_read", &arguments.to_string()), caller).await
}

#[track_caller]
fn refused(result: &ToolResult, kind: ToolErrorKind, code: &str) {
    match &result.outcome {
        Err(error) => assert_eq!((error.kind(), error.code()), (kind, code), "{error}"),
        Ok(output) => panic!("expected {code}, got {} bytes", output.joined_text().len()),
    }
}

#[tokio::test]
async fn a_long_output_is_cut_at_16_kib_with_the_specified_mark() {
    let world = World::new();
    world.put("long.txt", content());
    let before = snapshot(&world.workspace());
    let (_, result) = cut(&world).await;
    let expected = format!("{}\n[output truncated — original size: 142,857 bytes]", &content()[..16_384]);
    assert_eq!(result.model_text(), expected);
    assert!(result.truncated);
    assert_eq!(result.original_bytes, BYTES as u64);
    let id = result.details["output_id"].as_str().expect("an id");
    assert!(!result.model_text().contains(id), "details are not for the model");
    assert_eq!(snapshot(&world.workspace()), before, "nothing of it is in a mount");
    let row = world.rows().pop().expect("a row");
    assert_eq!((row.bytes_out, row.truncated), (Some(BYTES as u64), Some(true)));
}

#[tokio::test]
async fn output_read_pages_the_whole_output_exactly() {
    let world = World::new();
    let (registry, result) = cut(&world).await;
    for limit in [1_000_u64, 16_384, 50_000, 1 << 20] {
        let (mut whole, mut offset) = (String::new(), 0);
        loop {
            let arguments = json!({"call_id": result.details["output_id"], "offset": offset, "limit": limit});
            let page = page(&registry, &caller(), arguments).await;
            assert!(!page.truncated, "a page is never cut a second time");
            whole.push_str(&page.model_text());
            assert_eq!(page.details["total_bytes"], BYTES);
            match page.details["next_offset"].as_u64() {
                Some(next) => {
                    assert!(next > offset, "it goes on");
                    offset = next;
                }
                None => break,
            }
        }
        assert!(whole == content(), "{limit}: {} bytes", whole.len());
    }
    let arguments = json!({"call_id": result.details["output_id"], "limit": (1 << 20) + 1});
    refused(&page(&registry, &caller(), arguments).await, InvalidArguments, "invalid_arguments");
}

#[tokio::test]
async fn an_output_is_only_there_for_the_agent_and_run_that_made_it() {
    let world = World::new();
    let (registry, result) = cut(&world).await;
    let of = |id: &Value| json!({"call_id": id});
    let id = &result.details["output_id"];
    for (agent, run) in [("other", "run"), ("tester", "other"), ("", ""), ("tester", ""), ("run", "tester")] {
        let stranger = Caller::new(agent, run);
        refused(&page(&registry, &stranger, of(id)).await, NotFound, "not_found");
    }
    for guess in ["", "out_", ".", "../audit.jsonl", "/etc/passwd", "out_\0", &"x".repeat(300)] {
        refused(&page(&registry, &caller(), of(&guess.into())).await, NotFound, "not_found");
    }
    // The call's id is the provider's, and names no output.
    refused(&page(&registry, &caller(), of(&result.call_id.into())).await, NotFound, "not_found");
    let own = page(&registry, &caller(), of(id)).await;
    assert_eq!(own.model_text(), content()[..16_384]);
}

#[tokio::test]
async fn an_output_outlives_its_registry_but_not_its_grant() {
    let world = World::new();
    let (registry, result) = cut(&world).await;
    drop(registry);
    let arguments = json!({"call_id": result.details["output_id"]});
    let again = page(&world.registry().await, &caller(), arguments.clone()).await;
    assert_eq!(again.model_text(), content()[..16_384], "the next process still has it");

    // The tool's current policy decides, however the right was taken away.
    let read_only =
        "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\", vault = \"read\" }";
    let entry = "# per tool: profile, approval, timeout, memory, max_output_bytes, enabled\nprofile = \"FileReadOnly\"";
    for (what, less) in [
        (read_only, "[profiles.FileReadOnly]\nmounts = { tmp = \"read\", vault = \"read\" }".to_owned()),
        (read_only, "[profiles.FileReadOnly]".to_owned()),
        (entry, format!("{entry}\nenabled = false")),
        (entry, format!("{entry}\napproval = \"deny\"")),
        (entry, "\nprofile = \"Nothing\"".to_owned()),
        (entry, "\nprofile = \"WorkspaceRead\"".to_owned()),
    ] {
        let overlaid = World::new().with_policy_edit(what, &less);
        let mut envelope = overlaid.envelope();
        envelope.state = world.state();
        let registry = portcullis_tools::bootstrap_runtime_tools(&envelope).await.expect("bootstraps");
        refused(&page(&registry, &caller(), arguments.clone()).await, Denied, "grant_revoked");
    }
}

#[tokio::test]
async fn the_output_limit_holds_for_every_tool_and_splits_no_char() {
    let world = world_enabling(&["spy"]).with_policy("[tools.echo]\nmax_output_bytes = \"10B\"");
    let spy = Spy::new("spy", |_, args| async move {
        let count = args.value()["count"].as_u64().unwrap_or_default();
        Ok(ToolOutput::text("€".repeat(usize::try_from(count).unwrap_or_default())))
    });
    let spy = spy.parameters(json!({"type": "object", "properties": {"count": {"type": "integer"}}}));
    let registry = natives(&world, [spy]);
    let run = async |count: u64| CallOutcome::of(&registry, "spy", json!({"count": count})).await;
    let fits = run(5_461).await;
    assert_eq!((fits.text().len(), fits.0.truncated, &fits.0.details), (16_383, false, &json!({})));
    let cut = run(5_462).await;
    let expected = format!("{}\n[output truncated — original size: 16,386 bytes]", "€".repeat(5_461));
    assert_eq!((cut.text(), cut.0.truncated), (expected, true));
    let echoed = CallOutcome::of(&registry, "echo", json!({"message": "a long message"})).await;
    assert_eq!(echoed.text(), "{\"echoed\":\n[output truncated — original size: 39 bytes]");
}

#[tokio::test]
async fn exactly_the_limit_is_not_cut() {
    let world = World::new();
    world.put("limit.txt", "x".repeat(16_384));
    world.put("over.txt", "x".repeat(16_385));
    let registry = world.registry().await;
    let whole = CallOutcome::of(&registry, "file_read", json!({"path": "limit.txt"})).await;
    assert_eq!((whole.text().len(), whole.0.truncated), (16_384, false));
    let cut = CallOutcome::of(&registry, "file_read", json!({"path": "over.txt"})).await;
    assert!(cut.text().ends_with("x\n[output truncated — original size: 16,385 bytes]"));
}
