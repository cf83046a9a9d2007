//! The step of an operation that makes the request.

use std::{sync::Arc, time::Duration};

use portcullis_policy::{HttpMethod, Operation, PinStatus, ToolDescriptor, ToolOrigin};
use portcullis_types::{ArgumentRole, FunctionDecl, JsonSchema, RoleKind, SafetyTier, ToolPolicy};
use serde_json::json;

use super::HttpClientHandle;
use crate::{
    registered::{RegisteredTool, parse_name},
    registry::RegistryError,
    tool_table::ToolTable,
};

/// The argument with the URL.
pub(crate) const URL: &str = "url";

/// The argument with the body, which is JSON.
pub(crate) const BODY: &str = "body";

/// The timeout that web operations and their request steps declare.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The backend of the step.
#[derive(Debug, Clone)]
pub(crate) struct RequestStep {
    pub(crate) http_client: Arc<HttpClientHandle>,
    pub(crate) template: RequestTemplate,
}

/// The parts that all requests of a step share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestTemplate {
    pub(crate) method: HttpMethod,
    /// The `Accept` header.
    pub(crate) accept: &'static str,
    pub(crate) redirects: Redirects,
}

/// Whether a request follows redirects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redirects {
    /// Redirects are followed within the grant. Each target is judged again.
    AsGranted,
    /// No redirect is followed.
    Never,
}

/// Builds the request step of an operation, which is its first step.
pub(crate) fn request_step(
    operation: Operation,
    http_client: Arc<HttpClientHandle>,
    template: RequestTemplate,
) -> Result<RegisteredTool, RegistryError> {
    let Some(name) = operation.steps.first() else {
        return Err(RegistryError::MissingStep { operation: operation.name, step: "request" });
    };
    let mut properties = json!({ URL: { "type": "string" } });
    if template.method == HttpMethod::Post {
        properties[BODY] = json!({ "type": "string" });
    }
    let decl = FunctionDecl {
        name: (*name).to_owned(),
        description: Some(format!("Requests an address. A step of `{}`.", operation.name)),
        parameters: JsonSchema::new(json!({
            "type": "object",
            "properties": properties,
            "required": [URL],
            "additionalProperties": false,
        })),
    };
    let descriptor = descriptor(name, vec![ArgumentRole { argument: URL.to_owned(), role: RoleKind::Url }])?;
    RegisteredTool::operation(decl, "Request", descriptor, RequestStep { http_client, template })
}

/// Returns the descriptor of a web operation, or of its request step.
pub(super) fn descriptor(name: &str, roles: Vec<ArgumentRole>) -> Result<ToolDescriptor, RegistryError> {
    Ok(ToolDescriptor {
        name: parse_name(name, name)?,
        declared_tier: Some(SafetyTier::SideEffecting),
        declared_policy: ToolPolicy::Auto,
        declared_timeout: Some(TIMEOUT),
        declared_max_output: None,
        roles,
        origin: ToolOrigin::ShippedOperation,
        pin_status: PinStatus::Unpinned,
    })
}

/// Returns the steps of an operation, in order.
pub(super) fn steps_of(
    operation: Operation,
    steps: &ToolTable,
) -> Result<Arc<[Arc<RegisteredTool>]>, RegistryError> {
    let step = |name: &&'static str| {
        steps.get(name).cloned().ok_or(RegistryError::MissingStep { operation: operation.name, step: name })
    };
    operation.steps.iter().map(step).collect()
}
