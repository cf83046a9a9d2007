//! The process around the conversation: arguments, standard streams, exit code.

use std::{
    io::{stderr, stdin, stdout},
    process::ExitCode,
};

use crate::{DeclaredTool, guest::serve};

/// What `fn main` of a module does.
#[must_use]
pub fn main(tools: &[&dyn DeclaredTool]) -> ExitCode {
    let verb = std::env::args().nth(1);
    serve(tools, verb.as_deref(), stdin(), stdout(), stderr()).into()
}
