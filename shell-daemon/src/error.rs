//! [`ShellError`] and [`InputError`]: why a shell cannot run. A failing command is not an error: its exit code is a
//! result.
//!
//! The texts are for operators and hold host paths. None of them reaches a model unchanged.

use std::{io, path::PathBuf};

use portcullis_confine::Layer;
use portcullis_types::ShellPosture;

/// The reason why a session could not be started, or why a command could not be run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// A mount cannot be opened.
    #[error("cannot open the mount {}", path.display())]
    MountOpen {
        /// The mount's path.
        path: PathBuf,
        /// The error of opening it.
        #[source]
        source: io::Error,
    },
    /// A mount would contain something that no session may see, such as the state folder.
    #[error("{} cannot be a mount: it holds more than a workspace", path.display())]
    MountTooWide {
        /// The mount's path.
        path: PathBuf,
    },
    /// A mount's name cannot be a folder name in the session's root folder.
    #[error("`{name}` cannot be the name of a mount")]
    MountName {
        /// The name that was given.
        name: String,
    },
    /// A session's file tree cannot cover all hidden files, so it would show some of them.
    #[error(
        "the files that the policy hides cannot be hidden: {problem}; hide a folder above them, or fewer names"
    )]
    TooMuchToHide {
        /// Why not.
        problem: &'static str,
    },
    /// A cache of the toolchain cannot be read, or its copy cannot be written.
    #[error("the cache `{}` cannot be copied", .path.display())]
    CacheUnusable {
        /// The cache's path on the host.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The session reached a weaker posture than the required one, and was ended.
    #[error("no session can be `{required_posture}` here, only `{reached}`: {}", list(lacking))]
    PostureUnavailable {
        /// The required posture.
        required_posture: ShellPosture,
        /// The posture that this machine can give.
        reached: ShellPosture,
        /// Each missing layer, with the reason and the remedy.
        lacking: Vec<(Layer, String)>,
    },
    /// The session's home is not one of its mounts.
    #[error("the home `{name}` is not one of the mounts")]
    HomeUnknown {
        /// The name that was given.
        name: String,
    },
    /// A limit is so low that no shell could start.
    #[error("{limit} must be at least {least}")]
    LimitTooLow {
        /// The limit's name.
        limit: &'static str,
        /// The minimum allowed value.
        least: u64,
    },
    /// The watch could not inspect a command while it ran. The command was killed and the session has ended.
    #[error("the command could not be watched, and was killed")]
    Unwatched,
    /// The session's process could not be started.
    #[error("cannot start a session")]
    Start {
        /// The error of the step that failed.
        #[source]
        source: io::Error,
    },
    /// The session could not confine itself, and ended.
    #[error("the session could not confine itself: {reason}")]
    NotConfined {
        /// The session's report, with all causes.
        reason: String,
    },
    /// The changes of the session's commands cannot be recorded, although a mount has undo.
    #[error("the changes of commands cannot be kept: {reason}")]
    ChangesUnwatched {
        /// The missing part.
        reason: String,
    },
    /// The namespaces could be entered but not used. Callers never get this error: a session without namespaces is
    /// tried instead.
    #[error("the session's namespaces cannot be set up: {reason}")]
    #[doc(hidden)]
    NamespacesUnusable {
        /// The session's report.
        reason: String,
    },
    /// The command's text cannot be given to a shell.
    #[error("the command {problem}")]
    CommandUnusable {
        /// The problem, worded to follow its subject in the message.
        problem: &'static str,
    },
    /// The command's working directory cannot be a path.
    #[error("the working directory {problem}")]
    WorkdirUnusable {
        /// The problem, worded to follow its subject in the message.
        problem: &'static str,
    },
    /// Too many commands of this session still have background jobs.
    #[error("{count} commands of this session still have background jobs")]
    TooManyBackgroundCommands {
        /// The number of those commands.
        count: usize,
    },
    /// The session runs, but the command's shell did not start. No part of the command was run.
    #[error("cannot start the command's shell: {reason}")]
    NotStarted {
        /// The session's report.
        reason: String,
    },
    /// The program called bash does not behave like bash. No command was run with it.
    #[error("bash cannot be started here: {reason}")]
    ShellUnusable {
        /// The deviation that was seen.
        reason: String,
    },
    /// The session has ended, with all its processes. The effects of the command up to then stay. The command was not
    /// run again.
    #[error("the session has ended")]
    SessionEnded,
    /// Processes survived a kill.
    #[error("{left} processes could not be killed in time")]
    NotKilled {
        /// The number of processes that survived.
        left: usize,
    },
    /// Communication with the session failed.
    #[error("cannot talk to the session")]
    Channel {
        /// The I/O error of the session's channel.
        #[source]
        source: io::Error,
    },
    /// The machine's processes could not be listed.
    #[error("cannot list processes")]
    Processes {
        /// The I/O error of listing them.
        #[source]
        source: io::Error,
    },
}

/// The reason why nothing more can be written to a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The pipe is full now.
    #[error("the command has not read what was written before")]
    Full,
    /// The command has ended, closed its input, or was never run.
    #[error("the command has closed its standard input")]
    Closed,
    /// Any other error of the kernel.
    #[error("cannot write to the command")]
    Pipe {
        /// The error of the write.
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
