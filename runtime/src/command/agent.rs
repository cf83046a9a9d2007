//! `portcullis agent`: a model works with the tools, for one prompt or in a conversation.

mod capabilities;
mod conversation;
mod detached;
mod images;
pub(super) mod instructions;
pub(super) mod model;
pub(super) mod prompt;
mod session;
mod slash;
mod summary;
#[cfg(feature = "temporal")]
mod worker;

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Instant,
};

use portcullis_adapters::event_formats::EventFormatKind;
use portcullis_agent::{AgentConfig, ProviderSettings, RemoteProvider};
use portcullis_runs::{
    Continuation, ModelIdentity, RecordedModel, RunId, RunSubject, RunTotals, Runs, StoredState,
    store::RunSummary,
};
use portcullis_tools::{
    Caller, PolicyFiles, ToolRegistry,
    approval::Approver,
    audit,
    confine::Layer,
    layer_requirement,
    policy::{FlowLabel, WorkspaceSecurityPolicy},
    shell::ShellSource,
};
use portcullis_types::{CancellationToken, Message, RunnerBootstrapEnvelope};
use tokio::runtime::Runtime;

use self::{
    capabilities::Capabilities,
    instructions::{PROJECT_FILE, ProjectFile},
    prompt::exit_code,
    session::{ApprovalSource, RunSession, View},
};
use super::{
    call,
    interrupts::{INTERRUPTED, run_interruptibly},
    progress::Progress,
};
use crate::{
    agent_file::{AgentFile, Price},
    cli::{AGENT_ID, AgentOptions, CommonOptions, ModelOptions, OneRunOptions, ResumeOptions, StoreOptions},
    error::CliError,
    line_editor::TerminalMode,
    notify::Notifier,
    output::{
        live_view::{LiveView, PausingApprover},
        stream,
    },
    run_store, setup, sidecar,
};

#[cfg(feature = "temporal")]
pub(crate) use self::worker::run as work;

/// The task of this process.
enum AgentTask {
    /// Works on one prompt.
    Ask { prompt: String, run_choice: RunChoice },
    /// Works on one prompt in the background.
    AskDetached { prompt: String },
    /// Works on the prompts that a person types.
    Converse { run_choice: RunChoice },
    /// Resumes the run where it was interrupted.
    Resume { id: RunId },
    /// Resumes the run in the background.
    ResumeDetached { id: RunId },
    /// This process is the background worker.
    Background { id: RunId },
}

/// The run to work on.
enum RunChoice {
    New,
    /// The newest run about this workspace.
    Newest,
    This(RunId),
}

/// The parsed options of `agent` and `runs resume`.
struct AgentRequest<'a> {
    task: AgentTask,
    model: &'a ModelOptions,
    store: &'a StoreOptions,
    /// The format of the events on standard output, if they replace the answer.
    json: Option<EventFormatKind>,
}

/// Runs `portcullis agent`.
pub(crate) fn run(common: &CommonOptions, options: AgentOptions) -> Result<ExitCode, CliError> {
    let AgentOptions { prompt, conversation: kept, json, format, detach, model, store } = options;
    if prompt.is_none() && !io::stdin().is_terminal() {
        return Err(CliError::NoPrompt);
    }
    let run_choice = match (&kept.resume, kept.newest) {
        (Some(id), _) => RunChoice::This(id.parse()?),
        (None, true) => RunChoice::Newest,
        (None, false) => RunChoice::New,
    };
    let task = match (detached::background_run()?, prompt) {
        (Some(id), _) => AgentTask::Background { id },
        (None, Some(prompt)) if detach => AgentTask::AskDetached { prompt },
        (None, Some(prompt)) => AgentTask::Ask { prompt, run_choice },
        (None, None) => AgentTask::Converse { run_choice },
    };
    begin(common, AgentRequest { task, model: &model, store: &store, json: json.then_some(format) })
}

/// Runs `portcullis runs resume`.
pub(crate) fn resume(common: &CommonOptions, options: ResumeOptions) -> Result<ExitCode, CliError> {
    let ResumeOptions { run: OneRunOptions { id, store }, detach, model } = options;
    let id = id.parse()?;
    let task = match detached::background_run()? {
        Some(id) => AgentTask::Background { id },
        None if detach => AgentTask::ResumeDetached { id },
        None => AgentTask::Resume { id },
    };
    begin(common, AgentRequest { task, model: &model, store: &store, json: None })
}

fn begin(common: &CommonOptions, request: AgentRequest<'_>) -> Result<ExitCode, CliError> {
    let AgentRequest { mut task, model, store, json } = request;
    // Create the provider first, so that a mistake in its settings leaves no workspace behind.
    let file = AgentFile::read()?;
    let provider = RemoteProvider::new(model::settings(&model.choice, &file)?)?;
    let mut config = AgentConfig::new(AGENT_ID);
    config.max_iterations = model.max_turns;
    config.strategy = model.strategy.0;
    let capabilities = Capabilities::chosen(model, &file);
    let operator_text = instructions::operator_text(model.system.as_deref())?;
    if let AgentTask::Ask { prompt, .. } | AgentTask::AskDetached { prompt } = &mut task {
        *prompt = call::arguments(std::mem::take(prompt))?;
    }
    let envelope = setup::envelope_with(common, model.modules.clone())?;
    let files = setup::policy_files(&envelope)?;
    let policy = files.load(envelope.sandbox_tier)?;
    let settings = confined_as_tools(&provider, &policy, &envelope);
    let project = setup::project(common)?;
    let workspace = project.as_ref().map_or(&envelope.workspace, |project| &project.folder);

    let view = json.map_or_else(|| View::LiveView(Arc::new(LiveView::to_stderr())), View::Json);
    config.system = Some(capabilities.with_prompts(&operator_text));
    let is_background = matches!(task, AgentTask::Background { .. });
    let setting = AgentSetup {
        workspace: workspace.to_string_lossy().into_owned(),
        price: file.prices.get(&settings.model).cloned(),
        config,
        settings,
        caller: caller(model.approve, &view, &capabilities),
        capabilities,
        approval_source: match (model.approve, is_background) {
            (true, _) => ApprovalSource::Option,
            (false, true) => ApprovalSource::StoreOnly,
            (false, false) => ApprovalSource::Terminal,
        },
        notifier: Notifier::new(file.approvals.notify).map(Arc::new),
        view,
        files,
        reads_project_file: !model.no_instructions,
        envelope,
        shell: sidecar::shell_source(common),
        store: store.clone(),
    };
    let progress = Progress::default();
    // The first interrupt cancels the work on a prompt, even if its run has not begun.
    let cancel = match task {
        AgentTask::Converse { .. } => CancellationToken::new(),
        _ => progress.begin_work().unwrap_or_default(),
    };
    let terminal_mode = TerminalMode::remember();
    let progress_of_work = progress.clone();
    let code = run_interruptibly(&progress, move || setting.work(task, &progress_of_work, &cancel))?;
    if code.is_none() {
        terminal_mode.restore();
    }
    Ok(code.unwrap_or(ExitCode::from(INTERRUPTED)))
}

/// Everything that a run needs before anything is started.
struct AgentSetup {
    /// The workspace or the project's folder that the run is about.
    workspace: String,
    capabilities: Capabilities,
    config: AgentConfig,
    settings: ProviderSettings,
    caller: Caller,
    approval_source: ApprovalSource,
    notifier: Option<Arc<Notifier>>,
    view: View,
    price: Option<Price>,
    files: PolicyFiles,
    /// Whether the project's file of instructions goes to the model.
    reads_project_file: bool,
    envelope: RunnerBootstrapEnvelope,
    shell: ShellSource,
    store: StoreOptions,
}

impl AgentSetup {
    /// Finds or begins the run, starts the registry, and works until the prompt is answered or the
    /// conversation ends.
    fn work(
        self,
        task: AgentTask,
        progress: &Progress,
        cancel: &CancellationToken,
    ) -> Result<ExitCode, CliError> {
        let runtime = match task {
            AgentTask::Converse { .. } => setup::waiting_runtime()?,
            _ => setup::runtime()?,
        };
        let runs = runtime.block_on(run_store::open_to_drive(&self.store, &self.envelope.state))?;
        let (next, run_choice) = match task {
            AgentTask::AskDetached { prompt } => {
                let subject = self.subject(RunId::random()?);
                runtime.block_on(runs.add(subject.clone(), Message::user(prompt)))?;
                return detached::start(&runtime, &runs, &subject.id, &self.envelope.state);
            }
            AgentTask::ResumeDetached { id } => {
                runtime.block_on(runs.ensure_resumable(&id, &self.workspace))?;
                return detached::start(&runtime, &runs, &id, &self.envelope.state);
            }
            AgentTask::Ask { prompt, run_choice } => {
                (Some(Continuation::Prompt(Message::user(prompt))), run_choice)
            }
            AgentTask::Converse { run_choice } => (None, run_choice),
            AgentTask::Resume { id } | AgentTask::Background { id } => {
                (Some(Continuation::Resume), RunChoice::This(id))
            }
        };
        let id = match run_choice {
            RunChoice::New => None,
            RunChoice::Newest => Some(runtime.block_on(runs.newest(&self.workspace))?),
            RunChoice::This(id) => Some(id),
        };
        let stored = match &id {
            Some(id) => Some(runtime.block_on(runs.find(id, &self.workspace))?),
            None => None,
        };
        if let (Some(id), Some(Continuation::Resume)) = (&id, &next) {
            runtime.block_on(runs.ensure_resumable(id, &self.workspace))?;
        }
        let id = id.map_or_else(RunId::random, Ok)?;
        let state = self.envelope.state.clone();
        let session = self.session(&runtime, runs, id, stored.as_ref())?;
        let code = match next {
            Some(next) => {
                let began = Instant::now();
                let run = runtime.block_on(session.continue_run(next, cancel))?;
                session.show_answer(&run)?;
                session.show_costs(&run, began.elapsed());
                exit_code(&run.end)
            }
            None => conversation::run(&runtime, &session, &state, progress)?,
        };
        session.registry.end_run(&session.run_caller);
        runtime.block_on(session.runs.store().close());
        // Do not wait for a native tool that blocks its thread, or for an unanswered question.
        runtime.shutdown_background();
        Ok(code)
    }

    fn subject(&self, id: RunId) -> RunSubject {
        RunSubject { id, agent: AGENT_ID.to_owned(), workspace: self.workspace.clone() }
    }

    /// Starts the registry.
    fn session(
        self,
        runtime: &Runtime,
        runs: Runs,
        id: RunId,
        stored: Option<&(RunSummary, StoredState)>,
    ) -> Result<RunSession, CliError> {
        let subject = self.subject(id);
        let Self {
            capabilities,
            mut config,
            settings,
            caller,
            approval_source,
            notifier,
            view,
            price,
            files,
            envelope,
            shell,
            ..
        } = self;
        config.run_id = Some(subject.id.to_string());
        let registry = Arc::new(runtime.block_on(setup::calling_registry(&envelope, shell))?);
        // Refuse a capability whose tools are missing before asking the model.
        capabilities.ensure_offered(&registry)?;
        let run_caller = Caller::new(AGENT_ID, subject.id.as_str());
        if self.reads_project_file {
            add_project_file(&mut config, &registry, &run_caller, &view);
        }
        let model = ModelIdentity { name: settings.model.clone(), address: settings.origin() };
        let provider = RecordedModel::new(
            Arc::new(RemoteProvider::new(settings.clone())?),
            Arc::clone(&registry),
            run_caller.clone(),
            model,
        );
        Ok(RunSession {
            subject,
            runs,
            is_stored: AtomicBool::new(stored.is_some()),
            was_interrupted: stored.is_some_and(|(summary, _)| !summary.status.has_ended()),
            totals: Mutex::new(stored.map_or_else(RunTotals::default, |(_, state)| state.totals)),
            model: settings.model,
            config,
            provider: Arc::new(provider),
            caller,
            approval_source,
            notifier,
            registry,
            run_caller,
            files,
            audit_log: audit::log_path(&envelope.state),
            view,
            price,
        })
    }
}

/// Builds the caller of the model's calls. Its approver pauses the live view during a question.
fn caller(approve: bool, view: &View, capabilities: &Capabilities) -> Caller {
    let mut caller = call::caller(AGENT_ID.to_owned(), approve);
    caller.tools = capabilities.tools();
    // The run's events already report progress and updates.
    (caller.on_progress, caller.on_update) = (None, None);
    if let View::LiveView(live) = view {
        let pause_while_asking =
            |approver| Arc::new(PausingApprover::new(approver, Arc::clone(live))) as Arc<dyn Approver>;
        caller.approver = caller.approver.take().map(pause_while_asking);
    }
    caller
}

/// Adds the project's file of instructions, and reports it. Its text reaches the model without a call, but
/// counts as read.
fn add_project_file(config: &mut AgentConfig, registry: &ToolRegistry, caller: &Caller, view: &View) {
    match instructions::project_file(registry) {
        ProjectFile::None => {}
        ProjectFile::Refused(reason) => {
            stream::write_stderr(&format!("{PROJECT_FILE} is not used: {reason}\n"));
        }
        ProjectFile::Text(text) => {
            let operator_text = config.system.as_deref().unwrap_or_default();
            config.system = Some(instructions::with_project_text(operator_text, &text));
            let label = FlowLabel::of_mount(registry.policy().home());
            registry.add_run_labels(caller, [(label, PROJECT_FILE.to_owned())]);
            if matches!(view, View::LiveView(_)) {
                stream::write_stderr(&format!(
                    "the model gets the project's {PROJECT_FILE}, marked as such; --no-instructions leaves it out\n"
                ));
            }
        }
    }
}

/// Returns the provider's settings with connections that use the layers that the policy requires. The proof
/// uses a file in the state folder.
pub(in crate::command) fn confined_as_tools(
    provider: &RemoteProvider,
    policy: &WorkspaceSecurityPolicy,
    envelope: &RunnerBootstrapEnvelope,
) -> ProviderSettings {
    let (landlock, seccomp) =
        (layer_requirement(policy, Layer::Landlock), layer_requirement(policy, Layer::Seccomp));
    let state = Some(envelope.state.clone());
    ProviderSettings { landlock, seccomp, state, ..provider.settings().clone() }
}
