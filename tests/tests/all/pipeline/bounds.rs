//! Oversized results of every kind, as the caller, a client and the log get them.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use portcullis_testing::{CallOutcome, World, approving};
use portcullis_tools::{
    Caller, ToolResult,
    approval::{ApprovalAnswer, ApprovalRequest, Approver},
    hook::{CallHook, HookedCall},
    new_call,
};
use portcullis_types::{
    Content, ToolError,
    ToolErrorKind::{Failed, ResourceLimit},
    ToolOutput,
};
use serde_json::{Value, json};

use crate::{
    hostile::wat_guest::WatGuest,
    support::{Spy, asking, caller, natives, raw, world_enabling},
};

/// Upper bound of one result on any way out: the limit, its marks, and the frame. Far below the output of the
/// tools here.
const AT_MOST: usize = 20_000;

const LONG: usize = 3_000_000;

fn long() -> String {
    "QUJD".repeat(LONG / 4)
}

/// One block for each field of each kind of content, with that field too long.
fn blocks() -> Vec<Value> {
    let long = long();
    vec![
        json!({"type": "text", "text": long}),
        json!({"type": "image", "data": long, "mimeType": "image/png"}),
        json!({"type": "image", "data": "AA==", "mimeType": long}),
        json!({"type": "audio", "data": long, "mimeType": "audio/wav"}),
        json!({"type": "audio", "data": "AA==", "mimeType": long}),
        json!({"type": "resource", "uri": "file:///x", "text": long}),
        json!({"type": "resource", "uri": "file:///x", "blob": long}),
        json!({"type": "resource", "uri": long, "text": "t"}),
        json!({"type": "resource", "uri": "file:///x", "mimeType": long, "text": "t"}),
        json!({"type": "resource_link", "uri": long, "name": "n"}),
        json!({"type": "resource_link", "uri": "file:///x", "name": long}),
        json!({"type": "resource_link", "uri": "file:///x", "name": "n", "description": long}),
        json!({"type": "resource_link", "uri": "file:///x", "name": "n", "mimeType": long}),
    ]
}

fn content(blocks: Value) -> Vec<Content> {
    serde_json::from_value(blocks).expect("content")
}

/// A tool that returns this output.
fn giving(output: ToolOutput) -> Spy {
    Spy::new("spy", move |_, _| {
        let output = output.clone();
        async move { Ok(output) }
    })
}

fn bytes_of(result: &ToolResult) -> usize {
    let output = result.outcome.as_ref().expect("a result");
    serde_json::to_string(output).expect("encodes").len() + result.details.to_string().len()
}

/// All pages of a result's stored output.
async fn kept(registry: &portcullis_tools::ToolRegistry, result: &ToolResult, caller: &Caller) -> String {
    let (mut whole, mut offset) = (String::new(), 0);
    loop {
        let arguments = json!({"call_id": result.details["output_id"], "offset": offset, "limit": 1 << 20});
        let page = registry.execute_with_policy(raw("output_read", &arguments.to_string()), caller).await;
        whole.push_str(&page.model_text());
        match page.details["next_offset"].as_u64() {
            Some(next) => offset = next,
            None => return whole,
        }
    }
}

#[tokio::test]
async fn the_limit_holds_for_every_field_of_every_kind_of_content() {
    for block in blocks() {
        let world = world_enabling(&["spy"]);
        let kind = block["type"].as_str().expect("a kind").to_owned();
        let output = ToolOutput { content: content(json!([block])), ..ToolOutput::default() };
        let size = output.content_bytes();
        let registry = natives(&world, [giving(output)]);
        let result = registry.execute_with_policy(raw("spy", "{}"), &caller()).await;
        let sent = bytes_of(&result);
        assert!(sent < AT_MOST, "{kind}: {sent} bytes left");
        assert_eq!((result.truncated, result.original_bytes), (true, size as u64), "{kind}");
        let row = world.rows().pop().expect("a row");
        assert_eq!((row.bytes_out, row.truncated), (Some(size as u64), Some(true)), "{kind}");
        let mark = "[output truncated — original size: 3,000,0";
        assert!(result.model_text().contains(mark), "{kind}: {}", result.model_text());
        assert!(kept(&registry, &result, &caller()).await.contains(&long()), "{kind}");
    }
}

#[tokio::test]
async fn many_small_blocks_are_as_bounded_as_one_long_one() {
    for block in [json!({"type": "text", "text": ""}), json!({"type": "image", "data": "", "mimeType": ""})] {
        let world = world_enabling(&["spy"]);
        let output = ToolOutput { content: content(json!(vec![block; 100_000])), ..ToolOutput::default() };
        let registry = natives(&world, [giving(output)]);
        let result = registry.execute_with_policy(raw("spy", "{}"), &caller()).await;
        assert!(result.truncated);
        assert!(bytes_of(&result) < AT_MOST, "{} bytes left", bytes_of(&result));
    }
}

#[tokio::test]
async fn data_and_details_over_their_limits_are_withheld_and_said() {
    let world = world_enabling(&["spy"]);
    let data = json!({"rows": long()});
    let output = ToolOutput {
        content: vec![Content::text("ok")],
        details: json!({"trace": long()}),
        structured: Some(data.clone()),
    };
    let registry = natives(&world, [giving(output)]);
    let result = registry.execute_with_policy(raw("spy", "{}"), &caller()).await;
    assert!(bytes_of(&result) < AT_MOST, "{} bytes left", bytes_of(&result));
    let size = data.to_string().len();
    assert_eq!(result.outcome.as_ref().expect("a result").structured, None);
    assert_eq!(result.details["withheld"]["structured"], size);
    assert!(result.details["withheld"]["details"].as_u64().is_some_and(|bytes| bytes > LONG as u64));
    assert_eq!(result.model_text(), "ok\n[structured result withheld — its size: 3,000,011 bytes]");
    assert!(result.truncated && result.original_bytes > 2 * LONG as u64);
    let row = world.rows().pop().expect("a row");
    assert_eq!((row.bytes_out, row.truncated), (Some(result.original_bytes), Some(true)));
    assert!(kept(&registry, &result, &caller()).await.ends_with(&data.to_string()));
}

#[tokio::test]
async fn a_native_tools_result_has_a_ceiling_whatever_it_is_made_of() {
    let huge = "x".repeat(9 << 20);
    for output in [
        ToolOutput::text(huge.clone()),
        ToolOutput { structured: Some(json!(huge)), ..ToolOutput::default() },
        ToolOutput { details: json!(huge), ..ToolOutput::text("ok") },
    ] {
        let world = world_enabling(&["spy"]);
        let registry = natives(&world, [giving(output)]);
        let said =
            CallOutcome::of(&registry, "spy", json!({})).await.refused(ResourceLimit, "result_too_large");
        assert!(said.contains("at most 8,388,608 are taken"), "{said}");
    }
}

#[tokio::test]
async fn errors_reports_and_notes_on_arguments_are_bounded() {
    let world = world_enabling(&["spy"]);
    let spy = Spy::new("spy", |ctx, _| async move {
        ctx.progress(long());
        ctx.update(ToolOutput { content: content(json!(blocks())), ..ToolOutput::structured(json!(long())) });
        Err(ToolError::failed(long()).with_hint(long()).with_code(long()))
    });
    let registry = natives(&world, [spy]);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let mut caller = caller();
    let (progress, updates) = (Arc::clone(&heard), Arc::clone(&heard));
    caller.on_progress = Some(Arc::new(move |text| progress.lock().expect("not poisoned").push(text.len())));
    caller.on_update = Some(Arc::new(move |partial| {
        let bytes = serde_json::to_string(&partial).expect("encodes").len();
        updates.lock().expect("not poisoned").push(bytes);
    }));
    let fields: serde_json::Map<String, Value> =
        (0..9_000).map(|number| (format!("unknown_{number:0>80}"), Value::Null)).collect();
    let result = registry.execute_with_policy(raw("spy", &Value::from(fields).to_string()), &caller).await;
    let heard = heard.lock().expect("not poisoned").clone();
    assert!(heard.len() == 2 && heard.iter().all(|bytes| *bytes < AT_MOST), "{heard:?}");
    assert!(result.details["ignored"].is_array());
    assert!(result.details.to_string().len() < AT_MOST, "{}", result.details.to_string().len());
    let error = result.outcome.expect_err("failed");
    assert_eq!(error.kind(), Failed);
    assert!(error.for_model().len() + error.code().len() < AT_MOST);
}

/// Adds an image to every result.
struct Illustrator;

#[async_trait]
impl CallHook for Illustrator {
    async fn after(
        &self,
        _call: &HookedCall,
        outcome: Result<ToolOutput, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        let mut output = outcome?;
        output.content.push(Content::Image { data: long(), mime_type: "image/png".into() });
        Ok(output)
    }
}

#[tokio::test]
async fn content_added_by_a_hook_is_bounded_on_a_page_too() {
    let world = World::new();
    world.put("long.txt", "x".repeat(20_000));
    let registry = world.builder().await.expect("bootstraps").hook(Illustrator).build().expect("builds");
    let read = raw("file_read", r#"{"path":"long.txt"}"#);
    let result = registry.execute_with_policy(read, &caller()).await;
    assert!(bytes_of(&result) < AT_MOST, "{} bytes left", bytes_of(&result));
    let page = json!({"call_id": result.details["output_id"]});
    let page = registry.execute_with_policy(raw("output_read", &page.to_string()), &caller()).await;
    assert!(page.truncated && bytes_of(&page) < AT_MOST, "{} bytes left", bytes_of(&page));
}

#[tokio::test]
async fn a_module_without_any_grant_gets_no_more_out_by_another_kind() {
    let resource = json!([{"type": "resource", "uri": "x:1", "text": long()}]);
    for (frame, size) in [
        (json!({"ok": {"content": resource}}), LONG + 3),
        (json!({"ok": {"content": [{"type": "text", "text": "ok"}], "structured": long()}}), LONG + 2 + 2),
    ] {
        let world = World::new().with_policy("[tools.wordy]\nprofile = \"Nothing\"\napproval = \"allow\"\n");
        let mut guest = WatGuest::new("wordy");
        let frame = format!("{frame}\n");
        let escaped: String = frame.bytes().map(|byte| format!("\\{byte:02x}")).collect();
        guest.memory = "(memory (export \"memory\") 64)".to_owned();
        guest.fields = format!("(data (i32.const 65536) \"{escaped}\")");
        // One host call takes only a part of it.
        guest.fields += "(global $at (mut i32) (i32.const 65536))";
        guest.call = format!(
            "(loop $more
                (call $say (global.get $at) (i32.sub (i32.const {end}) (global.get $at)))
                (global.set $at (i32.add (global.get $at) (i32.load (i32.const 8))))
                (br_if $more (i32.lt_u (global.get $at) (i32.const {end}))))",
            end = 65_536 + frame.len()
        );
        let registry = guest.registry(&world).await;
        let result = registry.execute_with_policy(new_call("wordy", "{}"), &approving()).await;
        assert!(bytes_of(&result) < AT_MOST, "{} bytes left", bytes_of(&result));
        assert_eq!((result.truncated, result.original_bytes), (true, size as u64));
        let row = world.rows().pop().expect("a row");
        assert_eq!((row.bytes_out, row.truncated), (Some(size as u64), Some(true)));
    }
}

#[tokio::test]
async fn a_file_longer_than_one_result_tells_the_model_so() {
    let world = World::new();
    let line = "a line of text that is the same as all the others\n";
    let text = line.repeat(5_568_890 / line.len() + 1);
    world.put("big.txt", &text);
    let registry = world.registry().await;
    let result = registry.execute_with_policy(raw("file_read", r#"{"path":"big.txt"}"#), &caller()).await;
    let said = result.model_text();
    let mark = format!("[output truncated — original size: {} bytes]", commas(text.len()));
    let on = format!(
        "[this is not the end: of the file's {} bytes these are 0 to 16,384; read on with `byte_offset` 16384]",
        commas(text.len())
    );
    assert!(
        said.starts_with(&text[..16_384]) && said.contains(&mark) && said.contains(&on),
        "{}",
        &said[16_000..]
    );
    // A model that follows the hint reads every byte, and never takes a part for the whole.
    let told = read_on(&said);
    assert_eq!(said.split_once("\n[output truncated").expect("a mark").0, &text[..told]);
    let hint = result.rest_hint().expect("a hint");
    assert!(hint.starts_with("[up to byte ") && !hint.contains("whole"), "{hint}");
    let from_there = json!({"path": "big.txt", "byte_offset": told}).to_string();
    let second = registry.execute_with_policy(raw("file_read", &from_there), &caller()).await;
    let second = second.model_text();
    assert!(second.starts_with(&text[told..told + 16_384]), "{}", &second[..100]);
    assert_eq!(read_on(&second), told + 16_384);
    assert_eq!((result.truncated, result.original_bytes), (true, text.len() as u64));
    // The end of the stored part has the same hint, and reading on from there gives the rest of the file
    // exactly.
    let kept = kept(&registry, &result, &caller()).await;
    let (beginning, note) = kept.rsplit_once("\n[this is not the end").expect("a note at the end");
    let next = read_on(note);
    assert_eq!(beginning, &text[..next]);
    let arguments = json!({"path": "big.txt", "byte_offset": next}).to_string();
    let rest = registry.execute_with_policy(raw("file_read", &arguments), &caller()).await;
    assert_eq!(rest.original_bytes, (text.len() - next) as u64);
    assert!(!rest.model_text().contains("not the end"));
}

/// The offset at which a text says to read on.
fn read_on(said: &str) -> usize {
    let (_, on) = said.rsplit_once("read on with `byte_offset` ").expect("an offset");
    on.trim_end_matches(']').parse().expect("a number")
}

#[tokio::test]
async fn a_page_says_beside_its_text_where_the_next_one_begins() {
    let world = World::new();
    world.put("long.txt", "x".repeat(40_000));
    let registry = world.registry().await;
    let result = registry.execute_with_policy(raw("file_read", r#"{"path":"long.txt"}"#), &caller()).await;
    let page = async |offset: u64| {
        let arguments = json!({"call_id": result.details["output_id"], "offset": offset}).to_string();
        let page = registry.execute_with_policy(raw("output_read", &arguments), &caller()).await;
        assert!(page.model_text().bytes().all(|byte| byte == b'x'), "the page is exact");
        page.rest_hint().expect("a hint")
    };
    let next = "[bytes 0 to 16,384 of 40,000: `output_read` with `offset` 16384 reads on]";
    assert_eq!(page(0).await, next);
    assert_eq!(page(32_768).await, "[bytes 32,768 to 40,000 of 40,000: the end]");
}

fn commas(number: usize) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|part| str::from_utf8(part).expect("ASCII")).collect();
    parts.join(",")
}

/// Approves after a delay.
struct Slow;

const SLOW: Duration = Duration::from_millis(300);

#[async_trait]
impl Approver for Slow {
    async fn decide(&self, _request: &ApprovalRequest) -> ApprovalAnswer {
        // The future never completes, so this waits for the whole time.
        let _nothing = tokio::time::timeout(SLOW, std::future::pending::<()>()).await;
        ApprovalAnswer::Approve
    }
}

#[tokio::test]
async fn a_calls_time_is_without_the_wait_for_its_approver() {
    let world = world_enabling(&["spy"]);
    let registry = natives(&world, [Spy::repeating("spy").requiring_approval()]);
    let began = Instant::now();
    let result = registry.execute_with_policy(raw("spy", "{}"), &asking(Slow)).await;
    let all = began.elapsed();
    assert!(result.outcome.is_ok());
    assert!(result.duration + SLOW <= all, "{:?} of {all:?}", result.duration);
    let row = world.rows().pop().expect("a row");
    assert!(row.duration_us.is_some_and(|took| Duration::from_micros(took) + SLOW <= all), "{row:#?}");
}
