//! Requests of a module's tool, through the whole pipeline: policy, declaration, confined client, rows, flow.
//!
//! The modules declare `https://api.weather.example`. A test replaces it in the module's bytes by the origin of its own
//! server, which has as many characters.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    thread,
};

use portcullis_testing::{Answer, World, approving, guest};
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

/// An address of this machine of as many digits as the declared origin needs.
const ADDRESS: &str = "127.100.100.10";

/// A server at that address.
fn serve(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
    Server::start_at(free_listener(), reply)
}

/// A listener on a port of five digits.
fn free_listener() -> TcpListener {
    loop {
        let listener = TcpListener::bind((ADDRESS, 0)).expect("a free port");
        if listener.local_addr().expect("an address").port() >= 10_000 {
            return listener;
        }
    }
}

fn origin(server: &Server) -> String {
    format!("http://{ADDRESS}:{}", server.port())
}

/// The module with the server's origin in place of the declared one.
fn module(name: &str, server: &Server) -> Vec<u8> {
    let (from, to) = (DECLARED.as_bytes(), origin(server).into_bytes());
    assert_eq!(from.len(), to.len());
    let mut bytes = guest(name).to_vec();
    let places: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, part)| *part == from).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the module names its host");
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(&to);
    }
    bytes
}

/// A world in which a profile reaches the server by these methods, and the tool has the profile.
fn world(server: &Server, tool: &str, methods: &str) -> World {
    let port = server.port();
    World::new()
        .with_policy_edit("allow_private = []", &format!("allow_private = [\"{ADDRESS}:{port}\"]"))
        .with_policy(&format!(
            "[profiles.Api]\nhosts = [\"{}\"]\nmethods = [{methods}]\n\
             [tools.{tool}]\nprofile = \"Api\"\napproval = \"allow\"\n",
            origin(server)
        ))
}

async fn registry(world: &World, name: &str, module: &[u8]) -> ToolRegistry {
    let builder = world.builder().await.expect("bootstraps");
    let builder = builder.module(name, module, portcullis_tools::policy::ToolOrigin::ForeignModule).await;
    builder.expect("describes itself").build().expect("builds")
}

/// A world with the hostile guest, which makes any request.
async fn requests(server: &Server) -> (World, ToolRegistry) {
    let world = world(server, "requests", "\"GET\", \"POST\"");
    let registry = registry(&world, "requests", &module("requests", server)).await;
    (world, registry)
}

async fn ask(registry: &ToolRegistry, arguments: Value) -> Vec<Value> {
    let text = Answer::of(registry, "requests", arguments).await.text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_client_of_mcp_learns_that_a_tool_reaches_out() {
    let world = World::new();
    let file = world.root().join("weather.wasm");
    fs::write(&file, guest("weather")).expect("written");
    let file = file.to_str().expect("text");
    let listed = stdout(&portcullis(&world, &["tools", "--mcp", "--module", file]));
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
    let world = world(&server, "get_weather", "\"GET\"");
    let registry = registry(&world, "weather", &module("weather", &server)).await;
    let answer = Answer::of(&registry, "get_weather", json!({"city": "São Paulo"})).await;
    assert_eq!(answer.text(), "Weather in São Paulo: 72°F, sunny");
    let missing = Answer::of(&registry, "get_weather", json!({"city": "Nowhere"})).await;
    assert_eq!(missing.error().message(), "the server answered 404 Not Found".trim_end_matches(" Not Found"));

    let rows = world.rows();
    let request =
        rows.iter().find(|row| row.confinement.is_some_and(|it| it.as_str() == "egress")).expect("a row");
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
    let (world, registry) = requests(&server).await;
    let url = format!("{}/", origin(&server));
    assert_eq!(ask(&registry, json!({"url": url})).await[0]["text"], "here");

    let code = async |arguments: Value| ask(&registry, arguments).await[0]["code"].clone();
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
    let denied = world.rows().into_iter().filter(|row| row.rule.as_deref() == Some("profiles.Api.hosts"));
    assert!(denied.count() > 1, "refusals have rows of their own");
}

#[tokio::test]
async fn a_granted_host_that_is_not_declared_is_refused() {
    let declared = serve(|_| server::answer("text/plain", b"here"));
    let granted = serve(|_| server::answer("text/plain", b"secret"));
    // The policy grants another server than the one that the module declares.
    let world = world(&granted, "requests", "\"GET\"");
    let registry = registry(&world, "requests", &module("requests", &declared)).await;
    let said = ask(&registry, json!({"url": format!("{}/", origin(&granted))})).await;
    assert_eq!(said[0]["code"], "host_not_declared");
    assert_eq!(granted.requests(), 0);
}

#[tokio::test]
async fn a_redirect_to_an_undeclared_host_is_refused() {
    let undeclared = serve(|_| server::answer("text/plain", b"secret"));
    let to = format!("{}/", origin(&undeclared));
    let server = serve(move |_| server::redirect(&to));
    // Both are granted, and one is declared.
    let (own, other) = (origin(&server), origin(&undeclared));
    let private =
        format!("allow_private = [\"{ADDRESS}:{}\", \"{ADDRESS}:{}\"]", server.port(), undeclared.port());
    let world = World::new().with_policy_edit("allow_private = []", &private).with_policy(&format!(
        "[profiles.Api]\nhosts = [\"{own}\", \"{other}\"]\n\
         [tools.requests]\nprofile = \"Api\"\napproval = \"allow\"\n"
    ));
    let registry = registry(&world, "requests", &module("requests", &server)).await;
    let said = ask(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    assert_eq!(said[0]["code"], "host_not_declared");
    assert_eq!(undeclared.requests(), 0);
}

#[tokio::test]
async fn a_redirect_to_an_ungranted_host_is_refused() {
    let elsewhere = serve(|_| server::answer("text/plain", b"secret"));
    let to = format!("{}/", origin(&elsewhere));
    let server = serve(move |_| server::redirect(&to));
    let (_world, registry) = requests(&server).await;
    let said = ask(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    assert_eq!(said[0]["code"], "host_not_granted");
    assert_eq!(elsewhere.requests(), 0);
}

#[tokio::test]
async fn a_tool_without_a_granted_host_has_no_network() {
    let server = serve(|_| server::answer("text/plain", b"here"));
    let world = World::new().with_policy("[tools.requests]\nprofile = \"Nothing\"\napproval = \"allow\"\n");
    let registry = registry(&world, "requests", &module("requests", &server)).await;
    let said = ask(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    assert_eq!(said[0]["code"], "egress_not_granted");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn requests_and_open_responses_of_a_call_are_bounded() {
    let server = serve(|_| server::answer("text/plain", &[b'x'; 1000]));
    let (_world, registry) = requests(&server).await;
    let url = format!("{}/", origin(&server));
    // Responses of which a part is left stay open.
    let said = ask(&registry, json!({"url": url, "times": 10, "take": 10})).await;
    let codes: Vec<&Value> = said.iter().map(|said| &said["code"]).collect();
    assert_eq!(codes[7], &Value::Null);
    assert_eq!(codes[8], "too_many_responses");
    let said = ask(&registry, json!({"url": url, "times": 300})).await;
    assert_eq!(said.last().expect("answers")["code"], "too_many_requests");
    assert_eq!(server.requests(), 8 + 256);
}

#[tokio::test]
async fn refused_requests_of_a_call_are_bounded_too() {
    let server = serve(|_| server::answer("text/plain", b"here"));
    let (world, registry) = requests(&server).await;
    let said = ask(&registry, json!({"url": "http://127.0.0.1:1/", "times": 300})).await;
    assert_eq!(said.last().expect("answers")["code"], "too_many_requests");
    let of_requests = |row: &Row| row.confinement.is_some_and(|it| it.as_str() == "egress");
    assert_eq!(world.rows().iter().filter(|row| of_requests(row)).count(), 256);
}

#[tokio::test]
async fn the_time_of_a_request_is_that_of_the_call() {
    let server = serve(|_| server::silence());
    let world = world(&server, "requests", "\"GET\"").with_policy_edit(
        "[tools.requests]\nprofile = \"Api\"\n",
        "[tools.requests]\nprofile = \"Api\"\ntimeout = \"1s\"\n",
    );
    let registry = registry(&world, "requests", &module("requests", &server)).await;
    let answer = Answer::of(&registry, "requests", json!({"url": format!("{}/", origin(&server))})).await;
    // The client's deadline is the call's: the guest may just have time to say what it was told.
    match &answer.0.outcome {
        Err(error) => assert_eq!(error.kind(), ToolErrorKind::Timeout),
        Ok(output) => assert!(output.joined_text().contains("total_timeout"), "{output:?}"),
    }
}

#[tokio::test]
async fn cancelling_the_call_closes_the_connection() {
    let listener = free_listener();
    let port = listener.local_addr().expect("an address").port();
    let (asked, mut is_asked) = mpsc::unbounded_channel();
    let (closed, mut is_closed) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let (asked, closed) = (asked.clone(), closed.clone());
            thread::spawn(move || hold(connection, &asked, &closed));
        }
    });
    let server = Server::named(port);
    let (world, registry) = requests(&server).await;
    let mut caller = approving();
    caller.cancel = CancellationToken::new();
    let cancel = caller.cancel.clone();
    let arguments = json!({"url": format!("{}/", origin(&server))}).to_string();
    let cancelling = async {
        is_asked.recv().await.expect("is asked");
        cancel.cancel();
    };
    let call = registry.execute_with_policy(new_call("requests", arguments), &caller);
    let (result, ()) = tokio::join!(call, cancelling);
    assert_eq!(result.outcome.expect_err("cancelled").kind(), ToolErrorKind::Cancelled);
    is_closed.recv().await.expect("is closed");
    let request =
        world.rows().into_iter().find(|row| row.confinement.is_some_and(|it| it.as_str() == "egress"));
    let code = request.and_then(|row| row.code).expect("an end");
    // By whichever saw the cancellation first: the client, or the call that dropped it.
    assert!(matches!(&*code, "cancelled" | "caller_gone"), "{code}");
}

/// A server that sends a first part, and the rest of it once another request has come.
fn serve_in_turn(listener: TcpListener) {
    use std::io::{Read as _, Write as _};

    thread::spawn(move || {
        let mut waiting: Option<TcpStream> = None;
        for mut connection in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|read| read > 0) {
                head.push(byte[0]);
            }
            // The attempt of a canary connects and goes.
            if head.is_empty() {
                continue;
            }
            let begin = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nfirst";
            connection.write_all(begin).expect("the client waits");
            match waiting.take() {
                // The guest has read its first part: it asks on.
                Some(mut first) => {
                    first.write_all(b"rest").expect("the client waits");
                    connection.write_all(b"rest").expect("the client waits");
                }
                None => waiting = Some(connection),
            }
        }
    });
}

#[tokio::test]
async fn a_guest_reads_the_first_part_while_the_server_waits() {
    let listener = free_listener();
    let server = Server::named(listener.local_addr().expect("an address").port());
    serve_in_turn(listener);
    let (world, registry) = requests(&server).await;
    let arguments = json!({"url": format!("{}/", origin(&server)), "times": 2, "take": 5});
    let said = ask(&registry, arguments).await;
    assert_eq!((&said[0]["text"], &said[1]["text"]), (&json!("first"), &json!("first")));
    let rows = world.rows();
    let of_requests: Vec<_> = rows.iter().filter(|row| row.operation_id.is_some()).collect();
    let events: Vec<String> = of_requests.iter().map(|row| row.event.to_string()).collect();
    // Both bodies are open until the guest ends.
    assert_eq!(events, ["begin", "begin", "end", "end"]);
    for end in &of_requests[2..] {
        assert_eq!(end.outcome.as_ref().map(ToString::to_string).as_deref(), Some("ok"), "{end:?}");
    }
}

#[tokio::test]
async fn a_response_without_end_stops_at_the_limit() {
    let listener = free_listener();
    let server = Server::named(listener.local_addr().expect("an address").port());
    let (told, mut ended) = mpsc::unbounded_channel();
    thread::spawn(move || {
        use std::io::{Read as _, Write as _};

        for mut connection in listener.incoming().flatten() {
            if !connection.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                continue;
            }
            let _gone = connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while connection.write_all(&[b'a'; 1000]).is_ok() {}
            let _over = told.send(());
        }
    });
    let world = world(&server, "requests", "\"GET\"").with_policy_edit("\"10MiB\"", "\"64KiB\"");
    let registry = registry(&world, "requests", &module("requests", &server)).await;
    let said = ask(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    assert_eq!(said[0]["broken"], "the response has more than 65536 bytes");
    ended.recv().await.expect("the connection was closed");
    let rows = world.rows();
    let end = rows.iter().rfind(|row| row.operation_id.is_some()).expect("a row");
    assert_eq!(end.code.as_deref(), Some("response_too_large"));
}

/// Reads a request and answers nothing until the client closes the connection.
fn hold(mut connection: TcpStream, asked: &mpsc::UnboundedSender<()>, closed: &mpsc::UnboundedSender<()>) {
    use std::io::Read as _;

    let mut bytes = [0; 4096];
    while let Ok(read) = connection.read(&mut bytes) {
        // The test may be over.
        let _ = if read == 0 { closed.send(()) } else { asked.send(()) };
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
        let refused = guest.try_registry(&World::new()).await.map(drop);
        refused.map_err(|error| format!("{error}: {}", portcullis_types::chain(&error)))
    };
    load(r#"["https://a.example"]"#).await.expect("declares what it imports");
    let refused = load("[]").await.expect_err("imports what it does not declare");
    assert!(refused.contains("declares no host"), "{refused}");
    let refused = load(r#"["a.example/path"]"#).await.expect_err("no rule");
    assert!(refused.contains("`a.example/path`"), "{refused}");
}

#[tokio::test]
async fn what_a_guest_fetched_is_a_label_of_its_run() {
    let server = serve(|_| server::answer("text/plain", b"here"));
    let (world, registry) = requests(&server).await;
    ask(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    ask(&registry, json!({"url": format!("{}/", origin(&server))})).await;
    let calls: Vec<_> = world.rows().into_iter().filter(|row| row.operation_id.is_none()).collect();
    let last = calls.last().expect("rows");
    assert!(last.labels.iter().any(|label| &**label == "web"), "{last:?}");
}

#[tokio::test]
async fn a_guest_never_gets_the_secret_that_its_requests_carry() {
    const VALUE: &str = "canary/7f3a9c+Q52e==";
    let server = serve(|_| {
        server::answer("text/plain", format!("you are {VALUE}, canary%2F7f3a9c%2BQ52e==").as_bytes())
    });
    let world = world(&server, "requests", "\"GET\"").with_policy(&format!(
        "[secrets.key]\nfrom = \"file:key\"\nhosts = [\"{}\"]\nheader = \"X-Api-Key\"\ntools = [\"requests\"]\n",
        origin(&server)
    ));
    let file = world.root().join("key");
    fs::write(&file, VALUE).expect("writable");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
    let registry = registry(&world, "requests", &module("requests", &server)).await;
    let url = format!("{}/", origin(&server));
    let said = ask(&registry, json!({ "url": url })).await;
    assert_eq!(said[0]["text"], "you are REDACTED, REDACTED");
    assert!(server.take_heads().concat().contains(&format!("x-api-key: {VALUE}\n")));
    let said = ask(&registry, json!({ "url": url, "header": "X-Api-Key: mine" })).await;
    assert_eq!(said[0]["code"], "header_forbidden");
    assert_eq!(server.requests(), 1);

    let rows = world.rows();
    let of_requests = rows.iter().filter(|row| row.operation_id.is_some());
    let named: Vec<usize> = of_requests.map(|row| row.secrets.len()).collect();
    // The one that was refused carried none.
    // Begin and end of the first.
    assert_eq!(named, [1, 1, 0]);
    let calls: Vec<_> =
        rows.iter().filter(|row| row.operation_id.is_none() && row.outcome.is_some()).collect();
    assert_eq!((calls[0].secrets.as_slice(), calls[1].secrets.len()), (&["key".into()][..], 0));
    assert!(calls[1].labels.iter().any(|label| &**label == "secret:key"), "{:?}", calls[1]);
    assert!(!format!("{rows:?}").contains("canary"));
}

/// One call reads and sends: no later call is judged, so each request is.
#[tokio::test]
async fn a_file_that_a_call_has_read_counts_for_its_own_requests() {
    let server = serve(|_| server::answer("text/plain", b"hi"));
    let world = world(&server, "requests", "\"GET\"")
        .with_policy_edit(
            "[profiles.Api]\n",
            "[profiles.Api]\nmounts = { shared = \"read\", tmp = \"read\" }\n",
        )
        .with_policy(
            "[[flow]]\nafter = [\"mount:shared\", \"web\"]\nthen = [\"network\"]\napproval = \"deny\"\n",
        );
    world.put("note", "secret");
    std::fs::write(world.workspace().join("tmp/note"), "no secret").expect("writable");
    let registry = registry(&world, "requests", &module("requests", &server)).await;
    let url = format!("{}/", origin(&server));
    let of_run = |run: &str| {
        let mut caller = approving();
        run.clone_into(&mut caller.run_id);
        caller
    };
    let ask = async |run: &str, arguments: Value| {
        let call = new_call("requests", arguments.to_string());
        Answer(registry.execute_with_policy(call, &of_run(run)).await)
    };
    // A request and the next one of the same call are one thing to approve of.
    let said = ask("one", json!({"url": url, "times": 2, "first": "/tmp/note"})).await.text();
    assert_eq!(said.matches("\"text\":\"hi\"").count(), 2, "{said}");
    ask("one", json!({"url": url})).await.refused(ToolErrorKind::Denied, "flow_denied");
    let said = ask("two", json!({"url": url, "times": 2, "first": "/shared/note"})).await.text();
    assert_eq!(said.matches("\"code\":\"flow_denied\"").count(), 2, "{said}");
    assert_eq!(server.requests(), 2);
    let rows = world.rows();
    let refused = rows.iter().filter(|row| row.confinement.is_some_and(|it| it.as_str() == "egress"));
    let refused: Vec<_> = refused.filter(|row| row.flow_rule.is_some()).collect();
    assert_eq!(refused.len(), 2, "{rows:#?}");
    for row in refused {
        assert_eq!(row.flow_rule.as_deref(), Some("flow[mount:shared -> network]"));
        assert!(row.labels.iter().any(|label| &**label == "mount:shared"), "{row:#?}");
    }
}
