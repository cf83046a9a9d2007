//! The shell sidecar of a command: which one the options name, and how this very program becomes one.

use std::{
    fmt,
    io::{self, Write as _},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::PathBuf,
    process::{Command, Stdio},
    str::FromStr,
    sync::Arc,
};

use portcullis_shell_daemon::{DaemonConfig, EMBEDDED_ENTRY, EmbeddedSetup, PostureChoice};
use portcullis_tools::shell::{ShellPlace, SidecarTerms, StartSidecar, StartedSidecar};
use portcullis_types::ShellPosture;

use crate::{cli::Common, setup::OURSELVES};

/// What `--shell` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShellOption {
    /// A sidecar of our own.
    Own,
    /// One of our own that confines nothing.
    Host,
    /// None.
    Off,
    /// One that runs.
    Socket(PathBuf),
}

impl FromStr for ShellOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match (text, text.strip_prefix("unix:")) {
            ("own", _) => Ok(Self::Own),
            ("host", _) => Ok(Self::Host),
            ("off", _) => Ok(Self::Off),
            (_, Some(path)) if !path.is_empty() => Ok(Self::Socket(path.into())),
            _ => Err("expected `own`, `host`, `off` or `unix:PATH`".to_owned()),
        }
    }
}

impl fmt::Display for ShellOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::Host => f.write_str("host"),
            Self::Off => f.write_str("off"),
            // As the path was given; a socket is not looked for from elsewhere by its relative name.
            Self::Socket(path) => {
                write!(f, "unix:{}", std::path::absolute(path).as_ref().unwrap_or(path).display())
            }
        }
    }
}

/// Where commands run.
pub(crate) fn place(common: &Common) -> ShellPlace {
    match &common.shell {
        ShellOption::Own => ShellPlace::Own(Arc::new(OwnSidecar::new(OURSELVES))),
        ShellOption::Host => ShellPlace::Host(Arc::new(OwnSidecar::new(OURSELVES))),
        ShellOption::Off => ShellPlace::Nowhere,
        ShellOption::Socket(path) => ShellPlace::Socket {
            path: path.clone(),
            // The options are not accepted without it.
            token_file: common.shell_token_file.clone().unwrap_or_default(),
        },
    }
}

/// Starts a `portcullis`, such as this program, as the shell sidecar of one process: the one that starts it.
#[derive(Debug, Clone)]
pub struct OwnSidecar {
    program: PathBuf,
}

impl OwnSidecar {
    /// That program must hand its start to [`crate::run`], as the binary `portcullis` does.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }
}

impl StartSidecar for OwnSidecar {
    fn start(&self, terms: &SidecarTerms) -> io::Result<StartedSidecar> {
        let SidecarTerms { policy, workspace, state, private, unconfined } = terms;
        let mut config = DaemonConfig::from_policy(policy, workspace.clone(), state.clone(), private.clone())
            .map_err(io::Error::other)?;
        // This process is its only client, and shares its sessions out among the runs that it serves.
        config.service.sessions_per_connection = config.service.sessions;
        if *unconfined {
            config.posture = PostureChoice::Exactly(ShellPosture::None);
        }
        let token = token()?;
        let (ours, theirs) = UnixStream::pair()?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this is where the sidecar is started, which is this program"
        )]
        let process = Command::new(&self.program)
            .arg(EMBEDDED_ENTRY)
            .env_clear()
            .current_dir("/")
            // Not a terminal's signals are its end, but ours: calls that are given up have a time to end.
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        let mut line = serde_json::to_vec(&EmbeddedSetup { token: token.clone(), config })?;
        line.push(b'\n');
        (&ours).write_all(&line)?;
        Ok(StartedSidecar { process, connection: ours, token })
    }
}

/// What nobody guesses: 256 random bits.
fn token() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sidecar_is_named_in_one_of_four_ways() {
        assert_eq!("own".parse(), Ok(ShellOption::Own));
        assert_eq!("unix:/run/s.sock".parse(), Ok(ShellOption::Socket("/run/s.sock".into())));
        for wrong in ["", "unix:", "tcp:1", "OWN"] {
            wrong.parse::<ShellOption>().expect_err(wrong);
        }
    }
}
