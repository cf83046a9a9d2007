//! What a session is to be, and what a command is. Values only.

use std::{path::PathBuf, time::Duration};

use portcullis_confine::{Canary, GroupLimits, Layer, PathAccess, ProcessLimits};
use portcullis_policy::ProtectedPaths;
use portcullis_types::ShellPosture;
use serde::{Deserialize, Serialize};

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
    /// What each process of the session may use up, and how much memory a command and its jobs may have together.
    pub limits: ProcessLimits,
    /// What all of them together may use up: held by a control group where one can be made, and by looking at them.
    /// `None` bounds each command alone.
    pub group: Option<GroupLimits>,
    /// A file that the session must not be able to open, so that its refusal proves layers.
    pub canary: Canary,
    /// How far it is to be confined.
    pub posture: PostureChoice,
    /// Layers that are left out although they may work here; each is reported as waived, and the posture is at
    /// most one that does without them. Limits and privileges cannot be left out.
    pub waived: Vec<Layer>,
    /// What no command is to write, at any depth of the mounts. What is there when the session starts is
    /// read-only in a file tree of its own; what a command makes or changes elsewhere is told after it, see
    /// [`crate::CommandEnd::protected`].
    pub protect: ProtectedPaths,
}

/// How far a session is to be confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostureChoice {
    /// By all that works here; if that is less than this, there is no session. [`ShellPosture::None`] is the
    /// same as [`ShellPosture::Minimal`]: who wants nothing has to say exactly that.
    AtLeast(ShellPosture),
    /// By this and no more, for comparing and for operators who know why.
    Exactly(ShellPosture),
}

/// One folder that a session sees: at `/NAME` in a file tree of its own, else at its real place.
#[derive(Clone, Debug)]
pub struct SessionMount {
    /// Its name in the policy: at most 64 of `a-z`, `0-9`, `_` and `-`, and none that a system's root folder has.
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
    /// How many processes it may have at a time, background jobs included, and a quarter of how many threads.
    /// More than that is noticed after some milliseconds; then all are killed.
    pub max_processes: usize,
    /// How many bytes of its output are handed on, of both streams together. The rest is read and dropped.
    pub max_output_bytes: u64,
    /// Ends it early.
    pub cancellation: Cancellation,
}
