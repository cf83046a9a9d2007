//! Modules from outside: found, loaded, held against what was approved. What they may do is the policy's to
//! say, whatever they say of themselves.
//!
//! In reading order: `folder` reads files; `outside` makes modules of them; `accept` decides which of their
//! tools are registered; `declared` is what a tool says of itself, for people; `lock` is what was approved;
//! `approve` compares the two, pins and withdraws, and leaves a row of it; `shipped` has the names that none may have.

mod accept;
mod approve;
mod declared;
mod error;
mod folder;
mod lock;
mod outside;
mod shipped;

pub use approve::{Change, ModuleApproval};
pub use declared::Declared;
pub use error::{ApproveError, FolderError, LockError, ModuleError, PinError};
pub use lock::{LOCK_FILE, Pin};
pub use outside::RefusedModule;
pub use shipped::shipped_name_like;

pub(crate) use accept::accept;
pub(crate) use folder::{ModulesFolder, place, read_file};
pub(crate) use lock::Lock;
pub(crate) use outside::{OutsideModule, Wanted};
