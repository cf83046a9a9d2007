//! The sidecar as a separate program: command line, logs, listener and signals.

use std::{io::Write as _, os::unix::net::UnixListener as StdUnixListener, path::PathBuf, process::ExitCode};

use clap::Parser;
use listenfd::ListenFd;
use portcullis_types::escape_for_display;
use portcullis_types::{SandboxTier, error_chain};
use sd_notify::NotifyState;
use tokio::{
    net::UnixListener,
    signal::unix::{SignalKind, signal},
};

use super::{
    SidecarServerError,
    from_policy::{self, CommandLinePaths},
    logs::{self, LogFormat},
    serve::serve,
    socket::{self, SocketAccess, SocketFile},
};
use portcullis_shell_protocol::PostureReport;

use crate::{conceal_memory, raise_descriptor_limit};

/// Holds confined shells for clients that connect to a Unix socket.
#[derive(Debug, Parser)]
#[command(name = "portcullis-shelld", version)]
struct StandaloneArguments {
    /// The socket to listen at, in a folder of mode 0700. Not needed if a service manager passes the socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The file with the token that clients must name: 32 printable characters or more, mode 0600
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// The folder that contains the mounts
    #[arg(long, value_name = "DIR")]
    workspace: PathBuf,
    /// The operator's policy. Default: that of /etc/portcullis or $XDG_CONFIG_HOME/portcullis, else the shipped one.
    /// `portcullis.toml` in the workspace can restrict it, not extend it
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The isolation of this process itself. This selects the policy's `[sandbox.…]` section
    #[arg(long, value_name = "TIER", default_value_t = SandboxTier::Process)]
    sandbox_tier: SandboxTier,
    /// The sidecar's state folder, outside of all mounts. Default: the folder of the socket
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The user ID (UID) of another user whose clients may connect. May be given several times. Any user can then reach the
    /// socket, and its folder may be of mode 0755; the sidecar asks the kernel for the user of each connection
    #[arg(long, value_name = "UID")]
    allow_uid: Vec<u32>,
    /// Write logs as JSON, one line each
    #[arg(long)]
    json_logs: bool,
}

/// Runs the program until its end. An error is written to standard error in one line.
#[must_use]
pub fn shelld_main() -> ExitCode {
    let arguments = match StandaloneArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Ignore an error: if the terminal is closed, the exit code still reports the failure.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Ignore an error: if standard error is closed, the exit code still reports the failure.
            let _ = writeln!(
                std::io::stderr(),
                "portcullis-shelld: {}",
                escape_for_display(&error_chain(&error))
            );
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &StandaloneArguments) -> Result<(), SidecarServerError> {
    // This removes variables from the environment, so it must run while the process has a single thread.
    let inherited = ListenFd::from_env().take_unix_listener(0).map_err(system("take the socket over"))?;
    logs::init(if arguments.json_logs { LogFormat::Json } else { LogFormat::Text }, "info");
    conceal_memory().map_err(system("conceal its memory"))?;
    raise_descriptor_limit();
    let token = socket::read_token(&arguments.token_file)?;
    let (listener, file) = listener(arguments, inherited)?;
    let paths = CommandLinePaths {
        workspace: arguments.workspace.clone(),
        policy: arguments.policy.clone(),
        sandbox_tier: arguments.sandbox_tier,
        state: state(arguments)?,
        private_paths: [Some(arguments.token_file.clone()), arguments.socket.clone()]
            .into_iter()
            .flatten()
            .collect(),
    };
    let config = from_policy::config(&paths)?;
    listener.set_nonblocking(true).map_err(system("prepare the socket"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    let result = runtime.block_on(async {
        let listener = UnixListener::from_std(listener).map_err(system("watch the socket"))?;
        let mut terminate = signal(SignalKind::terminate()).map_err(system("watch for signals"))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(system("watch for signals"))?;
        let ready = |posture: &PostureReport| {
            tracing::info!(posture = posture.summary, "ready");
            // Without a service manager this does nothing.
            let _ = sd_notify::notify(&[NotifyState::Ready]);
        };
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping");
            let _ = sd_notify::notify(&[NotifyState::Stopping]);
        };
        serve(config, token, listener, &arguments.allow_uid, ready, stop).await
    });
    drop(file);
    // Blocked threads are not awaited: their sessions end with this process.
    runtime.shutdown_background();
    result
}

fn listener(
    arguments: &StandaloneArguments,
    inherited: Option<StdUnixListener>,
) -> Result<(StdUnixListener, Option<SocketFile>), SidecarServerError> {
    if let Some(listener) = inherited {
        return Ok((listener, None));
    }
    let path = arguments.socket.as_ref().ok_or_else(|| SidecarServerError::Config {
        setting: "socket",
        problem: "is missing: name one with --socket, or start this by a socket unit".to_owned(),
    })?;
    let access = if arguments.allow_uid.is_empty() { SocketAccess::Own } else { SocketAccess::Others };
    let (listener, file) = socket::listen(path, access)?;
    Ok((listener, Some(file)))
}

fn state(arguments: &StandaloneArguments) -> Result<PathBuf, SidecarServerError> {
    let socket_folder = || arguments.socket.as_ref()?.parent().map(PathBuf::from);
    let state = arguments.state.clone().or_else(socket_folder).ok_or_else(|| SidecarServerError::Config {
        setting: "state folder",
        problem: "is missing: name one with --state".to_owned(),
    })?;
    std::path::absolute(state).map_err(system("find the state folder"))
}

fn system(operation: &'static str) -> impl FnOnce(std::io::Error) -> SidecarServerError {
    move |source| SidecarServerError::System { operation, source }
}

/// The runtime's threads. Two are enough to move the bytes of several clients: blocking work has its own threads.
const WORKERS: usize = 2;

/// The exit code for a wrong command line.
const USAGE: u8 = 2;
