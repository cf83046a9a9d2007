//! `tools/call` over standard streams, compared with the reference server for files.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_testing::Fixture;
use serde_json::{Value, json};

use crate::{
    process,
    read::Files,
    report::{Report, Slowness},
    sample::median_us,
};

/// Calls per run, fewer than the shipped policy's rate, which stays in force.
const ROUNDS: usize = 500;
/// Consecutive calls of one server. Switching between servers after each call would measure cold caches, and a real
/// client uses one server.
const CONSECUTIVE_CALLS: usize = 50;
const STARTS: usize = 15;

/// The reference server's package.
const REFERENCE: &str = "@modelcontextprotocol/server-filesystem";

pub(crate) fn calls(fixture: &Fixture, files: &Files, report: &mut Report) {
    let state = fixture.root().join("mcp-state");
    // The first start fills the module cache.
    drop(Server::start(serve(fixture, &state)));
    let mut starts = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        let start = Instant::now();
        let server = Server::start(serve(fixture, &state));
        starts.push(start.elapsed());
        drop(server);
    }
    let start = median_us(&mut starts) / 1000.0;
    report.check_at_most("`portcullis serve`, from its start to its first answer, p50", start, 60.0, "ms");

    let mut portcullis = Server::start(serve(fixture, &state));
    let mut reference_server = reference(fixture).map(Server::start);
    let (mut portcullis_times, mut reference_times, mut native) = (Vec::new(), Vec::new(), Vec::new());
    let numbers: Vec<usize> = (0..ROUNDS).collect();
    for numbers in numbers.chunks(CONSECUTIVE_CALLS) {
        native.extend(numbers.iter().map(|number| files.read_natively(*number)));
        for number in numbers {
            portcullis_times.push(portcullis.read(
                *number,
                "file_read",
                &format!("/shared/bench/{number}.txt"),
            ));
        }
        if let Some(reference_server) = &mut reference_server {
            for number in numbers {
                let path = fixture.shared(&format!("bench/{number}.txt"));
                reference_times.push(reference_server.read(
                    *number,
                    "read_text_file",
                    &path.display().to_string(),
                ));
            }
        }
    }
    let slowness = Slowness::from_native_read(median_us(&mut native));
    let portcullis_times = median_us(&mut portcullis_times);
    report.check_at_most_scaled(
        "`tools/call file_read` over standard streams, p50",
        portcullis_times,
        200.0,
        "µs",
        slowness,
    );
    let what = format!("the same beside `{REFERENCE}`");
    if reference_times.is_empty() {
        let reason =
            "it is not installed as `.ci/mcp/package-lock.json` has it: `.ci/node-packages mcp` does that";
        report.add_unmeasurable(&what, reason);
    } else {
        let reference_times = median_us(&mut reference_times);
        report.add_reference(&format!("`{REFERENCE}`, p50"), reference_times, "µs");
        report.check_at_most(&what, portcullis_times / reference_times, 1.0 / 3.0, "×");
    }
}

fn serve(fixture: &Fixture, state: &Path) -> Command {
    let mut command = process::command(fixture, state);
    command.arg("serve");
    command
}

/// The reference server that `.ci/node-packages mcp` installs, in the version of the lock file and with the Node
/// version of that script. `MCP_REFERENCE` may name the folder of another npm installation instead, which
/// runs on the installed Node.
#[expect(clippy::disallowed_methods, reason = "the program that we are compared with")]
fn reference(fixture: &Fixture) -> Option<Command> {
    let (node, folder) = match std::env::var_os("MCP_REFERENCE") {
        Some(folder) => (PathBuf::from("node"), PathBuf::from(folder)),
        None => {
            let folder = reference_packages()?;
            (folder.join("bin/node"), folder)
        }
    };
    let mut command = Command::new(node);
    command.arg(folder.join("node_modules").join(REFERENCE).join("dist/index.js"));
    command.arg(fixture.workspace().join("shared"));
    Some(command)
}

/// Returns the folder of `.ci/node-packages mcp` beside the build folders, if its content matches the lock
/// file.
fn reference_packages() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_BIN_EXE_portcullis-test")).ancestors().nth(2)?.join("mcp-packages");
    let expected_lock = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(".ci/mcp/package-lock.json");
    let installed = fs::read(folder.join("installed")).ok()?;
    (installed == fs::read(expected_lock).ok()?).then_some(folder)
}

struct Server {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts the server, and waits for its first answer.
    fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("starts");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let mut server = Self { process, input, output };
        let client = json!({"name": "bench", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        server.send(&json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}));
        server.answer(&json!("hello"));
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn read(&mut self, number: usize, tool: &str, path: &str) -> Duration {
        let params = json!({"name": tool, "arguments": {"path": path}});
        let start = Instant::now();
        self.send(&json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}));
        let answer = self.answer(&json!(number));
        let elapsed = start.elapsed();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.starts_with(&format!("file {number}\n")), "{answer}");
        elapsed
    }

    fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("open");
        input.write_all(format!("{message}\n").as_bytes()).expect("is read");
        input.flush().expect("is read");
    }

    /// The answer to a request; drops the server's other messages.
    fn answer(&mut self, id: &Value) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("readable") > 0, "the server is gone");
            let message: Value = serde_json::from_str(&line).expect("a message");
            if message["id"] == *id && message.get("method").is_none() {
                return message;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server ends at the end of its input.
        drop(self.input.take());
        let _ = self.process.wait();
    }
}
