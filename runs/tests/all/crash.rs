//! A process that dies at any write to the store, or during any effect.

use std::{collections::BTreeMap, sync::Arc};

use portcullis_agent::AgentEnd;
use portcullis_runs::{
    Continuation, RunExport, all_rows,
    store::{RunStatus, RunStore, open},
};
use portcullis_types::{Message, MessageRole};
use tokio::sync::Notify;

use crate::{
    crashing_store::{Crash, CrashPoint, CrashingStore},
    model::Turn,
    postgres_server::Server,
    world::World,
};

pub(crate) fn turns() -> Vec<Turn> {
    vec![
        Turn::Calls(vec![
            ("look", "{\"text\":\"a\"}"),
            ("look", "{\"text\":\"b\"}"),
            ("note", "{\"text\":\"c\"}"),
        ]),
        Turn::Calls(vec![("note", "{\"text\":\"d\"}"), ("note", "{\"text\":\"e\"}")]),
        Turn::Answer("Done."),
    ]
}

/// Returns the result of each call, and whether the model was told that its effects are unknown.
fn results(messages: &[Message]) -> BTreeMap<String, bool> {
    let results = messages.iter().filter(|message| message.role == MessageRole::Tool);
    let result = |message: &Message| {
        let id = message.tool_call_id.clone().expect("a call");
        (id, message.text().contains("whether the call took effect is not known"))
    };
    let count = results.clone().count();
    let by_call: BTreeMap<String, bool> = results.map(result).collect();
    assert_eq!(by_call.len(), count, "a call has two results: {messages:?}");
    by_call
}

/// Checks the run after its end: it has an answer, a history that providers accept, and each effect at most
/// once.
pub(crate) async fn check(world: &World, point: &str) {
    let messages = world.messages().await;
    let calls: Vec<&str> =
        messages.iter().flat_map(|message| &message.tool_calls).map(|call| &*call.id).collect();
    let results = results(&messages);
    assert_eq!(calls.len(), 5, "{point}: {messages:?}");
    assert!(calls.iter().all(|call| results.contains_key(*call)), "{point}: {messages:?}");
    assert_eq!(messages.last().map(Message::text).as_deref(), Some("Done."), "{point}");
    let roles: Vec<MessageRole> = messages.iter().map(|message| message.role).collect();
    use MessageRole::{Assistant, Tool, User};
    assert_eq!(roles, [User, Assistant, Tool, Tool, Tool, Assistant, Tool, Tool, Assistant], "{point}");
    let notes = world.notes();
    for (call, text) in [("call-0-2", "c"), ("call-1-0", "d"), ("call-1-1", "e")] {
        let count = notes.iter().filter(|note| **note == format!("note {{\"text\":\"{text}\"}}")).count();
        if results[call] {
            assert!(count <= 1, "{point}: {call}: {notes:?}");
        } else {
            assert_eq!(count, 1, "{point}: {call} has a result: {notes:?} {messages:?}");
        }
    }
    assert!(!results["call-0-0"] && !results["call-0-1"], "{point}: a call that only reads runs again");
    let run = world.store.run(world.subject.id.as_str()).await.expect("the store has the run");
    assert_eq!((run.summary.status, run.summary.lease), (RunStatus::Completed, None), "{point}");
}

/// Continues in a new process after the first has died.
async fn resume(world: &World, point: &str) {
    let driven = world.drive_after_death(Continuation::Resume, false).await;
    let run = driven.unwrap_or_else(|error| panic!("{point}: {}", portcullis_types::error_chain(&error)));
    assert_eq!(run.end, AgentEnd::Answer { text: "Done.".to_owned() }, "{point}");
}

#[tokio::test]
async fn a_run_goes_on_after_a_death_at_any_write() {
    die_at_each_write(None).await;
}

#[tokio::test]
async fn a_run_in_postgresql_goes_on_after_a_death_at_any_write() {
    let Some(server) = Server::start() else { return };
    let store = open(&server.new_database().await).await.expect("opens");
    die_at_each_write(Some(store)).await;
}

async fn die_at_each_write(shared_store: Option<Arc<dyn RunStore>>) {
    let mut crashes = 0;
    for when in [Crash::Before, Crash::After] {
        for write in 0.. {
            let point = format!("{when:?} write {write}");
            let world = World::in_store(turns(), shared_store.clone()).await;
            let (store, died) = CrashingStore::new(Arc::clone(&world.store), CrashPoint { write, when });
            let driving = world.drive(Some(store), Continuation::Resume, None, false);
            let has_died = tokio::select! {
                driven = driving => { driven.expect("driven"); false }
                () = died.notified() => true,
            };
            if !has_died {
                check(&world, &point).await;
                break;
            }
            crashes += 1;
            // Only the last write has ended the run.
            let run = world.store.run(world.subject.id.as_str()).await.expect("the store has the run");
            if !run.summary.status.has_ended() {
                resume(&world, &point).await;
            }
            check(&world, &point).await;
        }
    }
    // Three calls with a begin and an end each (two only read), seven steps and a lease, in two ways.
    assert_eq!(crashes, 2 * (3 * 2 + 7 + 1));
}

#[tokio::test]
async fn a_run_goes_on_after_a_death_within_any_effect() {
    for effect in 1..=5 {
        let point = format!("in effect {effect}");
        let world = World::new(turns()).await;
        let died = Arc::new(Notify::new());
        let dies_in = Some((effect, &died));
        tokio::select! {
            driven = world.drive(None, Continuation::Resume, dies_in, false) => panic!("{driven:?}"),
            () = died.notified() => {}
        }
        resume(&world, &point).await;
        check(&world, &point).await;
    }
}

#[tokio::test]
async fn a_finished_answer_is_not_asked_for_twice() {
    let world = World::new(turns()).await;
    let died = Arc::new(Notify::new());
    tokio::select! {
        driven = world.drive(None, Continuation::Resume, Some((4, &died)), false) => {
            panic!("{driven:?}")
        }
        () = died.notified() => {}
    }
    resume(&world, "").await;
    let id = world.subject.id.as_str();
    let steps = all_rows(|request| world.store.steps(id, request)).await.expect("listed");
    let kinds: Vec<&str> = steps.iter().map(|step| &*step.record.kind).collect();
    assert_eq!(
        kinds,
        ["setup", "call_model", "run_tools", "call_model", "run_tools", "call_model", "finalize"]
    );
    let summaries: Vec<&str> = steps.iter().map(|step| &*step.record.summary).collect();
    assert_eq!(summaries[1], "asked for look, look, note");
    assert_eq!(summaries[2], "has 3 results");
    assert_eq!(summaries[6], "the model answered");
    let export = RunExport::read(&*world.store, &world.subject.id).await.expect("read");
    let export = serde_json::to_value(&export).expect("JSON");
    assert_eq!(export["calls"].as_array().map(Vec::len), Some(5));
    assert_eq!(export["messages"].as_array().map(Vec::len), Some(9));
}

#[tokio::test]
async fn a_run_is_driven_by_one_process() {
    let world = World::new(turns()).await;
    let died = Arc::new(Notify::new());
    let driving = world.drive(None, Continuation::Resume, Some((1, &died)), false);
    tokio::pin!(driving);
    tokio::select! {
        driven = &mut driving => panic!("{driven:?}"),
        () = died.notified() => {}
    }
    // The first process still lives.
    let second = world.drive(None, Continuation::Resume, None, false).await;
    let error = second.expect_err("another process drives it").to_string();
    assert!(error.contains("is driven by"), "{error}");
}

/// Providers refuse a request that ends with the model's own message.
#[tokio::test]
async fn a_run_whose_answer_broke_off_goes_on_with_a_request() {
    let world = World::new(vec![Turn::Broken("I was"), Turn::Answer("Done.")]).await;
    let run = world.drive(None, Continuation::Resume, None, false).await.expect("driven");
    assert!(matches!(run.end, AgentEnd::Provider { .. }), "{:?}", run.end);
    let summary = world.store.run(world.subject.id.as_str()).await.expect("the store has the run").summary;
    assert_eq!(summary.status, RunStatus::Failed);
    resume(&world, "").await;
    let texts: Vec<String> = world.messages().await.iter().map(Message::text).collect();
    assert_eq!(texts, ["Do it.", "I was", "Go on.", "Done."]);
}
