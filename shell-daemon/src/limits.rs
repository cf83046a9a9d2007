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

/// How many kills of background jobs are remembered until they are asked for.
pub(crate) const BACKGROUND_KILLS: usize = 64;

/// What one read takes from a pipe, and the most that is still read of a pipe after its command has ended:
/// a background job that writes without end must not hold back the answer.
pub(crate) const PIPE_BYTES: usize = 1 << 20;

/// What is moved at a time of what is written to a running command: a pipe holds no more, so whoever writes
/// faster than the command reads has to wait.
pub(crate) const INPUT_BYTES: usize = 64 << 10;

/// So many looks find no fewer processes before a kill is given up: where the machine has much else to do, one look
/// can take longer than all of [`KILL_TIME`].
pub(crate) const KILL_LOOKS: u32 = 50;

/// From a kill until it is given up, whatever becomes less meanwhile: a command that ends its processes one by one
/// must not hold its caller.
pub(crate) const LONGEST_KILL: Duration = Duration::from_secs(10);

/// How long what was killed may go without becoming less. As a rule nothing is left after some milliseconds; without
/// this a process that the kernel cannot end would hold its caller for good.
pub(crate) const KILL_TIME: Duration = Duration::from_secs(1);

/// A session that has not confined itself until then never will.
pub(crate) const START_TIME: Duration = Duration::from_secs(10);

/// The fewest descriptors that a session can work with.
pub(crate) const LEAST_DESCRIPTORS: u64 = 256;

/// Files and folders whose names one look for protected paths reads. A command that makes more than that is told
/// to be seen in part only; without this it could hold back its own answer.
pub(crate) const PROTECTED_ENTRIES: usize = 100_000;

/// Names that are read besides in folders that are part of a protected path, such as `.git`: a command that makes very
/// many others must not hide these.
pub(crate) const PROTECTED_SHARE: usize = 20_000;

/// How long one look for protected paths takes at most, as long as the file system answers. The answer of the command
/// waits for it.
pub(crate) const PROTECTED_TIME: Duration = Duration::from_secs(2);

/// The protected paths of a mount that are remembered: each costs about a microsecond after every command, and memory.
pub(crate) const PROTECTED_FOUND: usize = 50_000;

/// Folders of a mount that are remembered: each costs about a microsecond after every command, and memory.
pub(crate) const PROTECTED_FOLDERS: usize = 20_000;

/// How deep folders may lie in each other.
pub(crate) const PROTECTED_DEPTH: usize = 128;

/// The protected paths that become read-only when a session starts, as text: about 500 of them. They go in the
/// same message as the setup.
pub(crate) const PROTECTED_BYTES: usize = 32 << 10;

/// The protected paths of one command that are told.
pub(crate) const PROTECTED_TOLD: usize = 100;

/// Between two looks at what a command has, while it is far from its limits. A look takes about 20 µs for each of
/// its processes.
pub(crate) const LOOK_TIME: Duration = Duration::from_millis(10);

/// Between two looks at a command that could reach a limit before the next usual one.
pub(crate) const SHORTEST_LOOK_TIME: Duration = Duration::from_millis(2);

/// Between two looks at all processes of the machine: the others go by lists in which a process that ends can hide
/// another one.
pub(crate) const WHOLE_LOOK_TIME: Duration = Duration::from_millis(100);

/// So many mappings one look at what runs reads, which takes some 20 ms: a bomb grows meanwhile. What has more is stopped
/// and counted. Most programs have some hundreds, and the kernel lets a process have 65,530.
pub(crate) const MAPPINGS_PER_LOOK: u64 = 20_000;

/// So many mappings a command and its jobs may have: what has more takes too long to be counted, and all commands of its
/// session are looked at by one thread.
pub(crate) const MOST_MAPPINGS: u64 = 200_000;

/// How long the count of what has many mappings holds, as long as all processes of the machine share no more than
/// [`HIDDEN_GROWTH`] above what they did then: private memory is looked at meanwhile.
pub(crate) const COUNT_TIME: Duration = Duration::from_secs(1);

/// How long memory may be too much only if processes do not have their parents' address spaces, where the kernel does
/// not say whether they do: as long as it takes to start a program.
pub(crate) const DOUBT_TIME: Duration = Duration::from_millis(500);

/// How long a piece of shared memory that no look finds is remembered: one that is handed from process to process can be
/// hidden from a look.
pub(crate) const SHARED_MEMORY_KEPT: Duration = Duration::from_secs(10);

/// The most of them that are remembered though the last look did not find them: each costs some 50 bytes.
pub(crate) const SHARED_MEMORY_PIECES: usize = 10_000;

/// So many looks in a row may find a process that keeps its memory to itself: one that has just been started can do so
/// for a moment.
pub(crate) const HIDDEN_LOOKS: u32 = 3;

/// So much more may all processes of the machine share than when it was first found, in bytes: programs that keep
/// secrets, such as `gpg-agent`, keep their memory to themselves and share none.
pub(crate) const HIDDEN_GROWTH: u64 = 16 << 20;

/// How fast memory is taken to grow, in bytes a second: what one fast core writes to memory that is new to it.
pub(crate) const MEMORY_GROWTH: u64 = 8 << 30;

/// How long everything below a command is stopped for counting, at most, before it is judged as it is.
pub(crate) const FREEZE_TIME: Duration = Duration::from_secs(1);

/// How many processes and threads together a command may have for each process that it may have: as many as a
/// control group gives a whole session.
pub(crate) const THREADS_PER_PROCESS: usize = 4;
