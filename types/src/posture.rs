//! The confinement of a shell, named the same in the policy, the daemon and audit rows.

use serde::{Deserialize, Serialize};

crate::words! {
    /// The confinement of a shell's session, ordered by strength.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum ShellPosture as "posture" {
        /// No confinement: the host's own shell, for local development, on explicit request.
        None = "none",
        /// Limits, and the other layers that are available.
        Minimal = "minimal",
        /// All layers that a stock unprivileged container allows: limits, no privileges, Landlock, seccomp.
        Contained = "contained",
        /// The same layers and namespaces, with a file tree that holds the policy's mounts and the system,
        /// read-only.
        Strong = "strong",
    }
}
