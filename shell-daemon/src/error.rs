//! What keeps a shell from running. Whatever a command itself does, its exit code included, is no error.
//!
//! For operators: texts hold host paths. None of these reaches a model as it is.

use std::{io, path::PathBuf};

use portcullis_confine::Layer;
use portcullis_types::ShellPosture;

/// Why a session or a command could not be run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// A mount cannot be opened.
    #[error("open the mount {}", path.display())]
    MountOpen {
        /// Its place.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A mount would show what no session may see, as the state folder.
    #[error("{} cannot be a mount: it holds more than a workspace", path.display())]
    MountTooWide {
        /// Its place.
        path: PathBuf,
    },
    /// A mount's name cannot be that of a folder in a session's root folder.
    #[error("`{name}` cannot be the name of a mount")]
    MountName {
        /// The name that was given.
        name: String,
    },
    /// The session would be confined less than it has to be. It has ended.
    #[error("no session can be `{least}` here, only `{reached}`: {}", list(lacking))]
    PostureUnavailable {
        /// What was asked for.
        least: ShellPosture,
        /// What works here.
        reached: ShellPosture,
        /// Each layer that is missing, with the reason and with what would give it.
        lacking: Vec<(Layer, String)>,
    },
    /// The home of the session is none of its mounts.
    #[error("the home `{name}` is none of the mounts")]
    HomeUnknown {
        /// The name that was given.
        name: String,
    },
    /// A limit is so low that no shell could start.
    #[error("{limit} must be at least {least}")]
    LimitTooLow {
        /// Which.
        limit: &'static str,
        /// The least value.
        least: u64,
    },
    /// A command could not be looked at while it ran, and was killed. The session has ended.
    #[error("the command could not be watched, and was killed")]
    Unwatched,
    /// The session's process could not be started.
    #[error("start a session")]
    Start {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The session could not confine itself, and ended.
    #[error("the session could not confine itself: {reason}")]
    NotConfined {
        /// What the session said, with all causes.
        reason: String,
    },
    /// Namespaces could be entered and not be used. Not returned: a session without them is tried.
    #[error("the session's namespaces cannot be used: {reason}")]
    #[doc(hidden)]
    NamespacesUnusable {
        /// What the session said.
        reason: String,
    },
    /// The command's text cannot be given to a shell.
    #[error("the command {problem}")]
    CommandUnusable {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Too many commands of this session have left jobs behind that still run.
    #[error("{count} commands of this session still have background jobs")]
    TooManyBackgroundCommands {
        /// How many.
        count: usize,
    },
    /// The session runs, but the command's shell did not start. Nothing of the command was run.
    #[error("start the command's shell: {reason}")]
    NotStarted {
        /// What the session said.
        reason: String,
    },
    /// What is called bash does not work as one. Nothing of anybody's was run.
    #[error("bash cannot be used here: {reason}")]
    ShellUnusable {
        /// What it did instead.
        reason: String,
    },
    /// The session has ended, and all its processes with it. What the command had done by then is done; it
    /// was not run again.
    #[error("the session has ended")]
    SessionEnded,
    /// What was killed is still there.
    #[error("{left} processes could not be killed in time")]
    NotKilled {
        /// How many are left.
        left: usize,
    },
    /// Talking to the session failed.
    #[error("talk to the session")]
    Channel {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The processes of this machine could not be looked at.
    #[error("list processes")]
    Processes {
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Why nothing more can be written to a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// There is no room now.
    #[error("the command has not read what was written before")]
    Full,
    /// The command has ended, closed its input, or was never run.
    #[error("the command reads no more")]
    Closed,
    /// Anything else that the kernel says.
    #[error("write to the command")]
    Pipe {
        /// The cause.
        #[source]
        source: io::Error,
    },
}

fn list(lacking: &[(Layer, String)]) -> String {
    let lines: Vec<String> = lacking.iter().map(|(layer, reason)| format!("{layer}: {reason}")).collect();
    lines.join("; ")
}

impl ShellError {
    pub(crate) fn channel(source: impl Into<io::Error>) -> Self {
        Self::Channel { source: source.into() }
    }
}
