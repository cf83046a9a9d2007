//! Tests of a turn's calls: the time that refusals may take, and the order of events.

use futures_util::FutureExt as _;
use portcullis_types::{MessageRole, async_trait};

use super::*;
use crate::{
    AgentLoop, Delta, InMemoryMessageStore, StopReason,
    testing::{EventRecorder, Script, ScriptStep, TestAgent, ask_for, text_answer},
    transcript,
};

/// An executor that runs nothing and refuses slowly.
struct RefusingExecutor {
    takes: Duration,
    /// The ids of the calls that the executor was asked to refuse.
    refused: Mutex<Vec<String>>,
}

#[async_trait]
impl ToolExecutor for RefusingExecutor {
    fn offers(&self) -> Vec<OfferedTool> {
        Vec::new()
    }

    async fn execute(&self, call: ToolCall, _: &CallContext) -> ToolResult {
        panic!("`{}` runs", call.id)
    }

    fn refuse(&self, call: ToolCall, error: ToolError, _: &CallContext) -> ToolResult {
        self.refused.lock().push(call.id.clone());
        // The first poll advances the clock; the rest of the future would only yield to other tasks.
        let _ = tokio::time::advance(self.takes).now_or_never();
        ToolResult::without_run(call, error)
    }
}

/// Returns an answer that was cut off, so that none of its calls runs.
fn cut_off(ids: [&str; 4]) -> Vec<ScriptStep> {
    let mut steps = ask_for(&ids.map(|id| (id, "t", "{}")));
    steps.pop();
    steps.push(ScriptStep::Delta(Delta::End(StopReason::Length)));
    steps
}

/// Returns the calls that an executor was asked to refuse, out of two turns of four calls. Each refusal takes
/// this long.
async fn refusals_asked_of(takes: Duration) -> Vec<String> {
    let executor = Arc::new(RefusingExecutor { takes, refused: Mutex::default() });
    let (store, notes) = (InMemoryMessageStore::new(), EventRecorder::default());
    let script = Script::new([
        cut_off(["a1", "a2", "a3", "a4"]),
        cut_off(["b1", "b2", "b3", "b4"]),
        text_answer("well"),
    ]);
    let config = AgentConfig::new("agent");
    let mut agent = AgentLoop::new(config, notes.clone(), store.clone(), script, Arc::clone(&executor));
    assert_eq!(agent.run("go").await.answer(), Some("well"));
    let messages = store.messages();
    assert_eq!(transcript::find_fault(&messages), None, "{messages:#?}");
    let results = messages.iter().filter(|message| message.role == MessageRole::Tool);
    let results: Vec<_> = results.map(portcullis_types::Message::text).collect();
    assert_eq!(results.len(), 8);
    // The model reads the same text from a refusal of the executor and of the loop.
    assert!(results.iter().all(|result| *result == results[0] && result.contains("failed")), "{results:?}");
    let events = notes.events();
    let ended = events.iter().filter_map(|event| match event {
        AgentEvent::ToolEnd { result } => Some(result.call_id.as_str()),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"]);
    executor.refused.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn a_slow_executor_refuses_one_call_a_turn_and_all_get_results() {
    assert_eq!(refusals_asked_of(REFUSAL_TIMEOUT + Duration::from_millis(1)).await, ["a1", "b1"]);
    // An executor whose refusals take exactly the limit is asked for each.
    assert_eq!(refusals_asked_of(REFUSAL_TIMEOUT).await.len(), 8);
}

#[tokio::test]
async fn an_observer_in_the_same_task_sees_a_lone_call_before_it_runs() {
    let turns = [ask_for(&[("a", "r_echo", "{}")])];
    let (mut stage, mut events) = TestAgent::with_channel(8, AgentConfig::new("agent"), turns);
    stage.tools.never_blocks.store(true, std::sync::atomic::Ordering::SeqCst);
    let tools = stage.tools.clone();
    let watching = async {
        loop {
            let event = events.recv().await.expect("the call has an event");
            if let AgentEvent::Tool(ToolEvent::Requested { call_id, .. }) = event {
                break (call_id, tools.begun_count());
            }
        }
    };
    let (run, first_end) = futures_util::join!(stage.agent.run("go"), watching);
    assert_eq!(first_end, ("a".to_owned(), 0), "how many had begun by then");
    assert_eq!((run.answer(), stage.tools.begun_count()), (Some("done"), 1));
}
