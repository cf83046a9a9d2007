//! The program of `docs/embedding.md`.

use std::{
    error::Error,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use portcullis_tools::{Caller, PolicyFiles, new_call, policy::DEFAULT_POLICY, runtime_builder_with};
use portcullis_types::{
    FunctionDecl, JsonSchema, RunnerBootstrapEnvelope, SafetyTier, Tool, ToolError, async_trait,
};

/// A tool of this program, with state.
struct Tickets(AtomicU64);

#[async_trait]
impl Tool for Tickets {
    fn schema(&self) -> FunctionDecl {
        FunctionDecl {
            name: "next_ticket".to_owned(),
            description: Some("Takes the next ticket.".to_owned()),
            parameters: JsonSchema::empty_object(),
        }
    }

    async fn execute(&self, _arguments: &str) -> Result<String, ToolError> {
        Ok(format!("ticket {}", self.0.fetch_add(1, Ordering::Relaxed)))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::SideEffecting
    }
}

/// Makes three calls, and returns what a model would read of them.
pub async fn run(workspace: PathBuf, state: PathBuf) -> Result<Vec<String>, Box<dyn Error>> {
    // Where tools work, and where the audit log and the cache are. Both are made if they are not there.
    let envelope = RunnerBootstrapEnvelope::new(workspace, state);

    // The program's own policy: the shipped one, and its tool, which is outside the sandbox and therefore
    // runs only where it is enabled by name.
    let policy = format!("{DEFAULT_POLICY}\n[tools.next_ticket]\nenabled = true\n");
    let files = PolicyFiles::find(&envelope)?.with_operator_text(policy);
    let registry = runtime_builder_with(&envelope, &files).await?.tool(Tickets(AtomicU64::new(1))).build()?;

    // The caller: an agent and its run. There is no approver, so calls that need an approval are denied.
    let caller = Caller::new("my-agent", "run-1");
    let mut read = Vec::new();
    for (tool, arguments) in [
        ("next_ticket", "{}"),
        ("file_write", r#"{"path": "/shared/notes.md", "content": "Hello!"}"#),
        ("file_read", r#"{"path": "/etc/passwd"}"#),
    ] {
        // A `ToolCall` with a fresh id; of a model's call the id is the model's.
        let call = new_call(tool, arguments);
        let result = registry.execute_with_policy(call, &caller).await;
        read.push(result.model_text());
    }
    Ok(read)
}
