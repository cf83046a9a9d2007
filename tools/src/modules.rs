//! Finds and loads foreign modules, and compares them with the approvals. A module's declarations grant
//! nothing: only the policy decides what a module may do.
//!
//! The files in reading order:
//!
//! - `folder` reads files.
//! - `foreign` holds the loaded modules.
//! - `accept` decides which modules are used.
//! - `declared` holds a tool's declaration, for people.
//! - `pins` holds the approvals.
//! - `approve` compares declarations with approvals, pins, withdraws and records.
//! - `shipped` has the reserved names.

mod accept;
mod approve;
mod declared;
mod error;
mod folder;
mod foreign;
mod pins;
mod shipped;

pub use approve::{ModuleApproval, ModuleChange};
pub use declared::DeclarationSummary;
pub use error::{ApproveError, InvalidLock, LockError, ModuleError, ModuleFolderError, PinError};
pub use foreign::RefusedModule;
pub use pins::{LOCK_FILE, Pin};
pub use shipped::shipped_name_like;

pub(crate) use accept::accept;
pub(crate) use folder::{ModulesFolder, NotUtf8, modules_path, read_file};
pub(crate) use foreign::{ForeignModule, ModuleOrigin};
pub(crate) use pins::Pins;
