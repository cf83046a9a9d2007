//! Standard streams of every kind: each answer comes as soon as it is ready, and no message is held back
//! until the next.

use std::{
    fs::{self, File, OpenOptions},
    io::Read as _,
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

use portcullis_testing::Fixture;
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};
use serde_json::{Value, json};

use super::client::{Client, Stream, serve, text};
use crate::ordinary;

/// Runs a whole session. Each message is sent only after the answer to the previous message.
#[track_caller]
fn check_session(program: Command, input: Stream, output: Stream) {
    let mut client = Client::start_command(program, input, output).begin(json!({}));
    for message in ["one", "two", "three"] {
        let answer = client.call("echo", json!({"message": message}));
        assert!(text(&answer).contains(message), "{answer}");
    }
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    client.leave();
}

/// With `sudo -u`, `setpriv` and `docker run -i --user`, the pipes belong to the user who started the
/// program.
#[test]
fn pipes_of_another_user_withhold_no_answer() {
    if !ordinary::can_start_program_of_other_user() {
        return;
    }
    let fixture = Fixture::new();
    for (input, output) in
        [(Stream::Pipe, Stream::Pipe), (Stream::Pipe, Stream::Socket), (Stream::Socket, Stream::Pipe)]
    {
        let mut program = ordinary::program_of_ordinary_user(&fixture);
        program.arg("serve").stderr(Stdio::null());
        check_session(program, input, output);
    }
}

#[test]
fn sockets_withhold_no_answer() {
    check_session(serve(&Fixture::new(), &[]), Stream::Socket, Stream::Socket);
}

#[test]
fn a_terminal_withholds_no_answer() {
    let person: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&person).and_then(|()| unlockpt(&person)).expect("set up");
    let name = ptsname(&person, Vec::new()).expect("a name").into_string().expect("the name is UTF-8");
    let server_end: OwnedFd = OpenOptions::new().read(true).write(true).open(name).expect("opens").into();
    let mut modes = tcgetattr(&server_end).expect("has modes");
    modes.make_raw();
    tcsetattr(&server_end, OptionalActions::Now, &modes).expect("set");
    let input = Stream::Custom {
        test_end: person.try_clone().expect("cloned"),
        server_end: server_end.try_clone().expect("cloned"),
    };
    let output = Stream::Custom { test_end: person, server_end };
    check_terminal_session(serve(&Fixture::new(), &[]), input, output);
}

/// A test cannot close only the input of a terminal, so a signal ends the server.
fn check_terminal_session(program: Command, input: Stream, output: Stream) {
    let mut client = Client::start_command(program, input, output).begin(json!({}));
    for message in ["one", "two"] {
        let answer = client.call("echo", json!({"message": message}));
        assert!(text(&answer).contains(message), "{answer}");
    }
    assert_eq!(client.end_by_signals(&[rustix::process::Signal::TERM]), Some(0));
}

#[test]
fn files_are_answered_to_their_end() {
    let fixture = Fixture::new();
    let (input, output) = (fixture.root().join("input"), fixture.root().join("output"));
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
                      "params": {"name": "echo", "arguments": {"message": "x".repeat(10_000)}}});
    fs::write(&input, format!("{initialize}\n{call}\n")).expect("written");
    let status = serve(&fixture, &[])
        .stdin(File::open(&input).expect("opens"))
        .stdout(File::create(&output).expect("the file can be made"))
        .status();
    assert!(status.expect("starts").success());
    let mut written = String::new();
    File::open(&output)
        .expect("the file can be opened")
        .read_to_string(&mut written)
        .expect("the file is readable");
    let answers: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(answers.iter().map(|answer| &answer["id"]).collect::<Vec<_>>(), [1, 2], "{written:.300}");
}
