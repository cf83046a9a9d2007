//! Secrets of the policy in requests of `web_fetch`: each secret reaches its hosts and no others.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::{BootstrapError, ToolRegistry, audit::Row, new_call};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use super::{
    server,
    tls::{Authority, TlsServer},
};

/// A value that differs in its plain, base64 and URL forms.
pub(super) const VALUE: &str = "canary/7f3a9c+Q52e==";

/// `-canary/7f3a9c+Q52e==-` in base64.
pub(super) const ENCODED: &str = "LWNhbmFyeS83ZjNhOWMrUTUyZT09LQ==";

/// Creates a fixture in which all servers are granted, and the first server is the secret's host.
pub(super) fn fixture(authority: &Authority, servers: &[&TlsServer], from: &str) -> Fixture {
    let list = |texts: Vec<String>| serde_json::to_string(&texts).expect("texts");
    let hosts = list(servers.iter().map(|server| server.origin()).collect());
    let endpoints = list(servers.iter().map(|server| server.endpoint()).collect());
    let fixture = Fixture::new()
        .with_shared_modules()
        .with_policy_edit("hosts = [\"https://*\"]", &format!("hosts = {hosts}"))
        .with_policy_edit("allow_private = []", &format!("allow_private = {endpoints}\nca = \"ca.pem\""))
        // With `robots.txt` ignored, a fetch is one request whose redirects the client itself follows.
        .with_policy_key("egress.robots", "\"ignore\"")
        .with_policy(&format!(
            "[secrets.api]\nfrom = \"{from}\"\nhosts = [\"{}\"]\nheader = \"Authorization: Bearer {{secret}}\"\n\
             tools = [\"web_fetch\"]\n",
            servers[0].origin()
        ));
    fs::write(fixture.root().join("ca.pem"), &authority.pem).expect("writable");
    fixture
}

/// Like [`fixture`], with the value in a file beside the policy.
fn fixture_with_token_file(authority: &Authority, servers: &[&TlsServer]) -> Fixture {
    let fixture = fixture(authority, servers, "file:token");
    put_token(&fixture, 0o600);
    fixture
}

pub(super) fn put_token(fixture: &Fixture, mode: u32) -> PathBuf {
    let path = fixture.root().join("token");
    fs::write(&path, format!("{VALUE}\n")).expect("writable");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the permissions can be set");
    path
}

async fn fetch(registry: &ToolRegistry, url: &str) -> CallOutcome {
    CallOutcome::run(registry, "web_fetch", json!({ "url": url, "format": "html" })).await
}

fn page(body: &str) -> Vec<u8> {
    server::html(body).expect("an answer")
}

fn redirect(to: &str) -> Vec<u8> {
    server::redirect(to).expect("an answer")
}

fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or("/")
}

/// Returns the path of each request, and whether the request carried the secret.
fn requests_with_secret_flag(server: &TlsServer) -> Vec<(String, bool)> {
    let is_there = |head: &String| head.contains(&format!("authorization: Bearer {VALUE}\r\n"));
    server.take_heads().iter().map(|head| (path(head).to_owned(), is_there(head))).collect()
}

/// Returns the last `end` row of a request.
fn request_row(fixture: &Fixture) -> Row {
    let rows = fixture.rows();
    rows.into_iter().rfind(|row| &*row.tool == "web_fetch_request" && row.outcome.is_some()).expect("a row")
}

#[tokio::test]
async fn a_secret_arrives_at_its_host_alone_and_its_row_names_it() {
    let authority = Authority::new();
    let other_server = authority.serve(|_| page("<p>other"));
    let elsewhere = other_server.url("/arrived");
    let own_server = authority.serve(move |head| match path(head) {
        "/away" => redirect(&elsewhere),
        "/here" => redirect("/page"),
        _ => page("<p>own"),
    });
    let fixture = fixture_with_token_file(&authority, &[&own_server, &other_server]);
    let registry = fixture.registry().await;
    let expected_requests = |paths: &[(&str, bool)]| -> Vec<(String, bool)> {
        paths.iter().map(|(path, is)| ((*path).to_owned(), *is)).collect()
    };

    assert!(fetch(&registry, &own_server.url("/here")).await.text().contains("own"));
    assert_eq!(
        requests_with_secret_flag(&own_server),
        expected_requests(&[("/here", true), ("/page", true)])
    );
    assert_eq!(request_row(&fixture).secrets, ["api".into()]);

    assert!(fetch(&registry, &own_server.url("/away")).await.text().contains("other"));
    assert_eq!(requests_with_secret_flag(&own_server), expected_requests(&[("/away", true)]));
    assert_eq!(requests_with_secret_flag(&other_server), expected_requests(&[("/arrived", false)]));
    assert_eq!(request_row(&fixture).secrets, ["api".into()]);

    assert!(fetch(&registry, &other_server.url("/direct")).await.text().contains("other"));
    assert_eq!(requests_with_secret_flag(&other_server), expected_requests(&[("/direct", false)]));
    let row = request_row(&fixture);
    assert!(row.secrets.is_empty() && row.labels.iter().any(|label| &**label == "secret:api"), "{row:?}");
    // The `begin` row already names the secret. That row remains if the process dies.
    let begun = fixture.rows().into_iter().find(|row| &*row.tool == "web_fetch_request").expect("a row");
    assert!(begun.outcome.is_none() && begun.secrets == ["api".into()], "{begun:?}");
    let log = fs::read_to_string(portcullis_tools::audit::log_path(&fixture.state())).expect("readable");
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test]
async fn a_redirect_into_the_audience_carries_the_secret() {
    let authority = Authority::new();
    let own_server = authority.serve(|_| page("<p>own"));
    let target = own_server.url("/arrived");
    let other_server = authority.serve(move |_| redirect(&target));
    let fixture = fixture_with_token_file(&authority, &[&own_server, &other_server]);
    let registry = fixture.registry().await;
    assert!(fetch(&registry, &other_server.url("/start")).await.text().contains("own"));
    assert_eq!(requests_with_secret_flag(&other_server), [("/start".to_owned(), false)]);
    assert_eq!(requests_with_secret_flag(&own_server), [("/arrived".to_owned(), true)]);
    assert_eq!(request_row(&fixture).secrets, ["api".into()]);
}

#[tokio::test]
async fn an_answer_that_repeats_a_secret_is_redacted_in_all_its_parts() {
    let authority = Authority::new();
    let escaped = VALUE.replace('/', "%2F").replace('+', "%2B").replace('=', "%3d");
    let own_server = authority.serve(move |head| match path(head) {
        "/page" => page(&format!(
            "<title>{VALUE}</title><p>You sent {VALUE}, {ENCODED} and <a href=\"/?key={escaped}\">it</a> canary&#47;7f3a9c&#x2B;Q52e&#61;="
        )),
        "/json" => server::answer("application/json", json!({ "headers": head }).to_string().as_bytes()).expect("an answer"),
        "/redirect" => redirect(&format!("/json?key={escaped}&again={VALUE}")),
        "/refused" => server::status(&format!("401 no such key {VALUE}")).expect("an answer"),
        "/type" => server::answer(&format!("text/x-{VALUE}"), b"text").expect("an answer"),
        "/torn" => format!("HTTP/1.1 200 {VALUE}\r\ncontent-length: {VALUE}\r\n\r\n").into_bytes(),
        path if path.starts_with("/json") => page("<p>arrived"),
        _ => redirect(&format!("https://{}.test/", VALUE.replace(['/', '+', '='], "-"))),
    });
    let fixture = fixture_with_token_file(&authority, &[&own_server]);
    let registry = fixture.registry().await;
    let is_clean = |answer: &CallOutcome| {
        let description = format!("{answer:?}");
        for part in ["canary", "7f3a9c", "hbmFyeS83ZjNhOWMrUTUyZT", "Q52e"] {
            assert!(!description.contains(part), "{part}: {description}");
        }
    };
    for format in ["html", "markdown", "text"] {
        let arguments = json!({ "url": own_server.url("/page"), "format": format });
        let answer = CallOutcome::run(&registry, "web_fetch", arguments).await;
        is_clean(&answer);
        assert_eq!(answer.0.details["redacted"], true);
        assert_eq!(answer.0.details["title"], "REDACTED");
        assert!(answer.text().contains("You sent REDACTED, "), "{}", answer.text());
    }
    let answer = fetch(&registry, &own_server.url("/json")).await;
    is_clean(&answer);
    assert!(answer.text().contains("authorization: Bearer REDACTED"), "{}", answer.text());
    let answer = fetch(&registry, &own_server.url("/redirect")).await;
    is_clean(&answer);
    assert_eq!(answer.0.details["url"], own_server.url("/json?key=REDACTED&again=REDACTED"));
    for failing in ["/refused", "/torn", "/elsewhere"] {
        let answer = fetch(&registry, &own_server.url(failing)).await;
        assert!(answer.0.outcome.is_error(), "{failing}: {answer:?}");
        is_clean(&answer);
        assert_eq!(request_row(&fixture).secrets, ["api".into()], "{failing}");
    }
    is_clean(&fetch(&registry, &own_server.url("/type")).await);
    for row in fixture.rows() {
        assert!(!format!("{row:?}").contains("canary"), "{row:?}");
    }
}

#[tokio::test]
async fn a_secret_labels_its_run() {
    let authority = Authority::new();
    let own_server = authority.serve(|_| page("<p>own"));
    let rule = "[[flow]]\nafter = [\"secret:api\"]\nthen = [\"write:shared\"]\napproval = \"deny\"\n";
    let fixture = fixture_with_token_file(&authority, &[&own_server]).with_policy(rule);
    let registry = fixture.registry().await;
    let call = |run: &'static str, tool: &'static str, arguments: Value| {
        let registry = &registry;
        async move {
            let mut caller = approving_caller();
            run.clone_into(&mut caller.run_id);
            CallOutcome(registry.execute_with_policy(new_call(tool, arguments.to_string()), &caller).await)
        }
    };
    let write = || json!({ "path": "/shared/a", "content": "x" });
    let _written = call("before", "file_write", write()).await.text();
    let _fetched = call("after", "web_fetch", json!({ "url": own_server.url("/") })).await.text();
    call("after", "file_write", write()).await.assert_refused(ToolErrorKind::Denied, "flow_denied");
    assert_eq!(
        fixture.rows().pop().expect("a row").flow_rule.as_deref(),
        Some("flow[secret:api -> write:shared]")
    );
    let _written = call("before", "file_write", write()).await.text();
}

#[tokio::test]
async fn without_its_secret_nothing_is_requested() {
    let authority = Authority::new();
    let own_server = authority.serve(|_| page("<p>own"));
    let fixture = fixture(&authority, &[&own_server], "file:token");
    let registry = fixture.registry().await;
    let refused = fetch(&registry, &own_server.url("/"))
        .await
        .assert_refused(ToolErrorKind::Unavailable, "secret_unavailable");
    assert!(refused.contains("`api`") && !refused.contains("token"), "{refused}");
    for mode in [0o644, 0o604, 0o666] {
        put_token(&fixture, mode);
        fetch(&registry, &own_server.url("/"))
            .await
            .assert_refused(ToolErrorKind::Unavailable, "secret_unavailable");
    }
    assert!(own_server.take_heads().is_empty() && request_row(&fixture).secrets.is_empty());
    // Other tools still work, and the next request reads the secret again.
    let _listed = CallOutcome::run(&registry, "file_list", json!({ "path": "/shared" })).await.text();
    put_token(&fixture, 0o600);
    assert!(fetch(&registry, &own_server.url("/")).await.text().contains("own"));
}

#[tokio::test]
async fn a_replaced_or_removed_secret_stays_redacted() {
    let authority = Authority::new();
    let own_server = authority.serve(move |head| match path(head) {
        "/old" => page(&format!("<p>you were {VALUE}")),
        _ => page("<p>own"),
    });
    let fixture = fixture_with_token_file(&authority, &[&own_server]);
    let first = fixture.registry().await;
    assert!(fetch(&first, &own_server.url("/")).await.text().contains("own"));
    fs::write(fixture.root().join("token"), "exchanged-value").expect("writable");
    let second = fixture.registry().await;
    second.continue_runs_of(&first);
    assert!(fetch(&second, &own_server.url("/old")).await.text().contains("you were REDACTED"));
    assert!(own_server.take_heads().concat().contains("authorization: Bearer exchanged-value\r\n"));
    fs::write(fixture.workspace().join("portcullis.toml"), "[secrets.api]\nenabled = false\n")
        .expect("writable");
    let third = fixture.registry().await;
    third.continue_runs_of(&second);
    assert!(fetch(&third, &own_server.url("/old")).await.text().contains("you were REDACTED"));
    assert!(!own_server.take_heads().concat().contains("authorization"));
}

#[tokio::test]
async fn an_overlay_takes_a_secret_away_and_gives_none() {
    let authority = Authority::new();
    let own_server = authority.serve(|_| page("<p>own"));
    let fixture = fixture_with_token_file(&authority, &[&own_server]);
    let overlay = fixture.workspace().join("portcullis.toml");
    fs::write(&overlay, "[secrets.api]\nenabled = false\n").expect("writable");
    let registry = fixture.registry().await;
    assert!(fetch(&registry, &own_server.url("/")).await.text().contains("own"));
    assert_eq!(requests_with_secret_flag(&own_server), [("/".to_owned(), false)]);
    drop(registry);
    fs::write(&overlay, "[secrets.api]\nhosts = [\"https://evil.test\"]\n").expect("writable");
    let error = fixture.builder().await.expect_err("refused");
    assert!(
        matches!(&error, BootstrapError::Policy(faults) if faults.to_string().contains("is not within")),
        "{error:?}"
    );
}

#[tokio::test]
async fn no_mount_holds_the_file_of_a_secret() {
    let authority = Authority::new();
    let own_server = authority.serve(|_| page("<p>own"));
    for folder in ["shared", "vault"] {
        let fixture = fixture(&authority, &[&own_server], &format!("file:workspace/{folder}/token"));
        let error = fixture.builder().await.expect_err("refused");
        assert!(matches!(error, BootstrapError::Mount(_)), "{error:?}");
    }
}

#[test]
fn a_secret_is_shown_by_source_and_audience_and_never_by_value() {
    let authority = Authority::new();
    let own_server = authority.serve(|_| page("<p>own"));
    let fixture = fixture(&authority, &[&own_server], "file:token");
    let run_program = |words: &[&str]| {
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut program = std::process::Command::new(portcullis_testing::binary());
        let output = program.args(fixture.options()).args(words).output().expect("starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let audience = format!("\"file:token\", in `authorization` to {}, for web_fetch", own_server.origin());
    let missing = run_program(&["doctor"]);
    assert!(
        missing.contains(&audience) && missing.contains("cannot be used: the file of the secret is refused"),
        "{missing}"
    );
    put_token(&fixture, 0o644);
    assert!(run_program(&["doctor"]).contains("can be read by everybody (mode 0644)"));
    put_token(&fixture, 0o600);
    for words in [&["doctor"][..], &["doctor", "--json"], &["policy", "check"], &["tools"]] {
        let output_text = run_program(words);
        assert!(
            !output_text.contains("7f3a9c") && !output_text.contains("cannot be used"),
            "{words:?} {output_text}"
        );
        if words[0] != "tools" {
            assert!(
                output_text.contains(&audience) || output_text.contains(&audience.replace('"', "\\\"")),
                "{words:?} {output_text}"
            );
        }
    }
}
