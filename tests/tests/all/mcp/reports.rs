//! Messages during a call: progress, log messages, a tool's questions, and cancellation by the client.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use portcullis_mcp::{ClientError, Clients};
use portcullis_types::{SafetyTier, ToolError, ToolOutput};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::client::{Client, Setup, end_rows, native_registry, text};
use crate::support::{Spy, fixture_enabling};

/// Returns the notifications of one method up to an answer, and the answer's result.
fn collect_until_answer(client: &mut Client, id: u64, method: &str) -> (Vec<Value>, Value) {
    let mut notifications = Vec::new();
    loop {
        let message = client.next();
        if message["id"] == id {
            return (notifications, message["result"].clone());
        }
        if message["method"] == method {
            notifications.push(message["params"].clone());
        }
    }
}

fn talking_spy() -> Spy {
    Spy::new("talking", |ctx, _| async move {
        ctx.progress("first");
        ctx.update(ToolOutput::text("second"));
        ctx.progress("third");
        Ok(ToolOutput::text("done"))
    })
}

#[test]
fn requested_progress_comes_in_order_before_the_result() {
    let fixture = fixture_enabling(&["talking"]);
    let registry = native_registry(&fixture, |builder| builder.tool(talking_spy()));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let id = client.ask("tools/call", json!({"name": "talking", "_meta": {"progressToken": "t1"}}));
    let (notifications, result) = collect_until_answer(&mut client, id, "notifications/progress");
    let expected = [(1.0, "first"), (2.0, "second"), (3.0, "third")]
        .map(|(progress, message)| json!({"progressToken": "t1", "progress": progress, "message": message}));
    assert_eq!(notifications, expected);
    assert_eq!(text(&result), "done");
}

#[test]
fn a_silent_call_sends_progress_without_a_message() {
    let fixture = fixture_enabling(&["silent"]);
    let end = Arc::new(Semaphore::new(0));
    let spy_end = Arc::clone(&end);
    let spy = Spy::new("silent", move |_, _| {
        let end = Arc::clone(&spy_end);
        async move {
            end.acquire().await.expect("open").forget();
            Ok(ToolOutput::text("done"))
        }
    });
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let id = client.ask("tools/call", json!({"name": "silent", "_meta": {"progressToken": "t1"}}));
    let sign = client.next();
    assert_eq!(sign["method"], "notifications/progress", "{sign}");
    assert_eq!(sign["params"], json!({"progressToken": "t1", "progress": 1e-9}));
    end.add_permits(1);
    assert_eq!(text(&collect_until_answer(&mut client, id, "").1), "done");
}

#[test]
fn a_sign_of_life_is_not_a_step_of_a_tool_that_counts() {
    let fixture = fixture_enabling(&["counting"]);
    let (end, setup) = (Arc::new(Semaphore::new(0)), Setup::default());
    let (spy_end, clients) = (Arc::clone(&end), setup.clients.clone());
    let spy = Spy::new("counting", move |ctx, _| {
        let (end, clients) = (Arc::clone(&spy_end), clients.clone());
        async move {
            let client = clients.client_for(&ctx).ok_or_else(|| ToolError::failed("no client"))?;
            let report_progress = async |progress| client.progress(progress, Some(1.0), None).await;
            report_progress(0.3).await.map_err(|error| error.to_string())?;
            end.acquire().await.expect("open").forget();
            report_progress(0.6).await.map_err(|error| error.to_string())?;
            Ok(ToolOutput::text("done"))
        }
    });
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut client = Client::start(registry, setup).begin(json!({}));
    let id = client.ask("tools/call", json!({"name": "counting", "_meta": {"progressToken": "t1"}}));
    let mut next = || client.next()["params"].clone();
    assert_eq!(next(), json!({"progressToken": "t1", "progress": 0.3, "total": 1.0}));
    let sign = next();
    assert!(sign["progress"].as_f64().is_some_and(|progress| progress > 0.3 && progress < 0.31), "{sign}");
    assert_eq!(sign["total"], 1.0, "{sign}");
    end.add_permits(1);
    // Another heartbeat may come before the tool continues.
    let step =
        std::iter::repeat_with(&mut next).find(|notification| notification["progress"].as_f64() >= Some(0.6));
    assert_eq!(step, Some(json!({"progressToken": "t1", "progress": 0.6, "total": 1.0})));
    assert_eq!(text(&collect_until_answer(&mut client, id, "").1), "done");
}

#[test]
fn without_a_token_progress_comes_as_log_messages() {
    let fixture = fixture_enabling(&["talking"]);
    let registry = native_registry(&fixture, |builder| builder.tool(talking_spy()));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let id = client.ask("tools/call", json!({"name": "talking"}));
    let (notifications, _) = collect_until_answer(&mut client, id, "notifications/message");
    let expected = ["first", "second", "third"]
        .map(|data| json!({"level": "info", "logger": "tools.talking", "data": data}));
    assert_eq!(notifications, expected);
    assert_eq!(client.request("logging/setLevel", json!({"level": "error"}))["result"], json!({}));
    let id = client.ask("tools/call", json!({"name": "talking"}));
    assert!(collect_until_answer(&mut client, id, "notifications/message").0.is_empty());
    let wrong = client.request("logging/setLevel", json!({"level": "loud"}));
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
}

const FLOOD: usize = 10_000;

/// Creates a tool that floods the client with reports, signals that it has done so, and ends when permitted.
fn flooding_spy(may_end: &Arc<Semaphore>) -> (Spy, mpsc::Receiver<()>) {
    let (done, is_done) = mpsc::channel();
    let may_end = Arc::clone(may_end);
    let spy = Spy::new("flooding", move |ctx, _| {
        let (done, may_end) = (done.clone(), Arc::clone(&may_end));
        async move {
            let long = "x".repeat(100_000);
            for number in 1..=FLOOD {
                ctx.progress(format!("{number} {long}"));
            }
            done.send(()).map_err(|_unheard| ToolError::failed("nobody waits"))?;
            drop(may_end.acquire().await);
            Ok(ToolOutput::text("done"))
        }
    })
    .timeout(Duration::from_secs(120));
    (spy, is_done)
}

/// Returns the numbers of a flood's reports. Asserts that the reports are bounded in size and in order.
fn numbers(notifications: &[Value]) -> Vec<usize> {
    let counted: Vec<_> = notifications.iter().filter_map(|report| report["progress"].as_f64()).collect();
    assert!(counted.windows(2).all(|pair| pair[0] < pair[1]), "{counted:?}");
    assert_eq!(counted.len(), notifications.len());
    let message = |report: &Value| report["message"].as_str().map(str::to_owned).expect("a text");
    let messages: Vec<_> = notifications.iter().map(message).collect();
    assert!(messages.iter().all(|text| text.len() <= 4100 && text.ends_with('…')));
    let number = |text: &String| text.split(' ').next().and_then(|number| number.parse().ok());
    messages.iter().map(|text| number(text).expect("a number")).collect()
}

/// The maximum number of reports that the server can have sent unread: the report that is being written, the reports in
/// a narrow socket, and the reports in the client's own buffer.
const MAX_UNREAD_REPORTS: usize = 8;

#[test]
fn a_flood_of_progress_is_cut_at_the_limit_and_holds_up_nothing() {
    for limit in [1, Setup::default().limits.max_unsent_reports] {
        let fixture = fixture_enabling(&["flooding"]);
        let may_end = Arc::new(Semaphore::new(0));
        let (spy, is_done) = flooding_spy(&may_end);
        let registry = native_registry(&fixture, |builder| builder.tool(spy));
        let mut setup = Setup { is_narrow: true, ..Setup::default() };
        setup.limits.max_unsent_reports = limit;
        let mut client = Client::start(registry, setup).begin(json!({}));
        client.stop_reading();
        let id = client.ask("tools/call", json!({"name": "flooding", "_meta": {"progressToken": 7}}));
        is_done
            .recv_timeout(Duration::from_secs(120))
            .expect("the call ends although the client reads nothing");
        client.resume_reading();
        // All queued reports come before the result, which `may_end` holds back here.
        let is_report = |message: &Value| message["method"] == "notifications/progress";
        let mut notifications: Vec<_> =
            (0..limit).map(|_| client.wait_for_message(is_report)["params"].clone()).collect();
        may_end.add_permits(1);
        let (rest, result) = collect_until_answer(&mut client, id, "notifications/progress");
        assert_eq!(text(&result), "done");
        notifications.extend(rest);
        let numbers = numbers(&notifications);
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers[0] == 1, "{numbers:?}");
        assert!(
            numbers.len() <= limit + MAX_UNREAD_REPORTS,
            "of {FLOOD} it hears {} and not {limit}",
            numbers.len()
        );
    }
}

#[test]
fn a_call_ends_even_if_its_reports_are_not_read() {
    let fixture = fixture_enabling(&["flooding"]);
    let (spy, is_done) = flooding_spy(&Arc::new(Semaphore::new(9)));
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut setup = Setup { is_narrow: true, ..Setup::default() };
    setup.limits.max_calls = 1;
    let clients = setup.clients.clone();
    let mut client = Client::start(registry, setup).begin(json!({}));
    client.stop_reading();
    let id = client.ask("tools/call", json!({"name": "flooding", "_meta": {"progressToken": 7}}));
    is_done.recv_timeout(Duration::from_secs(120)).expect("the call ends although the client reads nothing");
    // The call ends when its client is unreachable.
    let deadline = Instant::now() + Duration::from_secs(120);
    while !format!("{clients:?}").contains("(0)") {
        assert!(Instant::now() < deadline, "the call does not end: {clients:?}");
        std::thread::yield_now();
    }
    let rows = end_rows(&fixture, "flooding");
    assert_eq!((rows.len(), rows[0].code.as_deref()), (1, None));
    client.resume_reading();
    let (notifications, result) = collect_until_answer(&mut client, id, "notifications/progress");
    assert_eq!(text(&result), "done");
    // The reports that were still queued then are dropped.
    assert!((1..=MAX_UNREAD_REPORTS).contains(&numbers(&notifications).len()), "{notifications:?}");
    // The call's slot is free.
    assert_eq!(text(&client.call("flooding", json!({}))), "done");
}

#[test]
fn a_cancelled_call_stops_has_no_answer_and_has_its_row() {
    let fixture = fixture_enabling(&["waiting"]);
    let spy = Spy::new("waiting", |ctx, _| async move {
        ctx.progress("running");
        ctx.cancel.cancelled().await;
        Err(ToolError::cancelled("it was cancelled"))
    })
    .tier(SafetyTier::SideEffecting);
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let id = client.ask("tools/call", json!({"name": "waiting", "_meta": {"progressToken": 1}}));
    client.wait_for_message(|message| message["method"] == "notifications/progress");
    client.notify("notifications/cancelled", json!({"requestId": id}));
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    let rest = client.leave();
    assert!(rest.iter().all(|message| message["id"] != id), "{rest:?}");
    let rows = end_rows(&fixture, "waiting");
    assert_eq!((rows.len(), rows[0].code.as_deref()), (1, Some("cancelled")));
}

#[test]
fn a_tool_of_this_process_can_speak_with_the_client_of_its_call() {
    let fixture = fixture_enabling(&["speaking"]);
    let setup = Setup::default();
    let clients: Clients = setup.clients.clone();
    let spy = Spy::new("speaking", move |ctx, _| {
        let clients = clients.clone();
        async move {
            let gone = |error: ClientError| ToolError::failed(error.to_string());
            let client = clients.client_for(&ctx).ok_or_else(|| ToolError::failed("no client"))?;
            client.progress(0.0, Some(100.0), None).await.map_err(gone)?;
            client.progress(50.0, Some(100.0), None).await.map_err(gone)?;
            client.log("warning", json!({"n": 1})).await.map_err(gone)?;
            let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
            let elicited = client.elicit("Who?", schema).await.map_err(gone)?;
            Ok(ToolOutput::text(format!("{} {:?}", elicited.action, elicited.content)))
        }
    });
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut client = Client::start(registry, setup).begin(json!({"elicitation": {"form": {}}}));
    let id = client.ask("tools/call", json!({"name": "speaking", "_meta": {"progressToken": 1}}));
    assert_eq!(client.next()["params"], json!({"progressToken": 1, "progress": 0.0, "total": 100.0}));
    assert_eq!(client.next()["params"]["progress"], 50.0);
    assert_eq!(
        client.next()["params"],
        json!({"level": "warning", "logger": "tools.speaking", "data": {"n": 1}})
    );
    let question = client.next();
    assert_eq!(question["params"]["message"], "Who?");
    let answer = json!({"action": "accept", "content": {"name": "me"}});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}).to_string());
    assert_eq!(text(&client.answer(id)["result"]), r#"accept Some(Object {"name": String("me")})"#);
}

#[test]
fn a_tool_cannot_ask_a_client_that_takes_no_questions() {
    let fixture = fixture_enabling(&["speaking"]);
    let setup = Setup::default();
    let clients = setup.clients.clone();
    let spy = Spy::new("speaking", move |ctx, _| {
        let clients = clients.clone();
        async move {
            let client = clients.client_for(&ctx).ok_or_else(|| ToolError::failed("no client"))?;
            let elicited = client.elicit("Who?", json!({"type": "object", "properties": {}})).await;
            Ok(ToolOutput::text(format!("{elicited:?}")))
        }
    });
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut client = Client::start(registry, setup).begin(json!({}));
    assert_eq!(text(&client.call("speaking", json!({}))), "Err(Unsupported)");
}

#[test]
fn calls_beyond_the_limit_are_refused_and_the_others_go_on() {
    let fixture = fixture_enabling(&["waiting"]);
    let gate = Arc::new(Semaphore::new(0));
    let open = Arc::clone(&gate);
    let spy = Spy::new("waiting", move |ctx, _| {
        let gate = Arc::clone(&gate);
        async move {
            ctx.progress("running");
            drop(gate.acquire().await);
            Ok(ToolOutput::text("done"))
        }
    })
    .timeout(Duration::from_secs(120));
    let registry = native_registry(&fixture, |builder| builder.tool(spy));
    let mut setup = Setup::default();
    setup.limits.max_calls = 3;
    let mut client = Client::start(registry, setup).begin(json!({}));
    let ids: Vec<_> = (0..5).map(|_| client.ask("tools/call", json!({"name": "waiting"}))).collect();
    for _ in 0..2 {
        let refused = client.wait_for_message(|message| message["error"].is_object());
        assert_eq!(refused["error"]["code"], -32000, "{refused}");
    }
    open.add_permits(5);
    let mut done = 0;
    while done < 3 {
        let message = client.wait_for_message(|message| message["result"].is_object());
        assert!(ids.iter().any(|id| message["id"] == *id));
        done += 1;
    }
    assert_eq!(client.call("waiting", json!({}))["isError"], false);
    let mut codes: Vec<_> =
        fixture.rows().into_iter().map(|row| row.code.map(|code| code.to_string())).collect();
    codes.sort();
    let refused = || Some("too_many_calls".to_owned());
    assert_eq!(codes, [None, None, None, None, refused(), refused()]);
}
