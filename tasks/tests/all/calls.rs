//! The requirements of the specification: which blocks are calls, and what happens with their results.

use std::sync::{Arc, atomic::Ordering};

use portcullis_tasks::{ReportedStatus, limits::MAX_CONCURRENT_CALLS};
use portcullis_types::{CancellationToken, ToolError, ToolOutput};
use serde_json::json;

use crate::world::{Runner, World, call, text_of};

/// The two examples of the specification, verbatim.
const EXAMPLES: &str = r#"# Task

```json
{
  "tool_call": {
    "name": "search_web",
    "parameters": {
      "query": "latest developments in AI agents",
      "num_results": 3
    }
  }
}
```

```json
{
  "tool_call": {
    "name": "send_notification",
    "parameters": {
      "recipient": "user@example.com",
      "subject": "Task Update",
      "body": "The task has been completed successfully.",
      "method": "email"
    }
  }
}
```
"#;

#[tokio::test]
async fn the_specifications_examples_run_in_order_to_the_end() {
    let world = World::new();
    world.write("01_Inbox/a.md", EXAMPLES);
    let runner = Arc::new(Runner::new(|call| {
        Ok(ToolOutput::structured(match &*call.call.tool {
            "search_web" => json!({ "results": [{ "title": "t", "url": "u", "snippet": "s" }] }),
            _ => json!({ "success": true, "message_id": "m" }),
        }))
    }));
    let reports = world.run(&runner).await;
    assert_eq!(runner.effects(), ["search_web ", "send_notification "]);
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].moved_to.as_deref(), Some("07_Done"));
    let text = world.read("07_Done/a.md");
    assert!(text.contains("\"results\":[{\"snippet\":\"s\",\"title\":\"t\",\"url\":\"u\"}]"), "{text}");
    assert!(text.contains("\"message_id\":\"m\""), "{text}");
    assert_eq!(text.matches("\"status\":\"success\",\"started\"").count(), 2, "{text}");
    let seen = runner.seen.lock().expect("no panic");
    assert!(seen[0].labels.is_empty());
    assert_eq!(seen[1].labels, ["web".to_owned()].into(), "the labels of the first call");
}

#[tokio::test]
async fn a_failure_is_recorded_and_the_other_calls_run() {
    let world = World::new();
    world.write(
        "01_Inbox/a.md",
        &[call("a", "1"), call("b", "2"), call("unknown", "3"), call("a", "4")].concat(),
    );
    let runner = Arc::new(Runner::new(|call| match &*call.call.tool {
        "b" => Err(ToolError::timeout("too slow").with_hint("ask for less")),
        _ => Ok(ToolOutput::text(text_of(call))),
    }));
    let reports = world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 1", "b 2", "a 4"]);
    let text = world.read("02_Needs_Action/a.md");
    for part in
        ["\"code\":\"timeout\"", "\"hint\":\"ask for less\"", "\"code\":\"not_found\"", "there is no tool"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let failed = reports[0].calls.iter().filter(|call| matches!(call.status, ReportedStatus::Failed { .. }));
    assert_eq!(failed.count(), 2);
}

#[tokio::test]
async fn only_broken_calls_hold_up_a_task() {
    let world = World::new();
    let data = "```json\n{\"a\": 1}\n```\n```json\n// comment\n```\n```js\n{\"tool_call\": 1}\n```\n";
    world.write("01_Inbox/data.md", &format!("{data}{}", call("a", "1")));
    world.write("01_Inbox/only.md", data);
    let broken = "```json\n{\"tool_call\": {\"name\": \"a\"}}\n```\n```json\n{\"tool_call\": {\n```\n";
    world.write("01_Inbox/broken.md", &format!("{broken}{}", call("a", "2")));
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    let mut effects = runner.effects();
    effects.sort();
    assert_eq!(effects, ["a 1", "a 2"]);
    assert!(world.has("07_Done/data.md"));
    assert_eq!(world.read("01_Inbox/only.md"), data, "a file without calls stays as it is");
    let text = world.read("02_Needs_Action/broken.md");
    assert!(text.contains("malformed_call") && text.contains("malformed_json"), "{text}");
    assert!(text.contains("missing field \\u0060parameters\\u0060"), "{text}");
}

#[tokio::test]
async fn a_call_runs_once_however_often_its_file_is_read() {
    let world = World::new();
    world.write("01_Inbox/a.md", &format!("{}{}", call("a", "1"), call("a", "1")));
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    for _time in 0..3 {
        world.moved("07_Done/a.md", "01_Inbox/a.md");
        world.run(&runner).await;
    }
    assert_eq!(runner.effects(), ["a 1", "a 1"], "each of the two equal blocks once");
    // An added block runs at any position.
    let text = world.read("07_Done/a.md");
    let (front, body) = text.split_at(text.find("```json").expect("a block"));
    world.write("01_Inbox/a.md", &format!("{front}{}\n{body}", call("a", "2")));
    world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 1", "a 1", "a 2"]);
}

#[tokio::test]
async fn a_corrected_block_runs_and_the_task_is_done() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("unknown", "1"));
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    let corrected = world.read("02_Needs_Action/a.md").replace("\"name\":\"unknown\"", "\"name\":\"a\"");
    world.write("01_Inbox/a.md", &corrected);
    world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 1"]);
    assert!(world.has("07_Done/a.md"));
}

#[tokio::test]
async fn removed_control_characters_are_noted_in_the_file() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("a", "x\u{1b}[31m\u{202e}y"));
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    assert_eq!(runner.effects(), ["a x[31my"]);
    let text = world.read("07_Done/a.md");
    assert_eq!(text.matches("\"sanitized\":[\"text\"]").count(), 2, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_ten_calls_run_at_the_same_time() {
    let world = World::new();
    for number in 0..3 * MAX_CONCURRENT_CALLS {
        world.write(&format!("01_Inbox/{number:02}.md"), &call("a", "x"));
    }
    // Each call waits until ten are running, or until no more can start.
    let (entered, all) = (Arc::new(std::sync::Mutex::new(0)), Arc::new(std::sync::Condvar::new()));
    let runner = Arc::new(Runner::new(move |_call| {
        let mut count = entered.lock().expect("no panic");
        *count += 1;
        all.notify_all();
        drop(all.wait_while(count, |count| *count < MAX_CONCURRENT_CALLS).expect("no panic"));
        Ok(ToolOutput::text(""))
    }));
    world.run(&runner).await;
    assert_eq!(runner.effects().len(), 3 * MAX_CONCURRENT_CALLS);
    assert_eq!(runner.most_running.load(Ordering::SeqCst), MAX_CONCURRENT_CALLS);
}

#[tokio::test]
async fn unchanged_files_are_not_read_again() {
    let world = World::new();
    for number in 0..50 {
        world.write(&format!("01_Inbox/{number}.md"), "# Notes\n\n```json\n{\"a\": 1}\n```\n");
    }
    let runner = Arc::new(Runner::echo());
    let processor = world.processor(&runner);
    assert!(processor.run_once(&CancellationToken::new()).await.expect("runs").is_empty());
    world.write("01_Inbox/7.md", &call("a", "1"));
    let reports = processor.run_once(&CancellationToken::new()).await.expect("runs");
    assert_eq!(reports.iter().map(|report| &*report.name).collect::<Vec<_>>(), ["7.md"]);
}

#[tokio::test]
async fn after_a_cancellation_no_further_call_begins() {
    let world = World::new();
    world.write("01_Inbox/a.md", &format!("{}{}", call("a", "1"), call("a", "2")));
    let cancel = CancellationToken::new();
    let cancelled = cancel.clone();
    let runner = Arc::new(Runner::new(move |_call| {
        cancelled.cancel();
        Err(ToolError::cancelled("the call was cancelled"))
    }));
    world.processor(&runner).run_once(&cancel).await.expect("runs");
    assert_eq!(runner.effects(), ["a 1"]);
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 2"]);
}
