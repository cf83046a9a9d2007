//! Tools whose effects are lines of a file that all processes of a test share.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use portcullis_tools::{
    ToolRegistry,
    policy::{DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy},
};
use portcullis_types::{
    FunctionDecl, JsonSchema, SafetyTier, SandboxTier, Tool, ToolArgs, ToolContext, ToolError, ToolOutput,
};
use serde_json::json;

/// Returns the policy of the tools. A worker may have only some of them.
fn policy() -> String {
    let entry = |name: &&str| {
        let approval = if *name == "ask" { "ask" } else { "allow" };
        format!("\n[tools.{name}]\nenabled = true\noptional = true\napproval = \"{approval}\"\n")
    };
    ALL.iter().map(entry).collect()
}

/// The tools of a worker.
pub(crate) const ALL: [&str; 6] = ["note", "look", "large", "slow", "ask", "idle"];

/// The minimum duration of an effect, so that a process can die during it.
const EFFECT: Duration = Duration::from_millis(25);

/// A tool that records its arguments: an effect that can be counted.
struct Noting {
    name: &'static str,
    notes: PathBuf,
}

#[async_trait]
impl Tool for Noting {
    fn schema(&self) -> FunctionDecl {
        let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        FunctionDecl {
            name: self.name.to_owned(),
            description: None,
            parameters: JsonSchema::new(parameters),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn safety_tier(&self) -> SafetyTier {
        if matches!(self.name, "look" | "idle") { SafetyTier::ReadOnly } else { SafetyTier::SideEffecting }
    }

    async fn execute(&self, _args: &str) -> Result<String, ToolError> {
        unreachable!("the registry makes calls with their context")
    }

    async fn call(&self, context: &ToolContext, _args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        // This tool is for measurements.
        if self.name == "idle" {
            return Ok(ToolOutput::text("idle"));
        }
        let line = format!("{} {} {}\n", context.run_id, self.name, context.call_id);
        let mut file = OpenOptions::new().append(true).create(true).open(&self.notes).expect("opens");
        file.write_all(line.as_bytes()).expect("written");
        match self.name {
            "slow" => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_secs(8)) => {}
                    () = context.cancel.cancelled() => return Err(ToolError::cancelled("the call was cancelled")),
                }
            }
            _ => tokio::time::sleep(EFFECT).await,
        }
        Ok(ToolOutput::text(match self.name {
            "large" => "x".repeat(1 << 20),
            _ => "noted".to_owned(),
        }))
    }
}

/// Returns the effects so far, in order: run, tool and call.
pub(crate) fn notes(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("notes")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Creates a registry with these tools.
pub(crate) fn registry(folder: &Path, tools: &[&'static str]) -> Arc<ToolRegistry> {
    let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
        operator: PolicySource { name: "test", text: &format!("{DEFAULT_POLICY}{}", policy()) },
        overlay: None,
        sandbox_tier: SandboxTier::Process,
    });
    let mut builder = ToolRegistry::builder().policy(policy.expect("loads"));
    for name in tools {
        builder = builder.tool(Noting { name, notes: folder.join("notes") });
    }
    Arc::new(builder.state(folder).build().expect("builds"))
}
