//! A canary secret in the real program. The test searches every output for the secret: results, events, logs, rows,
//! stored outputs, the environment of each process, and a core dump.
#![expect(
    clippy::disallowed_methods,
    reason = "the program under test, and a program that is compared with it"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    ops::Range,
    os::unix::{fs::FileExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use portcullis_testing::Fixture;
use serde_json::{Value, json};

use super::{
    secrets::{ENCODED, VALUE, fixture},
    server,
    tls::Authority,
};

/// The variable that holds the secret.
const VARIABLE: &str = "CANARY_TOKEN";

/// Full logs of all crates that handle HTTP or calls. The compiler of modules is excluded, because it would
/// log gigabytes and handles no secret.
const LOG: &str = "info,portcullis=trace,portcullis_tools=trace,portcullis_egress=trace,portcullis_sandbox=trace,\
    portcullis_mcp=trace,rmcp=trace,hyper=trace,hyper_util=trace,rustls=trace,tokio_rustls=trace,hickory_resolver=trace";

/// A part of each searched form of the secret: plain, in base64, and in a URL.
const FORMS: [&str; 3] = ["canary/7f3a9c", "hbmFyeS83ZjNhOWMr", "canary%2F7f3a9c"];

/// Text of the page that keeps a guest busy.
const PAGE_MARK: &str = "the guest has this page, 7c1e55";

/// The program as an MCP server over pipes.
struct McpProgram {
    program: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// All lines that the program has written.
    printed: String,
}

impl McpProgram {
    /// Starts the program with the secret in its environment, in a folder where a core dump may be written.
    fn start(fixture: &Fixture, folder: &Path) -> Self {
        // The shell raises the limit on core dumps if it may, so that only the program itself prevents a
        // dump.
        let mut program = Command::new("bash");
        program
            .args(["-c", "ulimit -c unlimited 2>/dev/null; exec \"$@\"", "bash"])
            .arg(portcullis_testing::binary())
            .args(fixture.options())
            .args(["serve", "--approve"])
            .current_dir(folder)
            .env(VARIABLE, VALUE)
            .env("PORTCULLIS_LOG", LOG)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.join("stderr")).expect("writable"));
        let mut program = program.spawn().expect("starts");
        let input = program.stdin.take();
        let output = BufReader::new(program.stdout.take().expect("piped"));
        let mut served = Self { program, input, output, printed: String::new() };
        let about = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } });
        served.ask(0, "initialize", &about);
        served
    }

    fn send(&mut self, id: u64, method: &str, params: &Value) {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let input = self.input.as_mut().expect("open");
        input.write_all(format!("{request}\n").as_bytes()).expect("written");
    }

    /// Sends a request, and reads up to its answer.
    fn ask(&mut self, id: u64, method: &str, params: &Value) -> String {
        self.send(id, method, params);
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).expect("a line"), 0, "{}", self.printed);
            self.printed.push_str(&line);
            if line.contains(&format!("\"id\":{id}")) {
                return line;
            }
        }
    }

    fn call(&mut self, id: u64, tool: &str, arguments: &Value) -> String {
        self.ask(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
    }
}

/// Returns the forms of the secret that these bytes contain.
fn secret_forms_in(bytes: &[u8]) -> Vec<&'static str> {
    let has = |form: &&str| bytes.windows(form.len()).any(|part| part == form.as_bytes());
    FORMS.into_iter().filter(has).collect()
}

/// Returns all files below a folder that contain one of the forms.
fn files_with_the_secret(folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let kind = fs::symlink_metadata(&path).expect("the path exists").file_type();
        if kind.is_dir() {
            paths.extend(files_with_the_secret(&path));
        } else if kind.is_file() && !secret_forms_in(&fs::read(&path).expect("readable")).is_empty() {
            paths.push(path);
        }
    }
    paths
}

/// Returns a process and all its descendants.
fn process_tree(process: u32) -> Vec<u32> {
    let mut processes = vec![process];
    let mut next = 0;
    while let Some(process) = processes.get(next).copied() {
        next += 1;
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    processes
}

/// Returns the process's writable memory ranges, and for each whether it is a guest's memory. A guest's
/// memory is followed by an inaccessible range: the rest of the four gigabytes that the guest could address.
fn memory_ranges(process: u32) -> Vec<(Range<u64>, bool)> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("readable");
    let parsed: Vec<(Range<u64>, &str)> = maps
        .lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?..number(end)?, rest))
        })
        .collect();
    let is_reserved =
        |(range, rest): &(Range<u64>, &str)| rest.starts_with("---p") && range.end - range.start >= 1 << 30;
    let follows = |end| parsed.iter().any(|next| next.0.start == end && is_reserved(next));
    let writable = parsed.iter().filter(|(_, rest)| rest.starts_with("rw"));
    writable.map(|(range, _)| (range.clone(), follows(range.end))).collect()
}

/// Returns the bytes of a range of the process's memory, up to the first part that cannot be read.
fn read_memory(memory: &fs::File, range: &Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 20];
    let mut position = range.start;
    while position < range.end {
        let piece_bytes = piece.len().min(usize::try_from(range.end - position).unwrap_or(usize::MAX));
        match memory.read_at(&mut piece[..piece_bytes], position) {
            Ok(read) if read > 0 => {
                bytes.extend_from_slice(&piece[..read]);
                position += read as u64;
            }
            _ => break,
        }
    }
    bytes
}

/// Searches the guests' memories until one of them has the page, and returns the forms of the secret found there.
fn forms_seen_by_guests(memory: &fs::File, process: u32) -> Vec<&'static str> {
    let has_page = |bytes: &[u8]| bytes.windows(PAGE_MARK.len()).any(|part| part == PAGE_MARK.as_bytes());
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let guests = memory_ranges(process).into_iter().filter(|(_, is_guest)| *is_guest);
        let guest_memory: Vec<u8> = guests.flat_map(|(range, _)| read_memory(memory, &range)).collect();
        if has_page(&guest_memory) {
            return secret_forms_in(&guest_memory);
        }
    }
    panic!("no guest got the page");
}

/// Returns the exit status of an unprotected program that aborts, which shows whether this machine writes
/// core dumps.
fn dumped_for_comparison(folder: &Path) -> ExitStatus {
    let mut program = Command::new("bash");
    program.args(["-c", "ulimit -c unlimited 2>/dev/null; kill -ABRT $$"]).current_dir(folder);
    program.status().expect("starts")
}

#[test]
fn a_secret_comes_out_nowhere() {
    let authority = Authority::new();
    let own_server = authority.serve(|head| {
        if head.starts_with("GET /busy ") {
            let page = format!("<p>{PAGE_MARK} {VALUE} {ENCODED}{}", "<div>".repeat(1_000_000));
            return server::html(&page).expect("an answer");
        }
        let body =
            format!("{head}\n{VALUE} {ENCODED} canary%2F7f3a9c%2BQ52e%3D%3D\n{}", "long ".repeat(20_000));
        server::answer("text/plain", body.as_bytes()).expect("an answer")
    });
    let fixture = fixture(&authority, &[&own_server], &format!("env:{VARIABLE}"))
        .with_policy("[tools.shell_exec]\napproval = \"allow\"\n");
    let folder = fixture.root().join("folder");
    fs::create_dir(&folder).expect("the folder can be made");
    let mut served = McpProgram::start(&fixture, &folder);

    let fetched = served.call(1, "web_fetch", &json!({ "url": own_server.url("/"), "format": "text" }));
    assert!(fetched.contains("Bearer REDACTED") && fetched.contains("\"isError\":false"), "{fetched}");
    assert!(own_server.take_heads()[0].contains(&format!("authorization: Bearer {VALUE}\r\n")));
    let command = "env; set; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; echo done";
    let command_result = served.call(2, "shell_exec", &json!({ "command": command }));
    assert!(command_result.contains("done"), "{command_result}");

    let process = served.program.id();
    let process_tree = process_tree(process);
    assert!(process_tree.len() > 1, "the shell runs in a separate process: {process_tree:?}");
    for process in &process_tree {
        // An ordinary user may be unable to read the environment, because the program is not dumpable.
        if let Ok(environment) = fs::read(format!("/proc/{process}/environ")) {
            assert_eq!(secret_forms_in(&environment), [""; 0], "{process}");
        }
    }

    // Search the memory while a guest reads a page that repeats the secret. Only root can open the memory.
    served.send(
        3,
        "tools/call",
        &json!({ "name": "web_fetch", "arguments": { "url": own_server.url("/busy") } }),
    );
    match fs::File::open(format!("/proc/{process}/mem")) {
        Ok(memory) => {
            assert_eq!(forms_seen_by_guests(&memory, process), [""; 0]);
            // The control: the host's memory has the secret, so the search would have found it.
            let hosts = memory_ranges(process).into_iter().filter(|(_, is_guest)| !is_guest);
            assert!(
                hosts
                    .into_iter()
                    .any(|(range, _)| !secret_forms_in(&read_memory(&memory, &range)).is_empty())
            );
        }
        Err(error) => eprintln!("the memory cannot be searched, as it should be: {error}"),
    }

    // Abort the program, as after a fault, while it has the secret in memory.
    let killed =
        rustix::process::Pid::from_raw(i32::try_from(process).expect("a number")).expect("a process");
    rustix::process::kill_process(killed, rustix::process::Signal::ABORT).expect("killed");
    let status = served.program.wait().expect("ended");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    assert!(!status.core_dumped(), "{status:?}");
    drop(served.input.take());
    served.output.read_to_string(&mut served.printed).expect("the output is UTF-8");

    assert_eq!(secret_forms_in(served.printed.as_bytes()), [""; 0], "{}", served.printed);
    // Search all files: the log of standard error, the audit log, stored outputs, and a core dump if there is one.
    assert_eq!(files_with_the_secret(fixture.root()), Vec::<PathBuf>::new());
    assert!(fixture.rows().iter().any(|row| row.secrets == ["api".into()]));
    let log = fs::metadata(folder.join("stderr")).expect("the path exists").len();
    assert!(log > 0, "the log was written");

    let unprotected_status = dumped_for_comparison(&folder);
    if !unprotected_status.core_dumped() {
        eprintln!("no program dumps its memory on this machine, so that this one's silence shows nothing");
    }
}
