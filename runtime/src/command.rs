//! The commands, one per file, and their dispatch.

mod agent;
mod approvals;
mod audit;
pub(crate) mod author;
mod call;
mod calls;
mod completions;
mod demo;
mod doctor;
mod explain;
mod gateway;
mod init;
mod interrupts;
mod mounts;
mod policy;
mod progress;
mod runs;
mod serve;
mod shell;
mod tasks;
mod tools;
mod undo;

use std::process::ExitCode;

pub(crate) use self::agent::instructions::InstructionsError;
pub(crate) use self::audit::InvalidFilter;
use crate::{
    cli::{
        ApprovalsCommand, AuditCommand, CallsCommand, Cli, CliCommand, PolicyCommand, RunsCommand,
        TasksCommand,
    },
    error::CliError,
};

pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode, CliError> {
    let common = &cli.common;
    // No `_` arm, so that a command without an implementation does not compile.
    match cli.command {
        CliCommand::Init(options) => init::run(common, &options),
        CliCommand::Completions(options) => completions::run(&options),
        CliCommand::Call(options) => call::run(common, options),
        CliCommand::Tools(options) => tools::run(common, options),
        CliCommand::Tool(verb) => author::run(common, verb),
        CliCommand::Policy(PolicyCommand::Default) => policy::default(),
        CliCommand::Policy(PolicyCommand::Check { file: Some(file), modules }) => {
            policy::check_file(common, &file, modules)
        }
        CliCommand::Policy(PolicyCommand::Check { file: None, modules }) => {
            policy::check_in_force(common, modules)
        }
        CliCommand::Policy(PolicyCommand::Show { json }) => policy::show(common, json),
        CliCommand::Policy(PolicyCommand::Diff(options)) => policy::diff(common, &options),
        CliCommand::Policy(PolicyCommand::Test(options)) => policy::test(common, options),
        CliCommand::Policy(PolicyCommand::Lint(options)) => policy::lint(common, options),
        CliCommand::Policy(PolicyCommand::Tighten(options)) => policy::tighten(common, options),
        CliCommand::Explain(options) => explain::run(common, options),
        CliCommand::Mounts(options) => mounts::run(common, options),
        CliCommand::Audit(AuditCommand::Log(options)) => audit::log(common, *options),
        CliCommand::Audit(AuditCommand::Verify(options)) => audit::verify(common, &options),
        CliCommand::Audit(AuditCommand::Bundle(options)) => audit::bundle(common, *options),
        CliCommand::Audit(AuditCommand::Seal) => audit::seal(common),
        CliCommand::Audit(AuditCommand::Replay(options)) => audit::replay(common, *options),
        CliCommand::Audit(AuditCommand::Report(options)) => audit::report(common, *options),
        CliCommand::Serve(options) => serve::run(common, options),
        CliCommand::Gateway(options) => gateway::run(common, &options),
        CliCommand::Shell(options) => shell::run(common, options),
        CliCommand::Changes(options) => undo::changes(common, &options),
        CliCommand::Undo(options) => undo::undo(common, &options),
        CliCommand::Agent(options) => agent::run(common, options),
        CliCommand::Runs(RunsCommand::List(options)) => runs::list(common, &options),
        CliCommand::Runs(RunsCommand::Show(options)) => runs::show(common, &options),
        CliCommand::Runs(RunsCommand::Watch(options)) => runs::watch(common, &options),
        CliCommand::Runs(RunsCommand::Resume(options)) => agent::resume(common, options),
        CliCommand::Runs(RunsCommand::Cancel(options)) => runs::cancel(common, &options),
        CliCommand::Runs(RunsCommand::Export(options)) => runs::export(common, &options),
        CliCommand::Approvals(ApprovalsCommand::List(options)) => approvals::list(common, &options),
        CliCommand::Approvals(ApprovalsCommand::Show(options)) => approvals::show(common, &options),
        CliCommand::Approvals(ApprovalsCommand::Approve(options)) => approvals::approve(common, &options),
        CliCommand::Approvals(ApprovalsCommand::Deny(options)) => approvals::deny(common, &options),
        CliCommand::Calls(CallsCommand::List(options)) => calls::list(common, &options),
        CliCommand::Calls(CallsCommand::Show(options)) => calls::show(common, &options),
        CliCommand::Calls(CallsCommand::Resolve(options)) => calls::resolve(common, options),
        #[cfg(feature = "temporal")]
        CliCommand::Worker(options) => agent::work(common, options),
        CliCommand::Tasks(TasksCommand::Run(options)) => tasks::run(common, options),
        CliCommand::Demo(options) => demo::run(common, &options),
        CliCommand::Doctor(options) => doctor::run(common, &options),
    }
}
