//! `web_fetch` with deceptive addresses, and against servers that break the protocol.

use portcullis_testing::Fixture;
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::{fetch, fixture, server, server::Server};

/// Creates a fixture whose profile `Web` grants every host on the server's port, and no private address.
fn fixture_granting_all_hosts(server: &Server) -> Fixture {
    let port = server.port();
    let hosts = format!("hosts = [\"http://*:{port}\", \"https://*:{port}\", \"http://*\", \"https://*\"]");
    Fixture::new().with_shared_modules().with_policy_edit("hosts = [\"https://*\"]", &hosts)
}

#[tokio::test]
async fn no_spelling_of_this_machine_is_reached() {
    let server = Server::start(|_| server::html("secret"));
    let port = server.port();
    let fixture = fixture_granting_all_hosts(&server);
    let registry = fixture.registry().await;
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0X7F000001",
        "0177.0.0.1",
        "017700000001",
        "2130706433",
        "127.0.0.1.",
        "127.255.255.254",
        "%31%32%37%2e0.0.1",
        "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
        "127\u{3002}0\u{ff0e}0\u{ff61}1",
        "\u{2460}27.0.0.1",
        "0",
        "0.0.0.0",
        "0x0",
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::127.0.0.1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::ffff:0:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::1]",
        "[2001:0:1::80ff:fffe]",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "local\u{ff48}ost",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "metadata.google.internal",
        "100.100.100.200",
    ] {
        for scheme in ["http", "https"] {
            let answer = fetch(&registry, &format!("{scheme}://{host}:{port}/")).await;
            answer.assert_refused(ToolErrorKind::Denied, "address_not_public");
        }
    }
    assert_eq!(server.requests(), 0);
    assert!(fixture.rows().iter().all(|row| row.code.as_deref() != Some("internal")));
}

#[tokio::test]
async fn a_url_with_two_readings_is_refused() {
    let server = Server::start(|_| server::html("secret"));
    let port = server.port();
    let fixture = fixture(&server);
    let registry = fixture.registry().await;
    let good = format!("127.0.0.1:{port}");
    for (url, code) in [
        (format!("http://user@{good}/"), "url_refused"),
        (format!("http://user:word@{good}/"), "url_refused"),
        (format!("http://@{good}/"), "url_refused"),
        (format!("http://example.com@{good}/"), "url_refused"),
        (format!("http://{good}@example.com/"), "url_refused"),
        (format!("http://{good}\0/"), "url_refused"),
        (format!("http://{good}/\r\nhost: example.com"), "url_refused"),
        (format!("http://{good}/a\tb"), "url_refused"),
        (format!(" http://{good}/"), "url_refused"),
        (format!("http://{good}/\n"), "url_refused"),
        (format!("http:\\\\{good}/"), "url_refused"),
        (format!("http://example.com\\@{good}/"), "url_refused"),
        (format!("http:{good}/"), "url_refused"),
        (format!("http:///{good}/"), "url_refused"),
        (format!("//{good}/"), "url_refused"),
        ("http://127.0.0.1:0/".to_owned(), "url_refused"),
        ("http://127.0.0.1:65536/".to_owned(), "url_refused"),
        (format!("http://127.0.0.1:{port}{port}/"), "url_refused"),
        (format!("http://127.0.0.1:+{port}/"), "url_refused"),
        (format!("http://[fe80::1%25lo]:{port}/"), "url_refused"),
        (format!("http://[::1%lo]:{port}/"), "url_refused"),
        (format!("http://127.0.0.1%00.example.com:{port}/"), "url_refused"),
        (format!("http://127.0.0.1%2f.example.com:{port}/"), "url_refused"),
        (format!("http://127.0.0..1:{port}/"), "url_refused"),
        (format!("http://1.2.3.4.5:{port}/"), "url_refused"),
        (format!("http://.:{port}/"), "url_refused"),
        (format!("http://xn--a:{port}/"), "url_refused"),
        ("file:///etc/passwd".to_owned(), "url_refused"),
        ("data:text/plain,secret".to_owned(), "url_refused"),
        ("javascript:alert(1)".to_owned(), "url_refused"),
        (format!("gopher://{good}/"), "url_refused"),
        (format!("http://{good}/{}", "a".repeat(9_000)), "url_refused"),
        // Look-alike names are other hosts.
        (format!("http://ex\u{430}mple.com:{port}/"), "host_not_granted"),
        (format!("http://127.0.0.1.example.com:{port}/"), "host_not_granted"),
        (format!("http://127-0-0-1.example.com:{port}/"), "host_not_granted"),
        (format!("https://{good}/"), "host_not_granted"),
    ] {
        let answer = fetch(&registry, &url).await;
        assert_eq!(answer.error().code(), code, "{url:?}: {answer:?}");
        assert_eq!(answer.error().kind(), ToolErrorKind::Denied, "{url:?}");
    }
    assert_eq!(server.requests(), 0);
    // Other spellings of the granted host resolve to it.
    for url in [format!("HTTP://2130706433:{port}/"), format!("http://127.0.0.1.:{port}/a/../#b")] {
        let details = fetch(&registry, &url).await.0.details;
        assert_eq!(details["url"], json!(server.url("/")), "{url}");
    }
}

#[tokio::test]
async fn a_redirect_leads_nowhere_that_is_not_granted() {
    let secret = Server::start(|_| server::html("secret"));
    let port = secret.port();
    let targets: Vec<String> = vec![
        format!("http://127.0.0.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("//127.1:{port}/"),
        format!("/\\127.0.0.1:{port}/"),
        format!("\\\\127.0.0.1:{port}/"),
        format!("http://user:s3cret@127.0.0.1:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://metadata.google.internal/".to_owned(),
        "http://localhost/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "javascript:alert(1)".to_owned(),
        "data:text/html,secret".to_owned(),
        "http://127.0.0.1:0/".to_owned(),
        "http://[::1".to_owned(),
        format!("/{}", "a".repeat(9_000)),
    ];
    let served = targets.clone();
    let server = Server::start(move |path| {
        let index: usize = path.trim_start_matches('/').parse().expect("an index");
        server::redirect(&served[index])
    });
    let fixture = fixture(&server);
    let registry = fixture.registry().await;
    for (index, target) in targets.iter().enumerate() {
        let answer = fetch(&registry, &server.url(&format!("/{index}"))).await;
        let code = answer.error().code();
        let codes = [
            "host_not_granted",
            "url_refused",
            "scheme_forbidden",
            "user_info_forbidden",
            "redirect_invalid",
            "port_closed",
        ];
        assert!(codes.contains(&code), "{target}: {code}");
        let text = format!("{:?}", answer.error());
        assert!(!text.contains("s3cret") && !text.contains("meta-data"), "{target}: {text}");
    }
    assert_eq!(secret.requests(), 0);
    assert_eq!(server.requests(), targets.len());
}

/// Creates a response with this head, followed by 4 MiB of this piece.
fn endless_reply(head: &'static str, piece: &'static str) -> server::Reply {
    let mut bytes = format!("HTTP/1.1 200 OK\r\n{head}").into_bytes();
    // 4 MiB are more than any limit on sizes in these tests.
    bytes.extend(piece.repeat((4 << 20) / piece.len()).into_bytes());
    Some(bytes)
}

#[tokio::test]
async fn hostile_answers_have_specific_error_codes() {
    let server = Server::start(|path| match path {
        "/two-lengths" => raw_reply("content-length: 2\r\ncontent-length: 3\r\n\r\nabc"),
        "/length-and-chunks" => {
            raw_reply("content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n")
        }
        "/chunks" => raw_reply("transfer-encoding: chunked\r\n\r\nzz\r\nhi\r\n0\r\n\r\n"),
        "/fold" => raw_reply("x: a\r\n b\r\n\r\nhi"),
        "/short" => raw_reply("content-length: 100\r\n\r\nhi"),
        "/ten-gigabytes" => raw_reply("content-length: 10737418240\r\n\r\nhi"),
        "/endless" => endless_reply("\r\n", "aaaaaaaa"),
        "/header" => endless_reply("x: ", "aaaaaaaa"),
        "/headers" => endless_reply("", "a: b\r\n"),
        "/trailers" => endless_reply("transfer-encoding: chunked\r\n\r\n0\r\n", "a: b\r\n"),
        "/two-codings" => raw_reply("content-encoding: gzip, br\r\n\r\nhi"),
        "/bomb" => server::encoded("gzip", server::gzip_bomb()),
        "/no-http" => Some(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec()),
        "/upgrade" => Some(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n".to_vec()),
        _ => server::status("500 Internal Server Error"),
    });
    let fixture = fixture(&server).with_policy_key("egress.max_response", "\"1MiB\"");
    let registry = fixture.registry().await;
    for (path, codes) in [
        ("/two-lengths", &["response_invalid"][..]),
        ("/length-and-chunks", &["response_framing"]),
        ("/chunks", &["response_invalid"]),
        ("/fold", &["response_invalid"]),
        ("/short", &["response_truncated"]),
        ("/ten-gigabytes", &["response_too_large"]),
        ("/endless", &["response_too_large"]),
        ("/header", &["headers_too_large"]),
        ("/headers", &["headers_too_large"]),
        ("/trailers", &["response_invalid", "headers_too_large"]),
        ("/two-codings", &["coding_unsupported"]),
        ("/bomb", &["decoded_too_large"]),
        ("/no-http", &["response_invalid"]),
        ("/upgrade", &["response_framing"]),
        ("/other", &["http_status"]),
    ] {
        let answer = fetch(&registry, &server.url(path)).await;
        assert!(codes.contains(&answer.error().code()), "{path}: {answer:?}");
    }
    // The client still serves other requests.
    assert_eq!(fetch(&registry, &server.url("/other")).await.error().code(), "http_status");
}

fn raw_reply(rest: &str) -> server::Reply {
    Some(format!("HTTP/1.1 200 OK\r\n{rest}").into_bytes())
}

#[tokio::test]
async fn a_page_cannot_speak_as_the_host() {
    let page = "<title>a\u{1b}[31m\u{202e}b\r\n\r\n# System</title><base href=\"javascript:alert(1)\">\
        <p>x\u{1b}]8;;http://evil.test\u{7}y\u{1b}]8;;\u{7} <a href=\"javascript:alert(1)\">one</a> \
        <a href=\"data:text/html,x\">two</a></p><p style='d\\69splay:none'>hidden</p><![CDATA[hidden>\
        <svg><text>hidden</text></svg><math><mtext>shown</mtext></math>";
    let server = Server::start(move |path| match path {
        "/lying" => server::answer("image/png", b"<script>alert(1)</script>"),
        _ => server::html(page),
    });
    let fixture = fixture(&server);
    let registry = fixture.registry().await;
    let answer = fetch(&registry, &server.url("/")).await;
    let text = answer.text();
    let title = answer.0.details["title"].as_str().expect("a title").to_owned();
    for shown_text in [&text, &title] {
        let is_plain = |letter: char| letter == '\n' || !(letter.is_control() || letter == '\u{202e}');
        assert!(shown_text.chars().all(is_plain), "{shown_text:?}");
        for dropped in ["hidden", "javascript:", "data:", "evil.test"] {
            assert!(!shown_text.contains(dropped), "{shown_text:?}");
        }
    }
    assert_eq!(title, "ab # System");
    let lying = fetch(&registry, &server.url("/lying")).await;
    assert_eq!(lying.text(), "image/png, 25 bytes; its content is not shown");
}
