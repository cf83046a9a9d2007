//! The signals of people to a run: answers, messages and a cancellation.

use portcullis_runs::store::{ApprovalDecision, PageRequest, StoredAnswer};
use serde_json::json;
use temporalio_client::{WorkflowCancelOptions, WorkflowGetResultOptions};

use crate::{
    scripts::{ASK, SLOW, THINK, WORK},
    tools::notes,
    world::{World, approve, cancel, result, status, steer, wait_for, wait_for_some},
};

/// The run in the store.
async fn status_in_store(world: &World, run: &str) -> String {
    world.store.run(run).await.expect("the store has the run").summary.status.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_by_signal_lets_the_call_run() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let handle = world.start("asks", json!({"prompt": ASK})).await;
    let report = wait_for(&handle, |status| !status.questions.is_empty()).await;
    assert_eq!((&*report.step, report.tool.as_deref()), ("run_tools", Some("ask")));
    let question = report.questions[0].clone();
    // A wrong hash and an unknown question change nothing, and the status says why.
    approve(&handle, json!({"question": question, "hash": "00"})).await;
    let report = wait_for(&handle, |status| status.refused_signal.is_some()).await;
    assert!(report.refused_signal.expect("a reason").contains("another hash"));
    approve(&handle, json!({"question": "approval_0"})).await;
    wait_for(&handle, |status| {
        status.refused_signal.as_ref().is_some_and(|text| text.contains("approval_0"))
    })
    .await;
    assert_eq!(notes(world.folder()).len(), 0);
    // Send the signal as a person does on the server's command line.
    let input = json!({"question": question, "by": "Ada"}).to_string();
    world.server.command_line(&[
        "workflow",
        "signal",
        "--workflow-id",
        "asks",
        "--name",
        "approve",
        "--input",
        &input,
    ]);
    let outcome = result(&handle).await;
    assert_eq!(outcome.status, "completed");
    assert_eq!(notes(world.folder()), [format!("{} ask call-0-0", outcome.run)]);
    let asked = world.store.approval(&question).await.expect("the store has the question");
    let answer = asked.answer.expect("an answer");
    assert_eq!((&*answer.by, &*answer.via), ("Ada", "temporal"));
    // The history equals that of a run whose question was answered in the store of a single process.
    let here = async {
        let driven = world.drive_here(ASK, None);
        let answering = async {
            let waiting = async || {
                let all =
                    world.store.approvals(Default::default(), PageRequest::default()).await.expect("listed");
                all.items.into_iter().find(|asked| asked.answer.is_none()).map(|waiting| waiting.request)
            };
            let asked = wait_for_some(waiting).await;
            let answer = StoredAnswer {
                decision: ApprovalDecision::Approve,
                by: "Ada".to_owned(),
                via: "temporal".to_owned(),
                edited_arguments: None,
                reason: None,
                decided: portcullis_runs::now(),
            };
            world.store.answer_approval(&asked.id, &asked.hash, answer).await.expect("decided")
        };
        tokio::join!(driven, answering).0
    };
    let (_, id) = here.await;
    assert_eq!(
        without_hash(&world.export(&outcome.run).await),
        without_hash(&world.export(id.as_str()).await)
    );
}

/// The hash of a question is bound to the run's id.
fn without_hash(export: &str) -> String {
    let (before, after) = export.split_once("\"hash\":\"").expect("a hash");
    format!("{before}{}", after.split_once('"').expect("an end").1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_the_model_with_its_reason() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let handle = world.start("asks", json!({"prompt": ASK})).await;
    let report = wait_for(&handle, |status| !status.questions.is_empty()).await;
    approve(&handle, json!({"question": report.questions[0], "approve": false, "reason": "not on Fridays"}))
        .await;
    let outcome = result(&handle).await;
    assert_eq!(outcome.status, "completed");
    assert_eq!(notes(world.folder()).len(), 0);
    assert!(world.export(&outcome.run).await.contains("not on Fridays"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_skips_the_calls_that_have_not_begun() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let handle = world.start("slow", json!({"prompt": SLOW})).await;
    wait_for(&handle, |status| status.tool.as_deref() == Some("slow")).await;
    steer(&handle, json!(["not a text"])).await;
    steer(&handle, json!("Stop that.")).await;
    let report = wait_for(&handle, |status| status.waiting_messages > 0).await;
    assert!(report.refused_signal.expect("a reason").contains("steer needs a text"));
    let outcome = result(&handle).await;
    assert_eq!((&*outcome.status, outcome.unread.len()), ("completed", 0));
    assert_eq!(notes(world.folder()), [format!("{} slow call-0-0", outcome.run)]);
    let export = world.export(&outcome.run).await;
    assert!(
        export.contains("Stop that.") && export.contains("Skipped due to queued user message."),
        "{export}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_ends_its_call_in_order() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let handle = world.start("slow", json!({"prompt": SLOW})).await;
    wait_for(&handle, |status| status.tool.as_deref() == Some("slow")).await;
    cancel(&handle).await;
    let outcome = result(&handle).await;
    assert_eq!(outcome.status, "cancelled");
    assert_eq!(status_in_store(&world, &outcome.run).await, "cancelled");
    assert_eq!(notes(world.folder()).len(), 1);
    let export = world.export(&outcome.run).await;
    assert!(export.contains("the call was cancelled"), "{export}");
    assert!(export.contains("the run was cancelled before the call began"), "{export}");
    assert!(status(&handle).await.cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_own_cancellation_ends_a_run_that_asks_the_model() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let handle = world.start("thinks", json!({"prompt": THINK})).await;
    wait_for_some(async || world.folder().join("thinks").exists().then_some(())).await;
    let run = status(&handle).await.run.expect("a run");
    handle.cancel(WorkflowCancelOptions::default()).await.expect("cancelled");
    let ended = handle.get_result(WorkflowGetResultOptions::default()).await;
    assert!(ended.expect_err("cancelled").to_string().to_lowercase().contains("cancel"));
    assert_eq!(status_in_store(&world, &run).await, "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_for_a_run_that_has_ended_is_refused() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let (outcome, handle) = world.drive("work", WORK).await;
    let refused = world.server.try_command_line(&[
        "workflow",
        "signal",
        "--workflow-id",
        "work",
        "--name",
        "steer",
        "--input",
        "\"more\"",
    ]);
    assert!(!refused.status.success());
    let text = String::from_utf8_lossy(&refused.stderr).to_lowercase();
    assert!(text.contains("already completed") || text.contains("not found"), "{text}");
    // The status query still works.
    let report = status(&handle).await;
    assert_eq!((report.step.as_str(), report.status.as_deref()), ("ended", Some(&*outcome.status)));
}
