//! Bytes that do not follow the protocol: garbage, half messages, single bytes and floods. The sidecar survives, and
//! serves the other clients.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};

use portcullis_shell_daemon::SidecarServerConfig;
use portcullis_shell_protocol::{ExecRequest, HealthRequest};
use tonic::Code;

use super::sidecar::{
    Credentials, Embedded, Shell, client_if_open, config, embedded, everything, exec, memory_kib, output,
    run, session, setup_line, standalone, start_embedded, wait_until_async,
};
use crate::fixture::{Fixture, doubling_timeouts};

/// The start of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame without settings.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

#[tokio::test]
async fn garbage_ends_its_connection_alone() {
    let Some(fixture) = Fixture::new() else { return };
    let sidecar = standalone(&fixture, &[]).await;
    let mut shell = sidecar.client().await;
    let own = session(&mut shell).await;
    let begun = |rest: &[u8]| [PREFACE, SETTINGS, rest].concat();
    let attacks = [
        b"GET / HTTP/1.1\r\nHost: shell\r\n\r\n".to_vec(),
        vec![0; 100_000],
        vec![0xff; 100_000],
        (0..100_000u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect(),
        // A frame longer than the maximum.
        begun(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]),
        // Data for a call that never began.
        begun(&[0, 0, 4, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4]),
        // Invalid headers, and a continuation without a start.
        begun(&[0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
        begun(&[0, 0, 1, 9, 4, 0, 0, 0, 1, 0x82]),
        // A window larger than the maximum.
        begun(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]),
    ];
    for (index, attack) in attacks.iter().enumerate() {
        let mut stream = sidecar.connect();
        // The sidecar may hang up in the middle.
        let _ = stream.write_all(attack);
        assert!(is_hung_up(&mut stream), "attack {index}");
        assert_eq!(output(&mut shell, &own, "echo on").await, "on\n", "attack {index}");
    }
}

/// Reads until the sidecar hangs up. Returns `false` if it does not.
fn is_hung_up(stream: &mut UnixStream) -> bool {
    // Less than the greeting timeout, which would also end the connection.
    stream.set_read_timeout(Some(Duration::from_secs(9))).unwrap();
    let mut read = vec![0; 4096];
    loop {
        match stream.read(&mut read) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.raw_os_error() == Some(104),
        }
    }
}

#[tokio::test]
async fn a_message_has_a_bound() {
    let Some(fixture) = Fixture::new() else { return };
    let (sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    let before = memory_kib(&sidecar.child, "VmHWM:");
    let request = ExecRequest { stdin: vec![0; 64 << 20], ..exec(&session, "echo x >> counter") };
    let refused = run(&mut shell, request).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused:?}");
    let grown = memory_kib(&sidecar.child, "VmHWM:") - before;
    assert!(grown < 32 << 10, "the sidecar grew by {grown} KiB");
    let request = ExecRequest { stdin: vec![b'x'; 3 << 20], ..exec(&session, "wc -c") };
    assert_eq!(run(&mut shell, request).await.unwrap().stdout, format!("{}\n", 3 << 20));
    assert!(!fixture.path("shared/counter").exists());
}

#[tokio::test]
async fn connection_without_a_call_is_closed() {
    let Some(fixture) = Fixture::new() else { return };
    let mut config = config(&fixture);
    config.service.token_timeout = Duration::from_millis(500);
    let line = setup_line(&config);
    let half_frame = [PREFACE, SETTINGS, &[0, 0, 100, 1, 4, 0, 0, 0, 1, 0x82]].concat();
    // No bytes, half a frame, and a byte from time to time, which does not extend the timeout.
    for (bytes, drips) in [(&b""[..], false), (&half_frame, false), (PREFACE, true)] {
        let (mut sidecar, mut stream) = start_embedded();
        stream.write_all(line.as_bytes()).unwrap();
        if drips {
            for byte in bytes.iter().chain(SETTINGS).cycle() {
                if stream.write_all(&[*byte]).is_err() || sidecar.child.try_wait().unwrap().is_some() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        } else {
            // The connection may have timed out already.
            let _ = stream.write_all(bytes);
        }
        wait_until_async("the sidecar has hung up", || sidecar.child.try_wait().unwrap().is_some()).await;
    }
    // The control: a client that has sent the token may be silent without a limit.
    let mut times = doubling_timeouts(config.service.token_timeout);
    loop {
        config.service.token_timeout = times.next().expect("its first call comes in time");
        let (mut sidecar, client) = connected(&config, Credentials::good()).await;
        let Some(mut shell) = client else { continue };
        let Ok(created) = shell.create_session(everything()).await else { continue };
        tokio::time::sleep(2 * config.service.token_timeout).await;
        assert_eq!(sidecar.child.try_wait().unwrap(), None);
        assert_eq!(output(&mut shell, &created.into_inner().session_id, "echo on").await, "on\n");
        break;
    }
}

/// A sidecar that received its setup, and its client. `None` for a client whose first call was too late.
async fn connected(config: &SidecarServerConfig, credentials: Credentials) -> (Embedded, Option<Shell>) {
    let (sidecar, mut stream) = start_embedded();
    stream.write_all(setup_line(config).as_bytes()).unwrap();
    (sidecar, client_if_open(stream, credentials).await)
}

#[tokio::test]
async fn calls_without_the_token_are_not_a_greeting() {
    let Some(fixture) = Fixture::new() else { return };
    let mut config = config(&fixture);
    let mut times = doubling_timeouts(Duration::from_millis(500));
    let mut refused = 0;
    while refused == 0 {
        config.service.token_timeout = times.next().expect("a call comes in time");
        let without = Credentials { token: None, ..Credentials::good() };
        let (mut sidecar, client) = connected(&config, without).await;
        let Some(mut shell) = client else { continue };
        while sidecar.child.try_wait().unwrap().is_none() {
            if shell.health(HealthRequest::default()).await.unwrap_err().code() == Code::Unauthenticated {
                refused += 1;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
