//! Two settings that other crates enforce: the kernel layers that a call must have, and when an audit row is
//! synced to disk.

use serde::{Deserialize, Serialize};

portcullis_types::word_enum! {
    /// A kernel layer. `require` can make it a condition of every WASM call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum RequiredLayer as "layer" {
        /// The file-system rights of the worker thread.
        Landlock = "landlock",
        /// The system-call filter of the worker thread.
        Seccomp = "seccomp",
    }
}

portcullis_types::word_enum! {
    /// When an audit row is synced to disk. In both cases the row is written before the call's result is released.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
    pub enum AuditSync as "sync" {
        /// Every 100 ms and at exit.
        #[default]
        Interval = "interval",
        /// Before each answer.
        Always = "always",
    }
}
