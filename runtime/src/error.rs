//! [`CliError`]: the reason why a command gives no answer. The operator sees an error with its whole chain of
//! causes. A tool's own error is an answer, not an error of the command line.

use std::{fmt::Write as _, io, path::PathBuf, process::ExitCode};

use portcullis_agent::ProviderError;
use portcullis_gateway::GatewayError;
use portcullis_http_server::BindError;
use portcullis_mcp::McpError;
use portcullis_runs::{RunError, RunId, store::StoreError};
use portcullis_tasks::TaskFolderError;
use portcullis_tools::{
    BootstrapError, RowError,
    audit::{AuditError, BundleError, KeyError},
    modules::{ApproveError, PinError},
    native::Capability,
    state::StateError,
    undo::UndoError,
};
use portcullis_types::ToolError;
use thiserror::Error;

mod author;

pub(crate) use author::AuthorError;

use crate::{
    agent_file::AgentFileError,
    command::{InstructionsError, InvalidFilter},
    tool_file::ToolFileError,
};

/// The exit code for a failure of the work itself.
const FAILED: u8 = 1;

/// The exit code for wrong usage and for policies that cannot be used.
const USAGE: u8 = 2;

/// The exit code if a required part is unavailable.
const UNAVAILABLE: u8 = 5;

/// The cause of an error: another error, or an untyped text.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a command has no answer.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    /// No registry could be assembled, or no policy loaded.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// No tool of a capability can be used here.
    #[error(
        "the agent cannot have the capability `{capability}`: none of its tools is offered here; `portcullis tools {tool}` says why"
    )]
    Capability { capability: Capability, tool: &'static str },
    /// A file of tools cannot be used.
    #[error(transparent)]
    ToolFile(#[from] ToolFileError),
    /// A submitted result is not JSON.
    #[error(
        "the submitted result is not JSON; write a value such as `{{\"confirmed\": true}}` or `\"text\"`"
    )]
    SubmittedResult { source: serde_json::Error },
    /// The workspace cannot be created or found.
    #[error("cannot open the workspace `{}`", path.display())]
    Workspace { path: PathBuf, source: io::Error },
    /// A project cannot be used or created.
    #[error("cannot load the project file `{}`", file.display())]
    Project {
        /// The project's file, or the folder of all project files.
        file: PathBuf,
        source: Cause,
    },
    /// A folder of the command line cannot be a mount.
    #[error("cannot mount `{mount}`")]
    Mount { mount: String, source: Cause },
    /// A folder cannot become a project, or is not one.
    #[error("cannot turn `{}` into a project", folder.display())]
    Init { folder: PathBuf, source: Cause },
    /// The manual pages cannot be written.
    #[error("cannot write the manual pages to `{}`", folder.display())]
    ManualPages { folder: PathBuf, source: io::Error },
    /// No tool has the name.
    #[error("there is no tool `{name}`; `portcullis tools` lists them")]
    NoTool { name: String },
    /// No call can have the subject.
    #[error("cannot explain the call")]
    Explain { source: ToolError },
    /// A filter of the audit log cannot be read.
    #[error("`{option} {text}`: {reason}")]
    Filter { option: &'static str, text: String, reason: InvalidFilter },
    /// The policy has no source of data with the name.
    #[error("the policy has no {kind} `{name}`")]
    NoSource { kind: &'static str, name: String },
    /// No kept policy, or more than one, has a digest that begins like this.
    #[error("{count} kept policies have a digest that begins with `{start}`")]
    KeptPolicy { start: String, count: usize },
    /// There are no expectations.
    #[error("there are no expectations: write {file}, or name a file with --expect FILE")]
    NoExpectations { file: String },
    /// A row of the audit log cannot be explained.
    #[error("cannot explain the row")]
    Row {
        #[from]
        source: RowError,
    },
    /// The workspace's overlay cannot be edited.
    #[error("cannot edit the overlay")]
    Overlay { source: toml_edit::TomlError },
    /// A file cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// There is no state folder.
    #[error("there is no folder for state: set XDG_STATE_HOME or HOME, or give --state DIR")]
    NoState,
    /// A running sidecar was named without its token file.
    #[error("--shell unix:PATH needs --shell-token-file FILE: the file that the sidecar was started with")]
    ShellToken,
    /// The arguments of a call cannot be read.
    #[error("cannot read the arguments from standard input")]
    Arguments { source: io::Error },
    /// There is no audit log where one is expected.
    #[error("there is no audit log at `{}`", path.display())]
    NoAuditLog { path: PathBuf },
    /// A file of checkpoints or a key cannot be read.
    #[error("cannot read `{}`", path.display())]
    AnchorFile { path: PathBuf, source: io::Error },
    /// A file contains no checkpoint.
    #[error(
        "`{}` has no checkpoint: neither a signed note nor a line with `portcullis-checkpoint`",
        path.display()
    )]
    NoAnchor { path: PathBuf },
    /// The file of the key that verifies checkpoints contains no key.
    #[error("cannot load the checkpoint key")]
    VerifierKey { source: KeyError },
    /// A bundle cannot be created or checked.
    #[error("cannot read or write the bundle `{}`", path.display())]
    Bundle { path: PathBuf, source: BundleError },
    /// The audit log cannot be read.
    #[error("cannot show the audit log")]
    Audit { source: AuditError },
    /// A page cannot be written. An existing file is never replaced.
    #[error("cannot write the page `{}`", path.display())]
    Page { path: PathBuf, source: io::Error },
    /// The recorded changes cannot be shown or undone.
    #[error("cannot undo or show changes")]
    Undo {
        #[from]
        source: UndoError,
    },
    /// The tool cannot be approved.
    #[error("cannot approve")]
    Approve {
        #[from]
        source: ApproveError,
    },
    /// The approval cannot be changed.
    #[error("the approval was not changed")]
    Pin {
        #[from]
        source: PinError,
    },
    /// The options for the model cannot be used.
    #[error("cannot ask the model")]
    Provider {
        #[from]
        source: ProviderError,
    },
    /// The operator's instructions to the model cannot be read.
    #[error("cannot read the instructions in `{}`", path.display())]
    Instructions { path: PathBuf, source: InstructionsError },
    /// A run cannot be driven.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A worker for Temporal cannot run.
    #[cfg(feature = "temporal")]
    #[error(transparent)]
    Worker(#[from] portcullis_temporal::WorkerError),
    /// The folder of tasks cannot be processed.
    #[error(transparent)]
    Tasks(#[from] TaskFolderError),
    /// The file with the states of tasks cannot be used.
    #[error("cannot load the states in `{}`", file.display())]
    TaskStates { file: PathBuf, source: Cause },
    /// The store of runs cannot be used.
    #[error("cannot open, read or write the store of runs")]
    Store {
        #[from]
        source: StoreError,
    },
    /// The state folder cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The process of a background run has ended immediately.
    #[error("the process of the run `{id}` has ended; its log is `{}`", log.display())]
    Detached { id: RunId, log: PathBuf },
    /// The process of a background run cannot be started.
    #[error("cannot start the process of the run `{id}`")]
    Detach { id: RunId, source: io::Error },
    /// The edited arguments of a call are not a JSON object.
    #[error("the arguments are not a JSON object")]
    EditedArguments,
    /// The file of the default model cannot be used.
    #[error(transparent)]
    AgentFile(#[from] AgentFileError),
    /// There is no prompt for the model.
    #[error(
        "there is no prompt: give one, or `-` to read it from standard input, or start the program on a terminal for a \
         conversation"
    )]
    NoPrompt,
    /// No model is named.
    #[error("no model is named: give --model NAME, or write `model = \"NAME\"` below `[agent]` in {file}")]
    NoModel { file: String },
    /// An image cannot be sent.
    #[error("cannot send the image `{}`", path.display())]
    Image { path: PathBuf, source: Cause },
    /// The history of typed lines cannot be used.
    #[error("cannot read or write the history `{}`", path.display())]
    History { path: PathBuf, source: io::Error },
    /// The terminal cannot be read.
    #[error("cannot read from the terminal")]
    Terminal { source: io::Error },
    /// The folder of the demonstration cannot be created.
    #[error("cannot prepare the demonstration")]
    Demo { source: io::Error },
    /// A tool's crate cannot be created, built or tried.
    #[error(transparent)]
    Author(#[from] AuthorError),
    /// A path cannot be written into a configuration.
    #[error("a path of the configuration is not UTF-8, and its file can contain only text")]
    Unprintable,
    /// The gateway cannot serve.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The script with components for the page cannot be used.
    #[error("cannot load the components in `{}`", path.display())]
    Components { path: PathBuf, source: io::Error },
    /// No client can be served.
    #[error(transparent)]
    Mcp(#[from] McpError),
    /// The server cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The async runtime, a thread or a signal handler cannot be set up.
    #[error("cannot set up the async runtime, a thread or a signal handler")]
    Start { source: io::Error },
    /// The thread that runs the command has panicked. The panic's message is on standard error.
    #[error("internal error: the command panicked; the panic message is above")]
    Panicked,
    /// The answer cannot be encoded.
    #[error("cannot encode the answer as JSON")]
    Json { source: serde_json::Error },
    /// The answer cannot be written.
    #[error("cannot write to standard output")]
    Output { source: io::Error },
}

impl CliError {
    /// Returns the exit code of the process.
    pub(crate) fn exit_code(&self) -> ExitCode {
        let code = match self {
            Self::Bootstrap(
                BootstrapError::Policy(_)
                | BootstrapError::Registry(_)
                | BootstrapError::PolicyFile { .. }
                | BootstrapError::UntrustedPolicy { .. }
                | BootstrapError::ExpectationsFile(_)
                | BootstrapError::Expectations(_)
                | BootstrapError::Checkpoints { .. }
                | BootstrapError::Witness { .. }
                | BootstrapError::Mount(_)
                | BootstrapError::Folder(_)
                | BootstrapError::Lock(_)
                | BootstrapError::NoHome,
            )
            | Self::Workspace { .. }
            | Self::Project { .. }
            | Self::Init { .. }
            | Self::Mount { .. }
            | Self::NoTool { .. }
            | Self::Explain { .. }
            | Self::Filter { .. }
            | Self::AnchorFile { .. }
            | Self::NoAnchor { .. }
            | Self::Bundle {
                source: BundleError::NoRow | BundleError::File(_) | BundleError::Form(_), ..
            }
            | Self::VerifierKey { .. }
            | Self::NoSource { .. }
            | Self::KeptPolicy { .. }
            | Self::NoExpectations { .. }
            | Self::Row { .. }
            | Self::NoState
            | Self::ShellToken
            | Self::Unprintable
            | Self::Mcp(McpError::Token { .. })
            | Self::Bind(BindError::Remote { .. })
            | Self::Arguments { .. }
            | Self::Provider { .. }
            | Self::AgentFile(_)
            | Self::NoPrompt
            | Self::TaskStates { .. }
            | Self::Components { .. }
            | Self::Tasks(TaskFolderError::Open { .. })
            | Self::NoModel { .. }
            | Self::Image { .. }
            | Self::Instructions { .. } => USAGE,
            Self::Bootstrap(BootstrapError::MissingLayer { .. }) => UNAVAILABLE,
            Self::Run(error) if is_usage(error) => USAGE,
            #[cfg(feature = "temporal")]
            Self::Worker(
                portcullis_temporal::WorkerError::Unreachable { .. }
                | portcullis_temporal::WorkerError::Namespace { .. },
            ) => UNAVAILABLE,
            #[cfg(feature = "temporal")]
            Self::Worker(portcullis_temporal::WorkerError::PlacedTool { .. }) => USAGE,
            Self::Store { source: StoreError::NotFound { .. } | StoreError::Open(_) }
            | Self::State(_)
            | Self::EditedArguments
            | Self::SubmittedResult { .. }
            | Self::Capability { .. }
            | Self::ToolFile(_) => USAGE,
            Self::Author(error) if error.is_usage() => USAGE,
            Self::Author(error) if error.is_unavailable() => UNAVAILABLE,
            // These are failures of the work itself and not of the request. The variants are listed, so that a new
            // one gets its exit code by a decision.
            Self::Bootstrap { .. }
            | Self::Run { .. }
            | Self::Store { .. }
            | Self::Author { .. }
            | Self::Bundle { .. }
            | Self::Mcp { .. }
            | Self::Bind { .. }
            | Self::Tasks { .. }
            | Self::ManualPages { .. }
            | Self::Overlay { .. }
            | Self::Write { .. }
            | Self::NoAuditLog { .. }
            | Self::Audit { .. }
            | Self::Page { .. }
            | Self::Undo { .. }
            | Self::Approve { .. }
            | Self::Pin { .. }
            | Self::Detached { .. }
            | Self::Detach { .. }
            | Self::History { .. }
            | Self::Terminal { .. }
            | Self::Demo { .. }
            | Self::Gateway { .. }
            | Self::Start { .. }
            | Self::Panicked { .. }
            | Self::Json { .. }
            | Self::Output { .. } => FAILED,
            #[cfg(feature = "temporal")]
            Self::Worker(_) => FAILED,
        };
        ExitCode::from(code)
    }

    /// Formats the error with its causes, one per line. A policy fault starts at the beginning of its line,
    /// as editors and CI systems expect.
    pub(crate) fn report(&self) -> String {
        if let Self::Bootstrap(BootstrapError::Policy(faults)) = self {
            return format!("error: the policy cannot be loaded\n{faults}\n");
        }
        match self {
            Self::Bootstrap(BootstrapError::ExpectationsFile(faults)) => {
                return format!("error: the expectations about the policy cannot be loaded\n{faults}\n");
            }
            Self::Bootstrap(BootstrapError::Expectations(failed)) => {
                return format!("error: the policy does not meet its expectations\n{failed}\n");
            }
            _ => {}
        }
        let mut report = format!("error: {self}\n");
        report.push_str(&causes(self));
        report
    }
}

/// Returns whether a run that cannot be driven is a mistake on the command line.
fn is_usage(error: &RunError) -> bool {
    matches!(
        error,
        RunError::InvalidId { .. }
            | RunError::NoRun { .. }
            | RunError::OtherWorkspace { .. }
            | RunError::OtherAgent { .. }
            | RunError::AlreadyAnswered { .. }
            | RunError::NewerFormat { .. }
            | RunError::Malformed { .. }
            | RunError::UnknownLabel { .. }
            | RunError::Store(StoreError::NotFound { .. } | StoreError::Leased { .. })
    )
}

/// Formats the causes of an error, one per line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a string cannot fail.
        let message = error.to_string();
        let mut lines = message.lines();
        let _ = writeln!(text, "  caused by: {}", lines.next().unwrap_or_default());
        // Indent further lines of a cause, so that none can be mistaken for a line of this report.
        lines.for_each(|line| {
            let _ = writeln!(text, "    {}", line.trim_end());
        });
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use portcullis_tools::policy::{LintCode, PolicyError, PolicyFault};

    use super::*;

    #[test]
    fn a_report_has_one_line_for_each_cause() {
        let error = CliError::Bootstrap(BootstrapError::PolicyFile {
            path: "/etc/portcullis/portcullis.toml".into(),
            source: io::Error::from(io::ErrorKind::PermissionDenied),
        });
        assert_eq!(
            error.report(),
            "error: cannot read the policy file `/etc/portcullis/portcullis.toml`\n  caused by: permission denied\n"
        );
        assert_eq!(error.exit_code(), ExitCode::from(2));
    }

    #[test]
    fn the_faults_of_a_policy_begin_their_lines() {
        let fault = |line| PolicyFault {
            file: "p.toml".into(),
            line,
            column: 1,
            key: "tools.x.y".into(),
            message: "unknown key".into(),
            code: LintCode::Fault,
        };
        let faults = PolicyError { faults: vec![fault(3), fault(9)], omitted: 0 };
        let error = CliError::Bootstrap(BootstrapError::Policy(faults));
        assert_eq!(
            error.report(),
            "error: the policy cannot be loaded\np.toml:3:1: tools.x.y: unknown key\np.toml:9:1: tools.x.y: unknown key\n"
        );
        assert_eq!(error.exit_code(), ExitCode::from(2));
    }

    #[test]
    fn a_layer_that_is_not_to_be_had_is_unavailable() {
        let error = CliError::from(BootstrapError::MissingLayer { layer: "landlock", reason: "off".into() });
        assert_eq!(error.exit_code(), ExitCode::from(5));
    }
}
