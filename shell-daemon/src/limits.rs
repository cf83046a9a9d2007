//! The limits of a session, each with the resource that it protects.

use std::time::Duration;

/// Bytes of one command's text. The text is passed in a memory file, so the kernel's limit on arguments does
/// not apply. Without this limit a client could make a shell parse gigabytes.
pub(crate) const MAX_COMMAND_BYTES: usize = 1 << 20;

/// The maximum length of a working directory, in bytes. The kernel accepts no longer path (`PATH_MAX`).
pub(crate) const MAX_WORKDIR_BYTES: usize = 4095;

/// Bytes of the state that carries over from one command to the next. The memory file has this size from the
/// start and cannot grow. A command with a variable of a gigabyte loses its own state, but takes no memory
/// from others.
pub(crate) const MAX_SNAPSHOT_BYTES: u64 = 1 << 20;

/// Bytes of one message between the sidecar and a session, without its descriptors.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// The maximum number of descriptors of one message: mounts, system folders and the toolchain. The kernel
/// allows 253 (`SCM_MAX_FD`).
pub(crate) const MAX_MESSAGE_HANDLES: usize = 128;

/// The maximum number of bytes that are kept of the output of background jobs.
pub(crate) const MAX_BACKGROUND_BYTES: usize = 64 << 10;

/// The maximum number of a session's commands that have background jobs at the same time. Each uses a thread
/// and three descriptors of the sidecar.
pub(crate) const MAX_BACKGROUND_COMMANDS: usize = 16;

/// The maximum number of killed background jobs that are remembered for the client. The oldest are forgotten
/// first.
pub(crate) const MAX_BACKGROUND_KILLS: usize = 64;

/// The size of one read from a pipe, in bytes, and the limit of what is read from a pipe after its command
/// has ended. Without this limit, a background job that writes without end could delay the answer.
pub(crate) const PIPE_BYTES: usize = 1 << 20;

/// The number of bytes that are moved at a time to a running command's standard input. A pipe holds no more,
/// so a writer that is faster than the command has to wait (backpressure).
pub(crate) const INPUT_BYTES: usize = 64 << 10;

/// The number of consecutive samples that must find no fewer processes before a kill is given up. On a busy
/// machine one sample can take longer than the whole [`KILL_STALL_TIMEOUT`].
pub(crate) const KILL_SAMPLES: u32 = 50;

/// The time after which a kill is given up, even while processes still end. A command that ends its
/// processes one by one must not delay its caller.
pub(crate) const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which the number of killed processes may stay the same before the kill is given up. Usually
/// all have ended after some milliseconds. Without this limit, a process that the kernel cannot end would
/// block its caller forever.
pub(crate) const KILL_STALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The time in which a session must confine itself. A session that takes longer never succeeds.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The minimum number of descriptors that a session can work with.
pub(crate) const MIN_DESCRIPTORS: u64 = 256;

/// The maximum number of names that one scan for protected paths reads. Without this limit a command could
/// delay its own answer by making very many files. A scan that reaches the limit reports itself as
/// incomplete.
pub(crate) const MAX_PROTECTED_ENTRIES: usize = 100_000;

/// The number of names that a scan may read in addition, in folders that are part of a protected path, such
/// as `.git`. This reserve keeps very many other files from hiding protected paths.
pub(crate) const PROTECTED_RESERVE_ENTRIES: usize = 20_000;

/// The time limit of one scan for protected paths, unless the file system itself hangs. The command's answer
/// waits for the scan.
pub(crate) const PROTECTED_SCAN_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of protected paths that are remembered per mount. Each costs memory, and about 10 µs
/// after every command, in which its file is read and compared.
pub(crate) const MAX_PROTECTED_PATHS: usize = 50_000;

/// The maximum number of bytes of protected files that one scan reads and compares. A scan that reaches the
/// limit reports itself as incomplete.
pub(crate) const MAX_PROTECTED_CONTENT_BYTES: u64 = 32 << 20;

/// The maximum number of folders that are remembered per mount. Each costs about a microsecond after every
/// command, and memory.
pub(crate) const MAX_PROTECTED_FOLDERS: usize = 20_000;

/// The greatest depth of nested folders that a scan reads.
pub(crate) const MAX_PROTECTED_DEPTH: usize = 128;

/// The maximum length of the protected paths that become read-only when a session starts, about 500 paths.
/// They are sent in the same message as the setup.
pub(crate) const MAX_PROTECTED_BYTES: usize = 32 << 10;

/// The maximum number of names that the search for hidden ones reads when a session starts, about a second's
/// work.
pub(crate) const MAX_HIDDEN_ENTRIES: usize = 1_000_000;

/// The time limit of the search for hidden names.
pub(crate) const HIDDEN_SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum length of the hidden paths that are covered when a session starts, about 250 paths. They are
/// sent in the message of the setup.
pub(crate) const MAX_HIDDEN_BYTES: usize = 16 << 10;

/// The maximum number of files and folders of all caches that are compared with their copies when a session
/// starts, about two seconds' work.
pub(crate) const MAX_CACHE_ENTRIES: usize = 500_000;

/// The maximum number of bytes of new files that are copied from the caches when a session starts: 8 GiB.
pub(crate) const MAX_CACHE_BYTES: u64 = 8 << 30;

/// The time limit for bringing the copies of caches up to date.
pub(crate) const CACHE_COPY_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum number of protected paths that are reported per command.
pub(crate) const MAX_REPORTED_PROTECTED: usize = 100;

/// The time between two samples of a command that is far from its limits. A sample takes about 20 µs per
/// process.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// The time between two samples of a command that could reach a limit before the next regular sample.
pub(crate) const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(2);

/// The time between two samples of all processes of the machine. The other samples use the kernel's lists of
/// children, in which a process that ends can hide another one.
pub(crate) const FULL_SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of mappings and descriptors that one sample reads while the processes run, which takes
/// about 20 ms. A command with more is stopped before it is counted, because a memory bomb would grow during
/// the count. Most programs have some hundreds; the kernel allows a process 65,530 mappings.
pub(crate) const MAX_MAPPINGS_PER_SAMPLE: u64 = 20_000;

/// The maximum number of mappings and descriptors that a command and its jobs may have. A larger number takes
/// too long to count, and one thread samples all commands of a session.
pub(crate) const MAX_MAPPINGS: u64 = 200_000;

/// The maximum number of consecutive samples that may miss processes because others end during the sample.
/// After that, the command is stopped and counted.
pub(crate) const MAX_INCOMPLETE_SAMPLES: u32 = 3;

/// The time for which a full count of a command with many mappings stays valid. All processes of the machine
/// may share at most [`MAX_UNREADABLE_GROWTH_BYTES`] more than at the count. Private memory is still read at
/// every sample.
pub(crate) const COUNT_TTL: Duration = Duration::from_secs(1);

/// The time for which memory may exceed the limit while the excess may be double counting. It is long enough
/// to start a program.
pub(crate) const EXCESS_GRACE: Duration = Duration::from_millis(500);

/// The time for which a piece of shared memory is remembered after the last sample that found it. A piece
/// that is passed from process to process can be hidden from a sample.
pub(crate) const SHARED_MEMORY_KEPT: Duration = Duration::from_secs(10);

/// The maximum number of remembered pieces that the last sample did not find. Each takes about 50 bytes.
pub(crate) const MAX_SHARED_MEMORY_PIECES: usize = 10_000;

/// The maximum number of consecutive samples that may find a process whose memory is unreadable. A process
/// that has just been started can be unreadable for a moment.
pub(crate) const MAX_UNREADABLE_SAMPLES: u32 = 3;

/// The maximum number of bytes by which the shared memory of all processes of the machine may grow while a
/// process is unreadable. Programs that keep secrets, such as `gpg-agent`, are unreadable too, but they share
/// no memory.
pub(crate) const MAX_UNREADABLE_GROWTH_BYTES: u64 = 16 << 20;

/// Assumed growth of a command's memory, in bytes a second: the rate at which one fast core writes to new
/// memory.
pub(crate) const MEMORY_GROWTH: u64 = 8 << 30;

/// The maximum time for which everything below a command is stopped to be counted. After that, the part that
/// was counted decides.
pub(crate) const FREEZE_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of processes and threads together that a command may have for each of its allowed processes. A
/// control group uses the same factor for a whole session.
pub(crate) const THREADS_PER_PROCESS: usize = 4;
