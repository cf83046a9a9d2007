//! Questions that another process answers, before or after the asking process has died.

use portcullis_agent::AgentEnd;
use portcullis_runs::{
    Continuation, RunError, now,
    store::{
        ApprovalDecision, ApprovalFilter, ApprovalStatus, Json, PageRequest, RunStatus, StoredAnswer,
        StoredApproval,
    },
};
use portcullis_types::Message;

use crate::{
    model::Turn,
    world::{World, eventually},
};

async fn world() -> World {
    World::new(vec![Turn::Calls(vec![("ask", "{\"text\":\"a\"}")]), Turn::Answer("Done.")]).await
}

/// Returns the only waiting question.
async fn question(world: &World) -> StoredApproval {
    let waiting = ApprovalFilter { run: None, status: Some(ApprovalStatus::Waiting) };
    eventually("a question waits", async || {
        let page = world.store.approvals(waiting.clone(), PageRequest::default()).await.expect("listed");
        page.items.into_iter().next()
    })
    .await
}

async fn answer(world: &World, decision: ApprovalDecision, edited: Option<&str>, reason: Option<&str>) {
    let question = question(world).await;
    let answer = StoredAnswer {
        decision,
        by: "ada".to_owned(),
        via: "test".to_owned(),
        edited_arguments: edited.map(|text| Json::from_text(text).expect("JSON")),
        reason: reason.map(str::to_owned),
        decided: now(),
    };
    let (id, hash) = (&question.request.id, &question.request.hash);
    world.store.answer_approval(id, hash, answer).await.expect("waits");
}

#[tokio::test]
async fn an_answer_lets_the_call_run_once() {
    let world = world().await;
    let driving = world.drive(None, Continuation::Resume, None, true);
    let (run, ()) = tokio::join!(driving, answer(&world, ApprovalDecision::Approve, None, None));
    assert_eq!(run.expect("driven").end, AgentEnd::Answer { text: "Done.".to_owned() });
    assert_eq!(world.notes(), ["ask {\"text\":\"a\"}"]);
}

#[tokio::test]
async fn a_refusal_has_its_reason_for_the_model() {
    let world = world().await;
    let driving = world.drive(None, Continuation::Resume, None, true);
    let (run, ()) =
        tokio::join!(driving, answer(&world, ApprovalDecision::Deny, None, Some("not on a Friday")));
    run.expect("driven");
    assert_eq!(world.notes(), [""; 0]);
    let messages = world.messages().await;
    assert!(messages.iter().any(|message| message.text().contains("not on a Friday")), "{messages:?}");
}

/// Edited arguments make another call, which the policy also asks about.
#[tokio::test]
async fn edited_arguments_take_the_place_of_the_models() {
    let world = world().await;
    let driving = world.drive(None, Continuation::Resume, None, true);
    let answering = async {
        answer(&world, ApprovalDecision::Approve, Some("{\"text\":\"b\"}"), None).await;
        answer(&world, ApprovalDecision::Approve, None, None).await;
    };
    let (run, ()) = tokio::join!(driving, answering);
    run.expect("driven");
    assert_eq!(world.notes(), ["ask {\"text\":\"b\"}"]);
}

#[tokio::test]
async fn an_answer_waits_for_the_run_whose_process_has_died() {
    let world = world().await;
    {
        let driving = world.drive(None, Continuation::Resume, None, true);
        tokio::select! {
            driven = driving => panic!("{driven:?}"),
            _ = question(&world) => {}
        }
    }
    answer(&world, ApprovalDecision::Approve, None, None).await;
    let run = world.drive_after_death(Continuation::Resume, true).await.expect("driven");
    assert_eq!(run.end, AgentEnd::Answer { text: "Done.".to_owned() });
    assert_eq!(world.notes(), ["ask {\"text\":\"a\"}"], "the call had not begun when its process died");
    let page =
        world.store.approvals(ApprovalFilter::default(), PageRequest::default()).await.expect("listed");
    assert_eq!(page.items.len(), 1, "the same question is asked once");
}

#[tokio::test]
async fn a_run_is_cancelled_from_another_process() {
    let world = world().await;
    let driving = world.drive(None, Continuation::Resume, None, true);
    let cancelling = async {
        question(&world).await;
        world.process(None).cancel(&world.subject.id).await.expect("asked")
    };
    let (run, status) = tokio::join!(driving, cancelling);
    assert_eq!(status, RunStatus::Running, "its process ends it");
    assert_eq!(run.expect("driven").end, AgentEnd::Cancelled);
    assert_eq!(world.notes(), [""; 0]);
    let summary = world.store.run(world.subject.id.as_str()).await.expect("the store has the run").summary;
    assert_eq!(summary.status, RunStatus::Cancelled);
}

#[tokio::test]
async fn a_run_without_a_process_is_cancelled_immediately() {
    let world = world().await;
    {
        let driving = world.drive(None, Continuation::Resume, None, true);
        tokio::select! {
            driven = driving => panic!("{driven:?}"),
            _ = question(&world) => {}
        }
    }
    // As in `drive_after_death`, the first process may exist a moment longer.
    eventually("the run is cancelled", async || {
        let status = world.process(None).cancel(&world.subject.id).await.expect("cancelled");
        (status != RunStatus::Running).then_some(())
    })
    .await;
    let summary = world.store.run(world.subject.id.as_str()).await.expect("the store has the run").summary;
    assert_eq!(summary.status, RunStatus::Cancelled);
    // The model's calls stay in the conversation, and a further prompt tells the model about them.
    let next = Continuation::Prompt(Message::user("And now?"));
    let run = world.drive(None, next, None, true).await.expect("driven");
    assert_eq!(run.end, AgentEnd::Answer { text: "Done.".to_owned() });
    let error = world.drive(None, Continuation::Resume, None, true).await.expect_err("answered");
    assert!(matches!(error, RunError::AlreadyAnswered { .. }), "{error}");
}
