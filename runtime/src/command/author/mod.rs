//! `portcullis tool`: the commands of a tool's author, and an operator's approvals. One verb per file.

mod approve;
mod build;
mod cargo;
mod new;
mod revoke;
mod test;
mod try_call;

use std::process::ExitCode;

use crate::{
    cli::{Common, Tool},
    error::CliError,
};

/// Runs one verb.
pub(crate) fn run(common: &Common, verb: Tool) -> Result<ExitCode, CliError> {
    match verb {
        Tool::New(options) => new::run(&options),
        Tool::Build(options) => build::run(common, &options),
        Tool::Try(options) => try_call::run(common, options),
        Tool::Test(options) => test::run(common, &options),
        Tool::Approve(options) => approve::run(common, options),
        Tool::Revoke(options) => revoke::run(common, &options),
    }
}
