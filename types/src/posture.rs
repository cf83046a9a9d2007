//! The confinement of a shell, in the words that the policy, the sidecar and audit rows share.

use serde::{Deserialize, Serialize};

crate::word_enum! {
    /// The confinement of a shell's session, ordered by strength.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum ShellPosture as "posture" {
        /// No confinement: the host's own shell, for local development, and only on explicit request.
        None = "none",
        /// Resource limits, and whichever other layers are available.
        Minimal = "minimal",
        /// All layers that a stock unprivileged container allows: resource limits, no privileges,
        /// Landlock, seccomp.
        Contained = "contained",
        /// The layers of `contained` plus namespaces, with a file tree that has only the policy's mounts and
        /// the read-only system.
        Strong = "strong",
    }
}
