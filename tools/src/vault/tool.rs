//! `vault_copyto` as a registered tool, and its steps.

use std::{sync::Arc, time::Duration};

use portcullis_policy::{Operation, PinStatus, ToolDescriptor, ToolOrigin};
use portcullis_types::{
    Access, ArgumentRole, FunctionDecl, JsonSchema, SafetyTier, ToolError, ToolOutput, ToolPolicy,
};
use serde_json::{Value, json};

use super::copy::CopyRun;
use crate::{
    call::{Caller, OperationContext},
    registered::{RegisteredTool, parse_name},
    registry::{RegistryError, ToolRegistry},
    tool_table::ToolTable,
};

/// The operation that this tool runs.
const OPERATION: Operation = Operation::VAULT_COPYTO;

/// The arguments of the operation and of its steps.
pub(super) const SOURCE: &str = "source_path";
pub(super) const DESTINATION: &str = "destination_path";

/// The timeout that the tool declares.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The tool's backend.
#[derive(Debug, Clone)]
pub(crate) struct VaultCopyBackend {
    steps: Arc<[Arc<RegisteredTool>]>,
}

/// Builds the tool from these steps.
pub(crate) fn tool(steps: &ToolTable) -> Result<RegisteredTool, RegistryError> {
    let step = |name: &&'static str| {
        steps.get(name).cloned().ok_or(RegistryError::MissingStep { operation: OPERATION.name, step: name })
    };
    let steps = OPERATION.steps.iter().map(step).collect::<Result<_, _>>()?;
    let name = parse_name(OPERATION.name, OPERATION.name)?;
    let descriptor = ToolDescriptor {
        name,
        declared_tier: Some(SafetyTier::SideEffecting),
        declared_policy: ToolPolicy::Auto,
        declared_timeout: Some(TIMEOUT),
        declared_max_output: None,
        roles: vec![ArgumentRole::path(SOURCE, Access::Read), ArgumentRole::path(DESTINATION, Access::Write)],
        origin: ToolOrigin::ShippedOperation,
        pin_status: PinStatus::Unpinned,
    };
    RegisteredTool::operation(declaration(), "Copy from vault", descriptor, VaultCopyBackend { steps })
}

fn declaration() -> FunctionDecl {
    FunctionDecl {
        name: OPERATION.name.to_owned(),
        description: Some(
            "Copies any file out of the vault without showing you its content. Creates missing parent directories of the destination, and replaces an existing file whole. A symbolic link is never replaced."
                .to_owned(),
        ),
        parameters: JsonSchema::new(json!({
            "type": "object",
            "properties": {
                SOURCE: { "type": "string", "description": "The file in the vault, such as `/vault/key.pem`." },
                DESTINATION: {
                    "type": "string",
                    "description": "The new file, such as `/shared/key.pem`; in `/shared` or `/tmp`. Relative paths start at `/shared`.",
                },
            },
            "required": [SOURCE, DESTINATION],
            "additionalProperties": false,
        })),
    }
}

impl VaultCopyBackend {
    /// The steps, in the order in which the bytes pass through them.
    pub(crate) fn steps(&self) -> &[Arc<RegisteredTool>] {
        &self.steps
    }

    /// Copies a file by calling both steps.
    ///
    /// # Cancellation
    /// Dropping the future stops the steps, which still clean up.
    pub(crate) async fn run(
        &self,
        steps: Option<&Arc<ToolRegistry>>,
        call_id: &str,
        arguments: &Value,
        context: OperationContext,
        caller: &Caller,
    ) -> Result<ToolOutput, ToolError> {
        let steps = steps.ok_or_else(|| ToolError::internal("no registry of steps"))?;
        let argument = |name: &str| match arguments.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            _ => Err(ToolError::internal(format!("`{name}` passed the check and is not text"))),
        };
        let copy = CopyRun {
            steps: Arc::clone(steps),
            call_id: call_id.to_owned(),
            source: argument(SOURCE)?,
            destination: argument(DESTINATION)?,
            context,
            caller: caller.clone(),
        };
        copy.run().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::ArgumentSchema;

    #[test]
    fn the_declaration_is_strict_and_says_what_each_argument_is() {
        let decl = declaration();
        assert!(decl.parameters.denies_unknown() && decl.description.is_some());
        ArgumentSchema::compile(&decl.parameters).expect("compiles");
        for name in [SOURCE, DESTINATION] {
            assert!(decl.parameters.as_value()["properties"][name]["description"].is_string(), "{name}");
        }
    }

    #[test]
    fn an_operation_without_one_of_its_steps_is_not_registered() {
        let error = tool(&ToolTable::default()).expect_err("no steps");
        assert_eq!(
            error.to_string(),
            "`vault_copyto` cannot be registered without its step `vault_copyto_read`"
        );
    }
}
