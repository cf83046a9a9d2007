//! `robots.txt`, checked before each page, through the whole pipeline.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{ToolRegistry, audit::Row};
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::{
    fetch, fixture,
    server::{self, Reply, Server},
};

fn robots_file(rules: &str) -> Reply {
    server::answer("text/plain", rules.as_bytes())
}

/// Starts a server with this `robots.txt`, whose other paths are all pages.
fn server_with_rules(rules: &'static str) -> Server {
    Server::with_robots(move |path| match path {
        "/robots.txt" => robots_file(rules),
        "/there" => server::redirect("/private/page"),
        _ => server::html("<p>a page"),
    })
}

fn end_rows<'a>(rows: &'a [Row], tool: &str) -> Vec<&'a Row> {
    rows.iter().filter(|row| &*row.tool == tool && row.outcome.is_some()).collect()
}

fn url_of(row: &Row) -> &str {
    &row.subjects[0].value
}

#[tokio::test]
async fn a_page_that_the_file_disallows_is_not_requested() {
    let server = server_with_rules("User-agent: *\nAllow: /\n\nUser-agent: Portcullis\nDisallow: /private\n");
    let fixture = fixture(&server);
    let registry = fixture.registry().await;
    assert_eq!(fetch(&registry, &server.url("/public")).await.text(), "a page");
    let refused = fetch(&registry, &server.url("/private/x?y")).await;
    let message = refused.assert_refused(ToolErrorKind::Denied, "robots_disallowed");
    let line = "`robots = \"ignore\"` under `[egress]`";
    assert!(message.contains(line) && message.contains(&server.url("/robots.txt")), "{message}");
    let paths: Vec<String> = server
        .requests_seen()
        .iter()
        .map(|request| request.split(' ').nth(1).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(paths, ["/robots.txt", "/public"], "the file is asked for once, the page not at all");

    let rows = fixture.rows();
    let requests = end_rows(&rows, "web_fetch_request");
    assert_eq!(
        requests.iter().map(|row| url_of(row)).collect::<Vec<_>>(),
        [server.url("/robots.txt"), server.url("/public"), server.url("/private/x?y")]
    );
    let refusal = requests[2];
    assert_eq!(
        (refusal.code.as_deref(), refusal.rule.as_deref()),
        (Some("robots_disallowed"), Some("egress.robots"))
    );
    assert!(refusal.requests.is_empty(), "{refusal:?}");
    let first_requests = &requests[0].requests;
    assert_eq!(first_requests[0].address.as_deref(), Some(format!("127.0.0.1:{}", server.port()).as_str()));
    // The guest that reads the file has no mounts and no network.
    let readers = end_rows(&rows, "web_fetch_robots");
    assert_eq!(readers.len(), 2);
    for reader in readers {
        assert_eq!((reader.profile.as_deref(), reader.mounts.len()), (Some("Nothing"), 0));
    }
    assert!(rows.iter().all(|row| row.operation_id.is_some()));
}

#[tokio::test]
async fn each_redirect_is_asked_about_at_its_own_host() {
    let elsewhere = server_with_rules("user-agent: *\ndisallow: /no\n");
    let (yes, no) = (elsewhere.url("/yes"), elsewhere.url("/no"));
    let server = Server::with_robots(move |path| match path {
        "/robots.txt" => robots_file("user-agent: *\ndisallow: /private\n"),
        "/away" => server::redirect(&yes),
        "/away-no" => server::redirect(&no),
        "/within" => server::redirect("/private"),
        _ => server::html("<p>never"),
    });
    let fixture = Fixture::new()
        .with_shared_modules()
        .with_policy_edit(
            "hosts = [\"https://*\"]",
            &format!("hosts = [\"{}\", \"{}\"]", server.url(""), elsewhere.url("")),
        )
        .with_policy_edit(
            "allow_private = []",
            &format!("allow_private = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]", server.port(), elsewhere.port()),
        );
    let registry = fixture.registry().await;
    let redirected = fetch(&registry, &server.url("/away")).await;
    assert_eq!(redirected.text(), "a page");
    assert_eq!(
        (&redirected.0.details["url"], &redirected.0.details["redirects"]),
        (&json!(elsewhere.url("/yes")), &json!(1))
    );
    fetch(&registry, &server.url("/away-no"))
        .await
        .assert_refused(ToolErrorKind::Denied, "robots_disallowed");
    fetch(&registry, &server.url("/within")).await.assert_refused(ToolErrorKind::Denied, "robots_disallowed");
    assert_eq!(elsewhere.requests(), 2, "the file and the allowed page");
    let rows = fixture.rows();
    let first: Vec<&str> =
        end_rows(&rows, "web_fetch_request").iter().take(4).map(|row| url_of(row)).collect();
    assert_eq!(
        first,
        [server.url("/robots.txt"), server.url("/away"), elsewhere.url("/robots.txt"), elsewhere.url("/yes")]
    );
}

/// The meaning of each answer about `robots.txt` for the host's pages (RFC 9309, section 2.3.1).
#[tokio::test]
async fn only_an_answer_of_the_host_allows_its_pages() {
    let disallows = "user-agent: *\ndisallow: /\n";
    // `Ok` if pages may be requested, or the code of the refusal and a part of its message.
    type Expected = Result<(), (&'static str, &'static str)>;
    type Case = (&'static str, fn() -> Reply, Expected);
    let cases: [Case; 9] = [
        ("no file", || server::status("404 Not Found"), Ok(())),
        ("not allowed", || server::status("403 Forbidden"), Ok(())),
        ("an empty file", || robots_file(""), Ok(())),
        ("a page in its place", || server::html("<p>hello"), Ok(())),
        (
            "another 2xx",
            || server::failure("203 Non-Authoritative", "text/plain", "user-agent: *\ndisallow: /\n"),
            Err(("robots_disallowed", "")),
        ),
        (
            "a broken host",
            || server::status("503 Service Unavailable"),
            Err(("robots_unreadable", "status 503")),
        ),
        ("no such version", || server::status("304 Not Modified"), Err(("robots_unreadable", "status 304"))),
        (
            "cut off",
            || Some(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nuser".to_vec()),
            Err(("robots_unreadable", "cut off")),
        ),
        ("a loop", || server::redirect("/robots.txt"), Err(("robots_unreadable", "redirects"))),
    ];
    for (name, answer, expected) in cases {
        let server = Server::with_robots(move |path| match path {
            "/robots.txt" => answer(),
            _ => server::html("<p>a page"),
        });
        let fixture = fixture(&server);
        let registry = fixture.registry().await;
        let fetched = fetch(&registry, &server.url("/")).await;
        match expected {
            Ok(()) => assert_eq!(fetched.text(), "a page", "{name}"),
            Err((code, reason)) => {
                let message = fetched.assert_refused(ToolErrorKind::Denied, code);
                assert!(message.contains(reason), "{name}: {message}");
            }
        }
    }
    // Up to five redirects of the file are followed, even to another host under the same grant.
    for (redirects, expected) in [(5, "robots_disallowed"), (6, "robots_unreadable")] {
        let server = Server::with_robots(move |path| {
            let hop: usize = path.trim_start_matches("/hop").parse().unwrap_or(0);
            match path {
                "/page" => server::html("<p>a page"),
                _ if hop < redirects => server::redirect(&format!("/hop{}", hop + 1)),
                _ => robots_file(disallows),
            }
        });
        let fixture = fixture(&server).with_policy_edit("max_redirects = 5 ", "max_redirects = 20 ");
        let fetched = fetch(&fixture.registry().await, &server.url("/page")).await;
        assert_eq!(fetched.error().code(), expected, "{redirects} redirects");
    }
}

#[tokio::test]
async fn a_file_that_leads_to_a_host_without_a_rule_is_not_read() {
    let secret = server_with_rules("user-agent: *\nallow: /\n");
    let to = secret.url("/robots.txt");
    let server = Server::with_robots(move |path| match path {
        "/robots.txt" => server::redirect(&to),
        _ => server::html("<p>a page"),
    });
    let fixture = fixture(&server);
    let fetched = fetch(&fixture.registry().await, &server.url("/")).await;
    let message = fetched.assert_refused(ToolErrorKind::Denied, "robots_unreadable");
    assert!(message.contains(&secret.url("")), "{message}");
    assert_eq!((server.requests(), secret.requests()), (1, 0));
}

/// If a host cannot be reached or is not granted, the error is about the host and not about `robots.txt`.
#[tokio::test]
async fn an_unreachable_host_is_reported() {
    let port =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address").port();
    let gone = Server::for_port(port);
    let fixture = fixture(&gone);
    let registry = fixture.registry().await;
    let failed = fetch(&registry, &gone.url("/")).await;
    assert_eq!(failed.error().code(), "connect_failed", "{failed:?}");
    fetch(&registry, "http://other.test/").await.assert_refused(ToolErrorKind::Denied, "host_not_granted");
}

/// Only the first 500 KiB of a file count. A rule that crosses this limit does not count.
#[tokio::test]
async fn a_long_file_is_read_to_its_bound() {
    let rules = "user-agent: *\ndisallow: /private\n";
    let filler = "# nothing\n".repeat(600 * 1024 / 10);
    let server = Server::with_robots(move |path| match path {
        "/robots.txt" => robots_file(&format!("{rules}{filler}disallow: /late\n")),
        _ => server::html("<p>a page"),
    });
    let fixture = fixture(&server);
    let registry = fixture.registry().await;
    assert_eq!(fetch(&registry, &server.url("/late")).await.text(), "a page");
    fetch(&registry, &server.url("/private"))
        .await
        .assert_refused(ToolErrorKind::Denied, "robots_disallowed");
}

/// Patterns for which a backtracking matcher takes exponential time, and files on which a parser could run
/// out of memory.
#[tokio::test]
async fn a_hostile_file_ends_within_the_call() {
    let files: [String; 4] = [
        format!("user-agent: *\ndisallow: /{}$\n", "*a".repeat(250_000)),
        format!("user-agent: *\n{}", format!("disallow: /{}b\n", "a*".repeat(5_000)).repeat(50)),
        "user-agent: portcullis\n".repeat(22_000),
        format!("user-agent: *\n{}", "disallow:/*$\n".repeat(39_000)),
    ];
    let files = Arc::new(files);
    let (served, index) = (Arc::clone(&files), Arc::new(AtomicUsize::new(0)));
    let next = Arc::clone(&index);
    let server = Server::with_robots(move |path| match path {
        "/robots.txt" => robots_file(&served[next.load(Ordering::SeqCst)]),
        _ => server::html("<p>a page"),
    });
    for number in 0..files.len() {
        index.store(number, Ordering::SeqCst);
        let fixture = fixture(&server);
        let registry = fixture.registry().await;
        let fetched = fetch(&registry, &server.url(&format!("/{}", "a".repeat(7_000)))).await;
        let code = fetched.0.outcome.error().map(|error| error.code().to_owned());
        assert!(
            matches!(code.as_deref(), None | Some("robots_disallowed" | "robots_unreadable")),
            "{number}: {fetched:?}"
        );
    }
}

#[tokio::test]
async fn the_operator_alone_may_ignore_the_file() {
    let server = server_with_rules("user-agent: *\ndisallow: /\n");
    let ignoring = fixture(&server).with_policy_key("egress.robots", "\"ignore\"");
    let redirected = fetch(&ignoring.registry().await, &server.url("/there")).await;
    assert_eq!((redirected.text().as_str(), &redirected.0.details["redirects"]), ("a page", &json!(1)));
    assert!(
        !server.requests_seen().iter().any(|request| request.contains("/robots.txt")),
        "{:?}",
        server.requests_seen()
    );
    // The client follows the redirect within one request, so the row has both URLs, the last URL first.
    let rows = ignoring.rows();
    let row = end_rows(&rows, "web_fetch_request").pop().expect("a row");
    let urls: Vec<&str> = row.requests.iter().map(|request| &*request.url).collect();
    assert_eq!(urls, [server.url("/private/page"), server.url("/there")]);

    ignoring.put("../portcullis.toml", "[egress]\nrobots = \"obey\"\n");
    fetch(&ignoring.registry().await, &server.url("/"))
        .await
        .assert_refused(ToolErrorKind::Denied, "robots_disallowed");
}

/// A flow rule about requests after the label `web` does not stop a fetch between its own requests.
#[tokio::test]
async fn a_fetch_does_not_trigger_a_rule_by_its_own_requests() {
    let server = server_with_rules("user-agent: *\nallow: /\n");
    let fixture = fixture(&server)
        .with_policy("[[flow]]\nafter = [\"web\"]\nthen = [\"network\"]\napproval = \"deny\"\n");
    let registry: ToolRegistry = fixture.registry().await;
    let redirected = CallOutcome::run(&registry, "web_fetch", json!({ "url": server.url("/there") })).await;
    assert_eq!(redirected.text(), "a page");
    let second_fetch = CallOutcome::run(&registry, "web_fetch", json!({ "url": server.url("/") })).await;
    second_fetch.assert_refused(ToolErrorKind::Denied, "flow_denied");
}
