//! Ten thousand connections: existing connections continue, the sidecar stays small, and a new client is admitted.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use portcullis_shell_daemon::raise_descriptor_limit;
use rustix::process::{Resource, getrlimit};

use super::sidecar::{
    Credentials, Standalone, client_if_open, everything, memory_kib, output, session, standalone,
    wait_until_async,
};
use crate::fixture::Fixture;

const CONNECTIONS: usize = 10_000;

/// The sidecar's maximum of connections, minus the one that the test uses.
const LEFT: usize = 63;

/// The bytes that a connection of the flood sends before it falls silent: none, the start of a greeting, or
/// garbage.
const WORDS: [&[u8]; 3] = [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0", &[0xff; 64]];

#[tokio::test]
async fn a_flood_of_connections_is_bounded_and_cuts_no_session() {
    let Some(fixture) = Fixture::new() else { return };
    let sidecar = standalone(&fixture, &[]).await;
    let mut shell = sidecar.client().await;
    let own = session(&mut shell).await;
    let before = memory_kib(&sidecar.child, "VmHWM:");
    let mut flooder = flooder(&fixture, &sidecar.socket);
    let mut most = 0;
    let is_over = || fixture.path("flooded").exists();
    while !is_over() {
        assert!(flooder.try_wait().unwrap().is_none() || is_over(), "the flood has ended too early");
        most = most.max(descriptors(&sidecar.child));
        assert_eq!(output(&mut shell, &own, "echo on").await, "on\n");
    }
    assert!(most < 200, "the sidecar had {most} descriptors");
    // A new client gets the permit of a connection that has not sent the token, as soon as that connection is closed.
    // The sidecar waits a second for the close.
    let mut tries = 0;
    while !is_let_in(&sidecar).await {
        tries += 1;
        assert!(tries < TRIES, "no place became free");
    }
    let grown = memory_kib(&sidecar.child, "VmHWM:") - before;
    assert!(grown < 32 << 10, "the sidecar grew by {grown} KiB");
    // All connections beyond the maximum were hung up on.
    wait_until_async("the flooder has seen it", || flooder.try_wait().unwrap().is_some()).await;
    assert!(flooder.wait().unwrap().success());
    assert_eq!(output(&mut shell, &own, "echo on").await, "on\n");
}

/// Whether a new client gets a session.
async fn is_let_in(sidecar: &Standalone) -> bool {
    let Some(mut shell) = client_if_open(sidecar.connect(), Credentials::good()).await else { return false };
    shell.create_session(everything()).await.is_ok()
}

/// The maximum number of tries. All together take less time than the greeting timeout of the flood's connections.
const TRIES: u32 = 5;

fn descriptors(process: &Child) -> usize {
    // Only root may list them.
    std::fs::read_dir(format!("/proc/{}/fd", process.id())).map_or(0, Iterator::count)
}

/// Starts this test program as the flood. It runs only the test [`a_flood`], in a separate process, so that the flood
/// does not use up the descriptors of the other tests.
#[expect(clippy::disallowed_methods, reason = "the flood is a program")]
fn flooder(fixture: &Fixture, socket: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "server::flood::a_flood"])
        .env("TMPDIR", fixture.path(""))
        .env(SOCKET, socket)
        .env(FLOODED, fixture.path("flooded"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

const SOCKET: &str = "PORTCULLIS_TEST_SOCKET";
const FLOODED: &str = "PORTCULLIS_TEST_FLOODED";

/// The flood. Does nothing unless [`flooder`] started this program.
#[test]
fn a_flood() {
    let (Some(socket), Some(flooded)) = (std::env::var_os(SOCKET), std::env::var_os(FLOODED)) else { return };
    raise_descriptor_limit();
    let most = getrlimit(Resource::Nofile)
        .current
        .map_or(CONNECTIONS, |most| usize::try_from(most).unwrap().saturating_sub(100));
    // If fewer can be open at a time, they come in waves: the oldest are closed.
    let at_a_time = CONNECTIONS.min(most);
    let mut flood = VecDeque::new();
    for number in 0..CONNECTIONS {
        if flood.len() == at_a_time {
            flood.pop_front();
        }
        let mut stream = UnixStream::connect(PathBuf::from(&socket)).unwrap();
        // The sidecar may have hung up already.
        let _ = stream.write_all(WORDS[number % WORDS.len()]);
        flood.push_back(stream);
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let open = flood.iter().filter(|stream| !is_closed(stream)).count();
        if open <= LEFT {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{open} of {at_a_time} are open");
        std::thread::yield_now();
    }
    std::fs::write(flooded, "").unwrap();
}

/// Whether the other side has hung up. Bytes that it wrote before are discarded.
fn is_closed(stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut read = [0; 1024];
    let mut stream = stream;
    loop {
        match stream.read(&mut read) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}
