//! `portcullis tool try`: builds a tool, calls it once, and shows its grant and the reason of a refusal.

mod allow;
mod entry;
mod explain;
mod native;
mod report;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use portcullis_tools::{Caller, PolicyFiles, ToolCall, ToolRegistry, new_call, shell::ShellSource};
use portcullis_types::RunnerBootstrapEnvelope;

use self::{explain::RefusalDetails, report::TriedCall};
use super::{build::is_from_modules, cargo::ToolCrate};
use crate::{
    cli::{CommonOptions, TryOptions},
    command::{
        call,
        interrupts::{INTERRUPTED, run_interruptibly},
    },
    error::{AuthorError, CliError},
    output::diagnostics::Diagnostics,
    setup,
};

/// The run of tried calls, which marks them in the audit log.
const RUN: &str = "try";

/// Builds stale modules, makes the call and shows it.
pub(crate) fn run(common: &CommonOptions, options: TryOptions) -> Result<ExitCode, CliError> {
    let package = ToolCrate::find(&options.package.dir)?;
    let mut envelope = setup::envelope(common)?;
    if options.native {
        return native::run(&package, &envelope, &options);
    }
    envelope.modules = package.modules()?;
    let files = setup::policy_files(&envelope)?;
    let (granted, run) = match &options.grant {
        None => (files.clone(), RUN.to_owned()),
        Some(profile) => {
            (entry::with_grant(files.clone(), &options.tool, profile)?, format!("{RUN}:{profile}"))
        }
    };
    let (as_json, tool) = (options.json, options.tool);
    let call = new_call(tool, call::arguments(options.arguments)?);
    let mut caller = call::caller(run.clone(), options.approve);
    let stderr = Diagnostics::attach(&mut caller);
    let cancel = caller.cancel.clone();
    // The registry gets no shell: the tried tool belongs to a module, and modules have no shell.
    let work = move || make_call(&envelope, [&files, &granted], call, &caller, &stderr);
    match run_interruptibly(&cancel, work)? {
        Some(attempt) => report::show(&attempt, &run, as_json),
        None => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// Makes the call under the policy `granted`, and determines its grant and the reason of a refusal. The
/// remedy is derived from the policy `files`, which the author can change.
fn make_call(
    envelope: &RunnerBootstrapEnvelope,
    [files, granted]: [&PolicyFiles; 2],
    call: ToolCall,
    caller: &Caller,
    stderr: &Diagnostics,
) -> Result<TriedCall, CliError> {
    let runtime = setup::runtime()?;
    let attempt = runtime.block_on(async {
        let registry = setup::registry_under(envelope, granted, ShellSource::Nowhere).await?;
        own_tool(&registry, &call.tool, &envelope.modules)?;
        let name = call.tool.clone();
        let result = call::with_approval_hint(registry.execute_with_policy(call, caller).await);
        let tool = own_tool(&registry, &name, &envelope.modules)?;
        let grant = report::GrantReport::new(&registry, &tool);
        let refusal = RefusalDetails::from_outcome(&registry, files, envelope.sandbox_tier, &tool, &result);
        Ok(TriedCall { result, grant: Some(grant), refusal, stderr: stderr.text() })
    });
    runtime.shutdown_background();
    attempt
}

/// Returns the tool, if one of the crate's modules has it. A core tool with the same name does not count.
fn own_tool(
    registry: &ToolRegistry,
    name: &str,
    modules: &[PathBuf],
) -> Result<Arc<portcullis_tools::RegisteredTool>, AuthorError> {
    registry.get(name).filter(|tool| is_from_modules(tool, modules)).ok_or_else(|| {
        let tools = registry.tools();
        let crate_tools = tools.iter().filter(|tool| is_from_modules(tool, modules));
        let names: Vec<&str> = crate_tools.map(|tool| tool.decl().name.as_str()).collect();
        AuthorError::NoTool { name: name.to_owned(), has: names.join(", ") }
    })
}
