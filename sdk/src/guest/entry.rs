//! The process around the conversation: arguments, standard streams, exit code.

use std::{
    io::{stderr, stdin, stdout},
    process::ExitCode,
};

use crate::{DeclaredTool, guest::serve};

/// What `fn main` of a module does. Run as a program of the host it is the same, and takes `call --root DIR`:
/// the folder that stands for `/`, as [`crate::testing::with_root`] sets it.
#[must_use]
pub fn main(tools: &[&dyn DeclaredTool]) -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let verb = arguments.next();
    let answer = || serve(tools, verb.as_deref(), stdin(), stdout(), stderr());
    #[cfg(not(target_family = "wasm"))]
    if arguments.next().as_deref() == Some("--root")
        && let Some(root) = arguments.next()
    {
        return crate::testing::with_root(root, answer).into();
    }
    answer().into()
}
