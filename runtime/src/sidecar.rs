//! Chooses the shell sidecar of a command from the options, and starts a private one.

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

use portcullis_shell_daemon::{EMBEDDED_ENTRY, EmbeddedSetup, PostureChoice, SidecarServerConfig};
use portcullis_tools::shell::{ShellSource, SidecarOptions, StartSidecar, StartedSidecar};
use portcullis_types::{ShellPosture, random_hex};

use crate::cli::{CommonOptions, ShellOption};

/// A path of this program that stays valid even if the program's file is replaced. This program also compiles
/// foreign modules and serves as its own shell sidecar.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// Returns the shell that the options choose.
pub(crate) fn shell_source(common: &CommonOptions) -> ShellSource {
    match &common.shell {
        ShellOption::Own => ShellSource::Own(Arc::new(OwnSidecar::new(OWN_PROGRAM))),
        ShellOption::Host => ShellSource::Host(Arc::new(OwnSidecar::new(OWN_PROGRAM))),
        ShellOption::Off => ShellSource::Nowhere,
        ShellOption::Socket(path) => ShellSource::Socket {
            path: path.clone(),
            // Options without a token file are refused earlier.
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
    /// Creates a sidecar that is started from `program`, which must pass its start to [`crate::run`] as the
    /// binary `portcullis` does.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }
}

impl StartSidecar for OwnSidecar {
    fn start(&self, options: &SidecarOptions) -> io::Result<StartedSidecar> {
        let SidecarOptions { policy, workspace, state, private_paths: private, ca, unconfined } = options;
        // Make the path absolute, because the sidecar has another working directory.
        let ca = ca.as_ref().map(std::path::absolute).transpose()?;
        let mut config =
            SidecarServerConfig::from_policy(policy, workspace.clone(), state.clone(), private.clone())
                .map_err(io::Error::other)?
                .with_certificates(ca);
        // This process is the only client, and shares the sessions among its runs.
        config.service.sessions_per_connection = config.service.sessions;
        if *unconfined {
            config.posture = PostureChoice::Exactly(ShellPosture::None);
        }
        let token = random_hex::<32>()?;
        let (client_end, sidecar_end) = UnixStream::pair()?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this is where the sidecar is started, which is this program"
        )]
        let process = Command::new(&self.program)
            .arg(EMBEDDED_ENTRY)
            // The sidecar gets its configuration in the setup line, and no secret from the environment.
            .env_clear()
            .current_dir("/")
            // The sidecar gets its own process group: signals from the terminal must not reach it, because
            // cancelled calls still need time to end. The sidecar ends with this process.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(sidecar_end)))
            .stdout(Stdio::null())
            .spawn()?;
        let mut setup_line = serde_json::to_vec(&EmbeddedSetup { token: token.clone(), config })?;
        setup_line.push(b'\n');
        (&client_end).write_all(&setup_line)?;
        Ok(StartedSidecar { process, connection: client_end, token })
    }
}
