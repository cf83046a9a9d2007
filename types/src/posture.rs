//! The confinement of a shell, in the words that the policy, the daemon and audit rows share.

use serde::{Deserialize, Serialize};

crate::word_enum! {
    /// The confinement of a shell's session, ordered by strength.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum ShellPosture as "posture" {
        /// No confinement: the host's own shell, for local development, on explicit request.
        None = "none",
        /// Limits, and whichever other layers are available.
        Minimal = "minimal",
        /// All layers that a stock unprivileged container allows: limits, no privileges, Landlock, seccomp.
        Contained = "contained",
        /// The layers of `contained` and namespaces, with a file tree that has only the policy's mounts and the
        /// read-only system.
        Strong = "strong",
    }
}
