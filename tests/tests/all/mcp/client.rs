//! A client that sends the messages of a test unchanged, one per line.
#![expect(clippy::needless_pass_by_value, reason = "tests write the JSON that they send in place")]

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::Duration,
};

use portcullis_mcp::{Clients, McpError, McpLimits, McpServer, serve_lines};
use portcullis_testing::{Fixture, TEST_TIMEOUT, binary};
use portcullis_tools::{
    RegistryBuilder, ToolRegistry,
    audit::{Row, RowEvent},
};
use portcullis_types::CancellationToken;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A server that reads no message for this long counts as full.
const FULL: Duration = Duration::from_secs(10);

pub(super) struct Client {
    output: Option<Output>,
    lines: Receiver<String>,
    server: Server,
    next_id: u64,
    reader: Reader,
}

/// The thread that reads the server's output.
struct Reader {
    thread: JoinHandle<()>,
    is_paused: Arc<AtomicBool>,
}

enum Output {
    Pipe(ChildStdin),
    Socket(UnixStream),
    Custom(File),
}

/// The kind of a server's standard input or output.
pub(super) enum Stream {
    /// A pipe, made by the test's own user.
    Pipe,
    Socket,
    /// Any other kind of stream: the test's end and the server's end.
    Custom {
        test_end: OwnedFd,
        server_end: OwnedFd,
    },
}

impl Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.write_all(bytes),
            Self::Socket(socket) => socket.write_all(bytes),
            Self::Custom(file) => file.write_all(bytes),
        }
    }
}

enum Server {
    Process(Child),
    Thread(Option<JoinHandle<Result<(), McpError>>>),
}

/// Settings of a server in this process.
#[derive(Default)]
pub(super) struct Setup {
    pub(super) clients: Clients,
    pub(super) limits: McpLimits,
    /// Whether the socket buffers only one or two messages for a client that does not read.
    pub(super) is_narrow: bool,
}

impl Client {
    /// Starts `portcullis serve` in this fixture, and a client of it.
    pub(super) fn start_program(fixture: &Fixture, options: &[&str]) -> Self {
        let mut server =
            serve(fixture, options).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let output = Output::Pipe(server.stdin.take().expect("piped"));
        let (lines, reader) = read_lines(server.stdout.take().expect("piped"));
        Self { output: Some(output), lines, server: Server::Process(server), next_id: 1, reader }
    }

    /// Starts a server program on streams of these kinds, and a client of it.
    pub(super) fn start_command(mut command: Command, input: Stream, output: Stream) -> Self {
        let mut input_end = None;
        match input {
            Stream::Pipe => {
                command.stdin(Stdio::piped());
            }
            Stream::Socket => {
                let (test_end, server_end) = UnixStream::pair().expect("a pair");
                command.stdin(OwnedFd::from(server_end));
                input_end = Some(Output::Socket(test_end));
            }
            Stream::Custom { test_end, server_end } => {
                command.stdin(server_end);
                input_end = Some(Output::Custom(File::from(test_end)));
            }
        }
        let mut output_end = None;
        match output {
            Stream::Pipe => {
                command.stdout(Stdio::piped());
            }
            Stream::Socket => {
                let (test_end, server_end) = UnixStream::pair().expect("a pair");
                command.stdout(OwnedFd::from(server_end));
                output_end = Some(OwnedFd::from(test_end));
            }
            Stream::Custom { test_end, server_end } => {
                command.stdout(server_end);
                output_end = Some(test_end);
            }
        }
        let mut server = command.spawn().expect("starts");
        // The command holds the server's ends of the streams until it is dropped.
        drop(command);
        let output = input_end.unwrap_or_else(|| Output::Pipe(server.stdin.take().expect("piped")));
        let output_stream = output_end.map(File::from);
        let (lines, reader) = match output_stream {
            Some(output_stream) => read_lines(output_stream),
            None => read_lines(server.stdout.take().expect("piped")),
        };
        Self { output: Some(output), lines, server: Server::Process(server), next_id: 1, reader }
    }

    /// Serves a registry in this process, and starts a client of it.
    pub(super) fn start(registry: impl Into<Arc<ToolRegistry>>, setup: Setup) -> Self {
        let registry = registry.into();
        let (test_end, server_end) = UnixStream::pair().expect("a pair");
        server_end.set_nonblocking(true).expect("set");
        if setup.is_narrow {
            // The kernel raises this to its minimum.
            rustix::net::sockopt::set_socket_send_buffer_size(&server_end, 1).expect("set");
        }
        let server = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let server = McpServer::with_clients(registry, setup.limits, setup.clients)?;
                let stream = tokio::net::UnixStream::from_std(server_end).expect("async");
                let (input, output) = stream.into_split();
                serve_lines(&server, input, output, CancellationToken::new()).await
            })
        });
        let (lines, reader) = read_lines(test_end.try_clone().expect("cloned"));
        let output = Some(Output::Socket(test_end));
        Self { output, lines, server: Server::Thread(Some(server)), next_id: 1, reader }
    }

    /// Initializes the client's session with these capabilities.
    pub(super) fn begin(mut self, capabilities: Value) -> Self {
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "clientInfo": {"name": "tester", "version": "1"},
        });
        let answer = self.request("initialize", params);
        assert!(answer["result"]["serverInfo"].is_object(), "{answer}");
        self.notify("notifications/initialized", json!({}));
        self
    }

    /// Writes bytes unchanged.
    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.output.as_mut().expect("not left").write(bytes)
    }

    /// Sends a line.
    #[track_caller]
    pub(super) fn send(&mut self, message: &str) {
        self.write(format!("{message}\n").as_bytes()).expect("the server reads");
    }

    #[track_caller]
    pub(super) fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Sends a request and returns its id.
    #[track_caller]
    pub(super) fn ask(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        id
    }

    /// Sends a request and waits for its answer; drops the messages before it.
    #[track_caller]
    pub(super) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// Waits for the answer to a request.
    #[track_caller]
    pub(super) fn answer(&mut self, id: u64) -> Value {
        self.wait_for_message(|message| message["id"] == id && message.get("method").is_none())
    }

    #[track_caller]
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    #[track_caller]
    pub(super) fn next(&mut self) -> Value {
        match self.lines.recv_timeout(TEST_TIMEOUT) {
            Ok(line) => {
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: no message: {line}"))
            }
            Err(RecvTimeoutError::Timeout) => panic!("nothing came"),
            Err(RecvTimeoutError::Disconnected) => panic!("the server has left"),
        }
    }

    /// Waits for the next message that satisfies the predicate.
    #[track_caller]
    pub(super) fn wait_for_message(&mut self, predicate: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next();
            if predicate(&message) {
                return message;
            }
        }
    }

    /// Sends the program `SIGHUP`, so that it reloads.
    pub(super) fn hang_up(&self) {
        let Server::Process(process) = &self.server else { panic!("no process") };
        signal(process, Signal::HUP);
    }

    /// Sends the program these signals to end it. Returns its exit code, or `None` if it does not end.
    pub(super) fn end_by_signals(mut self, signals: &[Signal]) -> Option<i32> {
        let Server::Process(mut process) = std::mem::replace(&mut self.server, Server::Thread(None)) else {
            panic!("no process")
        };
        signals.iter().for_each(|kind| signal(&process, *kind));
        let id = Pid::from_child(&process);
        let (ended_sender, ended_receiver) = mpsc::channel();
        std::thread::spawn(move || {
            // The send fails if the process was killed below and the receiver is gone.
            let _ = ended_sender.send(process.wait());
        });
        let Ok(status) = ended_receiver.recv_timeout(TEST_TIMEOUT) else {
            kill_process(id, Signal::KILL).expect("killed");
            return None;
        };
        status.expect("waited for").code()
    }

    /// Sends the program a signal to end it. Returns its remaining messages and its exit code.
    #[track_caller]
    pub(super) fn end_by_signal(mut self, kind: Signal) -> (Vec<Value>, Option<i32>) {
        let Server::Process(process) = &mut self.server else { panic!("no process") };
        signal(process, kind);
        let rest: Vec<_> = std::iter::from_fn(|| self.lines.recv_timeout(TEST_TIMEOUT).ok()).collect();
        let code = process.wait().expect("ends").code();
        (rest.iter().map(|line| serde_json::from_str(line).expect("a message")).collect(), code)
    }

    /// Returns the program's resident memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        let Server::Process(process) = &self.server else { panic!("no process") };
        resident_bytes(process)
    }

    /// Stops reading after at most one more line.
    pub(super) fn stop_reading(&mut self) {
        self.reader.is_paused.store(true, Ordering::SeqCst);
    }

    pub(super) fn resume_reading(&mut self) {
        self.reader.is_paused.store(false, Ordering::SeqCst);
        self.reader.thread.thread().unpark();
    }

    /// Writes at most `max_messages` messages until the server stops reading, and returns how many it has accepted.
    pub(super) fn write_until_full(&mut self, max_messages: usize, line: impl Fn(usize) -> String) -> usize {
        let mut output = self.output.take().expect("not left");
        let (accepting, accepted) = mpsc::channel();
        let lines: Vec<_> = (0..max_messages).map(line).collect();
        std::thread::spawn(move || {
            for line in lines {
                if output.write(line.as_bytes()).and(Ok(accepting.send(()))).is_err() {
                    return;
                }
            }
        });
        std::iter::from_fn(|| accepted.recv_timeout(FULL).ok()).count()
    }

    /// Closes the input and keeps reading.
    pub(super) fn close_input(&mut self) {
        match self.output.take() {
            Some(Output::Socket(socket)) => socket.shutdown(Shutdown::Write).expect("closed"),
            Some(Output::Pipe(_) | Output::Custom(_)) | None => {}
        }
    }

    /// Closes the input, waits for the server's end, and returns its remaining messages.
    #[track_caller]
    pub(super) fn leave(mut self) -> Vec<Value> {
        self.close_input();
        let rest: Vec<_> = std::iter::from_fn(|| self.lines.recv_timeout(TEST_TIMEOUT).ok()).collect();
        match &mut self.server {
            Server::Process(process) => {
                let status = process.wait().expect("ends");
                assert!(status.success(), "{status}");
            }
            Server::Thread(thread) => {
                thread.take().expect("once").join().expect("no panic").expect("serves");
            }
        }
        rest.iter().map(|line| serde_json::from_str(line).expect("a message")).collect()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Server::Process(process) = &mut self.server {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Creates a command of `portcullis serve` in this fixture.
pub(super) fn serve(fixture: &Fixture, options: &[&str]) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    let mut command = Command::new(binary());
    command.arg("serve").args(options).args(fixture.options()).stderr(Stdio::null());
    command
}

/// Returns a process's resident memory, in bytes.
pub(super) fn resident_bytes(process: &Child) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number") * 1024
}

fn signal(process: &Child, kind: Signal) {
    kill_process(Pid::from_child(process), kind).expect("told");
}

fn read_lines(stream: impl Read + Send + 'static) -> (Receiver<String>, Reader) {
    let (sender, receiver) = mpsc::channel();
    let is_paused = Arc::new(AtomicBool::new(false));
    let is_reader_paused = Arc::clone(&is_paused);
    let thread = std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            while is_reader_paused.load(Ordering::SeqCst) {
                std::thread::park();
            }
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    (receiver, Reader { thread, is_paused })
}

/// Creates a registry of only native tools.
pub(super) fn native_registry(
    fixture: &Fixture,
    add: impl FnOnce(RegistryBuilder) -> RegistryBuilder,
) -> ToolRegistry {
    let files = portcullis_tools::PolicyFiles::find(&fixture.envelope()).expect("policy files");
    let policy = files.load(portcullis_types::SandboxTier::Process).expect("a policy");
    add(ToolRegistry::builder().policy(policy).state(fixture.state()).default_tools())
        .build()
        .expect("builds")
}

/// Returns the end rows of a tool's calls.
pub(super) fn end_rows(fixture: &Fixture, tool: &str) -> Vec<Row> {
    fixture.rows().into_iter().filter(|row| &*row.tool == tool && row.event == RowEvent::End).collect()
}

/// Returns a result's text.
pub(super) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
