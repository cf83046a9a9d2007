//! Steps that are taken one at a time, possibly each in another process. The history is the same as in one
//! process.

use std::sync::Arc;

use portcullis_agent::AgentEnd;
use portcullis_runs::{
    Continuation, NextStepInput, RunError, RunExport, RunPosition, SkipReason, StepCallOutcome, StepOutcome,
    Stepper, all_rows, store::RunStatus,
};
use portcullis_types::{CancellationToken, Message, MessageRole};
use serde_json::Value;

use crate::{
    crash::{check, turns},
    crashing_store::{Crash, CrashPoint, CrashingStore},
    model::Turn,
    world::{World, eventually, unless_leased},
};

/// Takes the step that follows a version.
async fn step(
    stepper: &Stepper,
    world: &World,
    version: i64,
    input: NextStepInput,
) -> Result<RunPosition, RunError> {
    let keeps = |_: &AgentEnd| true;
    let cancel = CancellationToken::new();
    match stepper.take_step(&world.subject.id, version, input, keeps, &cancel).await? {
        StepOutcome::Taken(position) => Ok(position),
        StepOutcome::NotStored(end) => panic!("{end}"),
    }
}

async fn call(
    stepper: &Stepper,
    world: &World,
    version: i64,
    call: &str,
) -> Result<StepCallOutcome, RunError> {
    stepper.run_call(&world.subject.id, version, call, Arc::new(|_| {}), &CancellationToken::new()).await
}

/// Takes all steps to the end of the run.
async fn drive(stepper: &Stepper, world: &World) -> Result<(), RunError> {
    let mut position = stepper.position(&world.subject.id).await?;
    while position.next != "ended" {
        for next in &position.calls {
            call(stepper, world, position.version, &next.id).await?;
        }
        position = step(stepper, world, position.version, NextStepInput::default()).await?;
    }
    Ok(())
}

/// Returns everything that the store has about a run, except what differs between two runs.
async fn export(world: &World) -> String {
    fn clean(value: &mut Value, run: &str) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| clean(item, run)),
            Value::Object(fields) => {
                for (key, item) in fields {
                    let is_time = ["begun", "finished", "created", "updated", "elapsed_ms", "duration_us"]
                        .contains(&&**key);
                    if is_time && item.is_number() || item.as_str() == Some(run) {
                        *item = Value::Null;
                    }
                    clean(item, run);
                }
            }
            _ => {}
        }
    }
    let export = RunExport::read(&*world.store, &world.subject.id).await.expect("read");
    let mut export = serde_json::to_value(&export).expect("JSON");
    clean(&mut export, world.subject.id.as_str());
    format!("{export:#}")
}

#[tokio::test]
async fn single_steps_leave_the_history_of_one_process() {
    let wrong = vec![
        Turn::Calls(vec![("nothing", "{}"), ("note", "{\"text\":7}"), ("note", "{\"text\":\"a\"}")]),
        Turn::Answer("Done."),
    ];
    for turns in [turns(), wrong] {
        let (one, many) = (World::new(turns.clone()).await, World::new(turns).await);
        one.drive(None, Continuation::Resume, None, false).await.expect("driven");
        // Take each step in a separate process.
        let mut position =
            many.stepper(None).position(&many.subject.id).await.expect("the run has a position");
        while position.next != "ended" {
            for next in &position.calls {
                let end = call(&many.stepper(None), &many, position.version, &next.id).await;
                assert_eq!(end.expect("ran"), StepCallOutcome::Stored);
            }
            position = step(&many.stepper(None), &many, position.version, NextStepInput::default())
                .await
                .expect("taken");
        }
        assert_eq!(position.status, RunStatus::Completed);
        assert_eq!(export(&many).await, export(&one).await);
        // The two read-only calls of a turn run concurrently in one process, so their order is not fixed.
        let sorted = |world: &World| {
            let mut notes = world.notes();
            notes.sort();
            notes
        };
        assert_eq!(sorted(&many), sorted(&one));
    }
}

#[tokio::test]
async fn single_steps_go_on_after_a_death_at_any_write() {
    let mut crashes = 0;
    for when in [Crash::Before, Crash::After] {
        for write in 0.. {
            let point = format!("{when:?} write {write}");
            let world = World::new(turns()).await;
            let (store, died) = CrashingStore::new(Arc::clone(&world.store), CrashPoint { write, when });
            let stepper = world.stepper(Some(store));
            let has_died = tokio::select! {
                driven = drive(&stepper, &world) => { driven.expect("driven"); false }
                () = died.notified() => true,
            };
            drop(stepper);
            if !has_died {
                check(&world, &point).await;
                break;
            }
            crashes += 1;
            let driven = eventually("the dead process's lease is free", async || {
                unless_leased(drive(&world.stepper(None), &world).await)
            });
            driven.await.unwrap_or_else(|error| panic!("{point}: {error}"));
            check(&world, &point).await;
        }
    }
    // Seven steps with a lease and a commit each, and five calls with a lease, a begin and an end, in two ways.
    assert_eq!(crashes, 2 * (7 * 2 + 5 * 3));
}

#[tokio::test]
async fn a_step_that_was_taken_is_not_taken_again() {
    let world = World::new(turns()).await;
    let stepper = world.stepper(None);
    let first = step(&stepper, &world, 1, NextStepInput::default()).await.expect("taken");
    assert_eq!(step(&stepper, &world, 1, NextStepInput::default()).await.expect("known"), first);
    let turn = step(&stepper, &world, first.version, NextStepInput::default()).await.expect("taken");
    assert_eq!(turn.calls.len(), 3);
    for _ in 0..2 {
        assert_eq!(
            call(&stepper, &world, turn.version, "call-0-2").await.expect("ran"),
            StepCallOutcome::Stored
        );
    }
    assert_eq!(world.notes().len(), 1);
    assert_eq!(
        call(&stepper, &world, turn.version, "call-9-9").await.expect("none"),
        StepCallOutcome::RunContinued
    );
    assert_eq!(
        call(&stepper, &world, first.version, "call-0-2").await.expect("late"),
        StepCallOutcome::RunContinued
    );
}

/// Returns the texts of the results, in order.
async fn results(world: &World) -> Vec<String> {
    let messages = world.messages().await;
    messages.iter().filter(|message| message.role == MessageRole::Tool).map(Message::text).collect()
}

#[tokio::test]
async fn an_interrupted_turn_keeps_the_results_that_it_has() {
    for (skip_reason, reason, next) in [
        (SkipReason::Steered, "Skipped due to queued user message.", "call_model"),
        (SkipReason::Cancelled, "the run was cancelled before the call began", "ended"),
    ] {
        let world = World::new(turns()).await;
        let stepper = world.stepper(None);
        let first = step(&stepper, &world, 1, NextStepInput::default()).await.expect("taken");
        let turn = step(&stepper, &world, first.version, NextStepInput::default()).await.expect("taken");
        call(&stepper, &world, turn.version, "call-0-0").await.expect("ran");
        let after = step(
            &stepper,
            &world,
            turn.version,
            NextStepInput { skip_reason: Some(skip_reason), ..NextStepInput::default() },
        )
        .await
        .expect("taken");
        assert_eq!(after.next, next);
        let results = results(&world).await;
        assert_eq!(results.len(), 3);
        assert!(results[0].contains("noted"), "{results:?}");
        assert!(results[1].contains(reason) && results[2].contains(reason), "{results:?}");
        let started_calls =
            all_rows(|request| world.store.started_calls(world.subject.id.as_str(), request)).await;
        assert_eq!((started_calls.expect("listed").len(), world.notes().len()), (1, 1));
    }
}

#[tokio::test]
async fn a_call_that_nothing_has_run_is_reported_to_the_model() {
    let world = World::new(turns()).await;
    let stepper = world.stepper(None);
    let mut position = stepper.position(&world.subject.id).await.expect("the run has a position");
    while position.next != "ended" {
        position = step(&stepper, &world, position.version, NextStepInput::default()).await.expect("taken");
    }
    assert_eq!(world.notes().len(), 0);
    let results = results(&world).await;
    assert!(results.iter().all(|text| text.contains("no process could run the call")), "{results:?}");
}

#[tokio::test]
async fn an_end_that_the_driver_does_not_keep_can_be_tried_again() {
    let world = World::new(vec![Turn::Broken("I was")]).await;
    let stepper = world.stepper(None);
    let asked = step(&stepper, &world, 1, NextStepInput::default()).await.expect("taken").version;
    let cancel = CancellationToken::new();
    let id = &world.subject.id;
    let undone =
        stepper.take_step(id, asked, NextStepInput::default(), |_| false, &cancel).await.expect("undone");
    assert!(matches!(undone, StepOutcome::NotStored(AgentEnd::Provider { .. })), "{undone:?}");
    let run = world.store.run(id.as_str()).await.expect("the store has the run").summary;
    assert_eq!((run.version, run.messages, run.lease), (asked, 1, None));
    let ended = step(&stepper, &world, asked, NextStepInput::default()).await.expect("taken");
    assert_eq!(ended.status, RunStatus::Failed);
}
