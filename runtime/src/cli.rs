//! The options. Their help texts are the manual, so each states the effects, not only the purpose.

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use portcullis_types::SandboxTier;

mod agent;
mod approvals;
mod audit;
mod audit_report;
mod calls;
mod explain;
mod gateway;
mod list_output;
mod mount_option;
mod mounts;
mod policy_test;
mod runs;
mod serve;
mod shell_option;
mod tasks;
mod tool;
mod undo;
#[cfg(feature = "temporal")]
mod worker;

pub(crate) use agent::{AgentOptions, DemoOptions, ModelChoice, ModelOptions, StoreOptions};
pub(crate) use approvals::{
    ApprovalsCommand, ApproveCallOptions, DenyCallOptions, ListApprovalsOptions, OneApprovalOptions,
};
pub(crate) use audit::{
    AuditCommand, BundleOptions, FilterOptions, LogOptions, ReplayOptions, VerifyOptions,
};
pub(crate) use audit_report::ReportOptions;
pub(crate) use calls::{CallsCommand, ListCallsOptions, OneCallOptions, ResolveOptions};
pub(crate) use explain::{DiffOptions, ExplainOptions, LintOptions};
pub(crate) use gateway::GatewayOptions;
pub(crate) use list_output::ListOutput;
pub(crate) use mount_option::MountOption;
pub(crate) use mounts::{MountsOptions, MountsView};
pub(crate) use policy_test::{PolicyTestOptions, TightenOptions};
pub(crate) use runs::{ListRunsOptions, OneRunOptions, ResumeOptions, RunsCommand};
pub(crate) use serve::ServeOptions;
pub(crate) use shell_option::ShellOption;
pub(crate) use tasks::{RunTasksOptions, TasksCommand};
pub(crate) use tool::{
    ApproveOptions, BuildOptions, NewOptions, RevokeOptions, TestOptions, ToolCommand, TryOptions,
};
pub(crate) use undo::{ChangesOptions, Selection, UndoOptions};
#[cfg(feature = "temporal")]
pub(crate) use worker::WorkerOptions;

/// The agent and run of calls from the command line.
pub(crate) const CLI_ID: &str = "cli";

/// The agent of a model's calls.
pub(crate) const AGENT_ID: &str = "agent";

/// A tool runtime for AI agents: decides, confines, records.
///
/// Each tool call is checked against a policy, runs in a sandbox, and is recorded in an audit log. Tools see the
/// folders that the policy mounts (`/shared`, `/tmp`, `/vault`) and nothing else.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, max_term_width = 100, after_long_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: CommonOptions,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

/// The options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct CommonOptions {
    /// The folder that tools work in. Default: the project of this folder, else `./workspace`.
    ///
    /// It contains the policy's mounts. It is made on first use, with a short `shared/README.md` that explains it;
    /// existing files are never overwritten. A file `portcullis.toml` in it can restrict the policy, not extend it.
    ///
    /// `portcullis init` makes an existing folder a project. Its commands work on that folder from anywhere in it.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// The policy file to use.
    ///
    /// Default: the file of this folder's project (`portcullis init`), else `/etc/portcullis/portcullis.toml`, else
    /// `$XDG_CONFIG_HOME/portcullis/portcullis.toml`, else the policy that `portcullis policy default` prints.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,

    /// The folder for the audit log, compiled modules and whole outputs.
    ///
    /// It is private to its user and must be outside every mount. Default:
    /// `$XDG_STATE_HOME/portcullis/HASH`, else `$HOME/.local/state/portcullis/HASH`, where HASH stands for
    /// the path of the workspace or of the project. The mounts `tmp` and `vault` of a project are in it too, in
    /// `mounts`.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,

    /// Show tools a further folder: `NAME=PATH`, or `NAME=PATH:ro` for reading only. May be given several times.
    ///
    /// Tools see it as `/NAME`. Each profile that has the home mount (`shared`, or `project` of a project) gets it with
    /// the same access. The folder must exist. It may be anywhere except where keys, policies and state are.
    #[arg(long = "mount", global = true, value_name = "NAME=PATH")]
    pub(crate) mounts: Vec<MountOption>,

    /// A file of tools that are a configuration instead of code. May be given several times.
    ///
    /// JSON: one tool, or a list, with `name`, `description`, `inputSchema` and `executionType`. A tool of the
    /// type `gateway` requests the URL in `execution`, if the policy allows it. The results of `external` and
    /// `space` are submitted from outside, to `portcullis calls`. `internal` returns its arguments. Options:
    /// `isAsync`, `timeout` in milliseconds.
    #[arg(long = "tool-file", global = true, value_name = "FILE")]
    pub(crate) tool_files: Vec<PathBuf>,

    /// The isolation of this process itself. This selects the policy's `[sandbox.…]` section.
    #[arg(long, global = true, value_name = "TIER", default_value = SandboxTier::Process.as_str(),
          value_parser = sandbox_tier())]
    pub(crate) sandbox_tier: SandboxTier,

    /// The sidecar that runs shell commands: `own`, `unix:PATH`, `host` or `off`.
    ///
    /// `own` starts a sidecar with the first command and ends it at exit. Its confinement is the strongest that works
    /// here, and at least that of the policy. `unix:PATH` uses a `portcullis-shelld` that listens there. `host` runs
    /// commands unconfined, for local development, and says so with each command. `off` runs no commands.
    #[arg(long, global = true, value_name = "HOW", default_value = "own")]
    pub(crate) shell: ShellOption,

    /// The file with the token of the sidecar at `unix:PATH`, readable only by its owner.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) shell_token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    Init(InitOptions),
    Call(CallOptions),
    Tools(ToolsOptions),
    Explain(ExplainOptions),
    Mounts(MountsOptions),
    /// Author a tool, or approve one of a foreign module.
    #[command(subcommand)]
    Tool(ToolCommand),
    /// Show or check a policy.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Read or verify the audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    Changes(ChangesOptions),
    Undo(UndoOptions),
    Agent(AgentOptions),
    #[command(subcommand)]
    Runs(RunsCommand),
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    #[command(subcommand)]
    Calls(CallsCommand),
    #[cfg(feature = "temporal")]
    Worker(WorkerOptions),
    #[command(subcommand)]
    Tasks(TasksCommand),
    Demo(DemoOptions),
    Shell(ShellCommandOptions),
    Serve(ServeOptions),
    Gateway(GatewayOptions),
    Doctor(DoctorOptions),
    Completions(CompletionsOptions),
}

/// Make an existing folder a project, so that tools work on it.
///
/// The project's policy is written to `$XDG_CONFIG_HOME/portcullis/projects/NAME.toml`, and nothing into the folder.
/// Tools see the folder as `/project`, and relative paths start there. Every command that runs in the folder or below
/// it finds the policy. A `portcullis.toml` in the folder can restrict the policy, not extend it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis init
  portcullis init --show ~/code/app
  portcullis init --remove

Exit codes:
  0 done    2 the folder cannot be a project, or a file has faults")]
pub(crate) struct InitOptions {
    /// The folder.
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) folder: PathBuf,

    /// The name of the project's file. Default: the folder's name.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Print the policy that would be written, and write nothing.
    #[arg(long, conflicts_with = "remove")]
    pub(crate) show: bool,

    /// Remove the project's policy. The folder and the state of earlier calls stay.
    #[arg(long)]
    pub(crate) remove: bool,
}

/// Call one tool.
///
/// The call is checked, decided, confined and recorded. The tool's text goes to standard output: unchanged to a file
/// or a pipe; on a terminal with a newline at the end and with control characters escaped. Progress, warnings and
/// questions go to standard error.
///
/// If a call needs an approval, the terminal asks for it. Without a terminal the call is denied, unless `--approve`
/// is given.
///
/// A call that fails prints `Tool execution failed: …` to standard error. Ctrl-C cancels the call. A second Ctrl-C
/// ends the program immediately.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis call file_read '{\"path\": \"/shared/README.md\"}'
  portcullis call add '{\"a\": 2, \"b\": 3}'
  jq -n --rawfile text notes.md '{path: \"notes.md\", content: $text}' | portcullis call file_write -

Exit codes:
  0 the tool answered    1 the call failed       2 wrong usage, or an unusable policy
  3 denied               4 timed out             5 something that the tool needs is not available")]
pub(crate) struct CallOptions {
    /// The tool's name, as in `portcullis tools`.
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,

    /// The arguments, a JSON object; `-` reads them from standard input.
    #[arg(value_name = "JSON", default_value = "{}", hide_default_value = true)]
    pub(crate) arguments: String,

    /// Approve this call in advance, without asking.
    ///
    /// This answers the policy's question. A call that the policy denies stays denied.
    #[arg(long)]
    pub(crate) approve: bool,

    /// Print the whole result, or the error, as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// Show the standard error of a module's tool, such as the message of a panic.
    ///
    /// This is for the tool's author; models never get it. It goes to standard error, escaped, or with `--json` into
    /// the key `stderr`.
    #[arg(long)]
    pub(crate) stderr: bool,

    /// The run that the call belongs to.
    ///
    /// Rows of the audit log name it. `output_read` gives the rest of a shortened output only to calls of the same run.
    #[arg(long, value_name = "ID", default_value = CLI_ID)]
    pub(crate) run: String,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,

    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// Foreign modules, beside those in the policy's folder.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModuleOptions {
    /// Load a further foreign module. May be given several times.
    ///
    /// The policy decides what its tools get, whatever they declare. Without an entry in the policy, its tools get no
    /// folder, and each call needs an approval. A module that cannot be used is an error.
    #[arg(long = "module", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// Print a completion script for a shell, or write manual pages.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  portcullis completions bash > ~/.local/share/bash-completion/completions/portcullis
  portcullis completions --man ~/.local/share/man/man1")]
pub(crate) struct CompletionsOptions {
    /// The shell.
    #[arg(value_name = "SHELL", required_unless_present = "man")]
    pub(crate) shell: Option<clap_complete::Shell>,

    /// Write a manual page for each command into this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "shell")]
    pub(crate) man: Option<PathBuf>,
}

/// List the tools, with the policy's grant to each, or show one tool with its arguments.
///
/// The formats for models and clients omit tools that the policy disables or that their author hides.
#[derive(Debug, Args)]
pub(crate) struct ToolsOptions {
    /// Show only this tool, with its arguments.
    #[arg(value_name = "NAME", conflicts_with_all = ["openai", "openai_strict", "anthropic", "gemini", "mcp"])]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) format: ToolsFormat,

    /// List the capabilities that an agent can get by name (`portcullis agent --capability`), each with its tools.
    #[arg(long, conflicts_with_all = ["name", "openai", "openai_strict", "anthropic", "gemini", "mcp"])]
    pub(crate) capabilities: bool,

    #[command(flatten)]
    pub(crate) modules: ModuleOptions,
}

#[derive(Debug, Args)]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct ToolsFormat {
    /// Print all facts about each tool, as JSON.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the `tools` array of an OpenAI request.
    #[arg(long)]
    pub(crate) openai: bool,

    /// The same in strict mode. A tool whose schema strict mode does not support is listed without that mode, and
    /// named on standard error.
    #[arg(long)]
    pub(crate) openai_strict: bool,

    /// Print the `tools` array of an Anthropic request, in strict mode where the schema allows it.
    #[arg(long)]
    pub(crate) anthropic: bool,

    /// Print the `tools` array of a Gemini request. A tool whose schema Gemini does not support is left out, and
    /// named on standard error.
    #[arg(long)]
    pub(crate) gemini: bool,

    /// Print the result of the Model Context Protocol's `tools/list`.
    #[arg(long)]
    pub(crate) mcp: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print the shipped policy, as a start for your own.
    Default,
    /// Check a policy, and show its grants.
    ///
    /// With FILE only that file is checked. If it has entries for tools of modules, these modules are asked for their
    /// tools.
    ///
    /// Without FILE the policy in force is shown: with the workspace's overlay, the grant to each tool, and the digest
    /// that audit rows have. The folders that `portcullis call` needs are made on first use.
    ///
    /// Faults are printed to standard error, each as `file:line:column: key: message`; the exit code is then 2.
    /// Warnings are printed there as well, and do not change the exit code.
    Check {
        /// The policy file to check.
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        modules: ModuleOptions,
    },
    /// Show every value in force, and the file and line that it comes from.
    ///
    /// A value that no text sets is a `default`. Lists are shown element by element. The command creates no files and runs no tools.
    Show {
        /// Print the values and the grant of each shipped tool as JSON.
        #[arg(long)]
        json: bool,
    },
    Diff(DiffOptions),
    Test(PolicyTestOptions),
    Lint(LintOptions),
    Tighten(TightenOptions),
}

/// Run a command with the confinement and the limits of a model's command.
///
/// The command goes through `shell_exec`: it is checked, confined and recorded. Typing it counts as its approval.
/// Output is shown as it arrives, standard input is passed on, and the command's exit code becomes this program's.
/// Without a command, lines are read and run one after the other in one session.
///
/// Ctrl-C cancels the running command. At a terminal the next line may follow; lines from a file or a pipe end there.
#[derive(Debug, Args)]
pub(crate) struct ShellCommandOptions {
    /// The command, after `--`.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

/// Show which layers are enforced here, with the proof, and how to get the missing ones.
///
/// A worker thread is confined as for a call, and then tries forbidden operations. Exits with 0 if each layer that the
/// policy requires was proven, else with 5.
#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Print the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn sandbox_tier() -> impl TypedValueParser<Value = SandboxTier> {
    PossibleValuesParser::new(SandboxTier::ALL.map(SandboxTier::as_str))
        .try_map(|text| text.parse::<SandboxTier>())
}

const AFTER_HELP: &str = "\
Environment:
  PORTCULLIS_LOG   the log level on standard error: error, warn (the default), info, debug, trace,
                   or a list such as `info,portcullis_tools=debug`

First steps:
  portcullis demo
  portcullis call file_read '{\"path\": \"/shared/README.md\"}'
  portcullis tools
  portcullis doctor";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use portcullis_types::ToolErrorKind;

    use super::*;

    fn parse(words: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("portcullis").chain(words.split_whitespace()))
    }

    #[test]
    fn the_options_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn headings_of_the_help_are_plain_words() {
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("\nCommon options:\n"), "{help}");
    }

    #[test]
    fn help_and_manual_have_each_provider() {
        let help =
            Cli::command().find_subcommand_mut("agent").expect("a command").render_long_help().to_string();
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/agent.md");
        let manual = std::fs::read_to_string(manual).expect("readable");
        for kind in portcullis_agent::ProviderKind::ALL {
            let key =
                kind.key_variable().map_or_else(|| "none".to_owned(), |variable| format!("`{variable}`"));
            let row = format!("| `{kind}` | default `{}` | {key} |", kind.default_base_url());
            assert!(manual.contains(&row), "{row}");
            for variable in [kind.key_variable(), kind.base_url_variable()].into_iter().flatten() {
                assert!(help.contains(variable) && manual.contains(variable), "{kind}: {help}");
            }
        }
    }

    #[test]
    fn help_and_readme_have_the_exit_codes() {
        let readme = include_str!("../../README.md");
        let help =
            Cli::command().find_subcommand_mut("call").expect("a command").render_long_help().to_string();
        let code = |kind: ToolErrorKind| kind.exit_code();
        for (code, in_readme, in_help) in [
            (code(ToolErrorKind::Failed), "the call failed", "the call failed"),
            (code(ToolErrorKind::Denied), "denied by policy or approval", "denied"),
            (code(ToolErrorKind::Timeout), "timed out", "timed out"),
            (code(ToolErrorKind::Unavailable), "something required is missing", "something that"),
            (2, "wrong usage, or a policy that cannot be used", "wrong usage, or an unusable policy"),
        ] {
            assert!(readme.contains(&format!("| {code} | {in_readme}")), "README.md: {code} {in_readme}");
            assert!(help.contains(&format!("{code} {in_help}")), "{code} {in_help}: {help}");
        }
    }

    #[test]
    fn a_call_has_the_defaults_of_the_manual() {
        let cli = parse("call echo").expect("parses");
        let CliCommand::Call(call) = cli.command else { panic!("not a call") };
        assert_eq!((call.tool.as_str(), call.arguments.as_str(), call.run.as_str()), ("echo", "{}", "cli"));
        assert!(!call.approve && !call.json && call.modules.files.is_empty());
        assert_eq!(cli.common.workspace, None);
        assert_eq!(cli.common.sandbox_tier, SandboxTier::Process);
        assert_eq!((cli.common.policy, cli.common.state), (None, None));
    }

    #[test]
    fn common_options_stand_before_or_after_the_command() {
        for words in [
            "--workspace w --state s --policy p --sandbox-tier micro_vm audit verify",
            "audit verify --workspace w --state s --policy p --sandbox-tier micro_vm",
        ] {
            let common = parse(words).expect(words).common;
            assert_eq!(common.workspace, Some(PathBuf::from("w")));
            assert_eq!(common.state, Some(PathBuf::from("s")));
            assert_eq!(common.policy, Some(PathBuf::from("p")));
            assert_eq!(common.sandbox_tier, SandboxTier::MicroVm);
        }
    }

    #[test]
    fn standard_input_is_a_dash() {
        let CliCommand::Call(call) = parse("call file_write - --json").expect("parses").command else {
            panic!("not a call")
        };
        assert_eq!(call.arguments, "-");
        assert!(call.json);
    }

    #[test]
    fn a_tool_is_tried_in_this_folder_unless_another_is_named() {
        let CliCommand::Tool(ToolCommand::Try(options)) = parse("tool try x").expect("parses").command else {
            panic!("not a try")
        };
        assert_eq!((options.arguments.as_str(), options.package.dir), ("{}", PathBuf::from(".")));
        assert!(!options.approve && !options.native && !options.json && options.grant.is_none());
    }

    #[test]
    fn wrong_usage_exits_with_two() {
        for words in [
            "",
            "call",
            "call echo {} extra",
            "tools --json --mcp",
            "tool",
            "tool approve",
            "tool revoke",
            "tool new",
            "tool try",
            "tool try x {} --native --approve",
            "tool try x {} --native --grant WorkspaceRead",
            "policy",
            "policy test --coverage x",
            "policy tighten --min-calls x",
            "explain",
            "explain --row 1 file_read",
            "audit log --limit x",
            "agent --json",
            "tasks run",
            "agent --continue --resume run_0123456789abcdef",
            "--sandbox-tier vm doctor",
            "serve --http here",
            "serve --allow-remote",
            "serve --token-file x",
            "serve --print-config emacs",
        ] {
            assert_eq!(parse(words).expect_err(words).exit_code(), 2, "{words}");
        }
    }

    #[test]
    fn the_commands_are_those_that_are_built() {
        let command = Cli::command();
        let names: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(
            names,
            [
                "init",
                "call",
                "tools",
                "explain",
                "mounts",
                "tool",
                "policy",
                "audit",
                "changes",
                "undo",
                "agent",
                "runs",
                "approvals",
                "calls",
                "tasks",
                "demo",
                "shell",
                "serve",
                "gateway",
                "doctor",
                "completions"
            ]
        );
    }

    #[test]
    fn the_commands_about_policies_are_those_that_are_built() {
        let command = Cli::command();
        let policy = command.find_subcommand("policy").expect("a command");
        let names: Vec<_> = policy.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(names, ["default", "check", "show", "diff", "test", "lint", "tighten"]);
    }
}
