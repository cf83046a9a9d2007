//! Credentials: each is sent only to the servers that the judge names, and no response repeats one.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::{
    io::Write as _,
    sync::{Arc, Mutex},
};

use flate2::{Compression, write::GzEncoder};
use portcullis_egress::{Credential, HeaderAffixes, Request, SecretValue};

use crate::fixture::{Client, RecordingJudge, Server, assert_code, ok, redirect, send};

const VALUE: &str = "canary/7f3a+Q==";
/// `acanary/7f3a+Q==b` in base64.
const ENCODED: &str = "YWNhbmFyeS83ZjNhK1E9PWI=";

fn credential() -> Credential {
    let value = SecretValue::new(VALUE.as_bytes().to_vec()).unwrap();
    Credential::new("test", &value, "authorization", HeaderAffixes { prefix: "Bearer ", suffix: "" }).unwrap()
}

fn judge(audience: &[u16]) -> Arc<RecordingJudge> {
    Arc::new(RecordingJudge {
        credentials: vec![credential()],
        audience: audience.to_vec(),
        ..RecordingJudge::default()
    })
}

/// A server that records the heads of its requests.
fn recording_server(
    response: impl Fn(&str) -> String + Send + Sync + 'static,
) -> (Server, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let recorded_heads = Arc::clone(&heads);
    let server = Server::start(move |head, stream| {
        recorded_heads.lock().unwrap().push(head.to_owned());
        send(stream, response(head).as_bytes());
    });
    (server, heads)
}

fn carried_credential(heads: &Mutex<Vec<String>>) -> Vec<bool> {
    let carried = format!("authorization: Bearer {VALUE}\r\n");
    heads.lock().unwrap().iter().map(|head| head.contains(&carried)).collect()
}

#[tokio::test]
async fn a_credential_goes_where_the_judge_says_at_each_redirect() {
    let (other, at_other) = recording_server(|_| ok("other"));
    let other_url = other.url("/");
    let (server, at_server) = recording_server(move |head| match head.split(' ').nth(1).unwrap() {
        "/here" => redirect("/end"),
        "/away" => redirect(&other_url),
        _ => ok("end"),
    });
    let client = Client::new(&[server.port, other.port]);
    let permitting = judge(&[server.port]);
    client.get(&server.url("/here"), &permitting).await.unwrap();
    client.get(&server.url("/away"), &permitting).await.unwrap();
    assert_eq!(
        (carried_credential(&at_server), carried_credential(&at_other)),
        (vec![true, true, true], vec![false])
    );
    // The judge decides about a credential after it has judged everything else of a request.
    let questions = permitting.questions.lock().unwrap().clone();
    let address = "127.0.0.1 127.0.0.1";
    let expected_questions =
        ["GET /here", address, "test to /here", "/here to /end", "GET /end", address, "test to /end"];
    assert_eq!(questions[..7], expected_questions);
    drop(questions);

    at_server.lock().unwrap().clear();
    at_other.lock().unwrap().clear();
    client.get(&server.url("/away"), &judge(&[other.port])).await.unwrap();
    assert_eq!((carried_credential(&at_server), carried_credential(&at_other)), (vec![false], vec![true]));
    client.get(&server.url("/end"), &judge(&[])).await.unwrap();
    assert_eq!(carried_credential(&at_server), [false, false]);
}

#[tokio::test]
async fn a_tool_does_not_set_the_header_of_a_credential() {
    let (server, heads) = recording_server(|_| ok("end"));
    let client = Client::new(&[server.port]);
    let mut request = Request::get(server.url("/").parse().unwrap());
    request.headers.insert("Authorization", "Bearer mine".parse().unwrap());
    assert_code(client.send(request.clone(), &judge(&[server.port])).await, "header_forbidden");
    assert_eq!(server.requests(), 0);
    // The tool may set the header for a host that gets no credential.
    client.send(request, &judge(&[])).await.unwrap();
    assert!(heads.lock().unwrap()[0].contains("authorization: Bearer mine\r\n"));
    // Two credentials for one header are refused, because a server could read either of them.
    let two = RecordingJudge {
        credentials: vec![credential(), credential()],
        audience: vec![server.port],
        ..RecordingJudge::default()
    };
    assert_code(client.get(&server.url("/"), &Arc::new(two)).await, "header_forbidden");
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn an_echo_is_redacted_at_every_border_of_a_chunk() {
    let body = format!("<title>{VALUE}</title> {ENCODED} canary%2F7f3a%2bQ%3d%3D end");
    let chunked = move |at: usize| {
        let (start, end) = body.split_at(at.clamp(1, body.len() - 1));
        format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{start}\r\n{:x}\r\n{end}\r\n0\r\n\r\n",
            start.len(),
            end.len()
        )
    };
    let (server, _heads) = recording_server(move |head| {
        chunked(head.split(' ').nth(1).unwrap().trim_start_matches('/').parse().unwrap())
    });
    let client = Client::new(&[server.port]);
    let permitting = judge(&[server.port]);
    for at in (0..70).step_by(3) {
        let response = client.get(&server.url(&format!("/{at}")), &permitting).await.unwrap();
        let body_text = String::from_utf8_lossy(&response.body).into_owned();
        assert!(response.redacted && body_text.starts_with("<title>REDACTED</title> "), "{body_text}");
        assert!(
            body_text.ends_with(" REDACTED end") && body_text.matches("REDACTED").count() == 3,
            "{body_text}"
        );
    }
}

#[tokio::test]
async fn an_echo_is_redacted_after_decompression_and_in_headers() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(format!("you sent {VALUE}").as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    let head = format!(
        "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer error=\"{VALUE}\"\r\nx-{}: a\r\n\
         content-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        VALUE.replace(['/', '+', '='], "-").to_lowercase(),
        body.len()
    );
    let server = Server::answering([head.as_bytes(), &body].concat());
    let response = Client::new(&[server.port]).get(&server.url("/"), &judge(&[server.port])).await.unwrap();
    assert_eq!(&response.body[..], b"you sent REDACTED");
    assert_eq!(response.headers["www-authenticate"], "Bearer error=\"REDACTED\"");
    assert!(response.redacted && !format!("{response:?}").contains("7f3a+"));
    // A credential that this request did not carry is redacted too: a request of another tool may have left it on the
    // server.
    let response = Client::new(&[server.port]).get(&server.url("/"), &judge(&[])).await.unwrap();
    assert!(response.redacted);
}

#[tokio::test]
async fn a_redirect_does_not_carry_a_credential_on() {
    let (other, at_other) = recording_server(|_| ok("other"));
    let other_url = other.url(&format!("/{ENCODED}?key={VALUE}&more=1"));
    let (server, _heads) = recording_server(move |_| redirect(&other_url));
    let client = Client::new(&[server.port, other.port]);
    let response = client.get(&server.url("/"), &judge(&[server.port])).await.unwrap();
    let head = at_other.lock().unwrap().concat();
    assert!(!head.contains("canary") && !head.contains("hbmFyeS83ZjNh"), "{head}");
    assert!(head.contains("?key=REDACTED&more=1 "), "{head}");
    assert!(response.redacted && response.url.as_str().contains("?key=REDACTED&more=1"), "{}", response.url);
}

#[tokio::test]
async fn a_request_without_an_answer_shows_no_credential() {
    let server = Server::start(|_head, stream| send(stream, format!("{VALUE}\r\n\r\n").as_bytes()));
    let result = Client::new(&[server.port]).get(&server.url("/"), &judge(&[server.port])).await;
    let error = result.unwrap_err();
    let description = format!("{error} {error:?}");
    assert!(!description.contains("canary"), "{description}");
    assert_eq!(error.code(), "response_invalid");
}

/// Answers with the request's head, or with the requested range of it.
fn echo(head: &str) -> String {
    let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let Some((first, last)) = range.and_then(|range| range.split_once('-')) else { return ok(head) };
    let (first, last) = (first.parse().unwrap(), last.parse().unwrap_or(usize::MAX).min(head.len() - 1));
    let part = &head[first..=last];
    format!(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {first}-{last}/{}\r\ncontent-length: {}\r\n\r\n{part}",
        head.len(),
        part.len()
    )
}

fn asking(server: &Server, name: &'static str, value: &'static str) -> Request {
    let mut request = Request::get(server.url("/").parse().unwrap());
    request.headers.insert(name, value.parse().unwrap());
    request
}

#[tokio::test]
async fn no_range_cuts_an_echo_in_two() {
    let (server, heads) = recording_server(echo);
    let client = Client::new(&[server.port]);
    let secret_in_head = {
        client.get(&server.url("/"), &judge(&[server.port])).await.unwrap();
        heads.lock().unwrap()[0].find(VALUE).unwrap()
    };
    let ranges = [format!("bytes=0-{}", secret_in_head + 5), format!("bytes={}-", secret_in_head + 6)];
    for range in ranges {
        let request = asking(&server, "range", range.leak());
        assert_code(client.send(request, &judge(&[server.port])).await, "header_forbidden");
    }
    for (name, value) in [("if-range", "\"x\""), ("request-range", "bytes=0-9"), ("a-im", "range")] {
        let request = asking(&server, name, value);
        assert_code(client.send(request, &judge(&[server.port])).await, "header_forbidden");
    }
    assert_eq!(server.requests(), 1);
    // A range may be requested from a host that has no secret.
    let response = client.send(asking(&server, "range", "bytes=0-4"), &judge(&[])).await.unwrap();
    assert_eq!((response.status.as_u16(), &response.body[..]), (206, &b"GET /"[..]));
}

#[tokio::test]
async fn a_part_that_was_not_asked_for_is_refused() {
    let part = format!("content-length: 5\r\n\r\n{}", &VALUE[..5]);
    for head in [
        "206 Partial Content\r\ncontent-range: bytes 0-4/20",
        "206 Partial Content\r\ncontent-type: multipart/byteranges; boundary=x",
        "226 IM Used",
        "200 OK\r\ncontent-range: bytes 0-4/20",
    ] {
        let server = Server::answering(format!("HTTP/1.1 {head}\r\n{part}"));
        let client = Client::new(&[server.port]);
        assert_code(client.get(&server.url("/"), &judge(&[server.port])).await, "response_partial");
        client.get(&server.url("/"), &judge(&[])).await.unwrap();
    }
}

#[tokio::test]
async fn a_redirect_carries_no_range_to_another_origin() {
    let (other, at_other) = recording_server(echo);
    let other_url = other.url("/");
    let (server, _heads) = recording_server(move |_| redirect(&other_url));
    let client = Client::new(&[server.port, other.port]);
    client.send(asking(&server, "range", "bytes=0-4"), &judge(&[])).await.unwrap();
    assert!(!at_other.lock().unwrap()[0].contains("range"), "{at_other:?}");
    // A redirect within the origin keeps the range. The request with the secret is therefore refused.
    let (server, _heads) =
        recording_server(|head| if head.starts_with("GET / ") { redirect("/end") } else { echo(head) });
    let client = Client::new(&[server.port]);
    let request = asking(&server, "range", "bytes=0-4");
    assert_code(client.send(request, &judge(&[server.port])).await, "header_forbidden");
}

#[tokio::test]
async fn a_secret_learned_during_the_request_is_redacted() {
    let shared_judge = Arc::new(RecordingJudge::default());
    let meanwhile = Arc::clone(&shared_judge);
    let (server, _heads) = recording_server(move |_| {
        meanwhile.known.lock().unwrap().push(credential());
        ok(VALUE)
    });
    let response = Client::new(&[server.port]).get(&server.url("/"), &shared_judge).await.unwrap();
    assert!(response.redacted && &response.body[..] == b"REDACTED", "{response:?}");
}
