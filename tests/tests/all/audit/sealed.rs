//! Segments and checkpoints through the program: where checkpoints go, and how a kept checkpoint detects a
//! changed log.

use std::{
    ffi::OsStr,
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use portcullis_testing::{Fixture, binary};
use serde_json::{Value, json};

const MARK: &str = "portcullis-checkpoint ";

/// Creates a fixture whose checkpoints go to standard error and to a file.
fn fixture(notes: &Path) -> Fixture {
    let keys = format!("[audit]\ncheckpoints = [\"stderr\", \"{}\"]\n", notes.display());
    let fixture = Fixture::new().with_policy_edit("[audit]\n", &keys);
    fixture.put("a.txt", "a\n");
    fixture
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn command(fixture: &Fixture, args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).args(fixture.options()).stdin(Stdio::null());
    command
}

fn run(fixture: &Fixture, args: &[impl AsRef<OsStr>]) -> Output {
    command(fixture, args).output().expect("runs")
}

fn run_with_input(fixture: &Fixture, args: &[&str], input: &[u8]) -> Output {
    let mut child = command(fixture, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    // The program may end before it has read everything.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().expect("ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn call(fixture: &Fixture) -> Output {
    let output = run(fixture, &["call", "file_read", r#"{"path": "a.txt"}"#]);
    assert_eq!(text(&output.stdout), "a\n", "{output:?}");
    output
}

#[track_caller]
fn assert_exit(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn checkpoints_go_where_the_policy_says_and_prove_the_log() {
    let outside = tempfile::tempdir().expect("a folder");
    let notes = outside.path().join("notes");
    let fixture = fixture(&notes);
    let stderr = text(&call(&fixture).stderr);
    let line = stderr.lines().find(|line| line.starts_with(MARK)).expect("a line of the checkpoint");
    // The rows of the call, and of the start and the stop of its process.
    assert_eq!(line.split(' ').nth(2), Some("3"), "{line}");
    assert_eq!(fs::metadata(&notes).expect("is there").permissions().mode() & 0o777, 0o600);
    call(&fixture);
    assert_eq!(fs::read_to_string(&notes).expect("reads").matches("\n— portcullis/").count(), 2);

    let journal = format!("Nov 27 10:00:00 host portcullis[7]: {line}\nnoise\n");
    let verified = run_with_input(&fixture, &["audit", "verify", "--anchor", "-"], journal.as_bytes());
    let shown = assert_exit(&verified, 0);
    assert!(shown.contains("intact: 8 rows") && shown.contains("anchors: 1 hold, up to row 3"), "{shown}");
    let notes_text = notes.to_string_lossy().into_owned();
    let json = run(&fixture, &["audit", "verify", "--json", "--anchor", &notes_text]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&json["intact"], &json["anchored"], &json["rows"]), (&json!(true), &json!(true), &json!(8)));
    assert_eq!(json["anchors"].as_array().expect("a list").len(), 3, "{json}");

    // The key of the state folder also verifies elsewhere, given as text or as a file.
    let key_file = fixture.state().join("audit.key.pub");
    let key = fs::read_to_string(&key_file).expect("reads");
    let log = outside.path().join("copy.jsonl");
    fs::copy(fixture.state().join("audit.jsonl"), &log).expect("copies");
    for key in [key.trim().as_ref(), key_file.as_os_str()] {
        let args = ["audit", "verify", "--file"].map(OsStr::new);
        let args: Vec<&OsStr> = args
            .into_iter()
            .chain([log.as_os_str(), "--key".as_ref(), key, "--anchor".as_ref(), notes.as_os_str()])
            .collect();
        let shown = assert_exit(&run(&fixture, &args), 0);
        assert!(shown.contains("anchors: 2 hold, up to row 7\n"), "{shown}");
    }
}

#[test]
fn only_a_server_prints_checkpoints_by_default() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "a\n");
    assert_eq!(text(&call(&fixture).stderr), "");
    let messages = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "file_read", "arguments": {"path": "a.txt"}}}),
    ];
    let mut child = command(&fixture, &["serve"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdin = child.stdin.take().expect("piped");
    for message in messages {
        writeln!(stdin, "{message}").expect("written");
    }
    // The answer to the call is the second one. The input is closed only after it.
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut stdout, &mut String::new()).expect("an answer");
    }
    drop(stdin);
    let output = child.wait_with_output().expect("ends");
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.starts_with(MARK)).unwrap_or_else(|| panic!("{stderr}"));
    let verified = run_with_input(&fixture, &["audit", "verify", "--anchor", "-"], line.as_bytes());
    assert!(assert_exit(&verified, 0).contains("anchors: 1 hold"), "{verified:?}");
}

#[test]
fn a_kept_line_reveals_rows_that_were_cut_moved_or_rewritten() {
    /// Tampers with the state folder.
    type Tamper = fn(&Fixture);
    fn log(fixture: &Fixture) -> PathBuf {
        fixture.state().join("audit.jsonl")
    }
    let cases: [(&str, Tamper, &str); 4] = [
        (
            "cut",
            |fixture| {
                let text = fs::read_to_string(log(fixture)).expect("reads");
                let kept: Vec<&str> = text.split_inclusive('\n').take(2).collect();
                fs::write(log(fixture), kept.concat()).expect("writes");
            },
            "row 3 is missing at the end",
        ),
        (
            "moved aside",
            |fixture| fs::rename(log(fixture), fixture.state().join("aside")).expect("moved"),
            "rows 1 to 3 are missing at the end",
        ),
        (
            "rewritten",
            |fixture| {
                for name in ["audit.jsonl", "audit.checkpoint"] {
                    fs::remove_file(fixture.state().join(name)).expect("removed");
                }
                for _ in 0..3 {
                    call(fixture);
                }
            },
            "the log has other rows",
        ),
        (
            "signed again",
            |fixture| {
                for name in ["audit.jsonl", "audit.checkpoint", "audit.key"] {
                    fs::remove_file(fixture.state().join(name)).expect("removed");
                }
                call(fixture);
            },
            "it is not signed with this log's key",
        ),
    ];
    for (name, tamper, expected) in cases {
        let outside = tempfile::tempdir().expect("a folder");
        let fixture = fixture(&outside.path().join("notes"));
        let line = text(&call(&fixture).stderr);
        tamper(&fixture);
        let verified = run_with_input(&fixture, &["audit", "verify", "--anchor", "-"], line.as_bytes());
        let shown = assert_exit(&verified, 1);
        assert!(shown.contains(expected), "{name}: {shown}");
    }
}

#[test]
fn a_start_refuses_a_log_that_lost_rows_and_says_how_to_go_on() {
    let outside = tempfile::tempdir().expect("a folder");
    let fixture = fixture(&outside.path().join("notes"));
    call(&fixture);
    let log = fixture.state().join("audit.jsonl");
    fs::rename(&log, fixture.state().join("aside")).expect("moved");
    let refused = run(&fixture, &["call", "file_read", r#"{"path": "a.txt"}"#]);
    let shown = assert_exit(&refused, 1);
    assert!(
        shown.contains("has 0 rows and does not continue its newest checkpoint, which covers 3"),
        "{shown}"
    );
    assert!(shown.contains("move it away with `audit.segments` and `audit.checkpoint`"), "{shown}");
    // The refused start has created an empty log, which does not change the answer.
    fs::rename(fixture.state().join("audit.checkpoint"), outside.path().join("aside")).expect("moved");
    call(&fixture);
}

#[test]
fn every_reader_sees_rows_that_were_sealed_by_hand() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "a\n");
    assert_exit(&run(&fixture, &["audit", "seal"]), 1);
    call(&fixture);
    let sealed = run(&fixture, &["audit", "seal"]);
    let note = assert_exit(&sealed, 0);
    assert!(note.starts_with("portcullis/") && note.contains("\n3\n"), "{note}");
    call(&fixture);
    let segment = fixture.state().join("audit.segments/000001-1-3.jsonl");
    assert_eq!(fs::metadata(&segment).expect("is there").permissions().mode() & 0o777, 0o400);
    assert_eq!(fs::read_to_string(segment.with_extension("note")).expect("reads"), note);
    let shown = assert_exit(&run(&fixture, &["audit", "log", "--limit", "0"]), 0);
    assert_eq!(shown.matches("file_read").count(), 2, "{shown}");
    assert!(shown.contains("checkpoint"), "{shown}");
    let shown = assert_exit(&run(&fixture, &["audit", "verify"]), 0);
    assert!(shown.contains("intact: 7 rows") && shown.contains("not anchored"), "{shown}");
    let path = segment.to_string_lossy().into_owned();
    assert_exit(&run(&fixture, &["audit", "verify", "--file", &path]), 0);
    let head = fs::read_to_string(&segment).expect("reads");
    let head = &head[head.len() - 67..head.len() - 3];
    assert_exit(&run(&fixture, &["audit", "verify", "--head", head]), 0);
    let shown = assert_exit(&run(&fixture, &["audit", "verify", "--head", &"0".repeat(64)]), 1);
    assert!(shown.starts_with("not intact: 7 rows"), "{shown}");
}

#[test]
fn files_that_are_not_checkpoints_or_keys_are_wrong_usage() {
    let outside = tempfile::tempdir().expect("a folder");
    let fixture = Fixture::new();
    fixture.put("a.txt", "a\n");
    call(&fixture);
    let file = outside.path().join("f");
    let path = file.to_string_lossy().into_owned();
    for content in
        [&b""[..], b"\xff\xfe\0", b"portcullis-checkpoint a b c d", b"<script>\x1b[31m\xe2\x80\xae"]
    {
        fs::write(&file, content).expect("writes");
        let shown = assert_exit(&run(&fixture, &["audit", "verify", "--anchor", &path]), 2);
        assert!(shown.contains("has no checkpoint"), "{shown}");
        assert_exit(&run(&fixture, &["audit", "verify", "--key", &path]), 2);
    }
    for missing in ["--anchor", "--key"] {
        let shown = assert_exit(&run(&fixture, &["audit", "verify", missing, "/nonexistent/f"]), 2);
        assert!(shown.contains("/nonexistent/f"), "{shown}");
    }
    assert_exit(&run(&fixture, &["audit", "verify", "--key", "a+00000000+AAAA"]), 2);
    // A huge file is refused without being read completely.
    fs::File::create(&file).and_then(|file| file.set_len(1 << 40)).expect("made");
    let shown = assert_exit(&run(&fixture, &["audit", "verify", "--anchor", &path]), 2);
    assert!(shown.contains("it has more than 64 MiB"), "{shown}");
}

#[test]
fn a_place_or_a_key_that_cannot_be_used_stops_the_start() {
    for (keys, expected) in [
        ("checkpoints = [\"/nonexistent/notes\"]", "cannot write checkpoints to `/nonexistent/notes`"),
        (
            "checkpoints = [\"notes\"]",
            "audit.checkpoints[0]: write `stderr`, `https://… KEY` for a witness, or the absolute path of a file",
        ),
        ("checkpoints = \"stderr\"", "audit.checkpoints: expected a list, found string"),
        ("key = \"k\"", "audit.key: write `ssh-agent:SHA256:…`, or the absolute path of a file"),
        ("key = \"ssh-agent:x\"", "audit.key: write the fingerprint"),
        ("segment = \"1KiB\"", "audit.segment: 1KiB is out of bounds"),
        ("segment_age = \"1s\"", "audit.segment_age: 1s is out of bounds"),
        ("keep = 30", "audit.keep: a duration has a unit"),
        ("checkpoint = [\"stderr\"]", "did you mean `checkpoints`?"),
    ] {
        let fixture = Fixture::new().with_policy_edit("[audit]\n", &format!("[audit]\n{keys}\n"));
        let shown = assert_exit(&run(&fixture, &["call", "file_read", r#"{"path": "a.txt"}"#]), 2);
        assert!(shown.contains(expected), "{keys}: {shown}");
    }
}

/// An agent of OpenSSH with one key.
struct SshAgent {
    process: std::process::Child,
    folder: tempfile::TempDir,
    fingerprint: String,
}

impl SshAgent {
    /// Starts an agent, or returns `None` without OpenSSH.
    #[expect(clippy::disallowed_methods, reason = "OpenSSH, which is not ours")]
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let (socket, key) = (folder.path().join("agent"), folder.path().join("key"));
        let agent = Command::new("ssh-agent").args(["-D", "-a"]).arg(&socket).stdout(Stdio::null()).spawn();
        let process = agent.ok()?;
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).output();
        assert!(made.expect("runs").status.success());
        while !socket.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let add = |args: &[&OsStr]| {
            Command::new("ssh-add").args(args).env("SSH_AUTH_SOCK", &socket).output().expect("runs")
        };
        assert!(add(&[key.as_os_str()]).status.success());
        let listed = text(&add(&["-l".as_ref()]).stdout);
        let fingerprint = listed.split(' ').nth(1).expect("a fingerprint").to_owned();
        Some(Self { process, folder, fingerprint })
    }
}

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_key_in_an_ssh_agent_signs() {
    let Some(agent) = SshAgent::start() else { return };
    let keys = format!("[audit]\ncheckpoints = [\"stderr\"]\nkey = \"ssh-agent:{}\"\n", agent.fingerprint);
    let fixture = Fixture::new().with_policy_edit("[audit]\n", &keys);
    fixture.put("a.txt", "a\n");
    let call_with = |socket: &Path| {
        let arguments = ["call", "file_read", r#"{"path": "a.txt"}"#];
        command(&fixture, &arguments).env("SSH_AUTH_SOCK", socket).output().expect("runs")
    };
    let output = call_with(&agent.folder.path().join("agent"));
    assert_eq!(text(&output.stdout), "a\n");
    let stderr = text(&output.stderr);
    let line = stderr.lines().find(|line| line.starts_with(MARK)).unwrap_or_else(|| panic!("{stderr}"));
    let verified = run_with_input(&fixture, &["audit", "verify", "--anchor", "-"], line.as_bytes());
    assert!(assert_exit(&verified, 0).contains("anchors: 1 hold, up to row 3\n"), "{verified:?}");
    assert!(!fixture.state().join("audit.key").exists());
    // Without the agent the call runs and is recorded, and the missing checkpoint is reported.
    let output = call_with(Path::new("/nonexistent/agent"));
    assert_eq!(text(&output.stdout), "a\n");
    assert!(text(&output.stderr).contains("cannot write a checkpoint"), "{output:?}");
    assert_exit(&run(&fixture, &["audit", "verify"]), 0);
}
