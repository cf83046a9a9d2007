//! The options of `portcullis agent` and `portcullis demo`.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
};

use clap::{
    Args,
    builder::{PossibleValuesParser, StringValueParser, TypedValueParser},
};
use portcullis_adapters::event_formats::EventFormatKind;
use portcullis_agent::{DEFAULT_MAX_ITERATIONS, ExecutionStrategy, ProviderKind};
use portcullis_tools::native::Capability;

use super::ModuleOptions;

/// Let a model work with the tools, for one prompt or in a conversation.
///
/// With a prompt, the model works until it answers. Without one, at a terminal, you have a conversation: type a prompt,
/// `/help` for the commands, or `@PATH` to add an image. Ctrl-D ends it. Conversations are runs, which
/// are kept in a store: `--continue` and `--resume` continue one, and `portcullis runs` shows them.
///
/// Each call of the model is checked, decided, confined and recorded, and you are asked where the policy says so.
/// Events are shown on standard error as they happen. The final answer goes to standard output, unless this terminal
/// has already shown it. Ctrl-C cancels the run and its calls. A second Ctrl-C ends the program immediately.
///
/// The default provider and model are in `$XDG_CONFIG_HOME/portcullis/agent.toml`. `OPENAI_BASE_URL`,
/// `ANTHROPIC_BASE_URL` and `GOOGLE_GEMINI_BASE_URL` name other addresses. The key is read from a file or from the
/// variable that the provider's own programs use (`OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, `GEMINI_API_KEY`), never from
/// the command line.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis agent 'What is in /shared?' --provider anthropic --model claude-sonnet-4-5
  portcullis agent 'Tidy up notes.md' --model qwen3 --base-url http://127.0.0.1:8080/v1
  portcullis agent - --provider ollama --model llama3.1 < prompt.txt
  portcullis agent --continue
  portcullis agent --detach 'Update the dependencies'

Exit codes:
  0 the model answered    1 the run ended without an answer    2 wrong usage, or an unusable policy
  5 the provider gave no complete answer    130 cancelled by Ctrl-C")]
pub(crate) struct AgentOptions {
    /// The prompt for the model; `-` reads it from standard input. Without it, a conversation begins.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,

    #[command(flatten)]
    pub(crate) conversation: ConversationOptions,

    /// Print the run's events instead of the answer, as JSON, one object a line.
    #[arg(long, requires = "prompt")]
    pub(crate) json: bool,

    /// The format of the events: `everruns`, `yoagent` or `hsafa`.
    #[arg(long, value_name = "FORM", default_value = EventFormatKind::Yoagent.as_str(), requires = "json",
          value_parser = format())]
    pub(crate) format: EventFormatKind,

    /// Work in the background: print the id of the run, and end.
    ///
    /// The run continues in a separate process. Where the policy asks, it waits for `portcullis approvals`. The
    /// process writes to `detached/ID.log` of the state folder.
    #[arg(long, requires = "prompt", conflicts_with_all = ["json", "newest", "resume"])]
    pub(crate) detach: bool,

    #[command(flatten)]
    pub(crate) model: ModelOptions,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// The model, and the address of its provider.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelChoice {
    /// The model's name, as the provider knows it. Default: that of `agent.toml`.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// The provider's protocol. Most servers of local models use `openai`. Default: that of `agent.toml`, else
    /// `openai`.
    #[arg(long, value_name = "KIND", value_parser = provider())]
    pub(crate) provider: Option<ProviderKind>,

    /// The provider's address, if it is not the default.
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// The file with the key.
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// The model of a run, and what it may do.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelOptions {
    #[command(flatten)]
    pub(crate) choice: ModelChoice,

    /// The file with your instructions to the model. They replace a few lines about its folders.
    #[arg(long, value_name = "FILE")]
    pub(crate) system: Option<PathBuf>,

    /// Offer the model only the tools of this capability. Repeat the option to add the tools of more capabilities.
    ///
    /// Default: those of `agent.toml`, else all tools that the policy offers. The policy decides about each call
    /// nevertheless. `portcullis tools --capabilities` lists them.
    #[arg(long = "capability", value_name = "NAME", value_parser = capability())]
    pub(crate) capabilities: Vec<Capability>,

    /// Do not read the project's file `AGENTS.md`.
    ///
    /// Without this option its text goes to the model, marked as a text of the project and not of the operator.
    #[arg(long)]
    pub(crate) no_instructions: bool,

    /// The largest number of times that the model is asked for one prompt.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_ITERATIONS)]
    pub(crate) max_turns: NonZeroU32,

    /// The calls of a turn that run concurrently: `parallel`, `sequential` or `batched:N`.
    ///
    /// Calls of tools with effects always run alone.
    #[arg(long, value_name = "HOW", default_value = "parallel")]
    pub(crate) strategy: Strategy,

    /// Approve all calls in advance, without asking.
    ///
    /// This answers the policy's questions. Calls that the policy denies stay denied.
    #[arg(long)]
    pub(crate) approve: bool,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,
}

/// The store of the runs.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreOptions {
    /// The store of the runs: an SQLite file, or `postgres://…` for several machines.
    ///
    /// Default: the variable `PORTCULLIS_STORE`, else `runs.db` in the state folder. Give a URL with a password in the
    /// variable, because other users can read the command line. PostgreSQL is reached with TLS; `sslmode=disable` and
    /// `sslrootcert=FILE` in the URL change that.
    #[arg(long, value_name = "PLACE")]
    pub(crate) store: Option<String>,
}

/// The conversation to continue.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct ConversationOptions {
    /// Continue the newest conversation about this workspace or project.
    ///
    /// The model gets the messages so far. Flow rules hold for what the conversation has read before.
    #[arg(long = "continue")]
    pub(crate) newest: bool,

    /// Continue the conversation that has this id.
    #[arg(long, value_name = "ID")]
    pub(crate) resume: Option<String>,
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

fn capability() -> impl TypedValueParser<Value = Capability> {
    StringValueParser::new().try_map(|name| Capability::available(&name))
}

fn format() -> impl TypedValueParser<Value = EventFormatKind> {
    PossibleValuesParser::new(EventFormatKind::ALL.map(EventFormatKind::as_str))
        .try_map(|text| text.parse::<EventFormatKind>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_is_named_in_one_of_three_ways() {
        let size = NonZeroUsize::new(3).expect("3 is not 0");
        let parse_strategy = |text: &str| text.parse::<Strategy>().map(|strategy| strategy.0);
        assert_eq!(parse_strategy("parallel"), Ok(ExecutionStrategy::Parallel));
        assert_eq!(parse_strategy("sequential"), Ok(ExecutionStrategy::Sequential));
        assert_eq!(parse_strategy("batched:3"), Ok(ExecutionStrategy::Batched { size }));
        for wrong in ["", "batched", "batched:", "batched:0", "batched:-1", "Parallel"] {
            parse_strategy(wrong).expect_err(wrong);
        }
    }
}
