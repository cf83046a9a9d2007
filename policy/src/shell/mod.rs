//! The shell of a policy: whether there is one, its grants, and the commands that may run in it.
//!
//! `model` is a policy's shell and `variable` the names that it may take from outside; `resolve` makes a
//! shell from a file's section, `reduce` takes away from it, and `render` writes it as a section. This module
//! has only values: the daemon starts shells, the kernel confines them.

mod grant;
mod model;
mod reduce;
mod render;
mod resolve;
mod variable;

pub use grant::ShellGrant;
pub use model::{ShellAbsence, ShellPolicy};
pub use variable::{InvalidVariable, VariableName};

pub(crate) use model::{ShellOrAbsence, serialize_shell};
pub(crate) use reduce::reduce_shell;
pub(crate) use render::{shell_summary, write_shell, write_shell_demands};
pub(crate) use resolve::resolve_shell;
