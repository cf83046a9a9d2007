//! The hint about how to approve a call when there is no approver. Only a front end knows the answer.

use portcullis_policy::DenialCode;
use portcullis_types::ToolResult;

/// The result, with the front end's hint if the call was denied because there is no approver.
#[must_use]
pub fn with_approval_hint(mut result: ToolResult, hint: &str) -> ToolResult {
    result.outcome = result.outcome.map_error(|error| {
        if error.code() == DenialCode::ApprovalUnavailable.as_str() && error.hint().is_none() {
            error.with_hint(hint)
        } else {
            error
        }
    });
    result
}
