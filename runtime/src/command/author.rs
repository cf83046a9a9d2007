//! `portcullis tool`: the commands of a tool's author, and an operator's approvals. Each verb has one file.

mod approve;
mod build;
mod cargo;
mod new;
mod revoke;
mod test;
mod try_call;

use std::process::ExitCode;

use crate::{
    cli::{CommonOptions, ToolCommand},
    error::CliError,
};

pub(crate) fn run(common: &CommonOptions, verb: ToolCommand) -> Result<ExitCode, CliError> {
    match verb {
        ToolCommand::New(options) => new::run(&options),
        ToolCommand::Build(options) => build::run(common, &options),
        ToolCommand::Try(options) => try_call::run(common, options),
        ToolCommand::Test(options) => test::run(common, &options),
        ToolCommand::Approve(options) => approve::run(common, options),
        ToolCommand::Revoke(options) => revoke::run(common, &options),
    }
}
