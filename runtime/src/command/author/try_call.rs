//! `portcullis tool try`: builds a tool and calls it once, and shows its grant and why it was refused.

mod allow;
mod entry;
mod explain;
mod native;
mod report;

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use portcullis_tools::{Caller, PolicyFiles, ToolCall, ToolRegistry, new_call, shell::ShellSource};
use portcullis_types::RunnerBootstrapEnvelope;

use self::{explain::RefusalDetails, report::TriedCall};
use super::{build::is_of, cargo::ToolCrate};
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
    let files = PolicyFiles::find(&envelope)?;
    let (granted, run) = match &options.grant {
        None => (files.clone(), RUN.to_owned()),
        Some(profile) => {
            (entry::granting(files.clone(), &options.tool, profile)?, format!("{RUN}:{profile}"))
        }
    };
    let (as_json, tool) = (options.json, options.tool);
    let call = new_call(tool, call::arguments(options.arguments)?);
    let mut caller = call::caller(run.clone(), options.approve);
    let stderr = Diagnostics::of(&mut caller);
    let cancel = caller.cancel.clone();
    // No shell: the tried tool is a module's, and modules have none.
    let work = move || make(&envelope, [&files, &granted], call, &caller, &stderr);
    match run_interruptibly(&cancel, work)? {
        Some(attempt) => report::show(&attempt, &run, as_json),
        None => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// Makes the call under the second policy, and finds out its grant and the reason of a refusal. The remedy is
/// worked out on the first policy, which the author can change.
fn make(
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
        let result = call::hinted(registry.execute_with_policy(call, caller).await);
        let tool = own_tool(&registry, &name, &envelope.modules)?;
        let grant = report::GrantReport::of(&registry, &tool);
        let refusal = RefusalDetails::of(&registry, files, envelope.sandbox_tier, &tool, &result);
        Ok(TriedCall { result, grant: Some(grant), refusal, stderr: stderr.text() })
    });
    runtime.shutdown_background();
    attempt
}

/// The tool, if one of the crate's modules has it. A core tool of that name is not meant here.
fn own_tool(
    registry: &ToolRegistry,
    name: &str,
    modules: &[PathBuf],
) -> Result<Arc<portcullis_tools::RegisteredTool>, AuthorError> {
    registry.get(name).filter(|tool| is_of(tool, modules)).ok_or_else(|| {
        let tools = registry.tools();
        let own = tools.iter().filter(|tool| is_of(tool, modules));
        let names: Vec<&str> = own.map(|tool| tool.decl().name.as_str()).collect();
        AuthorError::NoTool { name: name.to_owned(), has: names.join(", ") }
    })
}
