//! The descriptions of a session and of a command, as plain values.

use std::{path::PathBuf, time::Duration};

use portcullis_confine::{CanaryFile, GroupLimits, Layer, PathAccess, ProcessLimits};
use portcullis_policy::{HiddenNames, ProtectedPaths};
use portcullis_types::ShellPosture;
use serde::{Deserialize, Serialize};

use crate::{
    CancelReceiver, CommandInput, SessionNetwork, SessionToolchain, ShellError,
    limits::{MAX_COMMAND_BYTES, MAX_SNAPSHOT_BYTES, MAX_WORKDIR_BYTES, MIN_DESCRIPTORS},
};

/// The complete description of a session. A session gets nothing else.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The program that is started, usually `/proc/self/exe`. Its `main` must first call
    /// [`crate::enter_if_session`].
    pub launcher: PathBuf,
    /// The folders that the session sees in addition to the system's folders. Never name a folder that holds secrets.
    pub mounts: Vec<SessionMount>,
    /// The name of the mount that is `HOME` and the first working directory.
    pub home: String,
    /// Files and folders of the host that the session reads, and where it finds programs.
    pub toolchain: SessionToolchain,
    /// Variables in addition to `PATH`, `HOME`, `TERM`, `LANG`, `PORTCULLIS_NAME` for each mount, and if there is a
    /// mount `tmp`, `TMPDIR` and the folders of caches and settings below it. Later entries override earlier ones.
    pub environment: Vec<(String, String)>,
    /// Limits of each process of the session. The memory limit also bounds a command and its jobs together.
    pub limits: ProcessLimits,
    /// Limits of all processes of the session together. The watch enforces them, and also a control group where one can
    /// be made. `None`: only single commands are bounded.
    pub group: Option<GroupLimits>,
    /// A file that the session must not be able to open. The refusal proves that a layer works.
    pub canary: CanaryFile,
    /// The posture that is required.
    pub posture: PostureChoice,
    /// Layers that are left out even if they would work. Each is reported as waived. A posture that needs such a layer
    /// is not reached. Limits and privileges cannot be left out.
    pub waived: Vec<Layer>,
    /// Paths that no command may write, at any depth of the mounts. In a session with its own file tree, the paths that
    /// exist at the start are read-only. Other such paths that a command makes or changes are reported after the
    /// command, see [`crate::CommandEnd::protected`].
    pub protect: ProtectedPaths,
    /// The names of files and folders that no command sees, at any depth of every mount except the vault. In a session
    /// with its own file tree, those that exist at the start are covered: their names stay visible, but not their
    /// content. Without its own file tree, a session hides nothing, and its posture reports that.
    pub hide: HiddenNames,
    /// Whether changes of files by commands can be recorded, see [`crate::ShellSession::keep_changes`]. The
    /// session then needs the system-call filter.
    pub watch_changes: bool,
    /// The network of a session that reaches [`ShellPosture::Strong`]. A session of a weaker posture has no network,
    /// and [`crate::ShellSession::network_absence`] gives the reason. `None`: no network.
    pub network: Option<SessionNetwork>,
}

impl SessionSpec {
    /// Refuses limits that no session can work with.
    pub(crate) fn require_limits(&self) -> Result<(), ShellError> {
        for (limit, value, least) in [
            ("the limit of descriptors", self.limits.descriptors, MIN_DESCRIPTORS),
            // The snapshot is a file.
            ("the limit of file sizes", self.limits.file_bytes, MAX_SNAPSHOT_BYTES),
        ] {
            if value < least {
                return Err(ShellError::LimitTooLow { limit, least });
            }
        }
        Ok(())
    }
}

/// The posture that a session must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostureChoice {
    /// All layers that work on this machine. If they give a weaker posture than this value, the session does not start.
    /// [`ShellPosture::None`] means [`ShellPosture::Minimal`] here: a session without confinement needs
    /// `Exactly(None)`.
    AtLeast(ShellPosture),
    /// Exactly this posture, for comparisons and for operators with a reason to choose it.
    Exactly(ShellPosture),
}

/// One folder that a session sees. In the session's own file tree the folder is at `/NAME`, otherwise at its real path.
#[derive(Clone, Debug)]
pub struct SessionMount {
    /// The mount's name in the policy: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`. A name that the system's root
    /// folder uses is refused.
    pub name: String,
    /// The folder's real path.
    pub path: PathBuf,
    /// [`PathAccess::Read`] or [`PathAccess::Write`].
    pub access: PathAccess,
}

/// A command to run in a session.
#[derive(Debug)]
pub struct CommandRequest {
    /// The text that bash runs: at most 1 MiB, without NUL.
    pub command: String,
    /// The working directory to start in. Without it, and as the base of a relative path: the directory where the last
    /// command ended. If the directory cannot be entered, bash reports that and the exit code is 1.
    pub workdir: Option<String>,
    /// The first bytes of the command's standard input.
    pub stdin: Vec<u8>,
    /// Further input, written while the command runs. If `None`, the input ends after `stdin`.
    pub input: Option<CommandInput>,
    /// The time from the command's start to its deadline.
    pub timeout: Duration,
    /// The maximum number of processes of the command at a time, including background jobs. The command may have four
    /// times as many threads. An excess is noticed after some milliseconds, and then all of the command's processes are
    /// killed.
    pub max_processes: usize,
    /// The maximum number of bytes of output that the caller gets, both streams together. The rest is read and dropped.
    pub max_output_bytes: u64,
    /// The cancellation that ends the command early.
    pub cancellation: CancelReceiver,
}

impl CommandRequest {
    /// Refuses a text that bash cannot read.
    pub(crate) fn require_usable(&self) -> Result<(), ShellError> {
        check_command(&self.command)?;
        check_workdir(self.workdir.as_deref().unwrap_or_default())
    }
}

/// Refuses the text of a command that bash cannot read.
pub(crate) fn check_command(command: &str) -> Result<(), ShellError> {
    if command.len() > MAX_COMMAND_BYTES {
        return Err(ShellError::CommandUnusable { problem: "is longer than 1 MiB" });
    }
    if command.contains('\0') {
        return Err(ShellError::CommandUnusable { problem: "holds a NUL, which no shell can read" });
    }
    Ok(())
}

/// Refuses a working directory that is no path of the kernel.
pub(crate) fn check_workdir(workdir: &str) -> Result<(), ShellError> {
    if workdir.len() > MAX_WORKDIR_BYTES {
        return Err(ShellError::WorkdirUnusable { problem: "is longer than 4,095 bytes" });
    }
    if workdir.contains('\0') {
        return Err(ShellError::WorkdirUnusable { problem: "contains a NUL, which no path can have" });
    }
    Ok(())
}
