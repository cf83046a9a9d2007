//! The policy file as text: what may stand in it, read with every fault and its place.
//!
//! `keys` lists what may stand where; `syntax` says what is wrong with a text that is no TOML; `section` walks tables and refuses what it does not know; `value` parses single values; `model` is what
//! a text says; `read` and `reduction` read the two shapes of a file, `shell` a section of both. Whether names refer to something is
//! for `effective` and `overlay`, what must never hold for `invariants`.

mod faults;
pub(crate) mod keys;
mod model;
mod read;
mod reduction;
mod section;
mod shell;
mod syntax;
mod value;

pub(crate) use faults::{Faults, further};
pub(crate) use model::{
    LimitEntries, MountEntry, Placed, PolicyFile, ProfileEntry, ProtectEntries, ReducedAccess,
    ReducedProfile, ReducedTier, ReducedTool, Reduction, ShellEntries, TierEntry, ToolEntry,
};
pub(crate) use read::read_policy;
pub(crate) use reduction::read_overlay;
pub(crate) use section::{did_you_mean, nearest};
