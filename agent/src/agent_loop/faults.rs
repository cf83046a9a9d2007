//! Runs in which the model, the tools, the store or the emitter fails, or the person cancels.

use std::time::Duration;

use portcullis_types::{ToolErrorKind, ToolResult, async_trait};
use tokio::time::Instant;

use super::*;
use crate::{
    ConversationError, Delta, InMemoryMessageStore, OfferedTool, ProviderErrorKind, StopReason,
    ToolCallDelta,
    testing::{EventRecorder, Script, ScriptStep, TestAgent, Tools, ask_for, text_answer},
};

fn is_provider_error(kind: ProviderErrorKind) -> impl Fn(&AgentEnd) -> bool {
    move |end| matches!(end, AgentEnd::Provider { kind: actual, .. } if *actual == kind)
}

fn result_kinds(notes: &EventRecorder) -> Vec<Option<ToolErrorKind>> {
    let events = notes.events();
    let ends = events.iter().filter_map(|event| match event {
        AgentEvent::ToolEnd { result } => Some(result.outcome.error().map(portcullis_types::ToolError::kind)),
        _ => None,
    });
    ends.collect()
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_refuses_ends_the_run() {
    let mut stage = TestAgent::new([vec![ScriptStep::Fail(ProviderErrorKind::RateLimited)]]);
    let run = stage.run().await;
    assert!(is_provider_error(ProviderErrorKind::RateLimited)(&run.end), "{:?}", run.end);
    assert_eq!(stage.store.messages(), [Message::user("go")]);
}

#[tokio::test(start_paused = true)]
async fn no_call_of_a_broken_answer_runs_and_its_text_is_kept() {
    use ProviderErrorKind::{Incomplete, Malformed, Server, Transport};
    for (last, kind) in [
        (None, Incomplete),
        (Some(ScriptStep::Fail(Transport)), Incomplete),
        (Some(ScriptStep::Fail(Malformed)), Malformed),
        (Some(ScriptStep::Fail(Server)), Server),
        (Some(ScriptStep::Hang), Incomplete),
    ] {
        let mut steps = vec![ScriptStep::Delta(Delta::Text("I will".into()))];
        steps.extend(ask_for(&[("a", "w_echo", "{}")]));
        steps.pop();
        steps.extend(last);
        let mut stage = TestAgent::new([steps]);
        let run = stage.run().await;
        assert!(is_provider_error(kind)(&run.end), "{:?}", run.end);
        assert_eq!(stage.tools.begun_count(), 0);
        let expected_messages = [Message::user("go"), Message::assistant("I will", Vec::new())];
        assert_eq!(stage.store.messages(), expected_messages);
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_an_error_of_the_provider() {
    let waits = vec![ScriptStep::Delta(Delta::End(StopReason::ToolCalls))];
    let withheld = vec![ScriptStep::Delta(Delta::End(StopReason::ContentFilter))];
    for (steps, kind) in [(waits, ProviderErrorKind::Malformed), (withheld, ProviderErrorKind::Rejected)] {
        let mut stage = TestAgent::new([steps]);
        let run = stage.run().await;
        assert!(is_provider_error(kind)(&run.end), "{:?}", run.end);
        assert_eq!(stage.store.messages().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_end_is_given_up() {
    let text = "x".repeat(1 << 20);
    let endless = vec![ScriptStep::Delta(Delta::Text(text)); crate::MAX_RESPONSE_BYTES / (1 << 20) + 1];
    let run = TestAgent::new([endless]).run().await;
    assert!(is_provider_error(ProviderErrorKind::Malformed)(&run.end), "{:?}", run.end);
    let calls = vec![(); crate::MAX_LISTED_CALLS + 1].into_iter().enumerate().map(|(nth, ())| {
        let name = Some("r_echo".to_owned());
        ScriptStep::Delta(Delta::ToolCall(crate::ToolCallDelta {
            index: nth as u64,
            name,
            ..Default::default()
        }))
    });
    let mut stage = TestAgent::new([calls.collect()]);
    let run = stage.run().await;
    assert!(is_provider_error(ProviderErrorKind::Malformed)(&run.end), "{:?}", run.end);
    assert_eq!(stage.tools.begun_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_ends_the_run() {
    let mut stage = TestAgent::new([vec![ScriptStep::Delta(Delta::Text("oh".into())), ScriptStep::Panic]]);
    let run = stage.run().await;
    let message = "the provider panicked: the script says so".to_owned();
    assert_eq!(run.end, AgentEnd::Internal { message });
}

#[tokio::test(start_paused = true)]
async fn a_panicking_call_gets_an_internal_result_and_others_run() {
    let calls =
        [("a", "r_panic", "{}"), ("b", "r_sleep", "{}"), ("c", "w_panic", "{}"), ("d", "w_echo", "{}")];
    let mut stage = TestAgent::new([ask_for(&calls), text_answer("well")]);
    assert_eq!(stage.run().await.answer(), Some("well"));
    let internal = Some(ToolErrorKind::Internal);
    assert_eq!(result_kinds(&stage.notes), [internal, None, internal, None]);
    assert!(!stage.results()[0].contains("as asked"), "a panic's text is not the model's");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_waits_for_its_calls_and_each_has_a_result() {
    let calls = [
        ("a", "r_sleep", r#"{"ms":60000}"#),
        ("b", "r_deaf", "{}"),
        ("c", "r_echo", "{}"),
        ("d", "w_echo", "{}"),
    ];
    let mut stage = TestAgent::new([ask_for(&calls)]);
    let handle = stage.agent.handle();
    let start = Instant::now();
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        handle.cancel();
    };
    let (run, ()) = futures_util::join!(stage.run(), cancelling);
    assert_eq!(run.end, AgentEnd::Cancelled);
    // The call that ignores cancellation used the whole grace period and was then dropped.
    let took = start.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&took), "{took:?}");
    assert_eq!(stage.tools.running(), 0);
    let results = stage.results();
    assert_eq!(results[0], "Tool execution failed: the tool heard of it");
    assert_eq!(results[1], "Tool execution failed: the run was cancelled");
    assert_eq!(results[2], "{}");
    assert_eq!(results[3], "Tool execution failed: the run was cancelled before the call began");
    // The cancellation ended only that run.
    assert_eq!(stage.agent.run("again").await.answer(), Some("done"));
}

#[tokio::test(start_paused = true)]
async fn a_run_cancelled_before_it_begins_makes_no_request() {
    let mut stage = TestAgent::new([text_answer("no")]);
    stage.agent.handle().cancel();
    assert_eq!(stage.run().await.end, AgentEnd::Cancelled);
    assert_eq!(stage.script.request_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_can_be_cancelled_during_the_models_answer() {
    let mut stage = TestAgent::new([vec![ScriptStep::Delta(Delta::Text("well".into())), ScriptStep::Hang]]);
    let handle = stage.agent.handle();
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        handle.cancel();
    };
    let (run, ()) = futures_util::join!(stage.run(), cancelling);
    assert_eq!(run.end, AgentEnd::Cancelled);
    assert_eq!(stage.store.messages().len(), 2);
    assert!(stage.script.requests.lock().expect("not poisoned")[0].cancel.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn calls_past_the_turns_deadline_are_dropped_and_not_the_run() {
    let config = AgentConfig { turn_timeout: Some(Duration::from_secs(1)), ..AgentConfig::new("agent") };
    let calls = [("a", "r_deaf", "{}"), ("b", "r_echo", "{}"), ("c", "w_echo", "{}")];
    let mut stage = TestAgent::with_config(config, [ask_for(&calls), text_answer("well")]);
    assert_eq!(stage.run().await.answer(), Some("well"));
    let results = stage.results();
    assert_eq!(results[0], "Tool execution failed: the turn timed out");
    assert_eq!(results[1], "{}");
    assert_eq!(results[2], "Tool execution failed: the turn timed out");
    assert_eq!(stage.tools.begun_count(), 2);
    assert_eq!(stage.tools.running(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_blocks_its_thread_is_left_behind() {
    struct BlockingExecutor {
        begun: tokio::sync::Notify,
        released: std::sync::Mutex<Option<std::sync::mpsc::Receiver<()>>>,
    }
    #[async_trait]
    impl ToolExecutor for BlockingExecutor {
        fn offers(&self) -> Vec<OfferedTool> {
            Vec::new()
        }
        async fn execute(&self, _: portcullis_types::ToolCall, _: &crate::CallContext) -> ToolResult {
            let released = self.released.lock().expect("not poisoned").take().expect("called once");
            self.begun.notify_one();
            let _ = released.recv();
            // The task was aborted, so the call ends at this await.
            std::future::pending().await
        }
    }
    let (release, released) = std::sync::mpsc::channel();
    let config = AgentConfig { grace: Duration::from_millis(10), ..AgentConfig::new("agent") };
    let store = InMemoryMessageStore::new();
    let script = Script::new([ask_for(&[("a", "t", "{}")])]);
    let blocks = BlockingExecutor {
        begun: tokio::sync::Notify::new(),
        released: std::sync::Mutex::new(Some(released)),
    };
    let blocks = Arc::new(blocks);
    let mut agent = AgentLoop::new(config, (), store.clone(), script, Arc::clone(&blocks));
    let handle = agent.handle();
    let cancelling = async {
        blocks.begun.notified().await;
        handle.cancel();
    };
    let (run, ()) = futures_util::join!(agent.run("go"), cancelling);
    assert_eq!(run.end, AgentEnd::Cancelled);
    assert_eq!(crate::transcript::find_fault(&store.messages()), None);
    drop(release);
}

#[tokio::test]
async fn a_hundred_megabytes_of_arguments_are_neither_run_nor_kept() {
    let piece = |nth: usize| {
        ScriptStep::Delta(Delta::ToolCall(ToolCallDelta {
            index: 0,
            id: (nth == 0).then(|| "a".to_owned()),
            name: (nth == 0).then(|| "r_echo".to_owned()),
            arguments: Some("x".repeat(1 << 20)),
        }))
    };
    let turn = (0..100).map(piece).chain([ScriptStep::Delta(Delta::End(StopReason::ToolCalls))]).collect();
    let mut stage = TestAgent::new([turn, text_answer("well")]);
    assert_eq!(stage.run().await.answer(), Some("well"));
    assert_eq!(stage.tools.begun_count(), 0);
    let results = stage.results();
    assert!(results.len() == 1 && results[0].starts_with("Tool execution failed: "), "{results:?}");
    let argument_bytes: usize =
        stage.store.messages().iter().flat_map(|m| &m.tool_calls).map(|c| c.arguments.len()).sum();
    assert!(argument_bytes <= 2, "{argument_bytes} bytes of arguments");
}

#[tokio::test]
async fn a_panic_in_the_drop_of_a_call_affects_only_that_call() {
    struct StubbornExecutor {
        never_blocks: bool,
        begun: tokio::sync::Notify,
    }
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    #[async_trait]
    impl ToolExecutor for StubbornExecutor {
        fn offers(&self) -> Vec<OfferedTool> {
            Vec::new()
        }
        async fn execute(&self, _: portcullis_types::ToolCall, _: &crate::CallContext) -> ToolResult {
            let _panics_when_dropped = PanicsWhenDropped;
            self.begun.notify_one();
            std::future::pending().await
        }
        fn never_blocks(&self) -> bool {
            self.never_blocks
        }
    }
    for never_blocks in [false, true] {
        let config = AgentConfig { grace: Duration::ZERO, ..AgentConfig::new("agent") };
        let store = InMemoryMessageStore::new();
        let script = Script::new([ask_for(&[("a", "t", "{}")])]);
        let executor = Arc::new(StubbornExecutor { never_blocks, begun: tokio::sync::Notify::new() });
        let mut agent = AgentLoop::new(config, (), store.clone(), script, Arc::clone(&executor));
        let handle = agent.handle();
        let cancelling = async {
            executor.begun.notified().await;
            handle.cancel();
        };
        let (run, ()) = futures_util::join!(agent.run("go"), cancelling);
        assert_eq!(run.end, AgentEnd::Cancelled);
        assert_eq!(crate::transcript::find_fault(&store.messages()), None);
    }
}

/// A wrapper around a store or an emitter. It fails from a given message or event on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FailureMode {
    Panics,
    Hangs,
    Errs,
}

#[derive(Clone)]
struct FaultInjector<T> {
    inner: T,
    calls_before_failure: Arc<std::sync::atomic::AtomicUsize>,
    mode: FailureMode,
}

impl<T> FaultInjector<T> {
    fn failing_after(inner: T, count: usize, mode: FailureMode) -> Self {
        Self { inner, calls_before_failure: Arc::new(count.into()), mode }
    }

    async fn fail(&self) -> Result<(), ConversationError> {
        use std::sync::atomic::Ordering::SeqCst;
        if self.calls_before_failure.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_ok() {
            return Ok(());
        }
        match self.mode {
            FailureMode::Panics => panic!("it had enough"),
            FailureMode::Hangs => std::future::pending().await,
            FailureMode::Errs => {
                Err(ConversationError::new("no space left").with_source(std::io::Error::other("disk")))
            }
        }
    }
}

#[async_trait]
impl MessageStore for FaultInjector<InMemoryMessageStore> {
    async fn load(&self) -> Result<Vec<Message>, ConversationError> {
        self.fail().await?;
        self.inner.load().await
    }

    async fn append(&self, messages: Vec<Message>) -> Result<(), ConversationError> {
        self.fail().await?;
        self.inner.append(messages).await
    }
}

#[async_trait]
impl EventEmitter for FaultInjector<EventRecorder> {
    async fn emit(&self, event: AgentEvent) {
        if self.fail().await.is_ok() {
            self.inner.emit(event).await;
        }
    }

    fn emit_now(&self, event: AgentEvent) {
        assert!(self.mode != FailureMode::Panics, "it had enough");
        self.inner.emit_now(event);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_ends_the_run_and_keeps_no_partial_turn() {
    for mode in [FailureMode::Panics, FailureMode::Hangs, FailureMode::Errs] {
        for count in 0..4 {
            let inner = InMemoryMessageStore::new();
            let store = FaultInjector::failing_after(inner.clone(), count, mode);
            let script = Script::new([ask_for(&[("a", "r_echo", "{}")])]);
            let mut agent = AgentLoop::new(AgentConfig::new("agent"), (), store, script, Tools::default());
            let handle = agent.handle();
            let cancelling = async {
                tokio::time::sleep(Duration::from_secs(60)).await;
                handle.cancel();
            };
            let (run, ()) = futures_util::join!(agent.run("go"), cancelling);
            let AgentEnd::Internal { message } = &run.end else { panic!("{mode:?} {count}: {:?}", run.end) };
            if mode == FailureMode::Errs {
                assert_eq!(message, "no space left: disk");
            }
            assert_eq!(crate::transcript::find_fault(&inner.messages()), None, "{mode:?} {count}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_emitter_that_panics_ends_the_run_and_costs_no_result() {
    for count in 0..8 {
        let (store, tools) = (InMemoryMessageStore::new(), Tools::default());
        let emitter = FaultInjector::failing_after(EventRecorder::default(), count, FailureMode::Panics);
        let script = Script::new([ask_for(&[("a", "r_loud", "{}"), ("b", "w_echo", "{}")])]);
        let mut agent = AgentLoop::new(AgentConfig::new("agent"), emitter, store.clone(), script, tools);
        let run = agent.run("go").await;
        let message = "the emitter panicked: it had enough".to_owned();
        assert_eq!(run.end, AgentEnd::Internal { message }, "{count}");
        assert_eq!(crate::transcript::find_fault(&store.messages()), None, "{count}");
        for message in store.messages().iter().filter(|message| message.tool_call_id.is_some()) {
            assert!(!message.is_error, "{count}: {message:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_emitter_that_hangs_gets_every_end_and_is_not_awaited() {
    for count in 0..12 {
        let (store, tools, notes) = (InMemoryMessageStore::new(), Tools::default(), EventRecorder::default());
        let emitter = FaultInjector::failing_after(notes.clone(), count, FailureMode::Hangs);
        let script = Script::new([ask_for(&[("a", "r_echo", "{}"), ("b", "r_deaf", "{}")])]);
        let agent =
            AgentLoop::new(AgentConfig::new("agent"), emitter, store.clone(), script.clone(), tools.clone());
        let mut stage = TestAgent { agent, script, tools, store, notes };
        let handle = stage.agent.handle();
        let cancelling = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            handle.cancel();
        };
        // `run` checks that each call was requested once and ended once, and that the run's end came last.
        let (run, ()) = futures_util::join!(stage.run(), cancelling);
        assert_eq!(run.end, AgentEnd::Cancelled, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_reader_delays_no_cancelled_run_and_misses_no_end() {
    let calls = [("a", "r_deaf", "{}"), ("b", "r_echo", "{}"), ("c", "w_echo", "{}")];
    for read_count in 0..10 {
        let (mut stage, mut receiver) =
            TestAgent::with_channel(3, AgentConfig::new("agent"), [ask_for(&calls)]);
        let (notes, handle) = (stage.notes.clone(), stage.agent.handle());
        let reading = async {
            for _ in 0..read_count {
                notes.emit_now(receiver.recv().await.expect("an event"));
            }
        };
        let cancelling = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            handle.cancel();
        };
        let (run, (), ()) = futures_util::join!(stage.agent.run("go"), reading, cancelling);
        assert_eq!(run.end, AgentEnd::Cancelled, "{read_count}");
        assert!(receiver.waiting() >= 3, "it had stopped");
        while let Some(event) = receiver.try_recv() {
            notes.emit_now(event);
        }
        stage.check(&run);
        // The sixth event ends the answer. Apart from the events read, three wait in the channel, and one is being
        // delivered.
        let is_answered = read_count + 3 + 1 >= 6;
        assert_eq!(stage.results().len(), if is_answered { 3 } else { 0 }, "{read_count}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_reader_misses_no_end_of_the_largest_answer() {
    // The answer has as many calls as a turn keeps. The first one is split into just as many.
    let delta = |nth: usize, arguments: String| {
        ScriptStep::Delta(Delta::ToolCall(ToolCallDelta {
            index: nth as u64,
            id: Some(format!("c{nth}")),
            name: Some("r_echo".to_owned()),
            arguments: Some(arguments),
        }))
    };
    let end = ScriptStep::Delta(Delta::End(StopReason::ToolCalls));
    let call_count = crate::MAX_LISTED_CALLS;
    let turn = std::iter::once(delta(0, "{}".repeat(call_count)))
        .chain((1..call_count).map(|nth| delta(nth, "{}".to_owned())))
        .chain([end]);
    let (mut stage, mut receiver) =
        TestAgent::with_channel(3, AgentConfig::new("agent"), [turn.collect::<Vec<_>>()]);
    let (notes, handle) = (stage.notes.clone(), stage.agent.handle());
    let reading = async {
        loop {
            let event = receiver.recv().await.expect("an event");
            notes.emit_now(event.clone());
            if matches!(event, AgentEvent::MessageEnd { .. }) {
                return;
            }
        }
    };
    let cancelling = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        handle.cancel();
    };
    let (run, (), ()) = futures_util::join!(stage.agent.run("go"), reading, cancelling);
    assert_eq!(run.end, AgentEnd::Cancelled);
    assert!(receiver.waiting() <= 3 + crate::MAX_ENDS_BEYOND_CAPACITY);
    assert_eq!(receiver.dropped(), 0);
    while let Some(event) = receiver.try_recv() {
        notes.emit_now(event);
    }
    assert_eq!(stage.results().len(), 2 * call_count - 1);
    let ends: std::collections::HashSet<String> = notes
        .events()
        .iter()
        .filter_map(|event| match event {
            AgentEvent::ToolEnd { result } => Some(result.call_id.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(ends.len(), 2 * call_count - 1);
    assert_eq!(notes.events().last(), Some(&AgentEvent::AgentEnd { end: AgentEnd::Cancelled }));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_run_drops_its_calls_and_keeps_no_partial_turn() {
    let mut stage = TestAgent::new([ask_for(&[("a", "r_deaf", "{}")])]);
    let run = tokio::time::timeout(Duration::from_secs(1), stage.agent.run("go")).await;
    assert!(run.is_err());
    tokio::task::yield_now().await;
    assert_eq!((stage.tools.begun_count(), stage.tools.running()), (1, 0));
    assert_eq!(stage.store.messages(), [Message::user("go")]);
}
