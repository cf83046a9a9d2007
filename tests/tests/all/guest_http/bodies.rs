//! Bodies that a guest reads while the server sends them: the pieces, the ends, and the rows of the requests.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{Arc, Mutex},
    thread,
};

use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::{audit, new_call};
use portcullis_types::{CancellationToken, ToolErrorKind};
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{
    fixture, free_listener, module, origin, registry, request_past_the_time, request_responses, request_rows,
    requests_fixture,
};
use crate::web::server::{self, Server};

/// Starts a server that passes the head of each request, and its number from 0, to `serve`.
fn start_server(serve: impl Fn(&str, usize, &mut TcpStream) + Send + Sync + 'static) -> Server {
    let listener = free_listener();
    let server = Server::for_port(listener.local_addr().expect("an address").port());
    let (serve, number) = (Arc::new(serve), Arc::new(Mutex::new(0)));
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let (serve, number) = (Arc::clone(&serve), Arc::clone(&number));
            thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|read| read > 0) {
                    head.push(byte[0]);
                }
                // A canary's attempt connects and sends nothing.
                if !head.is_empty() {
                    let request_number = {
                        let mut next = number.lock().expect("not poisoned");
                        *next += 1;
                        *next - 1
                    };
                    serve(&String::from_utf8_lossy(&head), request_number, &mut connection);
                }
            });
        }
    });
    server
}

fn send(connection: &mut TcpStream, bytes: &[u8]) {
    // The client may have closed the connection.
    let _ignored = connection.write_all(bytes);
}

/// The head of a response, and the first part of a body of nine bytes.
const FIRST: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfirst";

/// Starts a server that sends the first part of the first body and nothing else. The receivers get a message
/// for the second request, and the number of each request whose connection the client has closed.
fn server_sending_first_part() -> (Server, UnboundedReceiver<()>, UnboundedReceiver<usize>) {
    let ((asked_sender, is_asked), (closed, is_closed)) = (unbounded_channel(), unbounded_channel());
    let server = start_server(move |_head, number, connection| {
        // The receivers are gone after the test's end.
        match number {
            0 => send(connection, FIRST),
            _ => drop(asked_sender.send(())),
        }
        let _reset = connection.read_to_end(&mut Vec::new());
        let _over = closed.send(number);
    });
    (server, is_asked, is_closed)
}

/// Returns the ends of all requests: outcome, code, bytes, and whether the guest left a part of the body.
fn request_ends(fixture: &Fixture) -> Vec<(String, String, Option<u64>, Option<bool>)> {
    let request_ends = request_rows(fixture).into_iter().filter(|row| row.outcome.is_some());
    request_ends
        .map(|row| {
            let outcome = row.outcome.map(|outcome| outcome.to_string()).unwrap_or_default();
            let code = row.code.map(|code| code.to_string()).unwrap_or_default();
            (outcome, code, row.bytes_out, row.truncated)
        })
        .collect()
}

fn expected_ok(bytes: u64, truncated: bool) -> (String, String, Option<u64>, Option<bool>) {
    ("ok".to_owned(), String::new(), Some(bytes), Some(truncated))
}

#[tokio::test]
async fn a_guest_reads_the_first_part_while_the_server_waits() {
    let waiting: Mutex<Option<TcpStream>> = Mutex::new(None);
    let server = start_server(move |_head, _number, connection| {
        send(connection, FIRST);
        let mut waiting = waiting.lock().expect("not poisoned");
        match waiting.take() {
            // The second request shows that the guest has read the first part of the first body.
            Some(mut first) => {
                send(&mut first, b"rest");
                send(connection, b"rest");
            }
            None => *waiting = Some(connection.try_clone().expect("clones")),
        }
    });
    let (fixture, registry) = requests_fixture(&server).await;
    let arguments = json!({"url": format!("{}/", origin(&server)), "times": 2, "take": 5});
    let responses = request_responses(&registry, arguments).await;
    assert_eq!((&responses[0]["text"], &responses[1]["text"]), (&json!("first"), &json!("first")));
    let events: Vec<String> = request_rows(&fixture).iter().map(|row| row.event.to_string()).collect();
    // Both bodies are open until the guest ends.
    assert_eq!(events, ["begin", "begin", "end", "end"]);
    assert_eq!(request_ends(&fixture), [expected_ok(5, true), expected_ok(5, true)]);
}

#[tokio::test]
async fn the_row_of_a_body_has_what_the_guest_has_read() {
    let server = super::serve(|path| match path {
        "/empty" => server::status("204 No Content"),
        _ => server::answer("text/plain", b"all of it"),
    });
    let (fixture, registry) = requests_fixture(&server).await;
    let url = |path: &str| format!("{}{path}", origin(&server));
    request_responses(&registry, json!({"url": url("/"), "times": 2, "take": 100})).await;
    request_responses(&registry, json!({"url": url("/"), "take": 3})).await;
    request_responses(&registry, json!({"url": url("/"), "take": 3, "then": "drop"})).await;
    request_responses(&registry, json!({"url": url("/"), "take": 3, "then": "forget"})).await;
    request_responses(&registry, json!({"url": url("/empty"), "take": 0})).await;
    request_responses(&registry, json!({"url": url("/"), "method": "POST", "take": 100})).await;
    let expected = [
        expected_ok(9, false),
        expected_ok(9, false),
        expected_ok(3, true),
        expected_ok(3, true),
        expected_ok(3, true),
        expected_ok(0, false),
        expected_ok(9, false),
    ];
    assert_eq!(request_ends(&fixture), expected);
    let rows = request_rows(&fixture);
    for (begin, end) in rows.iter().step_by(2).zip(rows.iter().skip(1).step_by(2)) {
        assert_eq!((begin.event.to_string(), end.event.to_string()), ("begin".to_owned(), "end".to_owned()));
        assert_eq!(begin.call_id, end.call_id);
        assert!(end.posture.is_some() && !end.requests.is_empty(), "{end:?}");
    }
}

#[tokio::test]
async fn a_dropped_response_makes_room_for_the_next() {
    let server = super::serve(|_| server::answer("text/plain", &[b'x'; 1000]));
    let (fixture, registry) = requests_fixture(&server).await;
    let arguments = json!({"url": format!("{}/", origin(&server)), "times": 20, "take": 1, "then": "drop"});
    let responses = request_responses(&registry, arguments).await;
    assert!(responses.iter().all(|response| response["text"] == "x"), "{responses:?}");
    assert_eq!(request_ends(&fixture), vec![expected_ok(1, true); 20]);
}

#[tokio::test]
async fn each_response_has_the_limit_of_its_own() {
    let server = super::serve(|path| match path {
        "/more" => server::answer("text/plain", &vec![b'x'; (1 << 20) + 1]),
        "/packed" => server::encoded("gzip", server::gzip(&vec![b'x'; (1 << 20) + 1])),
        _ => server::answer("text/plain", &vec![b'x'; 1 << 20]),
    });
    let fixture = fixture(&server, "requests", "\"GET\"").with_policy_key("egress.max_response", "\"1MiB\"");
    let registry = registry(&fixture, "requests", &module("requests", &server)).await;
    let url = |path: &str| format!("{}{path}", origin(&server));
    // The guest reads all but one byte of eight bodies, so all eight responses stay open.
    let responses =
        request_responses(&registry, json!({"url": url("/full"), "times": 8, "take": (1 << 20) - 1})).await;
    assert_eq!(
        (responses.len(), responses.iter().all(|response| response["status"] == 200)),
        (8, true),
        "{responses:?}"
    );
    let responses = request_responses(&registry, json!({"url": url("/more"), "take": 2 << 20})).await;
    assert_eq!(responses[0]["code"], "response_too_large");
    let responses = request_responses(&registry, json!({"url": url("/packed"), "take": 2 << 20})).await;
    assert_eq!(responses[0]["broken"], "the response has more than 1048576 bytes after decompression");
    let (_, code, bytes, _) = request_ends(&fixture).pop().expect("a row");
    assert_eq!(code, "decoded_too_large");
    assert!(bytes.is_some_and(|bytes| bytes > 0 && bytes <= 1 << 20), "{bytes:?}");
}

#[tokio::test]
async fn a_response_without_end_stops_at_the_limit() {
    let (sender, mut ended) = unbounded_channel();
    let server = start_server(move |_head, _number, connection| {
        send(connection, b"HTTP/1.1 200 OK\r\n\r\n");
        while connection.write_all(&[b'a'; 1000]).is_ok() {}
        // The receiver is gone after the test's end.
        let _over = sender.send(());
    });
    let fixture = fixture(&server, "requests", "\"GET\"").with_policy_key("egress.max_response", "\"64KiB\"");
    let registry = registry(&fixture, "requests", &module("requests", &server)).await;
    let responses = request_responses(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    assert_eq!(responses[0]["broken"], "the response has more than 65536 bytes");
    ended.recv().await.expect("the connection was closed");
    let (outcome, code, bytes, _) = request_ends(&fixture).pop().expect("a row");
    assert_eq!((outcome.as_str(), code.as_str()), ("resource_limit", "response_too_large"));
    assert!(bytes.is_some_and(|bytes| bytes <= 64 << 10), "{bytes:?}");
}

#[tokio::test]
async fn a_truncated_body_is_reported_with_its_reason() {
    let server = start_server(|_head, _number, connection| send(connection, FIRST));
    let (fixture, registry) = requests_fixture(&server).await;
    let responses = request_responses(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    assert!(responses[0]["broken"].as_str().is_some(), "{responses:?}");
    let broken = ("failed".to_owned(), "response_truncated".to_owned(), Some(5), None);
    assert_eq!(request_ends(&fixture), [broken]);
}

#[tokio::test]
async fn the_time_of_a_body_is_that_of_the_call() {
    let (server, _begun, mut closed) = server_sending_first_part();
    let fixture = request_past_the_time(&server, "2s", "took longer").await;
    closed.recv().await.expect("the connection was closed");
    let (outcome, ..) = request_ends(&fixture).pop().expect("a row");
    assert_eq!(outcome, "timeout");
}

/// Creates a call with two requests. The guest makes the second one after it has read five bytes of the first
/// body.
fn two_requests(server: &Server) -> portcullis_types::ToolCall {
    let arguments = json!({"url": format!("{}/", origin(server)), "times": 2, "take": 5});
    new_call("requests", arguments.to_string())
}

#[tokio::test]
async fn cancelling_the_call_ends_its_open_responses() {
    let (server, mut requests_begun, mut closed) = server_sending_first_part();
    let (fixture, registry) = requests_fixture(&server).await;
    let mut caller = approving_caller();
    caller.cancel = CancellationToken::new();
    let cancel = caller.cancel.clone();
    let cancelling = async {
        requests_begun.recv().await.expect("is asked");
        cancel.cancel();
    };
    let call = registry.execute_with_policy(two_requests(&server), &caller);
    let (result, ()) = tokio::join!(call, cancelling);
    assert_eq!(result.into_result().expect_err("cancelled").kind(), ToolErrorKind::Cancelled);
    closed.recv().await.expect("a connection was closed");
    closed.recv().await.expect("both connections were closed");
    let request_ends = request_ends(&fixture);
    assert!(request_ends.iter().all(|(outcome, ..)| outcome == "cancelled"), "{request_ends:?}");
    // The second request has no response, and so no bytes.
    let bytes: Vec<Option<u64>> = request_ends.iter().map(|(_, _, bytes, _)| *bytes).collect();
    assert!(bytes == [Some(5), None] || bytes == [None, Some(5)], "{request_ends:?}");
}

#[tokio::test]
async fn a_call_whose_caller_leaves_ends_its_open_responses() {
    let (server, mut requests_begun, mut closed) = server_sending_first_part();
    let (fixture, registry) = requests_fixture(&server).await;
    let caller = approving_caller();
    {
        let mut call = std::pin::pin!(registry.execute_with_policy(two_requests(&server), &caller));
        tokio::select! {
            result = &mut call => panic!("{result:?}"),
            begun = requests_begun.recv() => begun.expect("is asked"),
        }
    }
    closed.recv().await.expect("a connection was closed");
    closed.recv().await.expect("both connections were closed");
    let request_ends = request_ends(&fixture);
    assert!(request_ends.iter().all(|(_, code, ..)| code == "caller_gone"), "{request_ends:?}");
    let bytes: Vec<Option<u64>> = request_ends.iter().map(|(_, _, bytes, _)| *bytes).collect();
    assert!(bytes == [Some(5), None] || bytes == [None, Some(5)], "{request_ends:?}");
}

#[tokio::test]
async fn brotli_is_offered_for_one_open_response_at_a_time() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let heads_sink = Arc::clone(&heads);
    let server = start_server(move |head, _number, connection| {
        let offer = head.lines().find_map(|line| line.strip_prefix("accept-encoding: ")).unwrap_or_default();
        heads_sink.lock().expect("not poisoned").push(offer.to_owned());
        match offer {
            "gzip, br" => send(
                connection,
                b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 9\r\n\r\n\x0b\x02\x80hello\x03",
            ),
            _ => send(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
        }
    });
    let (_world, registry) = requests_fixture(&server).await;
    let offers = async |then: &str| {
        let url = format!("{}/", origin(&server));
        let responses =
            request_responses(&registry, json!({"url": url, "times": 3, "take": 4, "then": then})).await;
        assert!(responses.iter().all(|response| response["text"] == "hell"), "{responses:?}");
        std::mem::take(&mut *heads.lock().expect("not poisoned"))
    };
    assert_eq!(offers("keep").await, ["gzip, br", "gzip", "gzip"]);
    assert_eq!(offers("drop").await, ["gzip, br", "gzip, br", "gzip, br"]);
}

/// The audit log fails for one request, and the guest does not mention the failure in its result.
#[tokio::test]
async fn a_request_that_cannot_be_recorded_fails_the_call() {
    let log: Arc<Mutex<std::path::PathBuf>> = Arc::default();
    let log_path = Arc::clone(&log);
    let server = start_server(move |_head, number, connection| {
        let log = log_path.lock().expect("not poisoned").clone();
        // The log is moved away during the first request, and back before the call ends.
        let away = log.with_extension("old");
        let (from, to) = if number == 0 { (&log, &away) } else { (&away, &log) };
        fs::rename(from, to).expect("renamable");
        send(connection, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    });
    let (fixture, registry) = requests_fixture(&server).await;
    *log.lock().expect("not poisoned") = audit::log_path(&fixture.state());
    let url = format!("{}/", origin(&server));
    let answer = CallOutcome::run(&registry, "requests", json!({"url": url, "times": 2})).await;
    answer.assert_refused(ToolErrorKind::Unavailable, "audit_unwritable");
}
