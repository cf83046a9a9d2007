//! Requests of a module's tool, through the whole pipeline: policy, declaration, confined client, rows, flow.
//!
//! The modules declare `https://api.weather.example`. A test replaces this origin in the module's bytes with
//! the origin of its own server, which has the same length.

mod bodies;

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    thread,
};

use futures_util::future::join_all;
use portcullis_testing::{CallOutcome, Fixture, approving_caller, guest};
use portcullis_tools::{ToolRegistry, audit::Row, new_call};
use portcullis_types::{CancellationToken, ToolErrorKind};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::{
    hostile::wat_guest::WatGuest,
    modules::{portcullis, stdout},
    web::server::{self, Reply, Server},
};

const DECLARED: &str = "https://api.weather.example";

/// An address of this machine that makes the server's origin as long as the declared origin.
const ADDRESS: &str = "127.100.100.10";

/// Starts a server at that address.
fn serve(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
    Server::start_at(free_listener(), reply)
}

/// Binds a listener on a port of five digits.
fn free_listener() -> TcpListener {
    loop {
        let listener = TcpListener::bind((ADDRESS, 0)).expect("a free port");
        if listener.local_addr().expect("an address").port() >= 10_000 {
            return listener;
        }
    }
}

/// Returns the audit rows of requests.
fn request_rows(fixture: &Fixture) -> Vec<Row> {
    let is_request = |row: &Row| row.confinement.is_some_and(|confinement| confinement.as_str() == "egress");
    fixture.rows().into_iter().filter(is_request).collect()
}

fn origin(server: &Server) -> String {
    format!("http://{ADDRESS}:{}", server.port())
}

/// Returns the module's bytes, with the server's origin in place of the declared one.
fn module(name: &str, server: &Server) -> Vec<u8> {
    let (from, to) = (DECLARED.as_bytes(), origin(server).into_bytes());
    assert_eq!(from.len(), to.len());
    let mut bytes = guest(name).to_vec();
    let positions: Vec<usize> = bytes
        .windows(from.len())
        .enumerate()
        .filter(|(_, part)| *part == from)
        .map(|(position, _)| position)
        .collect();
    assert!(!positions.is_empty(), "the module names its host");
    for position in positions {
        bytes[position..position + to.len()].copy_from_slice(&to);
    }
    bytes
}

/// Creates a fixture in which the tool's profile grants these methods at the server.
fn fixture(server: &Server, tool: &str, methods: &str) -> Fixture {
    let port = server.port();
    Fixture::new()
        .with_policy_edit("allow_private = []", &format!("allow_private = [\"{ADDRESS}:{port}\"]"))
        .with_policy(&format!(
            "[profiles.Api]\nhosts = [\"{}\"]\nmethods = [{methods}]\n\
             [tools.{tool}]\nprofile = \"Api\"\napproval = \"allow\"\n",
            origin(server)
        ))
}

async fn registry(fixture: &Fixture, name: &str, module: &[u8]) -> ToolRegistry {
    let builder = fixture.builder().await.expect("bootstraps");
    let builder = builder.module(name, module, portcullis_tools::policy::ToolOrigin::ForeignModule).await;
    builder.expect("describes itself").build().expect("builds")
}

/// Creates a fixture with the hostile guest, which makes any request that its arguments describe.
async fn requests_fixture(server: &Server) -> (Fixture, ToolRegistry) {
    let fixture = fixture(server, "requests", "\"GET\", \"POST\"");
    let registry = registry(&fixture, "requests", &module("requests", server)).await;
    (fixture, registry)
}

async fn request_responses(registry: &ToolRegistry, arguments: Value) -> Vec<Value> {
    let text = CallOutcome::run(registry, "requests", arguments).await.text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn an_mcp_client_gets_the_open_world_hint() {
    let fixture = Fixture::new();
    let file = fixture.root().join("weather.wasm");
    fs::write(&file, guest("weather")).expect("written");
    let file = file.to_str().expect("the path is UTF-8");
    let listed = stdout(&portcullis(&fixture, &["tools", "--mcp", "--module", file]));
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let reaches_out = |name: &str| {
        let tool = listed["tools"].as_array().expect("tools").iter().find(|tool| tool["name"] == name);
        tool.expect("listed")["annotations"]["openWorldHint"].clone()
    };
    assert_eq!((reaches_out("get_weather"), reaches_out("file_read")), (json!(true), json!(false)));
}

#[tokio::test]
async fn the_weather_tool_asks_its_api_from_the_sandbox() {
    let server = serve(|path| match path {
        "/v1/now?city=S%C3%A3o%20Paulo" => {
            server::answer("application/json", br#"{"fahrenheit": 72, "sky": "sunny"}"#)
        }
        _ => server::status("404 Not Found"),
    });
    let fixture = fixture(&server, "get_weather", "\"GET\"");
    let registry = registry(&fixture, "weather", &module("weather", &server)).await;
    let answer = CallOutcome::run(&registry, "get_weather", json!({"city": "São Paulo"})).await;
    assert_eq!(answer.text(), "Weather in São Paulo: 72°F, sunny");
    let missing = CallOutcome::run(&registry, "get_weather", json!({"city": "Nowhere"})).await;
    assert_eq!(missing.error().message(), "the server answered 404 Not Found".trim_end_matches(" Not Found"));

    let rows = fixture.rows();
    let request = rows
        .iter()
        .find(|row| row.confinement.is_some_and(|confinement| confinement.as_str() == "egress"))
        .expect("a row");
    assert_eq!(&*request.tool, "get_weather");
    let call =
        rows.iter().find(|row| row.operation_id.is_none() && row.event.to_string() == "end").expect("a row");
    assert_eq!(request.operation_id.as_deref(), Some(&*call.call_id));
    assert!(
        request.posture.as_deref().is_some_and(|posture| posture.contains("seccomp=enforced")),
        "{request:?}"
    );
    assert!(request.subjects[0].value.starts_with(&origin(&server)), "{request:?}");
    assert_eq!(request.rule.as_deref(), Some("profiles.Api.hosts"));
}

#[tokio::test]
async fn a_request_must_be_declared_and_granted() {
    let server = serve(|_| server::answer("text/plain", b"here"));
    let other = serve(|_| server::answer("text/plain", b"secret"));
    let (fixture, registry) = requests_fixture(&server).await;
    let url = format!("{}/", origin(&server));
    assert_eq!(request_responses(&registry, json!({"url": url})).await[0]["text"], "here");

    let code = async |arguments: Value| request_responses(&registry, arguments).await[0]["code"].clone();
    for (arguments, expected) in [
        (json!({"url": format!("{}/", origin(&other))}), "host_not_granted"),
        (json!({"url": "http://example.com/"}), "host_not_granted"),
        (json!({"url": "http://169.254.169.254/"}), "host_not_granted"),
        (json!({"url": url, "method": "DELETE"}), "method_not_granted"),
        (json!({"url": url, "method": "get"}), "method_not_granted"),
        (json!({"url": url.replace("//", "//user@")}), "url_refused"),
        (json!({"url": "file:///etc/passwd"}), "url_refused"),
        (json!({"url": url, "header": "Host: other.example"}), "header_forbidden"),
        (json!({"url": url, "header": "Content-Length: 1"}), "header_forbidden"),
        (json!({"url": url, "header": "x y: z"}), "request_invalid"),
        (json!({"url": url, "header": "x: a\r\nb: c"}), "request_invalid"),
    ] {
        assert_eq!(code(arguments.clone()).await, expected, "{arguments}");
    }
    assert_eq!((server.requests(), other.requests()), (1, 0));
    let denied = fixture.rows().into_iter().filter(|row| row.rule.as_deref() == Some("profiles.Api.hosts"));
    assert!(denied.count() > 1, "refusals have rows of their own");
}

#[tokio::test]
async fn a_granted_host_that_is_not_declared_is_refused() {
    let declared = serve(|_| server::answer("text/plain", b"here"));
    let granted = serve(|_| server::answer("text/plain", b"secret"));
    // The policy grants a server that the module does not declare.
    let fixture = fixture(&granted, "requests", "\"GET\"");
    let registry = registry(&fixture, "requests", &module("requests", &declared)).await;
    let responses = request_responses(&registry, json!({"url": format!("{}/", origin(&granted))})).await;
    assert_eq!(responses[0]["code"], "host_not_declared");
    assert_eq!(granted.requests(), 0);
}

#[tokio::test]
async fn a_redirect_to_an_undeclared_host_is_refused() {
    let undeclared = serve(|_| server::answer("text/plain", b"secret"));
    let to = format!("{}/", origin(&undeclared));
    let server = serve(move |_| server::redirect(&to));
    // The policy grants both servers, and the module declares one of them.
    let (declared_origin, undeclared_origin) = (origin(&server), origin(&undeclared));
    let private =
        format!("allow_private = [\"{ADDRESS}:{}\", \"{ADDRESS}:{}\"]", server.port(), undeclared.port());
    let fixture = Fixture::new().with_policy_edit("allow_private = []", &private).with_policy(&format!(
        "[profiles.Api]\nhosts = [\"{declared_origin}\", \"{undeclared_origin}\"]\n\
         [tools.requests]\nprofile = \"Api\"\napproval = \"allow\"\n"
    ));
    let registry = registry(&fixture, "requests", &module("requests", &server)).await;
    let responses = request_responses(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    assert_eq!(responses[0]["code"], "host_not_declared");
    assert_eq!(undeclared.requests(), 0);
}

#[tokio::test]
async fn a_redirect_to_an_ungranted_host_is_refused() {
    let elsewhere = serve(|_| server::answer("text/plain", b"secret"));
    let to = format!("{}/", origin(&elsewhere));
    let server = serve(move |_| server::redirect(&to));
    let (_world, registry) = requests_fixture(&server).await;
    let responses = request_responses(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    assert_eq!(responses[0]["code"], "host_not_granted");
    assert_eq!(elsewhere.requests(), 0);
}

#[tokio::test]
async fn a_tool_without_a_granted_host_has_no_network() {
    let server = serve(|_| server::answer("text/plain", b"here"));
    let fixture =
        Fixture::new().with_policy("[tools.requests]\nprofile = \"Nothing\"\napproval = \"allow\"\n");
    let registry = registry(&fixture, "requests", &module("requests", &server)).await;
    let responses = request_responses(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    assert_eq!(responses[0]["code"], "egress_not_granted");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn the_row_of_a_request_has_each_address_on_its_way() {
    let server = serve(|path| match path {
        "/a?q=1" => server::redirect("/b"),
        "/b" => server::redirect("/c#part"),
        "/c" => server::answer("text/plain", b"arrived"),
        _ => server::redirect("http://127.0.0.1:9/"),
    });
    let (fixture, registry) = requests_fixture(&server).await;
    let origin = origin(&server);
    let requested_urls = |path: &str| {
        let has_url = |row: &portcullis_tools::audit::Row| {
            row.subjects.first().is_some_and(|subject| *subject.value == *format!("{origin}{path}"))
        };
        let row = fixture.rows().into_iter().rfind(has_url);
        let row = row.expect("a row");
        let dialled = format!("{ADDRESS}:{}", server.port());
        assert!(row.requests.iter().all(|request| request.address.as_deref() == Some(&dialled)), "{row:?}");
        let urls = row
            .requests
            .iter()
            .map(|request| request.url.strip_prefix(&origin).unwrap_or("other").to_owned());
        urls.collect::<Vec<_>>()
    };
    let responses = request_responses(&registry, json!({"url": format!("{origin}/a?q=1")})).await;
    assert_eq!(responses[0]["code"], Value::Null, "{responses:?}");
    assert_eq!(requested_urls("/a?q=1"), ["/c", "/b", "/a?q=1"]);
    // The target of a refused redirect was not requested.
    request_responses(&registry, json!({"url": format!("{origin}/away")})).await;
    assert_eq!(requested_urls("/away"), ["/away"]);
}

#[tokio::test]
async fn requests_and_open_responses_of_a_call_are_bounded() {
    let server = serve(|_| server::answer("text/plain", &[b'x'; 1000]));
    let (_world, registry) = requests_fixture(&server).await;
    let url = format!("{}/", origin(&server));
    // A response that is not read completely stays open.
    let responses = request_responses(&registry, json!({"url": url, "times": 10, "take": 10})).await;
    let codes: Vec<&Value> = responses.iter().map(|response| &response["code"]).collect();
    assert_eq!(codes[7], &Value::Null);
    assert_eq!(codes[8], "too_many_responses");
    let responses = request_responses(&registry, json!({"url": url, "times": 300})).await;
    assert_eq!(responses.last().expect("answers")["code"], "too_many_requests");
    assert_eq!(server.requests(), 8 + 256);
}

#[tokio::test]
async fn refused_requests_of_a_call_are_bounded_too() {
    let server = serve(|_| server::answer("text/plain", b"here"));
    let (fixture, registry) = requests_fixture(&server).await;
    let responses = request_responses(&registry, json!({"url": "http://127.0.0.1:1/", "times": 300})).await;
    assert_eq!(responses.last().expect("answers")["code"], "too_many_requests");
    assert_eq!(request_rows(&fixture).len(), 256);
}

/// Returns the numbers of the calls, in the order in which their requests reached a server.
async fn requests_in_order(method: &str) -> Vec<String> {
    const REQUESTS_OF_A_CALL: usize = 10;
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let server = serve(move |path| {
        sender.send(path.to_owned()).expect("the test listens");
        server::answer("text/plain", b"ok")
    });
    let (_fixture, registry) = requests_fixture(&server).await;
    let caller = approving_caller();
    let calls = (0..4).map(|number| {
        let url = format!("{}/{number}", origin(&server));
        let arguments = json!({"url": url, "method": method, "times": REQUESTS_OF_A_CALL, "then": "drop"});
        registry.execute_with_policy(new_call("requests", arguments.to_string()), &caller)
    });
    for result in join_all(calls).await {
        result.into_result().expect("each call has its turn");
    }
    let mut order = Vec::new();
    while let Ok(path) = arrivals.try_recv() {
        order.push(path);
    }
    assert_eq!(order.len(), 4 * REQUESTS_OF_A_CALL);
    order.dedup();
    order
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_may_change_a_server_run_one_after_the_other() {
    // The profile grants POST, so even a call that only reads may change something.
    for method in ["POST", "GET"] {
        let order = requests_in_order(method).await;
        assert_eq!(order.len(), 4, "no call's requests lie between another call's: {order:?}");
    }
}

/// Makes a request in a call that times out during the request. The guest either reports an error with this
/// text, or the call ends first.
async fn request_past_the_time(server: &Server, time: &str, text: &str) -> Fixture {
    let fixture = fixture(server, "requests", "\"GET\"").with_policy_edit(
        "[tools.requests]\nprofile = \"Api\"\n",
        &format!("[tools.requests]\nprofile = \"Api\"\ntimeout = \"{time}\"\n"),
    );
    let registry = registry(&fixture, "requests", &module("requests", server)).await;
    let url = format!("{}/", origin(server));
    let answer = CallOutcome::run(&registry, "requests", json!({ "url": url })).await;
    // The client has the call's deadline, so the guest may or may not have time to report the error.
    match &answer.0.outcome.clone().into_result() {
        Err(error) => assert_eq!(error.kind(), ToolErrorKind::Timeout),
        Ok(output) => assert!(output.joined_text().contains(text), "{output:?}"),
    }
    fixture
}

#[tokio::test]
async fn the_time_of_a_request_is_that_of_the_call() {
    let server = serve(|_| server::no_reply());
    request_past_the_time(&server, "1s", "total_timeout").await;
}

#[tokio::test]
async fn cancelling_the_call_closes_the_connection() {
    let listener = free_listener();
    let port = listener.local_addr().expect("an address").port();
    let (asked_sender, mut is_asked) = mpsc::unbounded_channel();
    let (closed, mut is_closed) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let (asked_sender, closed) = (asked_sender.clone(), closed.clone());
            thread::spawn(move || hold_connection(connection, &asked_sender, &closed));
        }
    });
    let server = Server::for_port(port);
    let (fixture, registry) = requests_fixture(&server).await;
    let mut caller = approving_caller();
    caller.cancel = CancellationToken::new();
    let cancel = caller.cancel.clone();
    let arguments = json!({"url": format!("{}/", origin(&server))}).to_string();
    let cancelling = async {
        is_asked.recv().await.expect("is asked");
        cancel.cancel();
    };
    let call = registry.execute_with_policy(new_call("requests", arguments), &caller);
    let (result, ()) = tokio::join!(call, cancelling);
    assert_eq!(result.into_result().expect_err("cancelled").kind(), ToolErrorKind::Cancelled);
    is_closed.recv().await.expect("is closed");
    let request = fixture
        .rows()
        .into_iter()
        .find(|row| row.confinement.is_some_and(|confinement| confinement.as_str() == "egress"));
    let request = request.expect("a row");
    let dialled = request.requests[0].address.as_deref();
    assert_eq!(dialled, Some(format!("{ADDRESS}:{port}").as_str()), "even of a request that was given up");
    let code = request.code.expect("an end");
    // The client or the end of the call may see the cancellation first.
    assert!(matches!(&*code, "cancelled" | "caller_gone"), "{code}");
}

/// Reads a request, and sends nothing until the client closes the connection.
fn hold_connection(
    mut connection: TcpStream,
    asked_sender: &mpsc::UnboundedSender<()>,
    closed: &mpsc::UnboundedSender<()>,
) {
    use std::io::Read as _;

    let mut bytes = [0; 4096];
    while let Ok(read) = connection.read(&mut bytes) {
        // The receiver is gone after the test's end.
        let _ = if read == 0 { closed.send(()) } else { asked_sender.send(()) };
        if read == 0 {
            return;
        }
    }
    let _ = closed.send(());
}

#[tokio::test]
async fn a_module_that_declares_no_host_has_no_import() {
    let load = async |hosts: &str| {
        let tool = r#"{"name": "bare", "parameters": {"type": "object"}, "hosts": HOSTS}"#;
        let describe = format!("{{\"v\": 1, \"tools\": [{}]}}", tool.replace("HOSTS", hosts));
        let mut guest = WatGuest::describing(&describe);
        guest.imports =
            r#"(import "portcullis_http" "send" (func (param i32 i32 i32 i32) (result i32)))"#.to_owned();
        let refused = guest.try_registry(&Fixture::new()).await.map(drop);
        refused.map_err(|error| format!("{error}: {}", portcullis_types::error_chain(&error)))
    };
    load(r#"["https://a.example"]"#).await.expect("declares what it imports");
    let refused = load("[]").await.expect_err("imports what it does not declare");
    assert!(refused.contains("declares no host"), "{refused}");
    let refused = load(r#"["a.example/path"]"#).await.expect_err("no rule");
    assert!(refused.contains("`a.example/path`"), "{refused}");
}

#[tokio::test]
async fn fetched_data_labels_the_run() {
    let server = serve(|_| server::answer("text/plain", b"here"));
    let (fixture, registry) = requests_fixture(&server).await;
    request_responses(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    request_responses(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    let calls: Vec<_> = fixture.rows().into_iter().filter(|row| row.operation_id.is_none()).collect();
    let last = calls.last().expect("rows");
    assert!(last.labels.iter().any(|label| &**label == "web"), "{last:?}");
}

#[tokio::test]
async fn a_guest_never_gets_the_secret_that_its_requests_carry() {
    const VALUE: &str = "canary/7f3a9c+Q52e==";
    let server = serve(|_| {
        server::answer("text/plain", format!("you are {VALUE}, canary%2F7f3a9c%2BQ52e==").as_bytes())
    });
    let fixture = fixture(&server, "requests", "\"GET\"").with_policy(&format!(
        "[secrets.key]\nfrom = \"file:key\"\nhosts = [\"{}\"]\nheader = \"X-Api-Key\"\ntools = [\"requests\"]\n",
        origin(&server)
    ));
    let file = fixture.root().join("key");
    fs::write(&file, VALUE).expect("writable");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the permissions can be set");
    let registry = registry(&fixture, "requests", &module("requests", &server)).await;
    let url = format!("{}/", origin(&server));
    let responses = request_responses(&registry, json!({ "url": url })).await;
    assert_eq!(responses[0]["text"], "you are REDACTED, REDACTED");
    assert!(server.take_heads().concat().contains(&format!("x-api-key: {VALUE}\n")));
    let responses = request_responses(&registry, json!({ "url": url, "header": "X-Api-Key: mine" })).await;
    assert_eq!(responses[0]["code"], "header_forbidden");
    // With ranges, a guest could get the secret in two parts, which redaction would not find.
    for range in ["Range: bytes=0-12", "Range: bytes=13-", "If-Range: \"x\""] {
        let responses = request_responses(&registry, json!({ "url": url, "header": range })).await;
        assert_eq!(responses[0]["code"], "header_forbidden", "{range}");
    }
    assert_eq!(server.requests(), 1);

    let rows = fixture.rows();
    let request_rows = rows.iter().filter(|row| row.operation_id.is_some());
    let secret_counts: Vec<usize> = request_rows.map(|row| row.secrets.len()).collect();
    // The `begin` and `end` rows of the first request. The refused requests carried no secret.
    assert_eq!(secret_counts, [1, 1, 0, 0, 0, 0]);
    let calls: Vec<_> =
        rows.iter().filter(|row| row.operation_id.is_none() && row.outcome.is_some()).collect();
    assert_eq!((calls[0].secrets.as_slice(), calls[1].secrets.len()), (&["key".into()][..], 0));
    assert!(calls[1].labels.iter().any(|label| &**label == "secret:key"), "{:?}", calls[1]);
    assert!(!format!("{rows:?}").contains("canary"));
}

/// One call reads a file and then sends requests. There is no later call to check, so each request is
/// checked.
#[tokio::test]
async fn a_file_that_a_call_has_read_counts_for_its_own_requests() {
    let server = serve(|_| server::answer("text/plain", b"hi"));
    let fixture = fixture(&server, "requests", "\"GET\"")
        .with_policy_edit(
            "[profiles.Api]\n",
            "[profiles.Api]\nmounts = { shared = \"read\", tmp = \"read\" }\n",
        )
        .with_policy(
            "[[flow]]\nafter = [\"mount:shared\", \"web\"]\nthen = [\"network\"]\napproval = \"deny\"\n",
        );
    fixture.put("note", "secret");
    std::fs::write(fixture.workspace().join("tmp/note"), "no secret").expect("writable");
    let registry = registry(&fixture, "requests", &module("requests", &server)).await;
    let url = format!("{}/", origin(&server));
    let caller_of_run = |run: &str| {
        let mut caller = approving_caller();
        run.clone_into(&mut caller.run_id);
        caller
    };
    let request_in_run = async |run: &str, arguments: Value| {
        let call = new_call("requests", arguments.to_string());
        CallOutcome(registry.execute_with_policy(call, &caller_of_run(run)).await)
    };
    // A request does not count against the next request of the same call, because the call was approved as a whole.
    let responses = request_in_run("one", json!({"url": url, "times": 2, "first": "/tmp/note"})).await.text();
    assert_eq!(responses.matches("\"text\":\"hi\"").count(), 2, "{responses}");
    request_in_run("one", json!({"url": url})).await.assert_refused(ToolErrorKind::Denied, "flow_denied");
    let responses =
        request_in_run("two", json!({"url": url, "times": 2, "first": "/shared/note"})).await.text();
    assert_eq!(responses.matches("\"code\":\"flow_denied\"").count(), 2, "{responses}");
    assert_eq!(server.requests(), 2);
    let rows = fixture.rows();
    let refused =
        rows.iter().filter(|row| row.confinement.is_some_and(|confinement| confinement.as_str() == "egress"));
    let refused: Vec<_> = refused.filter(|row| row.flow_rule.is_some()).collect();
    assert_eq!(refused.len(), 2, "{rows:#?}");
    for row in refused {
        assert_eq!(row.flow_rule.as_deref(), Some("flow[mount:shared -> network]"));
        assert!(row.labels.iter().any(|label| &**label == "mount:shared"), "{row:#?}");
    }
}
