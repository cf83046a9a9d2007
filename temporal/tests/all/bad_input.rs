//! Unusable input is refused with a reason, and no workflow waits forever.

use std::sync::Arc;

use portcullis_agent::AgentEnd;
use portcullis_runs::{NextStepInput, RunId, StepCallOutcome, StepOutcome};
use portcullis_temporal::{RunWorker, WorkerError, WorkerSettings, connect};
use portcullis_types::{CancellationToken, Message};
use serde_json::{Value, json};
use temporalio_client::WorkflowGetResultOptions;

use crate::{
    scripts::WORK,
    tools::{ALL, notes},
    world::{QUEUE, World, stepper},
};

/// Returns the failure of a workflow.
async fn failure(world: &World, name: &str, input: Value) -> String {
    let handle = world.start(name, input).await;
    let failed = handle.get_result(WorkflowGetResultOptions::default()).await.expect_err("fails");
    portcullis_types::error_chain(&failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_missing_is_named() {
    let Some(world) = World::new().await else { return };
    let connection = connect(&world.server.address()).await.expect("connects");
    let settings = WorkerSettings {
        namespace: "elsewhere".to_owned(),
        task_queue: QUEUE.to_owned(),
        placements: Vec::new(),
    };
    let worker = RunWorker::new(connection, settings, stepper(world.folder(), &ALL).await).await;
    let error = worker.expect_err("no namespace");
    assert!(
        matches!(&error, WorkerError::Namespace { namespace, .. } if namespace == "elsewhere"),
        "{error}"
    );
    assert!(error.to_string().contains("temporal operator namespace create elsewhere"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_is_wrong_fails_the_workflow_immediately() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    for (name, input, expected) in [
        ("none", Value::Null, "AgentRun"),
        ("both", json!({"run": "run_0123456789abcdef", "prompt": "x"}), "either `run` or `prompt`"),
        ("id", json!({"run": "run_1"}), "16 hexadecimal digits"),
        ("missing", json!({"run": "run_0123456789abcdef"}), "has no run"),
    ] {
        let failure = failure(&world, name, input).await;
        assert!(failure.contains(expected), "{name}: {failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activity_that_is_delivered_twice_has_one_effect() {
    let Some(world) = World::new().await else { return };
    let stepper = stepper(world.folder(), &ALL).await;
    let id = RunId::random().expect("random bytes");
    let cancel = CancellationToken::new();
    for _ in 0..2 {
        stepper.begin(&id, Message::user(WORK)).await.expect("begun");
    }
    let mut positions = Vec::new();
    let mut version = 1;
    loop {
        let mut ends = Vec::new();
        for _ in 0..2 {
            let keeps = |_: &AgentEnd| true;
            let step = stepper.take_step(&id, version, NextStepInput::default(), keeps, &cancel).await;
            ends.push(step.expect("taken"));
        }
        assert_eq!(ends[0], ends[1]);
        let StepOutcome::Taken(position) = ends.remove(0) else { panic!("{ends:?}") };
        version = position.version;
        for call in &position.calls {
            let twice = [
                stepper.run_call(&id, version, &call.id, Arc::new(|_| {}), &cancel),
                stepper.run_call(&id, version, &call.id, Arc::new(|_| {}), &cancel),
            ];
            for end in futures_util::future::join_all(twice).await {
                assert_eq!(end.expect("ran"), StepCallOutcome::Stored);
            }
        }
        positions.push(position.next);
        if position.next == "ended" {
            break;
        }
    }
    assert_eq!(
        positions,
        ["call_model", "run_tools", "call_model", "run_tools", "call_model", "finalize", "ended"]
    );
    assert_eq!(notes(world.folder()).len(), 5, "each call has run once");
    // A delivery that arrives after all finds that the run has advanced.
    let late = stepper.run_call(&id, 3, "call-0-2", Arc::new(|_| {}), &cancel).await;
    assert_eq!(late.expect("refused in order"), StepCallOutcome::RunContinued);
    let (_, here) = world.drive_here(WORK, None).await;
    assert_eq!(world.export(id.as_str()).await, world.export(here.as_str()).await);
}
