//! `vault_copyto`: an operation of two steps whose grants are disjoint.
//!
//! `tool` is the tool for the model. `copy` makes the two calls, each through the whole pipeline, in a
//! registry that holds only the steps. The second call succeeds only if the first one did. The bytes pass
//! from one guest to the other ([`crate::sandbox::Transfer`]). No thread and no grant ever has both mounts.

mod copy;
mod tool;

pub(crate) use tool::{VaultCopyBackend, tool};
