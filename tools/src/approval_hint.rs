//! Adds a hint to a call that was denied for lack of an approver. The front end words the hint, because only
//! it knows how a person can approve calls.

use portcullis_policy::DenialCode;
use portcullis_types::ToolResult;

/// Adds the front end's hint if the call was denied because there is no approver.
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
