//! [`Notifier`]: runs the operator's program when a call waits for an approval.

use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;
use portcullis_agent::ProviderKind;
use portcullis_runs::{RunId, store::NewApprovalRequest};

/// The variables that the program gets besides those of this process: the question, the run and the tool.
const VARIABLES: [&str; 3] = ["PORTCULLIS_QUESTION", "PORTCULLIS_RUN", "PORTCULLIS_TOOL"];

/// Runs the operator's program for each question, without waiting for it or stopping it.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// The program with its arguments, as `agent.toml` names them.
    command: Vec<String>,
    /// The programs that may still be running. They are reaped when the next one starts, so that no zombies
    /// accumulate.
    running: Mutex<Vec<Child>>,
}

impl Notifier {
    /// Returns `None` if no program is configured.
    pub(crate) fn new(command: Vec<String>) -> Option<Self> {
        (!command.is_empty()).then(|| Self { command, running: Mutex::default() })
    }

    /// Starts the program. It receives ids and the tool's name, but no text from the model. `portcullis
    /// approvals show` shows that text escaped.
    #[expect(
        clippy::disallowed_methods,
        reason = "the operator's program, named in a file that no other user can change"
    )]
    pub(crate) fn notify_of_approval(&self, run: &RunId, request: &NewApprovalRequest) {
        let Some((program, arguments)) = self.command.split_first() else { return };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        for key in ProviderKind::ALL.into_iter().filter_map(ProviderKind::key_variable) {
            // The program needs no key of a model's provider.
            command.env_remove(key);
        }
        for (name, value) in VARIABLES.into_iter().zip([&*request.id, run.as_str(), &*request.tool]) {
            command.env(name, value);
        }
        let mut running = self.running.lock();
        running.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        match command.spawn() {
            Ok(child) => running.push(child),
            Err(error) => {
                tracing::warn!(%error, program, "cannot start the notification program");
            }
        }
    }
}
