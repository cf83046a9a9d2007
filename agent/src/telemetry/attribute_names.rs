//! Names of attributes (OpenTelemetry's conventions for generative AI), and this crate's values for errors and
//! ends.

use super::super::{AgentEnd, StopReason};

pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
pub(super) const MODEL: &str = "gen_ai.request.model";
pub(super) const AGENT_ID: &str = "gen_ai.agent.id";
pub(super) const AGENT_NAME: &str = "gen_ai.agent.name";
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
pub(super) const TOKEN_TYPE: &str = "gen_ai.token.type";
pub(super) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(super) const TOOL_TYPE: &str = "gen_ai.tool.type";
pub(super) const CALL_ID: &str = "gen_ai.tool.call.id";
pub(super) const CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
pub(super) const CALL_RESULT: &str = "gen_ai.tool.call.result";
pub(super) const ERROR_TYPE: &str = "error.type";
/// Specific to this crate: the run's id, as the audit log has it.
pub(super) const RUN_ID: &str = "portcullis.run.id";
/// Specific to this crate: the number of calls without a span.
pub(super) const UNTRACED_CALLS: &str = "portcullis.untraced_calls";

pub(super) const INVOKE_AGENT: &str = "invoke_agent";
pub(super) const CHAT: &str = "chat";
pub(super) const EXECUTE_TOOL: &str = "execute_tool";

/// Replaces a value that the model or the provider chose freely, because each new value would create a new
/// time series.
pub(super) const OTHER: &str = "_OTHER";

/// The `error.type` of a run whose future was dropped.
pub(super) const ABANDONED: &str = "cancelled";

/// Returns the stop reason as an attribute value.
pub(super) fn finish_reason(stop: &StopReason) -> &'static str {
    match stop {
        StopReason::Stop => "stop",
        StopReason::ToolCalls => "tool_calls",
        StopReason::Length => "length",
        StopReason::ContentFilter => "content_filter",
        StopReason::Other(_) => OTHER,
    }
}

/// Returns the `error.type` of a run's end. A provider's failure is named by its kind, without the message
/// for the operator.
pub(super) fn error_type(end: &AgentEnd) -> Option<String> {
    Some(match end {
        AgentEnd::Answer { .. } => return None,
        AgentEnd::MaxIterations { .. } => "max_iterations".to_owned(),
        AgentEnd::Length { .. } => "length".to_owned(),
        AgentEnd::Repeated { .. } => "repeated".to_owned(),
        AgentEnd::Cancelled => "cancelled".to_owned(),
        AgentEnd::Provider { kind, .. } => kind.to_string(),
        AgentEnd::Internal { .. } => "internal".to_owned(),
    })
}
