//! What a session is to be, and what a command is. Values only.

use std::{path::PathBuf, time::Duration};

use portcullis_confine::{Canary, PathAccess, ProcessLimits};

use crate::{Cancellation, CommandInput};

/// Everything that a session gets. What is not here it does not have.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The program that is started; it must begin with [`crate::enter_if_session`]. Usually
    /// `/proc/self/exe`.
    pub launcher: PathBuf,
    /// The folders that the session sees besides the system's. Never one that holds secrets.
    pub mounts: Vec<SessionMount>,
    /// The name of the mount that is `HOME` and the first working directory.
    pub home: String,
    /// Variables besides `PATH`, `HOME`, `TERM`, `LANG`, `PORTCULLIS_NAME` for each mount, and `TMPDIR` if
    /// there is a mount `tmp`. Later entries win.
    pub environment: Vec<(String, String)>,
    /// What each process of the session may use up.
    pub limits: ProcessLimits,
    /// A file that the session must not be able to open, so that its refusal proves Landlock.
    pub canary: Canary,
}

/// One folder that a session sees, at its real place.
#[derive(Clone, Debug)]
pub struct SessionMount {
    /// Its name in the policy.
    pub name: String,
    /// Its place.
    pub path: PathBuf,
    /// [`PathAccess::Read`] or [`PathAccess::Write`].
    pub access: PathAccess,
}

/// One command.
#[derive(Debug)]
pub struct CommandRequest {
    /// What bash is to run: at most 1 MiB, without NUL.
    pub command: String,
    /// Where it begins, if not where the last one ended; a relative path starts there. Where that cannot be
    /// entered, bash says so and the code is 1.
    pub workdir: Option<String>,
    /// What it reads first on its standard input.
    pub stdin: Vec<u8>,
    /// What it reads after that, written while it runs. Without it the input ends after `stdin`.
    pub input: Option<CommandInput>,
    /// How long it may take.
    pub timeout: Duration,
    /// How many processes it may have at a time, background jobs included. More than that for a moment is
    /// noticed after a tenth of a second; then all are killed.
    pub max_processes: usize,
    /// How many bytes of its output are handed on, of both streams together. The rest is read and dropped.
    pub max_output_bytes: u64,
    /// Ends it early.
    pub cancellation: Cancellation,
}
