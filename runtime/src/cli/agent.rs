//! The options of `portcullis agent` and `portcullis demo`.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use portcullis_adapters::event_formats::EventForm;
use portcullis_agent::{DEFAULT_MAX_ITERATIONS, ExecutionStrategy, ProviderKind};

use super::Modules;

/// Let a model work with the tools until it answers.
///
/// Each call of the model is checked, decided, confined and recorded, and you are asked where the policy says so.
/// Events are shown on standard error as they happen. The final answer goes to standard output, unless this terminal
/// has already shown it. Ctrl-C cancels the run and its calls. A second Ctrl-C ends the program at once.
///
/// The key is read from a file or from the variable that the provider's own programs use (`OPENAI_API_KEY`,
/// `ANTHROPIC_API_KEY`, `GEMINI_API_KEY`), never from the command line.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis agent 'What is in /shared?' --provider anthropic --model claude-sonnet-4-5
  portcullis agent 'Tidy up notes.md' --model qwen3 --base-url http://127.0.0.1:8080/v1
  portcullis agent - --provider ollama --model llama3.1 < question.txt

Exit codes:
  0 the model answered    1 the run ended without an answer    2 wrong usage, or an unusable policy
  5 the provider gave no complete answer    130 cancelled by Ctrl-C")]
pub(crate) struct AgentOptions {
    /// The question for the model; `-` reads it from standard input.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,

    /// The model's name, as the provider knows it.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: String,

    /// The provider's protocol. Most servers of local models use `openai`.
    #[arg(long, value_name = "KIND", default_value = ProviderKind::OpenAi.as_str(), value_parser = provider())]
    pub(crate) provider: ProviderKind,

    /// The provider's address, if it is not the default.
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// The file with the key.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// The file with your instructions to the model. They replace a few lines about its folders.
    #[arg(long, value_name = "FILE")]
    pub(crate) system: Option<PathBuf>,

    /// The largest number of times that the model is asked.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_ITERATIONS)]
    pub(crate) max_turns: NonZeroU32,

    /// Which of a turn's calls run at once: `parallel`, `sequential` or `batched:N`.
    ///
    /// Calls of tools with effects always run alone.
    #[arg(long, value_name = "HOW", default_value = "parallel")]
    pub(crate) strategy: Strategy,

    /// Approve all calls in advance, without asking.
    ///
    /// This answers the policy's questions. Calls that the policy denies stay denied.
    #[arg(long)]
    pub(crate) approve: bool,

    /// Print the run's events instead of the answer, as JSON, one object a line.
    #[arg(long)]
    pub(crate) json: bool,

    /// The format of the events: `everruns`, `yoagent` or `hsafa`.
    #[arg(long, value_name = "FORM", default_value = EventForm::Yoagent.as_str(), requires = "json",
          value_parser = form())]
    pub(crate) form: EventForm,

    #[command(flatten)]
    pub(crate) modules: Modules,
}

/// Show what Portcullis does: a scripted agent at work in a temporary workspace.
///
/// The model is a script, so the demonstration needs no key and no network, and asks nothing. Everything else is real:
/// the tools, the policy, the sandbox, the shell's session, the audit log. The workspace is temporary. Exits with 5 if
/// a layer that the policy requires could not be proven.
#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    /// Keep the workspace and its audit log, and print their paths.
    #[arg(long)]
    pub(crate) keep: bool,
}

/// The value of `--strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strategy(pub(crate) ExecutionStrategy);

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = text.strip_prefix("batched:").and_then(|size| size.parse::<NonZeroUsize>().ok());
        match (text, size) {
            ("parallel", _) => Ok(Self(ExecutionStrategy::Parallel)),
            ("sequential", _) => Ok(Self(ExecutionStrategy::Sequential)),
            (_, Some(size)) => Ok(Self(ExecutionStrategy::Batched { size })),
            _ => Err("expected `parallel`, `sequential` or `batched:N`".to_owned()),
        }
    }
}

fn provider() -> impl TypedValueParser<Value = ProviderKind> {
    PossibleValuesParser::new(ProviderKind::ALL.map(ProviderKind::as_str))
        .try_map(|text| text.parse::<ProviderKind>())
}

fn form() -> impl TypedValueParser<Value = EventForm> {
    PossibleValuesParser::new(EventForm::ALL.map(EventForm::as_str)).try_map(|text| text.parse::<EventForm>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_is_named_in_one_of_three_ways() {
        let size = NonZeroUsize::new(3).expect("3 is not 0");
        let of = |text: &str| text.parse::<Strategy>().map(|strategy| strategy.0);
        assert_eq!(of("parallel"), Ok(ExecutionStrategy::Parallel));
        assert_eq!(of("sequential"), Ok(ExecutionStrategy::Sequential));
        assert_eq!(of("batched:3"), Ok(ExecutionStrategy::Batched { size }));
        for wrong in ["", "batched", "batched:", "batched:0", "batched:-1", "Parallel"] {
            of(wrong).expect_err(wrong);
        }
    }
}
