//! `portcullis demo`: a scripted agent at work. Everything except the model is real.

mod workspace;

use std::{process::ExitCode, sync::Arc, time::Duration};

use portcullis_agent::{AgentConfig, AgentRunResult, InMemoryMessageStore, ScriptedProvider};
use portcullis_tools::{
    Caller,
    approval::{self, ApprovalAnswer, ApprovalRequest, Approver, AttributedAnswer},
    audit,
    shell::ShellSource,
};
use portcullis_types::{CancellationToken, Message, RunnerBootstrapEnvelope, async_trait};

use super::{
    agent::prompt::{PromptRunner, executor, exit_code},
    audit as rows, doctor,
    interrupts::{INTERRUPTED, run_interruptibly},
};
use crate::{
    cli::{CommonOptions, DemoOptions},
    error::CliError,
    output::{live_view::LiveView, stream},
    setup, sidecar,
};

/// The agent's name in the audit log.
const AGENT: &str = "demo";

/// The pause between two pieces of the model's text, so that a person can read along.
const LINE_DELAY: Duration = Duration::from_millis(40);

/// The model's answers, turn by turn.
const SCRIPT: &str = include_str!("demo/script.jsonl");

/// The person's prompt.
const PROMPT: &str =
    "Bring my notes in order, fetch the letter template from the vault, and count the words.";

pub(crate) fn run(common: &CommonOptions, options: &DemoOptions) -> Result<ExitCode, CliError> {
    let failed = |source| CliError::Demo { source };
    let workspace = workspace::DemoWorkspace::set_up(common).map_err(failed)?;
    let watched = stream::stdout_is_terminal();
    let script = ScriptedProvider::from_lines(SCRIPT)
        .map_err(|error| failed(std::io::Error::other(error)))?
        .with_pace(if watched { LINE_DELAY } else { Duration::ZERO });

    let live = Arc::new(LiveView::to_stdout());
    live.show_notice(&format!("{}\n\nyou: {PROMPT}\n", workspace.introduction()));
    let envelope = setup::envelope(&workspace.common)?;
    let log = audit::log_path(&envelope.state);
    let mut caller = Caller::new(AGENT, AGENT);
    caller.approver = Some(Arc::new(AutoApprover { live: Arc::clone(&live) }));
    let shell = sidecar::shell_source(&workspace.common);
    let cancel = CancellationToken::new();
    let cancel_requested = cancel.clone();
    let run_result = run_interruptibly(&cancel, move || {
        answer(&envelope, shell, script, caller, &live, &cancel_requested)
    })?;
    let Some(run) = run_result else { return Ok(ExitCode::from(INTERRUPTED)) };

    let verified = audit::verify(&log).map_err(|source| CliError::Audit { source })?;
    stream::write_output(&format!(
        "\nthe audit log: a row for each call, before its result was let go\n\n{}\n{}",
        rows::demonstration_table(&log)?,
        rows::verification_text(&verified),
    ))?;
    let (enforced, proven) = doctor::summary(&workspace.common)?;
    stream::write_output(&format!("\nwhat was enforced\n\n{enforced}"))?;
    stream::write_output(&workspace.close(options.keep))?;
    // A failed run keeps its own exit code. Otherwise the proof decides: a demonstration without enforcement
    // fails.
    let code = exit_code(&run.end);
    Ok(if code == ExitCode::SUCCESS { proven } else { code })
}

/// Lets the scripted model answer the prompt, from the start of the registry to the end of the run.
fn answer(
    envelope: &RunnerBootstrapEnvelope,
    shell: ShellSource,
    script: ScriptedProvider,
    caller: Caller,
    live: &LiveView,
    cancel_requested: &CancellationToken,
) -> Result<AgentRunResult, CliError> {
    let runtime = setup::runtime()?;
    let run = runtime.block_on(async {
        let registry = Arc::new(setup::registry(envelope, shell).await?);
        let prompt_runner = PromptRunner {
            config: AgentConfig::new(AGENT),
            provider: Arc::new(script),
            executor: Arc::new(executor(registry, caller)),
            store: Arc::new(InMemoryMessageStore::new()),
        };
        let show = |event: &_| {
            live.show(event);
            Ok(())
        };
        prompt_runner.run_prompt(Message::user(PROMPT), cancel_requested, show).await
    });
    // Do not wait for a native tool that blocks its thread.
    runtime.shutdown_background();
    run
}

/// The width of the demonstration's questions, in columns. It suits any terminal.
const COLUMNS: usize = 80;

/// The demonstration's approver. It shows each question and approves.
struct AutoApprover {
    live: Arc<LiveView>,
}

#[async_trait]
impl Approver for AutoApprover {
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
        let question = approval::question(request, COLUMNS);
        self.live.show_notice(&format!("\n{question}Approve? y (the demonstration answers)"));
        ApprovalAnswer::Approve.into()
    }
}
