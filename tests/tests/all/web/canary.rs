//! A secret in the real program, looked for everywhere that something comes out of: results, events, logs, rows,
//! stored outputs, the environment of each of its processes, and a core dump.
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

use portcullis_testing::World;
use serde_json::{Value, json};

use super::{
    secrets::{ENCODED, VALUE, world},
    server,
    tls::Authority,
};

/// The variable that holds the secret.
const VARIABLE: &str = "CANARY_TOKEN";

/// Everything of what speaks HTTP or handles calls. The compiler of modules says gigabytes, and knows no secret.
const LOG: &str = "info,portcullis=trace,portcullis_tools=trace,portcullis_egress=trace,portcullis_sandbox=trace,\
    portcullis_mcp=trace,rmcp=trace,hyper=trace,hyper_util=trace,rustls=trace,tokio_rustls=trace,hickory_resolver=trace";

/// The parts of the secret's forms that are looked for: as it is, in base64, and in a URL.
const FORMS: [&str; 3] = ["canary/7f3a9c", "hbmFyeS83ZjNhOWMr", "canary%2F7f3a9c"];

/// A text of the page that keeps a guest busy.
const MARK: &str = "the guest has this page, 7c1e55";

/// The program as an MCP server over pipes.
struct Served {
    program: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// All that came out of it.
    said: String,
}

impl Served {
    /// Starts it with the secret in its environment, in a folder where a core dump may be written.
    fn start(world: &World, folder: &Path) -> Self {
        // The shell lifts the limit where it may; the program lowers it again.
        let mut program = Command::new("bash");
        program
            .args(["-c", "ulimit -c unlimited 2>/dev/null; exec \"$@\"", "bash"])
            .arg(portcullis_testing::binary())
            .args(world.options())
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
        let mut served = Self { program, input, output, said: String::new() };
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
            assert_ne!(self.output.read_line(&mut line).expect("a line"), 0, "{}", self.said);
            self.said.push_str(&line);
            if line.contains(&format!("\"id\":{id}")) {
                return line;
            }
        }
    }

    fn call(&mut self, id: u64, tool: &str, arguments: &Value) -> String {
        self.ask(id, "tools/call", &json!({ "name": tool, "arguments": arguments }))
    }
}

/// The forms of the secret in these bytes.
fn found(bytes: &[u8]) -> Vec<&'static str> {
    let has = |form: &&str| bytes.windows(form.len()).any(|part| part == form.as_bytes());
    FORMS.into_iter().filter(has).collect()
}

/// All files below a folder with one of the forms in them.
fn files_with_the_secret(folder: &Path) -> Vec<PathBuf> {
    let mut with = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let kind = fs::symlink_metadata(&path).expect("there").file_type();
        if kind.is_dir() {
            with.extend(files_with_the_secret(&path));
        } else if kind.is_file() && !found(&fs::read(&path).expect("readable")).is_empty() {
            with.push(path);
        }
    }
    with
}

/// A process and all that it has started, with what they have started.
fn family(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(process) = all.get(next).copied() {
        next += 1;
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    all
}

/// The memories of the process that it may write, and whether each is a guest's: a guest's is followed by the rest of
/// the four gigabytes that it could address, which nothing may touch.
fn memories(process: u32) -> Vec<(Range<u64>, bool)> {
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

/// The bytes of a part of the process's memory. Parts that vanish meanwhile are left out.
fn read_memory(memory: &fs::File, range: &Range<u64>) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let wanted = piece.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        match memory.read_at(&mut piece[..wanted], at) {
            Ok(read) if read > 0 => {
                all.extend_from_slice(&piece[..read]);
                at += read as u64;
            }
            _ => break,
        }
    }
    all
}

/// Looks into the guests' memories until one of them has the page, and returns what it has of the secret.
fn seen_by_guests(memory: &fs::File, process: u32) -> Vec<&'static str> {
    let has_page = |bytes: &[u8]| bytes.windows(MARK.len()).any(|part| part == MARK.as_bytes());
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let guests = memories(process).into_iter().filter(|(_, is_guest)| *is_guest);
        let seen: Vec<u8> = guests.flat_map(|(range, _)| read_memory(memory, &range)).collect();
        if has_page(&seen) {
            return found(&seen);
        }
    }
    panic!("no guest got the page");
}

/// How a program ends that dumps its memory where this one may.
fn dumped_for_comparison(folder: &Path) -> ExitStatus {
    let mut program = Command::new("bash");
    program.args(["-c", "ulimit -c unlimited 2>/dev/null; kill -ABRT $$"]).current_dir(folder);
    program.status().expect("starts")
}

#[test]
fn a_secret_comes_out_nowhere() {
    let authority = Authority::new();
    let own = authority.serve(|head| {
        if head.starts_with("GET /busy ") {
            let page = format!("<p>{MARK} {VALUE} {ENCODED}{}", "<div>".repeat(1_000_000));
            return server::html(&page).expect("an answer");
        }
        let body =
            format!("{head}\n{VALUE} {ENCODED} canary%2F7f3a9c%2BQ52e%3D%3D\n{}", "long ".repeat(20_000));
        server::answer("text/plain", body.as_bytes()).expect("an answer")
    });
    let world = world(&authority, &[&own], &format!("env:{VARIABLE}"))
        .with_policy("[tools.shell_exec]\napproval = \"allow\"\n");
    let folder = world.root().join("folder");
    fs::create_dir(&folder).expect("made");
    let mut served = Served::start(&world, &folder);

    let fetched = served.call(1, "web_fetch", &json!({ "url": own.url("/"), "format": "text" }));
    assert!(fetched.contains("Bearer REDACTED") && fetched.contains("\"isError\":false"), "{fetched}");
    assert!(own.take_heads()[0].contains(&format!("authorization: Bearer {VALUE}\r\n")));
    let command = "env; set; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; echo done";
    let ran = served.call(2, "shell_exec", &json!({ "command": command }));
    assert!(ran.contains("done"), "{ran}");

    let process = served.program.id();
    let family = family(process);
    assert!(family.len() > 1, "the shell runs in a process of its own: {family:?}");
    for process in &family {
        // Another user may not read it at all, since the program hides its memory.
        if let Ok(environment) = fs::read(format!("/proc/{process}/environ")) {
            assert_eq!(found(&environment), [""; 0], "{process}");
        }
    }

    // While a guest reads a page that repeats the secret. The kernel keeps the memory from other users.
    served.send(3, "tools/call", &json!({ "name": "web_fetch", "arguments": { "url": own.url("/busy") } }));
    match fs::File::open(format!("/proc/{process}/mem")) {
        Ok(memory) => {
            assert_eq!(seen_by_guests(&memory, process), [""; 0]);
            // It is in the memory of the host, so that the search would have found it.
            let hosts = memories(process).into_iter().filter(|(_, is_guest)| !is_guest);
            assert!(hosts.into_iter().any(|(range, _)| !found(&read_memory(&memory, &range)).is_empty()));
        }
        Err(error) => eprintln!("the memory cannot be searched, as it should be: {error}"),
    }

    // The program ends as by a fault, while it has the secret.
    let killed =
        rustix::process::Pid::from_raw(i32::try_from(process).expect("a number")).expect("a process");
    rustix::process::kill_process(killed, rustix::process::Signal::ABORT).expect("killed");
    let status = served.program.wait().expect("ended");
    assert_eq!(status.signal(), Some(libc::SIGABRT));
    assert!(!status.core_dumped(), "{status:?}");
    drop(served.input.take());
    served.output.read_to_string(&mut served.said).expect("text");

    assert_eq!(found(served.said.as_bytes()), [""; 0], "{}", served.said);
    // The log of standard error, the audit log, stored outputs, and a core dump if there is one.
    assert_eq!(files_with_the_secret(world.root()), Vec::<PathBuf>::new());
    assert!(world.rows().iter().any(|row| row.secrets == ["api".into()]));
    let log = fs::metadata(folder.join("stderr")).expect("there").len();
    assert!(log > 0, "the log was written");

    let compared = dumped_for_comparison(&folder);
    if !compared.core_dumped() {
        eprintln!("no program dumps its memory on this machine, so that this one's silence shows nothing");
    }
}
