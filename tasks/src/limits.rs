//! The limits of task files.

use std::time::Duration;

/// The maximum size of a task file, both read and written: 4 MiB.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// The maximum size of a front matter, ledger included: 64 KiB.
pub const MAX_FRONT_MATTER_BYTES: usize = 64 << 10;

/// The maximum nesting of collections in a front matter.
pub const MAX_FRONT_MATTER_DEPTH: usize = 32;

/// The maximum number of calls in one file. A file with more is refused before any of its calls runs.
pub const MAX_CALLS_PER_FILE: usize = 100;

/// The maximum number of rows of a ledger. Calls that were removed from the file keep their rows.
pub const MAX_LEDGER_ROWS: usize = 200;

/// The maximum size of a result in a file, as JSON text: 64 KiB. For a larger result, the file says where to
/// find it.
pub const MAX_RESULT_BYTES: usize = 64 << 10;

/// The maximum number of concurrent calls, over all files of a folder. Further calls wait.
pub const MAX_CONCURRENT_CALLS: usize = 10;

/// The maximum number of times that a repeatable call begins. Attempts of interrupted processes count too.
pub const MAX_ATTEMPTS: u32 = 3;

/// The maximum number of attempts to change a file that others change too.
pub(crate) const MAX_EDIT_TRIES: usize = 8;

/// How long `watch` waits after a change before it reads the file, so that a program can finish writing.
pub const SETTLE_PAUSE: Duration = Duration::from_millis(250);

/// How often `watch` reads the folders without a notification, in case one was lost.
pub const RESCAN_INTERVAL: Duration = Duration::from_secs(60);
