//! `vault_copyto`: an operation of two steps whose grants are disjoint.
//!
//! `tool` is the tool that a model sees. `copy` makes the two calls, each through the whole pipeline in a
//! registry that holds only the steps, and lets the second end well only if the first did. The bytes pass
//! from one guest to the other ([`crate::sandbox::Transfer`]); no thread and no grant ever has both mounts.

mod copy;
mod tool;

pub(crate) use tool::{VaultCopy, tool};
