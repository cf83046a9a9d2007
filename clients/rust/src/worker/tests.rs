//! The worker's loop: connections, duplicates, failures, and its end.

use std::{
    convert::Infallible,
    future, io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::*;
use crate::{
    backoff,
    testing::{End, FakeGateway, call, pending, refusal, stored, stream},
};

/// Creates a worker with a tool that returns its arguments.
fn echo(fake: &FakeGateway) -> Worker {
    Worker::new(fake.client()).tool("echo", async |args: Value| Ok::<_, Infallible>(args))
}

/// Runs a worker until this many results were submitted.
async fn run_until_submitted(worker: &Worker, fake: &FakeGateway, count: usize) {
    let shutdown = fake.wait_until(|noted| noted.submissions.len() >= count);
    worker.run("agt_1", shutdown).await.expect("ends in order");
}

fn ids(fake: &FakeGateway) -> Vec<Option<String>> {
    fake.noted().connections.iter().map(|(_, id)| id.clone()).collect()
}

#[tokio::test]
async fn calls_of_the_list_and_of_events_are_answered_once_each() {
    let fake = FakeGateway::start();
    fake.noted().calls = vec![call("cal_1", "echo", &json!(1)), call("cal_other", "other", &json!(0))];
    let events = [
        stored(1, "message.created", &json!({})),
        pending(2, "cal_1", "echo", &json!(1)),
        pending(3, "cal_2", "echo", &json!(2)),
        pending(4, "cal_2", "echo", &json!(2)),
        pending(5, "cal_other_2", "other", &json!(0)),
        pending(6, "cal_3", "echo", &json!(3)),
    ];
    fake.noted().streams.push_back(stream(events, End::IsSilent));
    run_until_submitted(&echo(&fake), &fake, 3).await;
    let expected = [1, 2, 3].map(|number| (format!("cal_{number}"), json!(number)));
    let mut results = fake.results();
    results.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(results, expected);
    assert_eq!(ids(&fake), [None]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_again_after_the_last_event() {
    let fake = FakeGateway::start();
    let streams = [
        stream([pending(7, "cal_1", "echo", &json!(1))], End::Breaks),
        stream([], End::Closes),
        // The event without an id is not stored, so it does not change the last id.
        stream(["event: message.streaming\ndata: {}\n\n".to_owned()], End::IsSilent),
        stream([pending(8, "cal_2", "echo", &json!(2))], End::Closes),
        stream([pending(9, "cal_3", "echo", &json!(3))], End::IsSilent),
    ];
    fake.noted().streams.extend(streams);
    run_until_submitted(&echo(&fake), &fake, 3).await;
    let expected = [None, Some("7"), Some("7"), Some("7"), Some("8")];
    assert_eq!(ids(&fake), expected.map(|id| id.map(str::to_owned)));
    // Each connection is followed by both lists.
    assert_eq!(fake.noted().lists.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_until_an_event_comes() {
    let fake = FakeGateway::start();
    let begun = Instant::now();
    fake.noted().streams.extend([
        refusal(503, "unavailable", "the store does not answer"),
        refusal(429, "too_many", "a limit"),
        stream([], End::Closes),
        refusal(500, "internal", "a fault"),
        stream([stored(1, "run.started", &json!({}))], End::Closes),
        refusal(502, "unknown", "a proxy"),
        stream([], End::IsSilent),
    ]);
    let worker = echo(&fake);
    worker.run("agt_1", fake.wait_until(|noted| noted.connections.len() == 7)).await.expect("ends in order");
    let seconds: Vec<u64> =
        fake.noted().connections.iter().map(|(at, _)| at.duration_since(begun).as_secs()).collect();
    assert_eq!(seconds, [0, 1, 3, 7, 15, 16, 18]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_made_again() {
    let fake = FakeGateway::start();
    let begun = Instant::now();
    let worker = echo(&fake);
    worker.run("agt_1", fake.wait_until(|noted| noted.connections.len() == 4)).await.expect("ends in order");
    // A connection that lasted for a while resets the pauses.
    assert_eq!(begun.elapsed().as_secs(), 3 * 61);
}

#[tokio::test]
async fn a_reset_makes_the_worker_list_again() {
    let fake = FakeGateway::start();
    let events = [stored(50, "reset", &json!({})), pending(51, "cal_2", "echo", &json!(2))];
    fake.noted().streams.push_back(stream(events, End::Closes));
    fake.noted().calls = vec![call("cal_1", "echo", &json!(1))];
    let worker = echo(&fake);
    worker.run("agt_1", fake.wait_until(|noted| noted.connections.len() == 2)).await.expect("ends in order");
    assert_eq!(ids(&fake), [None, Some("51".to_owned())]);
    // Two lists after the connection, and two after the reset, before the event that follows it.
    assert!(fake.noted().lists.len() >= 4, "{:?}", fake.noted().lists);
    let mut calls: Vec<String> = fake.results().into_iter().map(|(call, _)| call).collect();
    calls.sort();
    assert_eq!(calls, ["cal_1", "cal_2"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_read_does_not_come_again() {
    let fake = FakeGateway::start();
    let large = stored(2, "message.created", &json!("x".repeat(9 << 20)));
    fake.noted().streams.extend([
        stream([stored(1, "run.started", &json!({})), large], End::Closes),
        stream([stored(3, "run.started", &json!({})), "data: {\n\n".to_owned()], End::Closes),
        stream([stored(4, "run.started", &json!({})), stored(5, "call.pending", &json!({}))], End::Closes),
    ]);
    let worker = echo(&fake);
    worker.run("agt_1", fake.wait_until(|noted| noted.connections.len() == 4)).await.expect("ends in order");
    assert_eq!(ids(&fake), [None, None, None, None]);
}

#[tokio::test]
async fn failures_and_panics_are_results() {
    let fake = FakeGateway::start();
    fake.noted().calls = ["fails", "panics", "echo", "types"].map(|tool| call(tool, tool, &json!(1))).into();
    let worker = echo(&fake)
        .tool("fails", async |_: Value| Err::<(), _>(io::Error::other("no such project")))
        .tool("panics", async |_: Value| -> Result<(), Infallible> { panic!("a fault") })
        .tool("types", async |text: String| Ok::<_, Infallible>(text));
    run_until_submitted(&worker, &fake, 4).await;
    let mut results = fake.results();
    results.sort_by(|one, other| one.0.cmp(&other.0));
    let error = |text: &str| json!({ "error": text });
    let expected = [
        ("echo", json!(1)),
        ("fails", error("no such project")),
        ("panics", error("the tool failed because of an internal error")),
        ("types", error("the arguments do not fit the tool: invalid type: integer `1`, expected a string")),
    ];
    assert_eq!(results, expected.map(|(tool, result)| (tool.to_owned(), result)));
}

#[tokio::test(start_paused = true)]
async fn a_result_is_submitted_again_without_another_call_of_the_tool() {
    let fake = FakeGateway::start();
    fake.noted().calls = vec![call("cal_1", "count", &Value::Null)];
    fake.noted().submission_responses =
        [None, Some(refusal(503, "unavailable", "try again")), Some(refusal(429, "too_many", "a limit"))]
            .into();
    let calls = Arc::new(AtomicUsize::new(0));
    let worker = Worker::new(fake.client()).tool("count", {
        let calls = Arc::clone(&calls);
        move |_: Value| future::ready(Ok::<_, Infallible>(calls.fetch_add(1, Ordering::Relaxed)))
    });
    run_until_submitted(&worker, &fake, 4).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(fake.results(), vec![("cal_1".to_owned(), json!(0)); 4]);
}

#[tokio::test(start_paused = true)]
async fn an_undelivered_result_is_kept_for_the_next_list() {
    let fake = FakeGateway::start();
    fake.noted().calls = vec![call("cal_1", "echo", &json!(1))];
    let refusals = (0..submit::MAX_ATTEMPTS).map(|_| Some(refusal(503, "unavailable", "try again")));
    fake.noted().submission_responses = refusals.collect();
    // The stream stays silent, so the worker reconnects and lists again each minute.
    run_until_submitted(&echo(&fake), &fake, submit::MAX_ATTEMPTS + 1).await;
    assert!(fake.noted().connections.len() > 1);
}

#[tokio::test]
async fn a_call_that_another_program_has_answered_is_done() {
    let fake = FakeGateway::start();
    fake.noted().calls = ["a", "b", "c", "d"].map(|id| call(id, "echo", &json!(1))).into();
    fake.noted().submission_responses = [
        Some(refusal(409, "conflict", "the call has another result already")),
        Some(refusal(410, "gone", "the call is cancelled")),
        Some(refusal(404, "not_found", "there is no call")),
    ]
    .into();
    let reset = stored(1, "reset", &json!({}));
    fake.noted().streams.push_back(stream([reset], End::IsSilent));
    // Answer one call at a time, so that the next list follows the answers.
    let worker = echo(&fake).concurrency(NonZeroUsize::MIN);
    worker.run("agt_1", fake.wait_until(|noted| noted.lists.len() == 4)).await.expect("ends in order");
    assert_eq!(fake.noted().submissions.len(), 4);
}

#[tokio::test]
async fn a_refused_result_is_replaced_by_the_reason() {
    let fake = FakeGateway::start();
    fake.noted().calls = vec![call("cal_1", "large", &Value::Null)];
    let worker =
        Worker::new(fake.client()).tool("large", async |_: Value| Ok::<_, Infallible>("x".repeat(2 << 20)));
    run_until_submitted(&worker, &fake, 1).await;
    let text = "the result cannot be submitted: the result has more than 1048576 bytes";
    assert_eq!(fake.results(), [("cal_1".to_owned(), json!({ "error": text }))]);

    let fake = FakeGateway::start();
    fake.noted().calls = vec![call("cal_1", "echo", &json!(1))];
    fake.noted().submission_responses = [Some(refusal(422, "invalid", "too deep"))].into();
    run_until_submitted(&echo(&fake), &fake, 2).await;
    let reason = fake.results()[1].1["error"].to_string();
    assert!(reason.contains("422 invalid: too deep"), "{reason}");
}

#[tokio::test]
async fn refusals_of_the_agent_end_the_worker() {
    for (status, code) in
        [(401, "unauthorized"), (403, "forbidden"), (404, "not_found"), (400, "bad_request")]
    {
        let is_this = |error: &ClientError| matches!(error, ClientError::Refused { status: seen, .. } if *seen == status);
        let fake = FakeGateway::start();
        fake.noted().streams.push_back(refusal(status, code, "no"));
        let error = echo(&fake).run("agt_1", future::pending()).await.expect_err("refused");
        assert!(is_this(&error), "{error:?}");

        let fake = FakeGateway::start();
        fake.noted().list_responses.push_back(refusal(status, code, "no"));
        let error = echo(&fake).run("agt_1", future::pending()).await.expect_err("refused");
        assert!(is_this(&error), "{error:?}");
        assert_eq!(fake.noted().connections.len(), 1);
    }
}

#[tokio::test]
async fn a_submission_without_rights_ends_the_worker() {
    let fake = FakeGateway::start();
    fake.noted().calls = vec![call("cal_1", "echo", &json!(1))];
    fake.noted().submission_responses = [Some(refusal(401, "unauthorized", "the token is unknown"))].into();
    let error = echo(&fake).run("agt_1", future::pending()).await.expect_err("refused");
    assert!(matches!(error, ClientError::Refused { status: 401, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_than_allowed_are_in_flight() {
    let fake = FakeGateway::start();
    fake.noted().calls = (0..5).map(|number| call(&format!("cal_{number}"), "slow", &Value::Null)).collect();
    let events = (5..10).map(|number| pending(number, &format!("cal_{number}"), "slow", &Value::Null));
    fake.noted().streams.push_back(stream(events, End::IsSilent));
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let places = NonZeroUsize::new(3).expect("not zero");
    let worker = Worker::new(fake.client()).concurrency(places).tool("slow", {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        move |_: Value| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                _ = timeout(Duration::from_secs(5), future::pending::<()>()).await;
                now.fetch_sub(1, Ordering::Relaxed);
                Ok::<_, Infallible>(())
            }
        }
    });
    run_until_submitted(&worker, &fake, 10).await;
    assert_eq!(most.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_outlives_the_connection_on_which_it_came() {
    let fake = FakeGateway::start();
    fake.noted().streams.extend([
        stream([pending(1, "cal_1", "slow", &Value::Null)], End::Breaks),
        stream([pending(1, "cal_1", "slow", &Value::Null)], End::IsSilent),
    ]);
    let gate = Arc::new(Semaphore::new(0));
    let worker = Worker::new(fake.client()).tool("slow", {
        let gate = Arc::clone(&gate);
        move |_: Value| {
            let gate = Arc::clone(&gate);
            async move { gate.acquire().await.map(|_permit| "done") }
        }
    });
    let shutdown = async {
        fake.wait_until(|noted| noted.connections.len() == 2).await;
        gate.add_permits(2);
        fake.wait_until(|noted| !noted.submissions.is_empty()).await;
    };
    worker.run("agt_1", shutdown).await.expect("ends in order");
    assert_eq!(fake.results(), [("cal_1".to_owned(), json!("done"))]);
}

#[tokio::test(start_paused = true)]
async fn calls_under_way_are_finished_at_the_end() {
    let fake = FakeGateway::start();
    fake.noted().calls = vec![call("cal_1", "slow", &json!(20)), call("cal_2", "slow", &json!(40))];
    let worker = Worker::new(fake.client()).tool("slow", async |seconds: u64| {
        _ = timeout(Duration::from_secs(seconds), future::pending::<()>()).await;
        Ok::<_, Infallible>(seconds)
    });
    let begun = Instant::now();
    worker.run("agt_1", fake.wait_until(|noted| noted.lists.len() == 2)).await.expect("ends in order");
    assert_eq!(fake.results(), [("cal_1".to_owned(), json!(20))]);
    assert_eq!(begun.elapsed(), SHUTDOWN_GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_worker_ends_during_a_pause() {
    let fake = FakeGateway::start();
    fake.noted().streams.extend((0..9).map(|_| refusal(503, "unavailable", "try again")));
    let within_the_pause = Duration::from_secs(7);
    let shutdown = async {
        fake.wait_until(|noted| noted.connections.len() == 8).await;
        _ = timeout(within_the_pause, future::pending::<()>()).await;
    };
    let begun = Instant::now();
    echo(&fake).run("agt_1", shutdown).await.expect("ends in order");
    let pauses = backoff::MAX_RETRY_DELAY * 2 + Duration::from_secs(1 + 2 + 4 + 8 + 16);
    assert_eq!(begun.elapsed(), pauses + within_the_pause);
}

#[test]
fn a_worker_shows_no_token() {
    let gateway = Gateway::new("http://localhost:8810", "pct_secret").expect("a gateway");
    let worker = Worker::new(gateway)
        .tool("b", async |(): ()| Ok::<_, Infallible>(()))
        .tool("a", async |(): ()| Ok::<_, Infallible>(()));
    let shown = "Worker { gateway: Gateway { address: \"http://localhost:8810/\", .. }, tools: [\"a\", \"b\"], concurrency: 8 }";
    assert_eq!(format!("{worker:?}"), shown);
}
