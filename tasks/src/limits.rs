//! The bounds of task files.

use std::time::Duration;

/// The maximum size of a task file, as it is read and as it is written: 4 MiB.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// The maximum size of a front matter, ledger included: 64 KiB.
pub const MAX_FRONT_MATTER_BYTES: usize = 64 << 10;

/// The deepest nesting of collections in a front matter.
pub const MAX_FRONT_MATTER_DEPTH: usize = 32;

/// The maximum number of calls in one file. A file with more is refused as a whole, before any of its calls runs.
pub const MAX_CALLS_PER_FILE: usize = 100;

/// The maximum number of rows of a ledger: calls that were removed from the file keep their rows.
pub const MAX_LEDGER_ROWS: usize = 200;

/// The maximum size of a result that is written into a file, as JSON text: 64 KiB. The file says where to find a larger
/// one.
pub const MAX_RESULT_BYTES: usize = 64 << 10;

/// The maximum number of calls that run at the same time, over all files of a folder. Further calls wait.
pub const MAX_CONCURRENT_CALLS: usize = 10;

/// The maximum number of times that a call which may be repeated is begun, counted over all processes that were
/// interrupted in it.
pub const MAX_ATTEMPTS: u32 = 3;

/// The maximum number of attempts at a change of a file while others change the same file.
pub(crate) const MAX_EDIT_TRIES: usize = 8;

/// The time without a change after which `watch` reads a file, so that a program can finish writing.
pub const SETTLE_PAUSE: Duration = Duration::from_millis(250);

/// The interval at which `watch` reads the folders without a report of a change, in case a report was lost.
pub const RESCAN_INTERVAL: Duration = Duration::from_secs(60);
