//! Redirects: each one is judged, and carries nothing of one origin to another.

use std::{
    net::Ipv4Addr,
    sync::{Arc, mpsc},
};

use portcullis_egress::{Request, RequestLimits};

use crate::fixture::{Client, RecordingJudge, Server, ask, assert_code, ok, redirect, send};

#[tokio::test]
async fn each_redirect_is_judged() {
    let server = Server::start(|head, stream| {
        send(stream, if head.starts_with("GET /end ") { ok("end") } else { redirect("/end") }.as_bytes());
    });
    let judge = Arc::new(RecordingJudge::default());
    let response = Client::new(&[server.port]).get(&server.url("/start#part"), &judge).await.unwrap();
    assert_eq!((&response.body[..], response.redirects, response.url.path()), (&b"end"[..], 1, "/end"));
    let questions = judge.questions.lock().unwrap();
    let address = "127.0.0.1 127.0.0.1";
    assert_eq!(*questions, ["GET /start", address, "/start to /end", "GET /end", address]);
}

#[tokio::test]
async fn a_loop_of_redirects_ends() {
    let server = Server::answering(redirect("/again"));
    let judge = Arc::new(RecordingJudge::default());
    let result = Client::new(&[server.port]).get(&server.url("/"), &judge).await;
    assert_code(result, "too_many_redirects");
    assert_eq!(server.requests(), 6);
    let no_redirects = RequestLimits { max_redirects: 0, ..RequestLimits::default() };
    assert_code(ask(redirect("/again"), no_redirects).await, "too_many_redirects");
}

#[tokio::test]
async fn a_redirect_leads_to_no_other_scheme() {
    for location in [
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "data:text/plain,x",
        "gopher://127.0.0.1/",
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "ws://127.0.0.1/",
        "unix:///run/x.sock",
        "view-source:http://127.0.0.1/",
        "about:blank",
    ] {
        assert_code(ask(redirect(location), RequestLimits::default()).await, "scheme_forbidden");
    }
    assert_code(ask(redirect("http://127.0.0.1:1/"), RequestLimits::default()).await, "port_closed");
    assert_code(ask(redirect("http://["), RequestLimits::default()).await, "redirect_invalid");
}

#[tokio::test]
async fn a_redirect_with_user_information_is_refused() {
    let server = Server::start(|head, stream| {
        let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        send(stream, redirect(&format!("http://me:word@{host}/")).as_bytes());
    });
    let result =
        Client::new(&[server.port]).get(&server.url("/"), &Arc::new(RecordingJudge::default())).await;
    assert_code(result, "user_info_forbidden");
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused() {
    let private_server = Server::answering(ok("secret"));
    let port = private_server.port;
    // Spellings of one refused address.
    for target in [
        "http://127.0.0.2:",
        "http://0x7f.0.0.2:",
        "http://2130706434:",
        "http://0177.0.0.02:",
        "http://127.2:",
        "http://127.0.0.2.:",
        "http://%31%32%37.0.0.2:",
        "http://[::ffff:127.0.0.2]:",
        "http://[::ffff:7f00:2]:",
        "http:127.0.0.2:",
        "//127.0.0.2:",
        "\\\\127.0.0.2:",
        "/\\127.0.0.2:",
        "/\t/127.0.0.2:",
        "http:\\\\127.0.0.2:",
        "http://\u{ff11}\u{ff12}\u{ff17}.0.0.2:",
    ] {
        let server = Server::answering(redirect(&format!("{target}{port}/")));
        let mapped = Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped();
        let refused = vec![Ipv4Addr::new(127, 0, 0, 2).into(), mapped.into()];
        let judge = Arc::new(RecordingJudge { refused, ..RecordingJudge::default() });
        let result = Client::new(&[server.port, port]).get(&server.url("/"), &judge).await;
        // A target without the slashes after its scheme is relative to the base, which has the same scheme.
        let code = if target == "http:127.0.0.2:" { "too_many_redirects" } else { "address_private" };
        assert_code(result, code);
    }
    assert_eq!(private_server.requests(), 0);
}

#[tokio::test]
async fn only_a_location_of_a_redirect_is_followed() {
    for head in [
        "200 OK\r\nlocation: /next",
        "201 Created\r\nlocation: /next",
        "300 Multiple Choices\r\nlocation: /next",
        "304 Not Modified\r\nlocation: /next",
        "305 Use Proxy\r\nlocation: /next",
        "200 OK\r\nrefresh: 0; url=/next",
        "302 Found\r\ncontent-location: /next",
        "200 OK\r\nlink: </next>; rel=canonical",
    ] {
        let response = format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(ask(response, RequestLimits::default()).await.unwrap().redirects, 0, "{head}");
    }
}

#[tokio::test]
async fn a_redirect_with_two_or_unreadable_targets_is_refused() {
    for head in ["location: /a\r\nlocation: /b", "location: http://a b/", "location: http://[::1"] {
        let response = format!("HTTP/1.1 302 Found\r\n{head}\r\ncontent-length: 0\r\n\r\n");
        assert_code(ask(response, RequestLimits::default()).await, "redirect_invalid");
    }
    let not_text = b"HTTP/1.1 302 Found\r\nlocation: /\xff\xfe\r\ncontent-length: 0\r\n\r\n";
    assert_code(ask(not_text.as_slice(), RequestLimits::default()).await, "redirect_invalid");
}

/// Checks that no character of a target can end the request's line or add a header.
#[tokio::test]
async fn a_target_stays_one_line_of_the_request() {
    let (heads, seen) = mpsc::channel();
    let server = Server::start(move |head, stream| {
        heads.send(head.to_owned()).unwrap();
        let hostile_redirect = redirect("//127.0.0.1:0\t/x y\u{b}?a=\u{e9}%0d%0aEvil:%201#\tz");
        send(stream, if head.starts_with("GET / ") { hostile_redirect } else { ok("end") }.as_bytes());
    });
    let _any = Client::new(&[server.port]).get(&server.url("/"), &Arc::new(RecordingJudge::default())).await;
    let url = server.url("//host.test/a b\u{1}\r\nEvil: 1?\u{e9} \n#c");
    let request = Request::get(url.parse().unwrap());
    Client::new(&[server.port]).send(request, &Arc::new(RecordingJudge::default())).await.unwrap();
    for head in seen.try_iter() {
        assert!(!head.to_lowercase().contains("\nevil"), "{head}");
        assert_eq!(head.lines().next().unwrap().split(' ').count(), 3, "{head}");
    }
}

#[tokio::test]
async fn credentials_do_not_cross_an_origin() {
    let (heads, seen) = mpsc::channel();
    let other = Server::start(move |head, stream| {
        heads.send(head.to_lowercase()).unwrap();
        send(stream, ok("other").as_bytes());
    });
    let server = Server::answering(redirect(&other.url("/")));
    let mut request = Request::get(server.url("/").parse().unwrap());
    for name in ["authorization", "cookie", "x-api-key"] {
        request.headers.insert(name, "secret".parse().unwrap());
    }
    request.headers.insert("accept", "text/html".parse().unwrap());
    let client = Client::new(&[server.port, other.port]);
    client.send(request, &Arc::new(RecordingJudge::default())).await.unwrap();
    let head = seen.recv().unwrap();
    assert!(!head.contains("secret") && head.contains("accept: text/html"), "{head}");
}
