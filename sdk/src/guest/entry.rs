//! The process around a conversation: command line, standard streams, exit code.

use std::{
    io::{stderr, stdin, stdout},
    process::ExitCode,
};

use crate::{DeclaredTool, guest::serve};

/// The body of a module's `fn main`. A native program behaves in the same way and also accepts `call --root DIR`:
/// the folder that tools see as `/`, as with [`crate::testing::with_root`].
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
