//! `portcullis demo`: a scripted agent at work; everything but the model is real.

mod scene;

use std::{process::ExitCode, sync::Arc, time::Duration};

use portcullis_agent::{AgentConfig, ScriptedProvider};
use portcullis_tools::{
    Caller,
    approval::{self, ApprovalAnswer, ApprovalRequest, Approver},
    audit,
};
use portcullis_types::async_trait;

use super::{
    agent::{self, AgentPrompt},
    audit as rows, doctor,
    interrupts::INTERRUPTED,
};
use crate::{
    cli::{CommonOptions, DemoOptions},
    error::CliError,
    output::{live::Live, stream},
    setup, sidecar,
};

/// The agent's name in the audit log.
const AGENT: &str = "demo";

/// The pause between two pieces of the model's text, for a person who reads along.
const LINE_DELAY: Duration = Duration::from_millis(40);

/// The model's answers, turn by turn.
const SCRIPT: &str = include_str!("script.jsonl");

/// The person's prompt.
const PROMPT: &str =
    "Bring my notes in order, fetch the letter template from the vault, and count the words.";

/// Runs the command.
pub(crate) fn run(common: &CommonOptions, options: &DemoOptions) -> Result<ExitCode, CliError> {
    let failed = |source| CliError::Demo { source };
    let scene = scene::Scene::set(common).map_err(failed)?;
    let watched = stream::stdout_is_terminal();
    let script = ScriptedProvider::from_lines(SCRIPT)
        .map_err(|error| failed(std::io::Error::other(error)))?
        .with_pace(if watched { LINE_DELAY } else { Duration::ZERO });

    let live = Arc::new(Live::to_stdout());
    live.show_notice(&format!("{}\n\nyou: {PROMPT}\n", scene.introduction()));
    let envelope = setup::envelope(&scene.common)?;
    let log = audit::log_path(&envelope.state);
    let mut caller = Caller::new(AGENT, AGENT);
    caller.approver = Some(Arc::new(Person { live: Arc::clone(&live) }));
    let (config, prompt) = (AgentConfig::new(AGENT), PROMPT.to_owned());
    let conversation = AgentPrompt { config, provider: script, caller, prompt };
    let ended = agent::hold(envelope, sidecar::shell_source(&scene.common), conversation, move |event| {
        live.show(event);
        Ok(())
    })?;
    let Some(run) = ended else { return Ok(ExitCode::from(INTERRUPTED)) };

    let verified = audit::verify(&log).map_err(|source| CliError::Audit { source })?;
    stream::answer(&format!(
        "\nthe audit log: a row for each call, before its result was let go\n\n{}\n{}",
        rows::demonstrated(&log)?,
        rows::verification_text(&verified),
    ))?;
    let (enforced, proven) = doctor::summary(&scene.common)?;
    stream::answer(&format!("\nwhat was enforced\n\n{enforced}"))?;
    stream::answer(&scene.close(options.keep))?;
    // A failed run keeps its own exit code; else the proof decides, since a demonstration without enforcement
    // fails.
    let ended = agent::exit_code(&run.end);
    Ok(if ended == ExitCode::SUCCESS { proven } else { ended })
}

/// The width of its questions, which suits any terminal.
const COLUMNS: usize = 80;

/// The approver of the demonstration, which shows each question and approves.
struct Person {
    live: Arc<Live>,
}

#[async_trait]
impl Approver for Person {
    async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let question = approval::question(request, COLUMNS);
        self.live.show_notice(&format!("\n{question}Approve? y (the demonstration answers)"));
        ApprovalAnswer::Approve
    }
}
