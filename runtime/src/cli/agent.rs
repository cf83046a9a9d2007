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
/// Every call that it asks for goes the way of every call: it is checked, decided, confined and recorded, and
/// you are asked where the policy says so. What happens is shown on standard error as it happens; the final
/// answer goes to standard output, unless it has been read on this terminal already. Ctrl-C gives the run up in
/// order; pressed twice it ends the program at once.
///
/// The key is read from a file or from the variable that the provider's own programs read (`OPENAI_API_KEY`,
/// `ANTHROPIC_API_KEY`, `GEMINI_API_KEY`), never from the command line.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis agent 'What is in /shared?' --provider anthropic --model claude-sonnet-4-5
  portcullis agent 'Tidy up notes.md' --model qwen3 --base-url http://127.0.0.1:8080/v1
  portcullis agent - --provider ollama --model llama3.1 < question.txt

Exit codes:
  0 the model answered    1 it did not come to an answer    2 wrong usage, a policy that cannot be used
  5 the provider gave no whole answer    130 given up by Ctrl-C")]
pub(crate) struct AgentOptions {
    /// What you ask; `-` reads it from standard input.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: String,

    /// The model's name, as the provider knows it.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: String,

    /// What the provider speaks. `openai` is what most servers of local models speak as well.
    #[arg(long, value_name = "KIND", default_value = ProviderKind::OpenAi.as_str(), value_parser = provider())]
    pub(crate) provider: ProviderKind,

    /// Where the provider is, if not at its own address.
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// The file with the key.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// The file with your instructions to the model, in place of a few lines about its folders.
    #[arg(long, value_name = "FILE")]
    pub(crate) system: Option<PathBuf>,

    /// How often the model is asked at most.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_ITERATIONS)]
    pub(crate) max_turns: NonZeroU32,

    /// Which of a turn's calls run at once: `parallel`, `sequential` or `batched:N`.
    ///
    /// Calls of tools that have effects run alone whatever it is.
    #[arg(long, value_name = "HOW", default_value = "parallel")]
    pub(crate) strategy: Strategy,

    /// Approve of all calls in advance, for when nobody is there to be asked.
    ///
    /// It answers the questions that the policy asks; it opens nothing that the policy denies.
    #[arg(long)]
    pub(crate) approve: bool,

    /// Print the run's events as JSON, one object a line, in place of the answer.
    #[arg(long)]
    pub(crate) json: bool,

    /// Whose words the events are in: `everruns`, `yoagent` or `hsafa`.
    #[arg(long, value_name = "FORM", default_value = EventForm::Yoagent.as_str(), requires = "json",
          value_parser = form())]
    pub(crate) form: EventForm,

    #[command(flatten)]
    pub(crate) modules: Modules,
}

/// Show what Portcullis does: a scripted agent at work in a workspace of its own.
///
/// The model is a script, so no key, no network and no question is needed; everything else is real: the tools,
/// the policy, the sandbox, the shell's session, the audit log. The workspace is made for it and goes with it. The
/// exit code is 5 where not all that the policy requires was seen to hold.
#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    /// Leave the workspace and its audit log, and say where they are.
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
