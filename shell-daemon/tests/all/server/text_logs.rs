//! Logs as text, as a container's runtime or a service manager collects them.

use std::{os::unix::net::UnixStream, process::Stdio};

use rustix::process::Signal;

use super::sidecar::{Standalone, shelld, signal, soon};
use crate::world::World;

#[test]
fn logs_that_no_terminal_shows_have_no_control_characters() {
    let Some(world) = World::new() else { return };
    let (mut command, socket) = shelld(&world);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut daemon = Standalone { child, socket };
    let logs = daemon.child.stderr.take().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        soon("the daemon listens", || UnixStream::connect(&daemon.socket).is_ok()).await;
        signal(&daemon.child, Signal::TERM);
        soon("it has ended", || daemon.child.try_wait().unwrap().is_some()).await;
    });
    let logs = std::io::read_to_string(logs).unwrap();
    assert!(logs.contains("ready") && logs.contains("stopping"), "{logs}");
    assert!(logs.chars().all(|sign| sign == '\n' || !sign.is_control()), "{logs:?}");
}
