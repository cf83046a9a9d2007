//! Every limit of a session, with who could exhaust what without it.

use std::time::Duration;

/// The text of one command. It goes by a memory file, so the kernel's limit of arguments does not apply;
/// without this a client could make a shell parse gigabytes.
pub(crate) const COMMAND_BYTES: usize = 1 << 20;

/// The state that is carried from one command to the next. The memory file has this size from the start
/// and cannot grow: a command with a variable of a gigabyte loses its state, and nobody else's memory.
pub(crate) const SNAPSHOT_BYTES: u64 = 1 << 20;

/// One message between the daemon and a session, descriptors aside.
pub(crate) const MESSAGE_BYTES: usize = 64 << 10;

/// The descriptors of one message: mounts and system folders.
pub(crate) const MESSAGE_HANDLES: usize = 64;

/// What is kept of what background jobs write.
pub(crate) const BACKGROUND_BYTES: usize = 64 << 10;

/// Commands whose background jobs live on at the same time. Each costs a thread and three descriptors of the
/// daemon.
pub(crate) const BACKGROUND_COMMANDS: usize = 16;

/// What one read takes from a pipe, and the most that is still read of a pipe after its command has ended:
/// a background job that writes without end must not hold back the answer.
pub(crate) const PIPE_BYTES: usize = 1 << 20;

/// What is moved at a time of what is written to a running command: a pipe holds no more, so whoever writes
/// faster than the command reads has to wait.
pub(crate) const INPUT_BYTES: usize = 64 << 10;

/// From the decision to kill until nothing of a command or of a session is left.
pub(crate) const KILL_TIME: Duration = Duration::from_secs(1);

/// A session that has not confined itself until then never will.
pub(crate) const START_TIME: Duration = Duration::from_secs(10);

/// The fewest descriptors that a session can work with.
pub(crate) const LEAST_DESCRIPTORS: u64 = 256;
