//! Streamable HTTP from outside: admission, limits, and the end of a session.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use portcullis_mcp::McpLimits;
use portcullis_testing::Fixture;
use portcullis_tools::policy::DEFAULT_POLICY;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::client::{end_rows, resident_bytes, serve, text};
use crate::modules::portcullis;

/// The number of streams that an abusive client opens.
const STREAMS: usize = 10_000;

/// `portcullis serve --http`, ended on drop.
pub(super) struct Server {
    process: Child,
    address: SocketAddr,
    token: String,
}

/// An HTTP response.
#[derive(Debug)]
pub(super) struct RawResponse {
    pub(super) status: u16,
    head: String,
    body: String,
}

impl Server {
    pub(super) fn start(fixture: &Fixture, options: &[&str]) -> Self {
        let options = [&["--http", "127.0.0.1:0"], options].concat();
        let mut program = serve(fixture, &options);
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = program.spawn().expect("starts");
        let mut stderr_lines = BufReader::new(process.stderr.take().expect("piped")).lines();
        let mut line_after = |words: &str| {
            let line =
                stderr_lines.find_map(|line| line.expect("a line").strip_prefix(words).map(str::to_owned));
            line.unwrap_or_else(|| panic!("it did not say `{words}`"))
        };
        let address = line_after("serving at http://").trim_end_matches("/mcp").parse().expect("an address");
        let token = fs::read_to_string(line_after("the token is in ")).expect("readable").trim().to_owned();
        // Drain the rest of the output, so that the server never blocks on it.
        std::thread::spawn(move || stderr_lines.for_each(drop));
        Self { process, address, token }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("set");
        stream
    }

    /// Returns a request's head without the final empty line: the usual headers, with these headers added or
    /// replaced. An empty value omits the header.
    fn head(&self, method: &str, headers: &[(&str, &str)]) -> String {
        let mut head = format!("{method} /mcp HTTP/1.1\r\n");
        let default_headers = [
            ("host", self.address.to_string()),
            ("authorization", format!("Bearer {}", self.token)),
            ("accept", "application/json, text/event-stream".to_owned()),
            ("content-type", "application/json".to_owned()),
            ("connection", "close".to_owned()),
        ];
        for (name, value) in default_headers {
            if !headers.iter().any(|(given_name, _)| *given_name == name) {
                head += &format!("{name}: {value}\r\n");
            }
        }
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            head += &format!("{name}: {value}\r\n");
        }
        head
    }

    pub(super) fn request(&self, method: &str, headers: &[(&str, &str)], body: &str) -> RawResponse {
        let mut stream = self.connect();
        let head = self.head(method, headers);
        let message = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        // The server may answer before it has read everything.
        let _ = stream.write_all(message.as_bytes());
        read_answer(stream)
    }

    fn post(&self, headers: &[(&str, &str)], message: &Value) -> RawResponse {
        self.request("POST", headers, &message.to_string())
    }

    /// Starts a session and returns its id.
    pub(super) fn begin(&self) -> String {
        let answer = self.post(&[], &initialize());
        assert_eq!(answer.status, 200, "{answer:?}");
        let session = answer.header("mcp-session-id").expect("a session");
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&[("mcp-session-id", &session)], &initialized).status, 202);
        session
    }

    /// Sends a call with the id 7 and returns the connection of its answer.
    fn ask(&self, session: &str, tool: &str, arguments: &Value) -> TcpStream {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
                             "params": {"name": tool, "arguments": arguments}});
        let body = message.to_string();
        let mut stream = self.connect();
        let head = self.head("POST", &[("mcp-session-id", session)]);
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).expect("written");
        stream
    }

    /// Sends a `ping`; its round trip also serves as a delay.
    #[track_caller]
    fn ping(&self, session: &str) {
        let ping = json!({"jsonrpc": "2.0", "id": 8, "method": "ping"});
        assert_eq!(self.post(&[("mcp-session-id", session)], &ping).status, 200);
    }

    /// Polls until a condition holds, with a round trip between two checks.
    #[track_caller]
    fn poll_until<T>(&self, session: &str, condition: impl Fn() -> Option<T>) -> T {
        let result = (0..100_000).find_map(|_| {
            self.ping(session);
            condition()
        });
        result.expect("it comes to be so")
    }

    /// Waits until a command has created a file.
    #[track_caller]
    fn wait_for_file(&self, session: &str, fixture: &Fixture, name: &str) {
        self.poll_until(session, || fixture.shared(name).exists().then_some(()));
    }

    #[track_caller]
    fn cancel(&self, session: &str, id: u64) {
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                               "params": {"requestId": id, "reason": "it took too long"}});
        assert_eq!(self.post(&[("mcp-session-id", session)], &cancelled).status, 202);
        self.ping(session);
    }

    pub(super) fn call(&self, session: &str, tool: &str, arguments: &Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
                             "params": {"name": tool, "arguments": arguments}});
        let answer = self.post(&[("mcp-session-id", session)], &message);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.message()["result"].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl RawResponse {
    fn header(&self, name: &str) -> Option<String> {
        let head = self.head.to_ascii_lowercase();
        head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
    }

    /// Returns the last message of the answer's stream.
    fn message(&self) -> Value {
        let mut data = self.body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
        let last = data.rfind(|data| !data.is_empty()).unwrap_or_else(|| panic!("no message: {self:?}"));
        serde_json::from_str(last).expect("a message")
    }
}

fn read_answer(mut stream: TcpStream) -> RawResponse {
    let mut bytes = Vec::new();
    // The server may reset a refused connection after its answer.
    let _ = stream.read_to_end(&mut bytes);
    let response_text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = response_text.split_once("\r\n\r\n").unwrap_or((&response_text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    RawResponse { status, head: head.to_owned(), body: body.to_owned() }
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tester", "version": "1"}
    }})
}

#[test]
fn a_session_begins_calls_and_ends_and_then_is_not_known() {
    let fixture = Fixture::new();
    fixture.put("note", "seen");
    let server = Server::start(&fixture, &[]);
    let session = server.begin();
    let result = server.call(&session, "file_read", &json!({"path": "note"}));
    assert_eq!((text(&result), &result["isError"]), ("seen", &json!(false)), "{result}");
    let other = server.begin();
    assert_ne!(other, session);
    assert_eq!(server.request("DELETE", &[("mcp-session-id", &session)], "").status, 204);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    assert_eq!(server.post(&[("mcp-session-id", &session)], &ping).status, 404);
    assert_eq!(server.post(&[("mcp-session-id", &other)], &ping).status, 200);
    let rows = end_rows(&fixture, "file_read");
    assert_eq!((rows.len(), rows[0].agent.as_deref()), (1, Some("mcp:tester")));
}

#[test]
fn a_wrong_token_host_or_origin_is_refused_and_starts_nothing() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &[]);
    let wrong = format!("Bearer {}", "0".repeat(64));
    let port = server.address.port();
    let (rebound, origin) = (format!("evil.example:{port}"), format!("http://127.0.0.1:{port}"));
    for (headers, status) in [
        (&[("authorization", "")][..], 401),
        (&[("authorization", wrong.as_str())], 401),
        (&[("authorization", "Basic eDp5")], 401),
        (&[("host", rebound.as_str())], 403),
        (&[("host", "")], 403),
        (&[("origin", "http://evil.example")], 403),
        (&[("origin", "null")], 403),
        (&[("origin", origin.as_str())], 403),
    ] {
        for method in ["POST", "GET", "DELETE", "OPTIONS"] {
            let answer = server.request(method, headers, &initialize().to_string());
            assert_eq!(answer.status, status, "{method} {headers:?} {answer:?}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
            assert_eq!(answer.header("mcp-session-id"), None);
        }
    }
    // The control: the same request without a fault.
    assert_eq!(server.post(&[], &initialize()).status, 200);
}

#[test]
fn hosts_and_origins_that_the_operator_names_are_let_in() {
    let fixture = Fixture::new();
    let options = ["--allow-host", "tools.example", "--allow-origin", "http://localhost:6274"];
    let server = Server::start(&fixture, &options);
    let headers = [("host", "tools.example"), ("origin", "http://localhost:6274")];
    assert_eq!(server.post(&headers, &initialize()).status, 200);
    assert_eq!(server.post(&[("origin", "http://localhost:6275")], &initialize()).status, 403);
}

#[test]
fn the_token_is_private_and_persistent_or_the_operators() {
    let fixture = Fixture::new();
    let first = Server::start(&fixture, &[]).token.clone();
    let file = fixture.state().join("mcp-token");
    assert_eq!(fs::metadata(&file).expect("the path exists").permissions().mode() & 0o777, 0o600);
    assert_eq!(Server::start(&fixture, &[]).token, first);
    let own_token = fixture.root().join("own");
    fs::write(&own_token, "o".repeat(40)).expect("written");
    fs::set_permissions(&own_token, fs::Permissions::from_mode(0o600)).expect("set");
    let with_own_token =
        Server::start(&fixture, &["--token-file", own_token.to_str().expect("the path is UTF-8")]);
    assert_eq!(with_own_token.post(&[], &initialize()).status, 200);
    assert_eq!(
        with_own_token.post(&[("authorization", &format!("Bearer {first}"))], &initialize()).status,
        401
    );
    fs::set_permissions(&own_token, fs::Permissions::from_mode(0o644)).expect("set");
    let options =
        ["serve", "--http", "127.0.0.1:0", "--token-file", own_token.to_str().expect("the path is UTF-8")];
    let refused = portcullis(&fixture, &options);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn an_address_that_others_can_reach_must_be_allowed() {
    let fixture = Fixture::new();
    let refused = portcullis(&fixture, &["serve", "--http", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--allow-remote"), "{refused:?}");
}

#[test]
fn a_body_that_is_too_long_is_refused_whether_it_says_so_or_not() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &[]);
    let long = "x".repeat((4 << 20) + 1);
    assert_eq!(server.request("POST", &[], &long).status, 413);
    let mut stream = server.connect();
    let head = server.head("POST", &[("transfer-encoding", "chunked")]);
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    for _ in 0..6 {
        let _ = stream.write_all(chunk.as_bytes());
    }
    assert_eq!(read_answer(stream).status, 413);
    assert_eq!(server.post(&[], &initialize()).status, 200);
}

#[test]
fn a_head_that_is_too_long_or_has_too_many_headers_is_refused() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &[]);
    let long = "x".repeat(64 << 10);
    assert_eq!(server.post(&[("x-long", &long)], &initialize()).status, 431);
    let names: Vec<_> = (0..200).map(|number| format!("x-{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(server.post(&many, &initialize()).status, 431);
}

#[test]
fn bodies_that_are_not_a_message_are_refused() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &[]);
    let session = server.begin();
    for body in ["hello", "", "[]", "{}", &"[".repeat(100_000), "{\"jsonrpc\":\"2.0\",\"id\":1,\"met"] {
        let answer = server.request("POST", &[("mcp-session-id", &session)], body);
        assert_eq!(answer.status, 400, "{body:.40}: {answer:?}");
        let error: Value = serde_json::from_str(&answer.body).expect("a message");
        assert!([-32700, -32600].iter().any(|code| error["error"]["code"] == *code), "{error}");
    }
    assert_eq!(server.request("PUT", &[], "").status, 405);
    assert_eq!(server.post(&[("content-type", "text/plain")], &initialize()).status, 415);
    let unknown = [("mcp-session-id", "00000000-0000-0000-0000-000000000000")];
    assert_eq!(server.post(&unknown, &initialize()).status, 404);
    let result = server.call(&session, "echo", &json!({"message": "alive"}));
    assert_eq!(result["isError"], false);
}

#[test]
fn ten_thousand_streams_leave_the_server_small_and_serving() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &[]);
    let session = server.begin();
    let before = resident_bytes(&server.process);
    // Hold as many streams at a time as this process may open, and close the oldest for each further one.
    let open_limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .map_or(STREAMS, |limit| usize::try_from(limit / 4).expect("a number").clamp(300, STREAMS));
    let (mut first, mut open_streams) = (None, VecDeque::new());
    for _ in 0..STREAMS {
        if open_streams.len() == open_limit {
            open_streams.pop_front();
        }
        let mut stream = server.connect();
        let head = server.head("GET", &[("mcp-session-id", &session), ("connection", "keep-alive")]);
        // A stream over the limit may be closed before it sends its request.
        let _ = stream.write_all(format!("{head}\r\n").as_bytes());
        if first.is_none() {
            // A stream within the limit is served.
            let mut line = String::new();
            BufReader::new(stream.try_clone().expect("cloned")).read_line(&mut line).expect("an answer");
            assert!(line.starts_with("HTTP/1.1 200"), "{line}");
            first = Some(stream);
            continue;
        }
        open_streams.push_back(stream);
    }
    // On a busy machine the server may already have closed the oldest connections, because they sent nothing more.
    let limit = McpLimits::default().max_connections;
    let one_too_many = || {
        let _held: Vec<_> = (0..=limit).map(|_| server.connect()).collect();
        read_answer(server.connect())
    };
    // The server may close the connections that fill it here in the same way, so try three times.
    let answer = (0..3).map(|_| one_too_many()).find(|answer| answer.status == 503);
    answer.expect("a server at its limit says so");
    let grown = resident_bytes(&server.process).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    drop((first, open_streams));
    // The server accepts connections again when it notices that its clients have closed theirs.
    let is_back = (0..10_000).any(|_| server.post(&[], &initialize()).status == 200);
    assert!(is_back);
}

#[test]
fn a_request_without_a_session_is_refused_and_runs_nothing() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &["--approve"]);
    let session = server.begin();
    let version = "io.modelcontextprotocol/protocolVersion";
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let meta = json!({version: "2025-11-25", capabilities: {}});
    let arguments = json!({"message": "x"});
    let sessionless_call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
                       "params": {"name": "echo", "arguments": arguments, "_meta": meta}});
    let bare_call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
                      "params": {"name": "echo", "arguments": arguments}});
    let revision = ("mcp-protocol-version", "2025-11-25");
    let unknown = ("mcp-session-id", "00000000-0000-0000-0000-000000000000");
    for (headers, message) in [
        (vec![revision], &sessionless_call),
        (vec![revision, unknown], &sessionless_call),
        (vec![revision, ("mcp-session-id", &session)], &sessionless_call),
        (vec![revision], &bare_call),
    ] {
        let refused = server.post(&headers, message);
        assert!(refused.status == 400 && refused.body.contains("-32600"), "{headers:?}: {refused:?}");
    }
    let discover = json!({"jsonrpc": "2.0", "id": 8, "method": "server/discover", "params": {"_meta": meta}});
    let answer = server.post(&[revision], &discover);
    assert!(answer.body.contains("-32601"), "{answer:?}");
    assert!(fixture.rows().is_empty());
    assert_eq!(server.call(&session, "echo", &arguments)["isError"], false);
}

#[test]
fn sessions_above_the_limit_are_refused_until_one_ends() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &[]);
    let sessions: Vec<_> = (0..64).map(|_| server.begin()).collect();
    let refused = server.post(&[], &initialize());
    assert_eq!((refused.status, refused.header("retry-after").as_deref()), (503, Some("10")), "{refused:?}");
    assert!(refused.body.contains("64 sessions") && refused.body.contains("15m"), "{refused:?}");
    assert_eq!(server.request("DELETE", &[("mcp-session-id", &sessions[0])], "").status / 100, 2);
    assert_eq!(server.post(&[], &initialize()).status, 200);
}

#[test]
fn a_slow_client_is_disconnected() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &[]);
    let mut stream = server.connect();
    stream.write_all(b"POST /mcp HTTP/1.1\r\nhost: local").expect("written");
    // The server's own limit ends the connection, because the client sends nothing more.
    let answer = read_answer(stream);
    assert!(matches!(answer.status, 0 | 408), "{answer:?}");
    let mut stream = server.connect();
    let head = server.head("POST", &[]);
    stream.write_all(format!("{head}content-length: 100\r\n\r\n{{").as_bytes()).expect("written");
    assert_eq!(read_answer(stream).status, 408);
}

#[test]
fn the_calls_of_a_session_that_ends_are_cancelled() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &["--approve"]);
    let session = server.begin();
    let command = json!({"command": "echo started > started; sleep 600"});
    let _stream = server.ask(&session, "shell_exec", &command);
    let ping = json!({"jsonrpc": "2.0", "id": 8, "method": "ping"});
    server.wait_for_file(&session, &fixture, "started");
    // The answers of two requests with one id would be ambiguous.
    let same = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
    let refused = server.post(&[("mcp-session-id", &session)], &same);
    assert!(refused.status == 400 && refused.body.contains("-32600"), "{refused:?}");
    let other = server.begin();
    assert_eq!(server.post(&[("mcp-session-id", &other)], &same).status, 200);
    assert_eq!(server.request("DELETE", &[("mcp-session-id", &session)], "").status / 100, 2);
    // Polls, with a round trip between two checks.
    let rows = (0..100_000).find_map(|_| {
        server.post(&[("mcp-session-id", &session)], &ping);
        Some(end_rows(&fixture, "shell_exec")).filter(|rows| !rows.is_empty())
    });
    assert_eq!(rows.expect("a row")[0].code.as_deref(), Some("cancelled"));
}

#[test]
fn a_call_is_cancelled_by_its_own_session_and_by_no_other() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &["--approve"]);
    let (session, other) = (server.begin(), server.begin());
    let command = "echo > started; while [ ! -e go ]; do sleep 0.01; done; \
                   while :; do echo >> beats; [ $((++n)) = 3 ] && echo > went; sleep 0.01; done";
    let stream = server.ask(&session, "shell_exec", &json!({"command": command}));
    server.wait_for_file(&session, &fixture, "started");
    // The first id belongs to a call of another session; the second is not the id of this session's call.
    server.cancel(&other, 7);
    server.cancel(&session, 70);
    fixture.put("go", "");
    server.wait_for_file(&session, &fixture, "went");
    assert!(end_rows(&fixture, "shell_exec").is_empty(), "the call goes on");

    server.cancel(&session, 7);
    // The cancelled call has no answer; its stream ends.
    let answer = read_answer(stream);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!answer.body.contains("\"id\":7"), "{answer:?}");
    let rows = server
        .poll_until(&session, || Some(end_rows(&fixture, "shell_exec")).filter(|rows| !rows.is_empty()));
    assert_eq!((rows.len(), rows[0].code.as_deref()), (1, Some("cancelled")));
    // The command has stopped too, so a later command sees no further beats.
    let count = "a=$(wc -l < beats); sleep 0.5; b=$(wc -l < beats); echo $((b - a)) more, a few: $((a > 0))";
    let counted = server.call(&session, "shell_exec", &json!({"command": count}));
    assert!(text(&counted).contains("0 more, a few: 1"), "{counted}");
}

#[test]
fn every_stream_is_notified_if_a_hangup_changes_the_tools() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &[]);
    let sessions = [server.begin(), server.begin()];
    let streams = sessions.each_ref().map(|session| {
        // Only an answer proves that the server has seen the start of the session.
        server.ping(session);
        let mut stream = server.connect();
        let head = server.head("GET", &[("mcp-session-id", session), ("connection", "keep-alive")]);
        stream.write_all(format!("{head}\r\n").as_bytes()).expect("written");
        let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
        assert_eq!(lines.next().as_deref(), Some("HTTP/1.1 200 OK"));
        lines
    });
    let policy = format!("{DEFAULT_POLICY}\n[tools.get_current_time]\nenabled = false\n");
    fs::write(fixture.root().join("policy.toml"), policy).expect("written");
    kill_process(Pid::from_child(&server.process), Signal::HUP).expect("told");
    // A stream without messages sends keep-alive comments.
    let deadline = Instant::now() + Duration::from_secs(120);
    for (session, lines) in sessions.iter().zip(streams) {
        let mut lines = lines.take_while(|_| Instant::now() < deadline);
        let notification = lines.find_map(|line| {
            Some(line.strip_prefix("data:")?.trim().to_owned()).filter(|data| !data.is_empty())
        });
        let notification: Value = serde_json::from_str(&notification.expect("a message")).expect("JSON");
        assert_eq!(notification, json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
        let list = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"});
        let listed = server.post(&[("mcp-session-id", session)], &list).message();
        let names = listed["result"]["tools"].as_array().expect("tools").iter().map(|tool| &tool["name"]);
        let names: Vec<_> = names.filter_map(Value::as_str).collect();
        assert!(names.contains(&"file_read") && !names.contains(&"get_current_time"), "{names:?}");
    }
}

#[test]
fn each_call_is_answered_when_the_server_is_asked_to_stop() {
    let fixture = Fixture::new();
    let server = Server::start(&fixture, &["--approve"]);
    let sessions: Vec<_> = (0..3).map(|_| server.begin()).collect();
    // Make more calls than can run at a time, so that some wait for a slot.
    let ask = |number: usize| {
        let command = format!("echo > started{number}; sleep 600");
        let session = &sessions[number % sessions.len()];
        let message = json!({"jsonrpc": "2.0", "id": 100 + number, "method": "tools/call",
                             "params": {"name": "shell_exec", "arguments": {"command": command}}});
        let body = message.to_string();
        let mut stream = server.connect();
        let head = server.head("POST", &[("mcp-session-id", session)]);
        stream
            .write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
            .expect("written");
        stream
    };
    let calls: Vec<_> = (0..14).map(ask).collect();
    // A stream that never ends by itself must not delay the server's shutdown.
    let mut open_stream = server.connect();
    let head = server.head("GET", &[("mcp-session-id", &sessions[0]), ("connection", "keep-alive")]);
    open_stream.write_all(format!("{head}\r\n").as_bytes()).expect("written");
    server.poll_until(&sessions[0], || {
        (0..14).any(|number| fixture.shared(&format!("started{number}")).exists()).then_some(())
    });
    // Each call is in flight: another request with its id is refused.
    for number in 0..14 {
        let session = &sessions[number % sessions.len()];
        let same = json!({"jsonrpc": "2.0", "id": 100 + number, "method": "ping"});
        server.poll_until(session, || {
            (server.post(&[("mcp-session-id", session)], &same).status == 400).then_some(())
        });
    }
    kill_process(Pid::from_child(&server.process), Signal::TERM).expect("told");
    for (number, stream) in calls.into_iter().enumerate() {
        let answer = read_answer(stream);
        assert_eq!(answer.status, 200, "{answer:?}");
        let message = answer.message();
        assert_eq!(message["id"], 100 + number, "{message}");
        assert!(text(&message["result"]).contains("cancelled"), "{message}");
    }
    let mut server = server;
    assert_eq!(server.process.wait().expect("ends").code(), Some(0));
    assert_eq!(end_rows(&fixture, "shell_exec").len(), 14);
}
