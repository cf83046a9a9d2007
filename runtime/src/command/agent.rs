//! `portcullis agent`: a model works with the tools.

use std::{fs, io, path::Path, process::ExitCode, sync::Arc};

use portcullis_agent::{
    AgentConfig, AgentEnd, AgentEvent, AgentLoop, AgentRun, ApiKey, DEFAULT_EVENT_CAPACITY,
    InMemoryMessageStore, Provider, ProviderErrorKind, ProviderSettings, RemoteProvider, event_channel,
};
use portcullis_tools::{
    Caller, RegistryExecutor, ToolRegistry, approval::Approver, confine::Layer, requirement,
    shell::ShellSource,
};
use portcullis_types::{CancellationToken, RunnerBootstrapEnvelope, ToolErrorKind};

use super::{
    call,
    interrupts::{INTERRUPTED, run_interruptibly},
};
use crate::{
    cli::{AGENT_ID, AgentOptions, CommonOptions},
    error::CliError,
    output::{
        live::{Live, PausingApprover},
        stream, text,
    },
    setup, sidecar,
};

/// The longest file of instructions, in bytes.
const MAX_SYSTEM_BYTES: u64 = 1 << 20;

/// The hint how to approve a call when there is no approver.
const HOW_TO_APPROVE: &str =
    "nobody can be asked here: the operator can start the agent with --approve, or on a terminal";

/// The default instructions to the model.
const SYSTEM: &str = "\
You work through tools, in a sandbox. Files are in /shared, which you and the person share, and in /tmp, which is \
for what may be thrown away; /vault can be read where the policy lets you. Relative paths start at /shared. A call \
that is refused says why; do what it asks for, or go another way.";

/// Runs the command.
pub(crate) fn run(common: &CommonOptions, options: AgentOptions) -> Result<ExitCode, CliError> {
    // First: a mistake in the settings makes no workspace.
    let provider = provider(&options)?;
    let mut config = AgentConfig::new(AGENT_ID);
    config.system = Some(system(options.system.as_deref())?);
    config.max_iterations = options.max_turns;
    config.strategy = options.strategy.0;
    let prompt = call::arguments(options.prompt)?;
    let envelope = setup::envelope_with(common, options.modules)?;
    let provider = confined_as_tools(&provider, &envelope)?;
    let place = sidecar::shell_source(common);

    let live = (!options.json).then(|| Arc::new(Live::to_stderr()));
    let mut caller = call::caller(AGENT_ID.to_owned(), options.approve);
    // The run's events already report progress and updates.
    (caller.on_progress, caller.on_update) = (None, None);
    if let Some(live) = &live {
        let quiet =
            |approver| Arc::new(PausingApprover::new(approver, Arc::clone(live))) as Arc<dyn Approver>;
        caller.approver = caller.approver.take().map(quiet);
    }
    let mut form = options.json.then(|| options.form.begin());
    let conversation = AgentPrompt { config, provider, caller, prompt };
    let ended = hold(envelope, place, conversation, move |event| match (&live, &mut form) {
        (Some(live), _) => {
            live.show(event);
            Ok(())
        }
        (None, Some(form)) => stream::answer(&form.lines(event)),
        (None, None) => Ok(()),
    })?;
    let Some(run) = ended else { return Ok(ExitCode::from(INTERRUPTED)) };
    let is_seen = options.json || (stream::stderr_is_terminal() && stream::stdout_is_terminal());
    if let (Some(answer), false) = (run.answer(), is_seen) {
        let answer = format!("{answer}\n");
        stream::answer(&if stream::stdout_is_terminal() { text::for_terminal(&answer) } else { answer })?;
    }
    Ok(exit_code(&run.end))
}

/// A prompt to an agent, with the settings of the run.
pub(super) struct AgentPrompt<P> {
    pub(super) config: AgentConfig,
    pub(super) provider: P,
    /// The caller of the calls that the model asks for.
    pub(super) caller: Caller,
    pub(super) prompt: String,
}

/// Runs a conversation, from the registry's start to its end, on a thread apart from the signals. Shows the
/// events in order; after the first that cannot be shown, no more are. None if it was interrupted twice.
pub(super) fn hold<P: Provider + 'static>(
    envelope: RunnerBootstrapEnvelope,
    place: ShellSource,
    conversation: AgentPrompt<P>,
    show: impl FnMut(&AgentEvent) -> Result<(), CliError> + Send + 'static,
) -> Result<Option<AgentRun>, CliError> {
    let cancel = CancellationToken::new();
    let given_up = cancel.clone();
    run_interruptibly(&cancel, move || {
        let runtime = setup::runtime()?;
        let run = runtime.block_on(async {
            let registry = Arc::new(setup::registry(&envelope, place).await?);
            converse(conversation, registry, &given_up, show).await
        });
        // Do not wait for a native tool that blocks its thread, or for an unanswered question.
        runtime.shutdown_background();
        run
    })
}

/// The conversation itself.
///
/// # Cancellation
/// `given_up` cancels the run, which ends in order.
async fn converse<P: Provider + 'static>(
    conversation: AgentPrompt<P>,
    registry: Arc<ToolRegistry>,
    given_up: &CancellationToken,
    mut show: impl FnMut(&AgentEvent) -> Result<(), CliError>,
) -> Result<AgentRun, CliError> {
    let AgentPrompt { config, provider, caller, prompt } = conversation;
    let (events, mut happens) = event_channel(DEFAULT_EVENT_CAPACITY);
    let executor = RegistryExecutor::new(registry, caller).with_hint(HOW_TO_APPROVE);
    let mut agent = AgentLoop::new(config, events, InMemoryMessageStore::new(), provider, executor);
    let handle = agent.handle();
    let work = async move {
        let run = agent.run(prompt).await;
        // Closes the event channel, which ends `watch`.
        drop(agent);
        run
    };
    let watch = async {
        let mut shown = Ok(());
        while let Some(event) = happens.recv().await {
            if shown.is_ok() {
                shown = show(&event);
            }
        }
        shown
    };
    let mut both = std::pin::pin!(futures_util::future::join(work, watch));
    let ended = tokio::select! {
        ended = &mut both => Some(ended),
        () = given_up.cancelled() => None,
    };
    let (run, shown) = match ended {
        Some(ended) => ended,
        None => {
            handle.cancel();
            both.await
        }
    };
    shown.map(|()| run)
}

/// The exit code of a run's end.
pub(super) fn exit_code(end: &AgentEnd) -> ExitCode {
    match end {
        AgentEnd::Answer { .. } => ExitCode::SUCCESS,
        AgentEnd::Cancelled => ExitCode::from(INTERRUPTED),
        AgentEnd::Provider { kind: ProviderErrorKind::Configuration, .. } => ExitCode::from(2),
        AgentEnd::Provider { .. } => ExitCode::from(ToolErrorKind::Unavailable.exit_code()),
        AgentEnd::MaxIterations { .. }
        | AgentEnd::Length { .. }
        | AgentEnd::Repeated { .. }
        | AgentEnd::Internal { .. } => ExitCode::FAILURE,
    }
}

fn provider(options: &AgentOptions) -> Result<RemoteProvider, CliError> {
    let mut settings = ProviderSettings::new(options.provider, options.model.clone());
    settings.base_url.clone_from(&options.base_url);
    settings.key = match (&options.key_file, options.provider.key_variable()) {
        (Some(file), _) => Some(ApiKey::from_file(file)?),
        // Never send the provider's key to another server (`--base-url`).
        (None, Some(variable)) if options.base_url.is_none() => Some(ApiKey::from_env(variable)?),
        (None, _) => None,
    };
    Ok(RemoteProvider::new(settings)?)
}

/// The same provider, whose connections need the layers that the policy requires; their proof is in the state folder.
fn confined_as_tools(
    provider: &RemoteProvider,
    envelope: &RunnerBootstrapEnvelope,
) -> Result<RemoteProvider, CliError> {
    let policy = setup::policy_files(envelope)?.load(envelope.sandbox_tier)?;
    let (landlock, seccomp) = (requirement(&policy, Layer::Landlock), requirement(&policy, Layer::Seccomp));
    let state = Some(envelope.state.clone());
    Ok(RemoteProvider::new(ProviderSettings { landlock, seccomp, state, ..provider.settings().clone() })?)
}

fn system(file: Option<&Path>) -> Result<String, CliError> {
    let Some(path) = file else { return Ok(SYSTEM.to_owned()) };
    let failed = |source| CliError::Instructions { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, MAX_SYSTEM_BYTES + 1), &mut text).map_err(failed)?;
    if text.len() as u64 > MAX_SYSTEM_BYTES {
        let limit = text::bytes(MAX_SYSTEM_BYTES);
        return Err(failed(io::Error::other(format!("it is longer than {limit}"))));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_the_exit_code_of_each_end() {
        let manual = include_str!("../../../docs/agent.md");
        let text = String::new;
        let provider = |kind| AgentEnd::Provider { kind, message: text() };
        for (end, name, shown) in [
            (AgentEnd::Answer { text: text() }, "answer", "0"),
            (AgentEnd::MaxIterations { limit: 10 }, "too many turns", "1"),
            (AgentEnd::Repeated { tool: text() }, "the same call over and over", "1"),
            (AgentEnd::Length { text: text() }, "cut off", "1"),
            (provider(ProviderErrorKind::Server), "the provider failed", "5"),
            (
                provider(ProviderErrorKind::Configuration),
                "the provider failed",
                "2 where the settings are wrong",
            ),
            (AgentEnd::Cancelled, "cancelled", "130"),
        ] {
            let number =
                shown.split(' ').next().and_then(|number| number.parse::<u8>().ok()).expect("a number");
            assert_eq!(exit_code(&end), ExitCode::from(number), "{name}");
            let row = manual.lines().find(|line| line.starts_with(&format!("| {name} |"))).expect("a row");
            let cell = row.trim_end_matches(" |").rsplit_once(" | ").expect("a cell").1;
            assert!(cell.split(", or ").any(|part| part == shown), "{row}");
        }
    }
}
