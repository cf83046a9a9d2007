//! `portcullis worker`: takes steps of runs as Temporal assigns them.

use std::{process::ExitCode, sync::Arc};

use portcullis_agent::{AgentConfig, Provider, RemoteProvider};
use portcullis_runs::{ModelIdentity, StepParts, Stepper};
use portcullis_temporal::{RunWorker, WorkerSettings, connect};
use portcullis_tools::{Caller, ToolRegistry, policy::FlowLabel};
use portcullis_types::CancellationToken;

use super::{
    capabilities::Capabilities,
    confined_as_tools,
    instructions::{self, PROJECT_FILE, ProjectFile},
    model,
};
use crate::{
    agent_file::AgentFile,
    cli::{AGENT_ID, CommonOptions, ModelOptions, StoreOptions, WorkerOptions},
    command::{
        call,
        interrupts::{INTERRUPTED, Interrupts},
    },
    error::CliError,
    notify::Notifier,
    output::stream,
    run_store, setup, sidecar,
};

/// Runs `portcullis worker`.
pub(crate) fn run(common: &CommonOptions, options: WorkerOptions) -> Result<ExitCode, CliError> {
    let WorkerOptions { temporal, namespace, task_queue, placements, model, store } = options;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|source| CliError::Start { source })?;
    let worked = runtime.block_on(async {
        let connection = connect(&temporal).await?;
        let stepper = Arc::new(stepper(common, &model, &store).await?);
        let runs = stepper.runs().clone();
        let queue = task_queue.clone();
        let settings = WorkerSettings { namespace, task_queue, placements };
        let worker = RunWorker::new(connection, settings, stepper).await?;
        stream::write_stderr(&format!("taking tasks of {queue} at {temporal}\n"));
        let code = work(worker).await;
        runs.store().close().await;
        code
    });
    // Do not wait for a native tool that blocks its thread, or for an unanswered question.
    runtime.shutdown_background();
    worked
}

/// Works until the first signal. Then waits until all started work has ended, or until the second signal.
async fn work(mut worker: RunWorker) -> Result<ExitCode, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let stop = CancellationToken::new();
    let mut working = std::pin::pin!(worker.run(&stop));
    tokio::select! {
        ended = &mut working => return Ok(ended.map(|()| ExitCode::SUCCESS)?),
        _ = interrupts.next() => stop.cancel(),
    }
    tokio::select! {
        ended = working => Ok(ended.map(|()| ExitCode::SUCCESS)?),
        _ = interrupts.next() => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// Builds everything that the steps of this process need: the store, the tools and the model.
async fn stepper(
    common: &CommonOptions,
    options: &ModelOptions,
    store: &StoreOptions,
) -> Result<Stepper, CliError> {
    // Create the provider first, so that a mistake in its settings leaves no workspace behind.
    let file = AgentFile::read()?;
    let provider = RemoteProvider::new(model::settings(&options.choice, &file)?)?;
    let envelope = setup::envelope_with(common, options.modules.clone())?;
    let policy = setup::policy_files(&envelope)?.load(envelope.sandbox_tier)?;
    let settings = confined_as_tools(&provider, &policy, &envelope);
    let project = setup::project(common)?;
    let workspace = project.as_ref().map_or(&envelope.workspace, |project| &project.folder);
    let workspace = workspace.to_string_lossy().into_owned();
    let mut config = AgentConfig::new(AGENT_ID);
    config.max_iterations = options.max_turns;
    let capabilities = Capabilities::chosen(options, &file);
    let mut system = capabilities.with_prompts(&instructions::operator_text(options.system.as_deref())?);
    let runs = run_store::open_to_drive(store, &envelope.state).await?;
    let registry = setup::serving_registry(&envelope, sidecar::shell_source(common)).await;
    let registry = Arc::new(setup::recording_refusals(&envelope, registry)?);
    capabilities.ensure_offered(&registry)?;
    let mut labels = Vec::new();
    if !options.no_instructions
        && let Some(text) = project_text(&registry)
    {
        system = instructions::with_project_text(&system, &text);
        labels.push((FlowLabel::of_mount(registry.policy().home()), PROJECT_FILE.to_owned()));
    }
    config.system = Some(system);
    let notifier = Notifier::new(file.approvals.notify).map(Arc::new);
    let parts = StepParts {
        registry,
        model: ModelIdentity { name: settings.model.clone(), address: settings.origin() },
        provider: Arc::new(RemoteProvider::new(settings)?) as Arc<dyn Provider>,
        config,
        caller: caller(options.approve, &capabilities),
        workspace,
        labels,
        hint: None,
        on_approval_request: notifier
            .map(|notifier| Arc::new(move |run: &_, asked: &_| notifier.tell(run, asked)) as Arc<_>),
    };
    Ok(Stepper::new(runs, parts))
}

/// Returns the caller of the model's calls. Without `--approve`, questions are asked in the store.
fn caller(approve: bool, capabilities: &Capabilities) -> Caller {
    let mut caller = call::caller(AGENT_ID.to_owned(), approve);
    caller.tools = capabilities.tools();
    (caller.on_progress, caller.on_update) = (None, None);
    if !approve {
        caller.approver = None;
    }
    caller
}

/// Returns the project's file of instructions, which counts as read by each run.
fn project_text(registry: &ToolRegistry) -> Option<String> {
    match instructions::project_file(registry) {
        ProjectFile::None => None,
        ProjectFile::Text(text) => Some(text),
        ProjectFile::Refused(reason) => {
            stream::write_stderr(&format!("{PROJECT_FILE} is not used: {reason}\n"));
            None
        }
    }
}
