//! The policy file as text: its grammar, and a reader that finds every fault with its position.
//!
//! - `keys`: the allowed keys of each section.
//! - `syntax`: the fault of a text that is not valid TOML.
//! - `section`: walks tables and refuses unknown keys.
//! - `value`: parses single values.
//! - `invalid`: the reason why a text is not a value.
//! - `model`: the values of a text.
//! - `read`, `reduction`: read the two shapes of a file.
//! - `expect`: reads a file of expectations about a policy.
//! - `shell`, `network`, `secrets`, `search`, `flow`: read the sections that both shapes have.
//!
//! `effective` and `overlay` resolve names; `invariants` checks the rules that every policy must keep.

mod expect;
mod faults;
mod flow;
mod invalid;
pub(crate) mod keys;
mod model;
mod network;
mod notify;
mod read;
mod reduction;
mod search;
mod secrets;
mod section;
mod shell;
mod syntax;
mod value;

pub(crate) use expect::read_expectations;
pub(crate) use faults::{Faults, omitted_warnings_note};
pub(crate) use model::{
    EgressEntries, FlowEntry, LabelWord, LimitEntries, Located, MountEntry, NetworkEntries, PolicyFile,
    ProfileEntry, ProtectEntries, ReducedAccess, ReducedProfile, ReducedSecret, ReducedTier, ReducedTool,
    Reduction, SecretEntry, ShellEntries, SinkWord, TierEntry, ToolEntry,
};
pub(crate) use read::read_policy;
pub(crate) use reduction::read_overlay;
pub(crate) use section::{did_you_mean, key_path};
