//! `portcullis agent`: a model works with the tools, for one question or in a conversation.

mod conversation;
mod instructions;
mod model;
mod pictures;
pub(super) mod question;
mod session;
mod slash;
mod summary;

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use portcullis_agent::{AgentConfig, ProviderSettings, RemoteProvider};
use portcullis_tools::{
    Caller, PolicyFiles, ToolRegistry,
    approval::Approver,
    audit,
    confine::Layer,
    policy::{FlowLabel, WorkspaceSecurityPolicy},
    requirement,
    shell::ShellSource,
};
use portcullis_types::{CancellationToken, Message, RunnerBootstrapEnvelope};

use self::{
    instructions::{PROJECT_FILE, ProjectFile},
    question::{Answerer, executor, exit_code},
    session::{Session, View},
};
use super::{
    call,
    interrupts::{INTERRUPTED, run_interruptibly},
    progress::Progress,
};
use crate::{
    agent_file::{AgentFile, Price},
    cli::{AGENT_ID, AgentOptions, CommonOptions, KeptOptions},
    conversations::{
        ConversationFile, ConversationFolder, ConversationId, ConversationRecord, KeptConversation,
    },
    error::CliError,
    line_editor::TerminalMode,
    output::{
        live::{Live, PausingApprover},
        stream,
    },
    setup, sidecar,
};

/// Runs the command.
pub(crate) fn run(common: &CommonOptions, options: AgentOptions) -> Result<ExitCode, CliError> {
    if options.prompt.is_none() && !io::stdin().is_terminal() {
        return Err(CliError::NoPrompt);
    }
    // The provider comes first, so that a mistake in its settings makes no workspace.
    let file = AgentFile::read()?;
    let provider = RemoteProvider::new(model::settings(&options, &file)?)?;
    let mut config = AgentConfig::new(AGENT_ID);
    config.max_iterations = options.max_turns;
    config.strategy = options.strategy.0;
    let operator_text = instructions::operator_text(options.system.as_deref())?;
    let prompt = options.prompt.map(call::arguments).transpose()?;
    let envelope = setup::envelope_with(common, options.modules)?;
    let files = setup::policy_files(&envelope)?;
    let policy = files.load(envelope.sandbox_tier)?;
    let settings = confined_as_tools(&provider, &policy, &envelope);
    let (file_of_conversation, record) = conversation(common, &options.kept, &envelope)?;

    let view = if options.json { View::Json(options.form) } else { View::Live(Arc::new(Live::to_stderr())) };
    config.system = Some(operator_text);
    config.run_id = Some(record.id.to_string());
    let caller = caller(options.approve, &view);
    let setting = Setting {
        price: file.prices.get(&settings.model).cloned(),
        config,
        settings,
        caller,
        view,
        files,
        reads_project_file: !options.no_instructions,
        envelope,
        shell: sidecar::shell_source(common),
    };
    let progress = Progress::default();
    // The first interrupt cancels a question, even if its run has not begun.
    let work = match prompt {
        Some(prompt) => Work::Question { prompt, cancel: progress.begin_work().unwrap_or_default() },
        None => Work::Conversation { progress: progress.clone() },
    };
    let terminal_mode = TerminalMode::remember();
    let code = run_interruptibly(&progress, move || setting.work(file_of_conversation, record, work))?;
    if code.is_none() {
        terminal_mode.restore();
    }
    Ok(code.unwrap_or(ExitCode::from(INTERRUPTED)))
}

/// The work of the process in its conversation.
enum Work {
    /// It asks one question.
    Question { prompt: String, cancel: CancellationToken },
    /// It asks the questions that a person types.
    Conversation { progress: Progress },
}

/// All that a conversation needs, before anything is started.
struct Setting {
    config: AgentConfig,
    settings: ProviderSettings,
    caller: Caller,
    view: View,
    price: Option<Price>,
    files: PolicyFiles,
    /// Whether the project's file of instructions goes to the model.
    reads_project_file: bool,
    envelope: RunnerBootstrapEnvelope,
    shell: ShellSource,
}

impl Setting {
    /// Starts the registry, and works until the question is answered or the conversation is over.
    fn work(
        self,
        file: ConversationFile,
        record: ConversationRecord,
        work: Work,
    ) -> Result<ExitCode, CliError> {
        let Self { mut config, settings, caller, view, price, files, reads_project_file, envelope, shell } =
            self;
        let runtime = match work {
            Work::Question { .. } => setup::runtime()?,
            Work::Conversation { .. } => setup::waiting_runtime()?,
        };
        let registry = Arc::new(runtime.block_on(setup::calling_registry(&envelope, shell))?);
        let run_caller = Caller::new(AGENT_ID, record.id.as_str());
        if reads_project_file {
            add_project_file(&mut config, &registry, &run_caller, &view);
        }
        let id = record.id.clone();
        let kept = KeptConversation::new(Arc::clone(&registry), run_caller.clone(), file, record)?;
        let kept = Arc::new(kept);
        let model = settings.model.clone();
        let session = Session {
            id,
            model,
            answerer: Answerer {
                config,
                provider: Arc::new(RemoteProvider::new(settings)?),
                executor: executor(Arc::clone(&registry), caller).with_continued_run(),
                store: Arc::<KeptConversation>::clone(&kept),
            },
            kept,
            registry,
            files,
            audit_log: audit::log_path(&envelope.state),
            view,
            price,
        };
        let code = match work {
            Work::Question { prompt, cancel } => {
                let began = Instant::now();
                let question = Message::user(prompt);
                let run = runtime.block_on(session.ask(question, &cancel))?;
                session.show_answer(&run)?;
                session.end_question(&run, began.elapsed())?;
                exit_code(&run.end)
            }
            Work::Conversation { progress } => {
                conversation::run(&runtime, &session, &envelope.state, &progress)?
            }
        };
        session.registry.end_run(&run_caller);
        // Do not wait for a native tool that blocks its thread, or for an unanswered question.
        runtime.shutdown_background();
        Ok(code)
    }
}

/// The conversation that the options name, or a new one, with its file.
fn conversation(
    common: &CommonOptions,
    options: &KeptOptions,
    envelope: &RunnerBootstrapEnvelope,
) -> Result<(ConversationFile, ConversationRecord), CliError> {
    let project = setup::project(common)?;
    let workspace = project.as_ref().map_or(&envelope.workspace, |project| &project.folder);
    let workspace = workspace.to_string_lossy();
    let folder = ConversationFolder::open(&envelope.state)?;
    Ok(match (&options.resume, options.newest) {
        (Some(id), _) => folder.resume(&id.parse()?, &workspace)?,
        (None, true) => folder.newest(&workspace)?,
        (None, false) => {
            let record = ConversationRecord::new(ConversationId::random()?, &workspace);
            (folder.begin(record.id.clone()), record)
        }
    })
}

/// The caller of the model's calls. Its approver leaves the terminal to a question.
fn caller(approve: bool, view: &View) -> Caller {
    let mut caller = call::caller(AGENT_ID.to_owned(), approve);
    // The run's events already report progress and updates.
    (caller.on_progress, caller.on_update) = (None, None);
    if let View::Live(live) = view {
        let pause_while_asking =
            |approver| Arc::new(PausingApprover::new(approver, Arc::clone(live))) as Arc<dyn Approver>;
        caller.approver = caller.approver.take().map(pause_while_asking);
    }
    caller
}

/// Adds the project's file of instructions, and says so. Its text reaches the model without a call, and counts as read
/// nevertheless.
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
            if matches!(view, View::Live(_)) {
                stream::write_stderr(&format!(
                    "the model gets the project's {PROJECT_FILE}, marked as such; --no-instructions leaves it out\n"
                ));
            }
        }
    }
}

/// The provider's settings, with connections that need the layers that the policy requires. The proof uses a file in the
/// state folder.
fn confined_as_tools(
    provider: &RemoteProvider,
    policy: &WorkspaceSecurityPolicy,
    envelope: &RunnerBootstrapEnvelope,
) -> ProviderSettings {
    let (landlock, seccomp) = (requirement(policy, Layer::Landlock), requirement(policy, Layer::Seccomp));
    let state = Some(envelope.state.clone());
    ProviderSettings { landlock, seccomp, state, ..provider.settings().clone() }
}
