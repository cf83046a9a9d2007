//! The description of a session and of a command. Values only.

use std::{path::PathBuf, time::Duration};

use portcullis_confine::{Canary, GroupLimits, Layer, PathAccess, ProcessLimits};
use portcullis_policy::ProtectedPaths;
use portcullis_types::ShellPosture;
use serde::{Deserialize, Serialize};

use crate::{Cancellation, CommandInput, SessionNetwork};

/// The complete list of what a session gets.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The program that is started; it must begin with [`crate::enter_if_session`]. Usually
    /// `/proc/self/exe`.
    pub launcher: PathBuf,
    /// The folders that the session sees besides the system's. Never name one that holds secrets.
    pub mounts: Vec<SessionMount>,
    /// The name of the mount that is `HOME` and the first working directory.
    pub home: String,
    /// Variables besides `PATH`, `HOME`, `TERM`, `LANG`, `PORTCULLIS_NAME` for each mount, and `TMPDIR` if
    /// there is a mount `tmp`. Later entries win.
    pub environment: Vec<(String, String)>,
    /// Limits of each process of the session, and the memory that a command and its jobs may have together.
    pub limits: ProcessLimits,
    /// Limits of all processes of the session together, enforced by a control group where one can be made,
    /// and by the watch. `None` bounds each command alone.
    pub group: Option<GroupLimits>,
    /// A file that the session must not be able to open. Its refusal proves layers.
    pub canary: Canary,
    /// The posture that is required.
    pub posture: PostureChoice,
    /// Layers that are left out even where they would work. Each is reported as waived, and the posture is at
    /// most one that does not need it. Limits and privileges cannot be left out.
    pub waived: Vec<Layer>,
    /// Paths that no command may write, at any depth of the mounts. In a session with its own file tree the
    /// paths that exist at the start are read-only; a path that a command makes or changes elsewhere is
    /// reported after the command, see [`crate::CommandEnd::protected`].
    pub protect: ProtectedPaths,
    /// The network of a session that reaches [`ShellPosture::Strong`]; a weaker one has none, and
    /// [`crate::ShellSession::network_absence`] says why. `None`: no network.
    pub network: Option<SessionNetwork>,
}

/// The posture that a session must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostureChoice {
    /// All layers that work here; if that is a weaker posture than this, there is no session.
    /// [`ShellPosture::None`] means [`ShellPosture::Minimal`] here: a session without confinement needs
    /// `Exactly(None)`.
    AtLeast(ShellPosture),
    /// Exactly this posture, for comparisons and for operators who have a reason.
    Exactly(ShellPosture),
}

/// One folder that a session sees: at `/NAME` in its own file tree, otherwise at its real path.
#[derive(Clone, Debug)]
pub struct SessionMount {
    /// Its name in the policy: 1 to 64 of `a-z`, `0-9`, `_` and `-`, and no name that the system's root
    /// folder uses.
    pub name: String,
    /// Its real path.
    pub path: PathBuf,
    /// [`PathAccess::Read`] or [`PathAccess::Write`].
    pub access: PathAccess,
}

/// A command to run in a session.
#[derive(Debug)]
pub struct CommandRequest {
    /// The text for bash: at most 1 MiB, without NUL.
    pub command: String,
    /// The working directory to start in instead of the one where the last command ended; a relative path
    /// starts at the latter. If it cannot be entered, bash reports that and the exit code is 1.
    pub workdir: Option<String>,
    /// The first bytes of its standard input.
    pub stdin: Vec<u8>,
    /// Further input, written while the command runs. Without it the input ends after `stdin`.
    pub input: Option<CommandInput>,
    /// Its deadline, counted from its start.
    pub timeout: Duration,
    /// How many processes it may have at a time, background jobs included. It may have four times as many
    /// threads. An excess is noticed after some milliseconds; then all are killed.
    pub max_processes: usize,
    /// How many bytes of output are handed on, both streams together. The rest is read and dropped.
    pub max_output_bytes: u64,
    /// Ends the command early.
    pub cancellation: Cancellation,
}
