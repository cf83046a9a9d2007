//! The commands, one per file, and their dispatch.

mod agent;
mod audit;
pub(crate) mod author;
mod call;
mod demo;
mod doctor;
mod interrupts;
mod policy;
mod serve;
mod shell;
mod tools;

use std::process::ExitCode;

use crate::{
    cli::{Audit, Cli, Command, Policy},
    error::CliError,
};

/// Runs one command.
pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode, CliError> {
    let common = &cli.common;
    match cli.command {
        Command::Call(options) => call::run(common, options),
        Command::Tools(options) => tools::run(common, options),
        Command::Tool(verb) => author::run(common, verb),
        Command::Policy(Policy::Default) => policy::default(),
        Command::Policy(Policy::Check { file: Some(file), modules }) => {
            policy::check_file(common, &file, modules)
        }
        Command::Policy(Policy::Check { file: None, modules }) => policy::check_in_force(common, modules),
        Command::Audit(Audit::Log { limit, json }) => audit::log(common, limit, json),
        Command::Audit(Audit::Verify) => audit::verify(common),
        Command::Serve(options) => serve::run(common, options),
        Command::Shell(options) => shell::run(common, options),
        Command::Agent(options) => agent::run(common, options),
        Command::Demo(options) => demo::run(common, &options),
        Command::Doctor(options) => doctor::run(common, &options),
    }
}
