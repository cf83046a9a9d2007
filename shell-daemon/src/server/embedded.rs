//! A sidecar for a single client: the parent process, which is connected to this process's standard input.
//!
//! The parent makes a pair of connected Unix stream sockets and gives one end to this process as descriptor 0. It
//! writes an [`EmbeddedSetup`] as one line of JSON, and uses the protocol from then on. Neither the token nor any other
//! value appears in the arguments or the environment. The sidecar and all its sessions end when the connection closes,
//! even if the parent is killed.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    process::ExitCode,
    time::Duration,
};

use portcullis_confine::{SingleThreaded, process::close_inherited};
use portcullis_types::error_chain;
use portcullis_types::escape_for_display;
use rustix::{
    fs::{Mode, OFlags},
    net::{AddressFamily, SocketType, sockopt},
};
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncReadExt as _, net::UnixStream, time::timeout};

use super::{
    SidecarServerConfig, SidecarServerError, Token,
    error::SetupFault,
    logs::{self, LogFormat},
    serve::serve_one,
};
use crate::{conceal_memory, raise_descriptor_limit};

/// The parent's first message: JSON in one line of at most 256 KiB.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedSetup {
    /// The token that the parent sends with each call, in the format of [`Token::parse`].
    pub token: String,
    /// The sidecar's configuration.
    pub config: SidecarServerConfig,
}

impl std::fmt::Debug for EmbeddedSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is never shown.
        f.debug_struct("EmbeddedSetup").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The only argument of an embedded sidecar's process. It grants nothing: the sidecar receives all its rights over its
/// standard input.
pub const EMBEDDED_ENTRY: &str = "portcullis-embedded-shelld";

/// Becomes an embedded sidecar if this process was started as one, and returns its exit code. Call it after
/// [`crate::enter_if_session`] and before anything else.
#[must_use]
pub fn enter_if_embedded() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == EMBEDDED_ENTRY && arguments.next().is_none()).then(embedded_main)
}

/// Runs an embedded sidecar until its end. An error is written to standard error in one line.
#[must_use]
pub fn embedded_main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use io::Write as _;
            // Ignore an error: if standard error is closed, the exit code still reports the failure.
            let _ = writeln!(io::stderr(), "portcullis-shelld: {}", escape_for_display(&error_chain(&error)));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), SidecarServerError> {
    let one_thread =
        SingleThreaded::check().map_err(io::Error::other).map_err(system("count the threads"))?;
    // The parent may have leaked descriptors to this process.
    close_inherited(&one_thread).map_err(system("close inherited descriptors"))?;
    conceal_memory().map_err(system("conceal its memory"))?;
    logs::init(LogFormat::Text, "error");
    raise_descriptor_limit();
    let stream = StdUnixStream::from(take_stdin()?);
    stream.set_nonblocking(true).map_err(system("prepare the connection"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    runtime.block_on(async {
        let mut stream = UnixStream::from_std(stream).map_err(system("watch the connection"))?;
        let read = timeout(SETUP_TIMEOUT, read_setup(&mut stream)).await;
        let (setup, early) = read.map_err(|_elapsed| setup_error(SetupFault::Late))??;
        serve_one(setup.config, Token::parse(&setup.token)?, stream, early).await
    })
}

/// Moves the connection away from standard input, so that started programs do not inherit it.
fn take_stdin() -> Result<OwnedFd, SidecarServerError> {
    let stdin = rustix::stdio::stdin();
    let is_stream = sockopt::socket_domain(stdin) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(stdin) == Ok(SocketType::STREAM);
    if !is_stream {
        return Err(setup_error(SetupFault::NoSocket));
    }
    let connection = rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(system("take the connection"))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(system("open /dev/null"))?;
    rustix::stdio::dup2_stdin(&null).map_err(system("give the standard input away"))?;
    Ok(connection)
}

/// Reads the setup, and returns it with the bytes after its line.
async fn read_setup(stream: &mut UnixStream) -> Result<(EmbeddedSetup, Vec<u8>), SidecarServerError> {
    let mut bytes = Vec::new();
    loop {
        let read_from = bytes.len();
        let read = stream.read_buf(&mut bytes).await.map_err(system("read the setup"))?;
        if read == 0 {
            return Err(setup_error(SetupFault::Incomplete));
        }
        if let Some(end) = bytes[read_from..].iter().position(|byte| *byte == b'\n') {
            let mut early = bytes.split_off(read_from + end);
            early.remove(0);
            if bytes.len() > MAX_SETUP_BYTES {
                break;
            }
            let setup = serde_json::from_slice(&bytes)
                // The error gives only the position, because serde's message could quote the token.
                .map_err(|error| setup_error(SetupFault::Malformed { column: error.column() }))?;
            return Ok((setup, early));
        }
        if bytes.len() > MAX_SETUP_BYTES {
            break;
        }
    }
    Err(setup_error(SetupFault::TooLong { limit: MAX_SETUP_BYTES }))
}

fn setup_error(fault: SetupFault) -> SidecarServerError {
    SidecarServerError::Setup { fault }
}

fn system<E: Into<io::Error>>(operation: &'static str) -> impl FnOnce(E) -> SidecarServerError {
    move |source| SidecarServerError::System { operation, source: source.into() }
}

/// The maximum number of bytes of the setup's line.
const MAX_SETUP_BYTES: usize = 256 << 10;

/// The time after which a parent that has not sent the setup is treated as dead.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The runtime's threads. Two are enough to move the bytes of one client: blocking work has its own threads.
const WORKERS: usize = 2;
