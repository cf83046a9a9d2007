//! How to approve of a call that nobody could be asked about: only a front end knows.

use portcullis_policy::DenialCode;
use portcullis_types::ToolResult;

/// The result with the front end's hint, where the call was denied for want of somebody to ask.
#[must_use]
pub fn hinted(mut result: ToolResult, hint: &str) -> ToolResult {
    result.outcome = result.outcome.map_err(|error| {
        if error.code() == DenialCode::ApprovalUnavailable.as_str() && error.hint().is_none() {
            error.with_hint(hint)
        } else {
            error
        }
    });
    result
}
