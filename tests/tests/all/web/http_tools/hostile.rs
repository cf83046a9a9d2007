//! HTTP tools with deceptive URLs and arguments, and against servers that send too much, too little or
//! invalid data.

use std::time::{Duration, Instant};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use super::{configuration, granted, registry, tool_file};
use crate::{
    modules::{portcullis, stderr},
    web::{fixture, server, server::Server},
};

/// Calls a tool that gets this path of a server, with more keys in its configuration.
async fn get(server: &Server, path: &str, more: &Value) -> CallOutcome {
    let fixture = granted(fixture(server), "ask");
    let mut tool = configuration("ask", &json!({"url": server.url(path)}));
    tool.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    CallOutcome::run(&registry(&fixture, &tool).await, "ask", json!({})).await
}

#[tokio::test]
async fn a_redirect_to_another_host_or_a_private_address_is_refused() {
    for target in
        ["http://169.254.169.254/latest", "http://127.0.0.1:1/", "https://other.test/", "file:///etc/passwd"]
    {
        let server = Server::start(move |_| server::redirect(target));
        let answer = get(&server, "/", &json!({})).await;
        let error = answer.error();
        assert!(matches!(error.kind(), ToolErrorKind::Denied | ToolErrorKind::Failed), "{target}: {error:?}");
        assert_eq!(server.requests(), 1, "{target}");
    }
    let server = Server::start(|path| match path {
        "/" => server::redirect("/moved"),
        _ => server::json("{\"at\": \"moved\"}"),
    });
    let moved = get(&server, "/", &json!({})).await;
    assert_eq!(moved.text(), "{\"at\":\"moved\"}");
}

#[tokio::test]
async fn arguments_cannot_leave_the_query() {
    let server = Server::start(|_| server::json("1"));
    let fixture = granted(fixture(&server), "ask");
    let registry = registry(&fixture, &configuration("ask", &json!({"url": server.url("/p")}))).await;
    let arguments = json!({
        "a&b=c": "x", "#": "y", "line\r\nHost: evil": "1\r\nX-Injected: 2", "url": "http://other.test/",
        "nested": {"q": ["&", "=", "\u{202e}", {"deep": null}]},
    });
    assert_eq!(CallOutcome::run(&registry, "ask", arguments).await.text(), "1");
    let request = server.requests_seen().pop().expect("a request");
    let (line, head) = request.split_once("\r\n").expect("a head");
    assert!(line.starts_with("GET /p?") && line.ends_with(" HTTP/1.1"), "{line}");
    assert!(line.contains("a%26b%3Dc=x") && line.contains("%23=y"), "{line}");
    assert!(!head.to_lowercase().contains("injected") && !head.contains("evil"), "{head}");
    let pairs: Vec<_> = line.split(' ').nth(1).expect("a path").split(['?', '&']).skip(1).collect();
    assert_eq!(pairs.len(), 5, "{pairs:?}");

    let long = CallOutcome::run(&registry, "ask", json!({"q": "x".repeat(9000)})).await;
    long.assert_refused(ToolErrorKind::InvalidArguments, "invalid_arguments");
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn responses_are_bounded_and_never_shown_as_they_are_not() {
    let server = Server::start(|path| match path {
        "/huge" => server::answer("text/plain", &vec![b'x'; 11 << 20]),
        "/bomb" => server::encoded("gzip", server::gzip_bomb()),
        "/no-json" => server::answer("application/json", b"<html>"),
        "/latin" => server::answer("text/plain; charset=iso-8859-1", b"caf\xe9"),
        "/binary" => server::answer("application/octet-stream", &[0, 159, 146, 150]),
        "/refused" => server::failure("422 Unprocessable", "application/json", "{\"field\": \"city\"}"),
        "/loud" => server::failure("500 X", "text/plain", &"y".repeat(100_000)),
        "/torn" => Some(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort".to_vec()),
        _ => server::status("204 No Content"),
    });
    for (path, code) in [
        ("/huge", "response_too_large"),
        ("/bomb", "decoded_too_large"),
        ("/no-json", "response_invalid"),
        ("/refused", "http_status"),
        ("/loud", "http_status"),
    ] {
        let answer = get(&server, path, &json!({})).await;
        let error = answer.error();
        assert_eq!(error.code(), code, "{path}: {error}");
        assert!(error.to_string().len() < 4096, "{path}");
    }
    let refused = get(&server, "/refused", &json!({})).await.error().to_string();
    assert!(refused.contains("422") && refused.contains("city"), "{refused}");
    assert_eq!(get(&server, "/torn", &json!({})).await.error().kind(), ToolErrorKind::Failed);
    for (path, text) in [
        ("/latin", "text/plain; charset=iso-8859-1, 4 bytes; it is not UTF-8"),
        ("/binary", "application/octet-stream, 4 bytes; its content is not shown"),
        ("/", "status 204, without content"),
    ] {
        assert_eq!(get(&server, path, &json!({})).await.text(), text, "{path}");
    }
}

#[tokio::test]
async fn a_silent_server_ends_the_call_at_its_time_limit() {
    let server = Server::start(|_| server::no_reply());
    let started = Instant::now();
    let answer = get(&server, "/", &json!({"timeout": 300, "isAsync": true})).await;
    assert_eq!(answer.error().kind(), ToolErrorKind::Timeout, "{:?}", answer.error());
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[test]
fn an_address_or_header_never_sent_is_refused_at_the_start() {
    let server = Server::start(|_| server::json("1"));
    for (execution, words) in [
        (json!({"url": "https://user:word@a.example/"}), "execution.url: the URL has a user name"),
        (json!({"url": "https://a.example/", "headers": {"X-A": "1\r\nX-B: 2"}}), "execution.headers.X-A: "),
        (json!({"url": "https://a.example/", "headers": {"Authorization": "Bearer x"}}), "[secrets.NAME]"),
        (json!({"url": "http://10.0.0.1/"}), "10.0.0.1"),
        (json!({"url": "http://[::ffff:127.0.0.1]:8080/"}), "127.0.0.1:8080"),
        (json!({"url": "http://metadata.google.internal/"}), "metadata.google.internal"),
    ] {
        let fixture = Fixture::new();
        let file = tool_file(&fixture, &configuration("ask", &execution));
        let output =
            portcullis(&fixture, &["tools", "--tool-file", file.to_str().expect("the path is UTF-8")]);
        assert_eq!(output.status.code(), Some(2), "{execution}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{execution}: {}", stderr(&output));
    }
    // The same address is reachable if the operator allows it.
    let fixture = granted(fixture(&server), "ask");
    let file = tool_file(&fixture, &configuration("ask", &json!({"url": server.url("/")})));
    let output = portcullis(&fixture, &["tools", "--tool-file", file.to_str().expect("the path is UTF-8")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
