//! Text logs, as a container runtime or a service manager collects them.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::Stdio,
};

use rustix::process::Signal;

use super::sidecar::{Standalone, shelld, signal};
use crate::fixture::Fixture;

#[test]
fn logs_that_no_terminal_shows_have_no_control_characters() {
    let Some(fixture) = Fixture::new() else { return };
    let (mut command, socket) = shelld(&fixture);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut sidecar = Standalone { child, socket };
    let mut lines = BufReader::new(sidecar.child.stderr.take().unwrap());
    let mut logs = String::new();
    while !logs.contains("ready") {
        assert!(lines.read_line(&mut logs).unwrap() > 0, "it ends before it is ready: {logs}");
    }
    signal(&sidecar.child, Signal::TERM);
    lines.read_to_string(&mut logs).unwrap();
    assert!(sidecar.child.wait().unwrap().success());
    assert!(logs.contains("stopping"), "{logs}");
    assert!(logs.chars().all(|sign| sign == '\n' || !sign.is_control()), "{logs:?}");
}
