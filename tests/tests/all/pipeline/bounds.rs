//! Oversized results of every kind, as the caller, a client and the log get them.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::{
    Caller, ToolResult,
    approval::{ApprovalAnswer, ApprovalRequest, Approver, AttributedAnswer},
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
    support::{
        Spy, caller, caller_asking, fixture_enabling, native_registry, output_limit, raw_call, with_commas,
    },
};

/// The upper bound of one result in every form: the limit, its marks, and the frame. The tools here return
/// far more than this.
const MAX_RESULT_BYTES: usize = 20_000;

const LONG: usize = 3_000_000;

fn long_text() -> String {
    "QUJD".repeat(LONG / 4)
}

/// Creates a block for each field of each kind of content, with an overlong value of that field.
fn overlong_blocks() -> Vec<Value> {
    let long = long_text();
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

fn spy_returning(output: ToolOutput) -> Spy {
    Spy::new("spy", move |_, _| {
        let output = output.clone();
        async move { Ok(output) }
    })
}

fn bytes_of(result: &ToolResult) -> usize {
    let output = result.outcome.output().expect("a result");
    serde_json::to_string(output).expect("encodes").len() + result.details.to_string().len()
}

/// Reads all pages of a result's stored output.
async fn all_stored_pages(
    registry: &portcullis_tools::ToolRegistry,
    result: &ToolResult,
    caller: &Caller,
) -> String {
    let (mut all_text, mut offset) = (String::new(), 0);
    loop {
        let arguments = json!({"call_id": result.details["output_id"], "offset": offset, "limit": 1 << 20});
        let page =
            registry.execute_with_policy(raw_call("output_read", &arguments.to_string()), caller).await;
        all_text.push_str(&page.model_text());
        match page.details["next_offset"].as_u64() {
            Some(next) => offset = next,
            None => return all_text,
        }
    }
}

#[tokio::test]
async fn the_limit_holds_for_every_field_of_every_kind_of_content() {
    for block in overlong_blocks() {
        let fixture = fixture_enabling(&["spy"]);
        let kind = block["type"].as_str().expect("a kind").to_owned();
        let output = ToolOutput { content: content(json!([block])), ..ToolOutput::default() };
        let size = output.content_bytes();
        let registry = native_registry(&fixture, [spy_returning(output)]);
        let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await;
        let sent = bytes_of(&result);
        assert!(sent < MAX_RESULT_BYTES, "{kind}: {sent} bytes left");
        assert_eq!((result.truncated, result.original_bytes), (true, size as u64), "{kind}");
        let row = fixture.rows().pop().expect("a row");
        assert_eq!((row.bytes_out, row.truncated), (Some(size as u64), Some(true)), "{kind}");
        let mark = "[output truncated — original size: 3,000,0";
        assert!(result.model_text().contains(mark), "{kind}: {}", result.model_text());
        assert!(all_stored_pages(&registry, &result, &caller()).await.contains(&long_text()), "{kind}");
    }
}

#[tokio::test]
async fn many_small_blocks_are_as_bounded_as_one_long_one() {
    for block in [json!({"type": "text", "text": ""}), json!({"type": "image", "data": "", "mimeType": ""})] {
        let fixture = fixture_enabling(&["spy"]);
        let output = ToolOutput { content: content(json!(vec![block; 100_000])), ..ToolOutput::default() };
        let registry = native_registry(&fixture, [spy_returning(output)]);
        let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await;
        assert!(result.truncated);
        assert!(bytes_of(&result) < MAX_RESULT_BYTES, "{} bytes left", bytes_of(&result));
    }
}

#[tokio::test]
async fn too_large_data_and_details_are_withheld_with_a_note() {
    let fixture = fixture_enabling(&["spy"]);
    let data = json!({"rows": long_text()});
    let output = ToolOutput {
        content: vec![Content::text("ok")],
        details: json!({"trace": long_text()}),
        structured: Some(data.clone()),
    };
    let registry = native_registry(&fixture, [spy_returning(output)]);
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await;
    assert!(bytes_of(&result) < MAX_RESULT_BYTES, "{} bytes left", bytes_of(&result));
    let size = data.to_string().len();
    assert_eq!(result.outcome.output().expect("a result").structured, None);
    assert_eq!(result.details["withheld"]["structured"], size);
    assert!(result.details["withheld"]["details"].as_u64().is_some_and(|bytes| bytes > LONG as u64));
    assert_eq!(result.model_text(), "ok\n[structured result withheld — its size: 3,000,011 bytes]");
    assert!(result.truncated && result.original_bytes > 2 * LONG as u64);
    let row = fixture.rows().pop().expect("a row");
    assert_eq!((row.bytes_out, row.truncated), (Some(result.original_bytes), Some(true)));
    assert!(all_stored_pages(&registry, &result, &caller()).await.ends_with(&data.to_string()));
}

#[tokio::test]
async fn a_native_tools_result_has_a_ceiling_whatever_it_is_made_of() {
    let huge = "x".repeat(9 << 20);
    for output in [
        ToolOutput::text(huge.clone()),
        ToolOutput { structured: Some(json!(huge)), ..ToolOutput::default() },
        ToolOutput { details: json!(huge), ..ToolOutput::text("ok") },
    ] {
        let fixture = fixture_enabling(&["spy"]);
        let registry = native_registry(&fixture, [spy_returning(output)]);
        let message = CallOutcome::run(&registry, "spy", json!({}))
            .await
            .assert_refused(ResourceLimit, "result_too_large");
        assert!(message.contains("at most 8,388,608 are accepted"), "{message}");
    }
}

#[tokio::test]
async fn errors_reports_and_notes_on_arguments_are_bounded() {
    let fixture = fixture_enabling(&["spy"]);
    let spy = Spy::new("spy", |ctx, _| async move {
        ctx.progress(long_text());
        ctx.update(ToolOutput {
            content: content(json!(overlong_blocks())),
            ..ToolOutput::structured(json!(long_text()))
        });
        Err(ToolError::failed(long_text()).with_hint(long_text()).with_code(long_text()))
    });
    let registry = native_registry(&fixture, [spy]);
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let mut caller = caller();
    let (progress, updates) = (Arc::clone(&sizes), Arc::clone(&sizes));
    caller.on_progress = Some(Arc::new(move |text| progress.lock().expect("not poisoned").push(text.len())));
    caller.on_update = Some(Arc::new(move |partial| {
        let bytes = serde_json::to_string(&partial).expect("encodes").len();
        updates.lock().expect("not poisoned").push(bytes);
    }));
    let fields: serde_json::Map<String, Value> =
        (0..9_000).map(|number| (format!("unknown_{number:0>80}"), Value::Null)).collect();
    let result =
        registry.execute_with_policy(raw_call("spy", &Value::from(fields).to_string()), &caller).await;
    let sizes = sizes.lock().expect("not poisoned").clone();
    assert!(sizes.len() == 2 && sizes.iter().all(|bytes| *bytes < MAX_RESULT_BYTES), "{sizes:?}");
    assert!(result.details["ignored"].is_array());
    assert!(result.details.to_string().len() < MAX_RESULT_BYTES, "{}", result.details.to_string().len());
    let error = result.into_result().expect_err("failed");
    assert_eq!(error.kind(), Failed);
    assert!(error.for_model().len() + error.code().len() < MAX_RESULT_BYTES);
}

/// Adds an image to every result.
struct ImageAddingHook;

#[async_trait]
impl CallHook for ImageAddingHook {
    async fn after(
        &self,
        _call: &HookedCall,
        outcome: Result<ToolOutput, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        let mut output = outcome?;
        output.content.push(Content::Image { data: long_text(), mime_type: "image/png".into() });
        Ok(output)
    }
}

#[tokio::test]
async fn content_added_by_a_hook_is_bounded_on_a_page_too() {
    let fixture = Fixture::new();
    fixture.put("long.txt", "x".repeat(20_000));
    let registry =
        fixture.builder().await.expect("bootstraps").hook(ImageAddingHook).build().expect("builds");
    let read = raw_call("file_read", r#"{"path":"long.txt"}"#);
    let result = registry.execute_with_policy(read, &caller()).await;
    assert!(bytes_of(&result) < MAX_RESULT_BYTES, "{} bytes left", bytes_of(&result));
    let page = json!({"call_id": result.details["output_id"]});
    let page = registry.execute_with_policy(raw_call("output_read", &page.to_string()), &caller()).await;
    assert!(page.truncated && bytes_of(&page) < MAX_RESULT_BYTES, "{} bytes left", bytes_of(&page));
}

#[tokio::test]
async fn a_module_without_any_grant_gets_no_more_out_by_another_kind() {
    let resource = json!([{"type": "resource", "uri": "x:1", "text": long_text()}]);
    for (frame, size) in [
        (json!({"ok": {"content": resource}}), LONG + 3),
        (
            json!({"ok": {"content": [{"type": "text", "text": "ok"}], "structured": long_text()}}),
            LONG + 2 + 2,
        ),
    ] {
        let fixture =
            Fixture::new().with_policy("[tools.wordy]\nprofile = \"Nothing\"\napproval = \"allow\"\n");
        let mut guest = WatGuest::new("wordy");
        let frame = format!("{frame}\n");
        let escaped: String = frame.bytes().map(|byte| format!("\\{byte:02x}")).collect();
        guest.memory = "(memory (export \"memory\") 64)".to_owned();
        guest.fields = format!("(data (i32.const 65536) \"{escaped}\")");
        // One host call writes only a part of the frame, so the guest loops.
        guest.fields += "(global $at (mut i32) (i32.const 65536))";
        guest.call = format!(
            "(loop $more
                (call $say (global.get $at) (i32.sub (i32.const {end}) (global.get $at)))
                (global.set $at (i32.add (global.get $at) (i32.load (i32.const 8))))
                (br_if $more (i32.lt_u (global.get $at) (i32.const {end}))))",
            end = 65_536 + frame.len()
        );
        let registry = guest.registry(&fixture).await;
        let result = registry.execute_with_policy(new_call("wordy", "{}"), &approving_caller()).await;
        assert!(bytes_of(&result) < MAX_RESULT_BYTES, "{} bytes left", bytes_of(&result));
        assert_eq!((result.truncated, result.original_bytes), (true, size as u64));
        let row = fixture.rows().pop().expect("a row");
        assert_eq!((row.bytes_out, row.truncated), (Some(size as u64), Some(true)));
    }
}

#[tokio::test]
async fn a_file_longer_than_one_result_tells_the_model_so() {
    let fixture = Fixture::new();
    let line = "a line of text that is the same as all the others\n";
    let text = line.repeat(5_568_890 / line.len() + 1);
    fixture.put("big.txt", &text);
    let registry = fixture.registry().await;
    let result =
        registry.execute_with_policy(raw_call("file_read", r#"{"path":"big.txt"}"#), &caller()).await;
    let answer_text = result.model_text();
    let mark = format!("[output truncated — original size: {} bytes]", with_commas(text.len()));
    let limit = output_limit();
    let offset_text = format!(
        "[this is not the end: of the file's {} bytes these are 0 to {}; read on with `byte_offset` {limit}]",
        with_commas(text.len()),
        with_commas(limit)
    );
    assert!(
        answer_text.starts_with(&text[..limit])
            && answer_text.contains(&mark)
            && answer_text.contains(&offset_text),
        "{}",
        &answer_text[limit - 384..]
    );
    // A model that follows the hint reads every byte, and never takes a part for the whole.
    let next_offset = next_offset_in(&answer_text);
    assert_eq!(answer_text.split_once("\n[output truncated").expect("a mark").0, &text[..next_offset]);
    let hint = result.rest_hint().expect("a hint");
    assert!(hint.starts_with("[up to byte ") && !hint.contains("whole"), "{hint}");
    let rest_arguments = json!({"path": "big.txt", "byte_offset": next_offset}).to_string();
    let second = registry.execute_with_policy(raw_call("file_read", &rest_arguments), &caller()).await;
    let second = second.model_text();
    assert!(second.starts_with(&text[next_offset..next_offset + limit]), "{}", &second[..100]);
    assert_eq!(next_offset_in(&second), next_offset + limit);
    assert_eq!((result.truncated, result.original_bytes), (true, text.len() as u64));
    // The stored part ends with the same hint, and a read from that offset returns exactly the rest of the
    // file.
    let stored_text = all_stored_pages(&registry, &result, &caller()).await;
    let (beginning, note) = stored_text.rsplit_once("\n[this is not the end").expect("a note at the end");
    let next = next_offset_in(note);
    assert_eq!(beginning, &text[..next]);
    let arguments = json!({"path": "big.txt", "byte_offset": next}).to_string();
    let rest = registry.execute_with_policy(raw_call("file_read", &arguments), &caller()).await;
    assert_eq!(rest.original_bytes, (text.len() - next) as u64);
    assert!(!rest.model_text().contains("not the end"));
}

/// Returns the offset that a hint names.
fn next_offset_in(hint_text: &str) -> usize {
    let (_, offset_text) = hint_text.rsplit_once("read on with `byte_offset` ").expect("an offset");
    offset_text.trim_end_matches(']').parse().expect("a number")
}

#[tokio::test]
async fn a_page_says_beside_its_text_where_the_next_one_begins() {
    let fixture = Fixture::new();
    let limit = output_limit();
    let len = 2 * limit + 1000;
    fixture.put("long.txt", "x".repeat(len));
    let registry = fixture.registry().await;
    let result =
        registry.execute_with_policy(raw_call("file_read", r#"{"path":"long.txt"}"#), &caller()).await;
    let page = async |offset: usize| {
        let arguments = json!({"call_id": result.details["output_id"], "offset": offset}).to_string();
        let page = registry.execute_with_policy(raw_call("output_read", &arguments), &caller()).await;
        assert!(page.model_text().bytes().all(|byte| byte == b'x'), "the page is exact");
        page.rest_hint().expect("a hint")
    };
    let (end, whole) = (with_commas(limit), with_commas(len));
    let next = format!("[bytes 0 to {end} of {whole}: `output_read` with `offset` {limit} reads on]");
    assert_eq!(page(0).await, next);
    let begin = with_commas(2 * limit);
    assert_eq!(page(2 * limit).await, format!("[bytes {begin} to {whole} of {whole}: the end]"));
}

/// Approves after a delay.
struct SlowApprover;

const APPROVAL_DELAY: Duration = Duration::from_millis(300);

#[async_trait]
impl Approver for SlowApprover {
    async fn decide(&self, _request: &ApprovalRequest) -> AttributedAnswer {
        // The future never completes, so this waits for the whole time.
        let _nothing = tokio::time::timeout(APPROVAL_DELAY, std::future::pending::<()>()).await;
        ApprovalAnswer::Approve.into()
    }
}

#[tokio::test]
async fn a_calls_time_is_without_the_wait_for_its_approver() {
    let fixture = fixture_enabling(&["spy"]);
    let registry = native_registry(&fixture, [Spy::repeating("spy").requiring_approval()]);
    let began = Instant::now();
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller_asking(SlowApprover)).await;
    let total_time = began.elapsed();
    assert!(result.outcome.is_output());
    assert!(result.duration + APPROVAL_DELAY <= total_time, "{:?} of {total_time:?}", result.duration);
    let row = fixture.rows().pop().expect("a row");
    assert!(
        row.duration_us.is_some_and(|took| Duration::from_micros(took) + APPROVAL_DELAY <= total_time),
        "{row:#?}"
    );
}
