//! The shell of a policy: whether there is one, its grants, and the commands that may run in it.
//!
//! - `model`: a policy's shell; `variable`: the variables that a shell may take from outside; `toolchain`: the parts of
//!   the host that commands see besides the mounts.
//! - `resolve`, `reduce`, `render`: make a shell from a section, reduce it, and write it as a section.
//! - `grant`: the shell part of a grant, and the check of a command.
//!
//! This module contains only values: the sidecar starts shells, and the kernel confines them.

mod grant;
mod model;
mod reduce;
mod render;
mod resolve;
mod toolchain;
mod variable;

pub use grant::ShellGrant;
pub use model::{ShellAbsence, ShellPolicy};
pub use toolchain::{HostPath, InvalidHostPath, Toolchain};
pub use variable::{InvalidVariable, VariableName};

pub(crate) use model::{ShellOrAbsence, serialize_shell};
pub(crate) use reduce::reduce_shell;
pub(crate) use render::{shell_summary, write_shell, write_shell_demands};
pub(crate) use resolve::resolve_shell;
pub(crate) use toolchain::parse_value;
