//! The shell of a policy: whether there is one, what it gets, and what may run in it.
//!
//! `model` is what a policy gives, `variable` the names that may come in from outside; `resolve` makes the
//! first of a file's section, `reduce` takes away from it, and `render` writes it as one. Starting a shell is
//! for the daemon, confining it for the kernel: here are values only.

mod grant;
mod model;
mod reduce;
mod render;
mod resolve;
mod variable;

pub use grant::ShellGrant;
pub use model::{ShellAbsence, ShellPolicy};
pub use variable::{InvalidVariable, VariableName};

pub(crate) use model::{Shell, serialize_shell};
pub(crate) use reduce::reduce_shell;
pub(crate) use render::{shell_summary, write_shell, write_shell_demands};
pub(crate) use resolve::resolve_shell;
