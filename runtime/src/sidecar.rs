//! The shell sidecar of a command: which one the options name, and how this program becomes one.

use std::{
    io::{self, Write as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

use portcullis_shell_daemon::{DaemonConfig, EMBEDDED_ENTRY, EmbeddedSetup, PostureChoice};
use portcullis_tools::shell::{ShellSource, SidecarConfig, StartSidecar, StartedSidecar};
use portcullis_types::ShellPosture;

use crate::cli::{CommonOptions, ShellOption};

/// The path of this program, valid even if its file was replaced. The program compiles foreign modules,
/// and is the sidecar of its shell.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// The place of the shell that the options name.
pub(crate) fn shell_source(common: &CommonOptions) -> ShellSource {
    match &common.shell {
        ShellOption::Own => ShellSource::Own(Arc::new(OwnSidecar::new(OWN_PROGRAM))),
        ShellOption::Host => ShellSource::Host(Arc::new(OwnSidecar::new(OWN_PROGRAM))),
        ShellOption::Off => ShellSource::Nowhere,
        ShellOption::Socket(path) => ShellSource::Socket {
            path: path.clone(),
            // The options are refused without it.
            token_file: common.shell_token_file.clone().unwrap_or_default(),
        },
    }
}

/// Starts a `portcullis` program, such as this one, as the private shell sidecar of the calling process.
#[derive(Debug, Clone)]
pub struct OwnSidecar {
    program: PathBuf,
}

impl OwnSidecar {
    /// `program` must pass its start to [`crate::run`], as the binary `portcullis` does.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }
}

impl StartSidecar for OwnSidecar {
    fn start(&self, settings: &SidecarConfig) -> io::Result<StartedSidecar> {
        let SidecarConfig { policy, workspace, state, private, ca, unconfined } = settings;
        // The sidecar has another working directory.
        let ca = ca.as_ref().map(std::path::absolute).transpose()?;
        let mut config = DaemonConfig::from_policy(policy, workspace.clone(), state.clone(), private.clone())
            .map_err(io::Error::other)?
            .with_certificates(ca);
        // This process is the only client, and shares the sessions among its runs.
        config.service.sessions_per_connection = config.service.sessions;
        if *unconfined {
            config.posture = PostureChoice::Exactly(ShellPosture::None);
        }
        let token = token()?;
        let (client_end, sidecar_end) = UnixStream::pair()?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this is where the sidecar is started, which is this program"
        )]
        let process = Command::new(&self.program)
            .arg(EMBEDDED_ENTRY)
            .env_clear()
            .current_dir("/")
            // A process group apart: a terminal's signals must not reach the sidecar, since cancelled calls
            // still have time to end. It ends when we do.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(sidecar_end)))
            .stdout(Stdio::null())
            .spawn()?;
        let mut line = serde_json::to_vec(&EmbeddedSetup { token: token.clone(), config })?;
        line.push(b'\n');
        (&client_end).write_all(&line)?;
        Ok(StartedSidecar { process, connection: client_end, token })
    }
}

/// An unguessable token: 256 random bits.
fn token() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex::encode(bytes))
}
