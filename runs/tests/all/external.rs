//! Results that are submitted from outside: in time, late, at the moment of the timeout, and to another
//! process.

use std::time::Duration;

use portcullis_agent::AgentEnd;
use portcullis_runs::{
    Continuation, RunError, now,
    store::{ExternalCallFilter, ExternalCallStatus, Json, PageRequest, ResultDelivery, StoredExternalCall},
};
use portcullis_types::{Message, MessageRole};

use crate::{
    crashing_store::{Crash, CrashPoint, CrashingStore},
    model::Turn,
    world::{World, eventually},
};

const CONFIRM: (&str, &str) = ("confirm", "{\"text\":\"a\"}");
const DEFER: (&str, &str) = ("defer", "{\"text\":\"b\"}");

/// Returns the run's calls, the newest first.
async fn calls(world: &World) -> Vec<StoredExternalCall> {
    let run = Some(world.subject.id.to_string());
    let filter = ExternalCallFilter { run, ..ExternalCallFilter::default() };
    world.store.external_calls(filter, PageRequest::default()).await.expect("listed").items
}

/// Waits for the only call of a run, and returns it.
async fn call(world: &World) -> StoredExternalCall {
    eventually("the run has one call", async || match &calls(world).await[..] {
        [call] => Some(call.clone()),
        _ => None,
    })
    .await
}

async fn submit(world: &World, id: &str, result: &str) -> ResultDelivery {
    let result = Json::from_text(result).expect("JSON");
    world.store.resolve_external_call(id, result, now()).await.expect("takes it")
}

/// Returns the texts of the messages with a role.
async fn texts(world: &World, role: MessageRole) -> Vec<String> {
    let messages = world.messages().await;
    messages.iter().filter(|message| message.role == role).map(Message::text).collect()
}

#[tokio::test]
async fn the_run_waits_for_a_result_that_comes_in_time() {
    let world = World::new(vec![Turn::Calls(vec![CONFIRM]), Turn::Answer("Done.")]).await;
    let driving = world.drive(None, Continuation::Resume, None, false);
    let submitting = async {
        let call = call(&world).await;
        assert_eq!(call.status, ExternalCallStatus::Waiting);
        submit(&world, &call.id, "{\"ok\":true}").await
    };
    let (run, delivery) = tokio::join!(driving, submitting);
    assert_eq!(run.expect("driven").end, AgentEnd::Answer { text: "Done.".to_owned() });
    assert_eq!(delivery, ResultDelivery::Inline);
    assert_eq!(texts(&world, MessageRole::Tool).await, ["{\"ok\":true}"]);
}

#[tokio::test]
async fn a_late_result_enters_the_run_once() {
    let turns = vec![Turn::Calls(vec![DEFER]), Turn::Answer("Asked."), Turn::Answer("Done.")];
    let world = World::new(turns).await;
    let run = world.drive(None, Continuation::Resume, None, false).await.expect("driven");
    assert_eq!(run.end, AgentEnd::Answer { text: "Asked.".to_owned() });
    let id = call(&world).await.id;
    let pending = format!("{{\"pendingToolCallId\":\"{id}\",\"status\":\"pending\"}}");
    assert_eq!(texts(&world, MessageRole::Tool).await, [pending]);
    let early = world.drive(None, Continuation::Resume, None, false).await.expect_err("nothing has come");
    assert!(matches!(early, RunError::AlreadyAnswered { .. }), "{early}");
    assert_eq!(submit(&world, &id, "\"yes\"").await, ResultDelivery::Inbox { ordinal: 1 });
    let run = world.drive(None, Continuation::Resume, None, false).await.expect("driven");
    assert_eq!(run.end, AgentEnd::Answer { text: "Done.".to_owned() });
    let expected = format!("[Tool Result: defer] (callId: {id}) yes");
    assert_eq!(texts(&world, MessageRole::User).await, ["Do it.".to_owned(), expected]);
    let again = world.drive(None, Continuation::Resume, None, false).await.expect_err("it has entered");
    assert!(matches!(again, RunError::AlreadyAnswered { .. }), "{again}");
}

/// A result that arrives while the run works is added before the next request to the model.
#[tokio::test]
async fn a_result_enters_a_run_that_works() {
    let turns = vec![Turn::Calls(vec![DEFER]), Turn::Calls(vec![CONFIRM]), Turn::Answer("Done.")];
    let world = World::new(turns).await;
    let driving = world.drive(None, Continuation::Resume, None, false);
    let submitting = async {
        let waiting = eventually("both calls wait", async || {
            Some(calls(&world).await).filter(|calls| calls.len() == 2)
        })
        .await;
        let (confirm, defer): (Vec<_>, Vec<_>) = waiting.iter().partition(|call| call.tool == "confirm");
        submit(&world, &defer[0].id, "1").await;
        submit(&world, &confirm[0].id, "2").await;
        defer[0].id.clone()
    };
    let (run, id) = tokio::join!(driving, submitting);
    run.expect("driven");
    let messages = world.messages().await;
    let [.., late, answer] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(late.text(), format!("[Tool Result: defer] (callId: {id}) 1"));
    assert_eq!(answer.text(), "Done.");
}

/// Either the result or the timeout wins. The model gets the result exactly once, as the call's result or as
/// a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_at_the_moment_of_the_timeout_is_reported_once() {
    let (mut inline, mut late) = (0, 0);
    for round in 0..60_u64 {
        let turns = vec![Turn::Calls(vec![CONFIRM]), Turn::Answer("First."), Turn::Answer("Second.")];
        let mut world = World::new(turns).await;
        world.result_timeout = Duration::from_millis(250);
        let driving = world.drive(None, Continuation::Resume, None, false);
        let submitting = async {
            let call = call(&world).await;
            tokio::time::sleep(Duration::from_millis(200 + round)).await;
            submit(&world, &call.id, "\"result\"").await
        };
        let (run, delivery) = tokio::join!(driving, submitting);
        run.expect("driven");
        let results = texts(&world, MessageRole::Tool).await;
        match delivery {
            ResultDelivery::Inline => {
                inline += 1;
                assert_eq!(results, ["result"], "round {round}");
            }
            ResultDelivery::Inbox { .. } => {
                late += 1;
                assert_eq!(results, ["Tool execution failed: Tool timed out after 250ms"], "round {round}");
                let told = texts(&world, MessageRole::User).await.len() == 2;
                if !told {
                    world.drive(None, Continuation::Resume, None, false).await.expect("driven");
                }
            }
        }
        let messages = world.messages().await;
        let told = messages.iter().filter(|message| message.text().contains("result"));
        assert_eq!(told.count(), 1, "round {round}: {messages:?}");
    }
    assert_eq!(inline + late, 60);
}

/// The process dies at any write while its run waits, and the next process finds the call.
#[tokio::test]
async fn a_call_is_made_once_although_its_process_dies() {
    let mut crashes = 0;
    for when in [Crash::Before, Crash::After] {
        for write in 0.. {
            let point = format!("{when:?} write {write}");
            let world = World::new(vec![Turn::Calls(vec![CONFIRM, DEFER]), Turn::Answer("Done.")]).await;
            let (store, died) =
                CrashingStore::new(std::sync::Arc::clone(&world.store), CrashPoint { write, when });
            let has_died = {
                let driving = world.drive(Some(store), Continuation::Resume, None, false);
                tokio::select! {
                    (driven, ()) = async { tokio::join!(driving, answer_confirm(&world)) } => {
                        driven.expect("driven");
                        false
                    }
                    () = died.notified() => true,
                }
            };
            if has_died {
                crashes += 1;
                let run = world.store.run(world.subject.id.as_str()).await.expect("the store has the run");
                if !run.summary.status.has_ended() {
                    let resuming = world.drive_after_death(Continuation::Resume, false);
                    let (run, ()) = tokio::join!(resuming, answer_confirm(&world));
                    run.unwrap_or_else(|error| panic!("{point}: {error}"));
                }
            }
            let made: Vec<String> = calls(&world).await.into_iter().map(|call| call.tool).collect();
            assert_eq!(made.len(), 2, "{point}: {made:?}");
            let results = texts(&world, MessageRole::Tool).await;
            assert_eq!(results.len(), 2, "{point}: {results:?}");
            assert_eq!(results[0], "yes", "{point}: {results:?}");
            assert!(results[1].contains("pendingToolCallId"), "{point}: {results:?}");
            if !has_died {
                break;
            }
        }
    }
    assert!(crashes > 10, "{crashes}");
}

/// Submits the result of `confirm`, unless it has one.
async fn answer_confirm(world: &World) {
    let call = eventually("`confirm` is called", async || {
        calls(world).await.into_iter().find(|call| call.tool == "confirm")
    })
    .await;
    if call.status == ExternalCallStatus::Waiting {
        submit(world, &call.id, "\"yes\"").await;
    }
}
