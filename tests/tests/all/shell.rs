//! `shell_exec` through the pipeline, in the sessions of a real sidecar.

mod backends;
mod background;
mod bash;
mod command_line;
mod commands;
mod hosts;
mod kills;
mod layers;
mod machine;
mod owners;
mod rules;
mod soak;
mod terminal;
mod unasked;

use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::{Caller, ToolRegistry, audit::Row, new_call, shell::SHELL_EXEC};
use serde_json::{Value, json};

/// A fixture with a shell.
struct Shell {
    fixture: Fixture,
    registry: ToolRegistry,
}

impl Shell {
    async fn new() -> Self {
        Self::with_fixture(Fixture::new()).await
    }

    async fn with_fixture(fixture: Fixture) -> Self {
        let registry = fixture.registry_with_shell().await;
        Self { fixture, registry }
    }

    async fn run(&self, command: &str) -> CallOutcome {
        self.call(json!({ "command": command })).await
    }

    /// Runs a command. Returns its output and the notes after it.
    async fn text(&self, command: &str) -> String {
        self.run(command).await.text()
    }

    async fn call(&self, arguments: Value) -> CallOutcome {
        CallOutcome::run(&self.registry, SHELL_EXEC, arguments).await
    }

    async fn call_as(&self, caller: &Caller, arguments: Value) -> CallOutcome {
        let call = new_call(SHELL_EXEC, arguments.to_string());
        CallOutcome(self.registry.execute_with_policy(call, caller).await)
    }

    fn last_row(&self) -> Row {
        self.fixture.rows().pop().expect("a row")
    }
}

/// Returns another agent, with an approver that always approves.
fn another_agent() -> Caller {
    let mut caller = approving_caller();
    "another".clone_into(&mut caller.agent_id);
    caller
}
