//! Step 2: the arguments' text becomes a checked value. What that means is in [`crate::arguments`].

use std::sync::Arc;

use portcullis_types::{SafetyTier, ToolArgs, ToolCall, ToolError};
use sha2::{Digest, Sha256};

use super::{Trail, resolve::Resolved};
use crate::{
    arguments::{CheckedArguments, Repairs},
    registered::RegisteredTool,
};

/// A call whose arguments fit its tool.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(super) call: ToolCall,
    pub(super) tool: Arc<RegisteredTool>,
    pub(super) args: ToolArgs,
    pub(super) notes: Notes,
}

/// What was done to the arguments, for the result's details.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    pub(super) repaired: Vec<String>,
    pub(super) ignored: Vec<String>,
}

/// Checks the arguments.
pub(crate) fn check(resolved: Resolved, trail: &mut Trail) -> Result<Checked, ToolError> {
    let (call, tool) = resolved.into_parts();
    check_again(call, tool, trail)
}

/// Checks arguments of a tool that is known: the call's own, or those that an approver put in their place.
pub(super) fn check_again(
    call: ToolCall,
    tool: Arc<RegisteredTool>,
    trail: &mut Trail,
) -> Result<Checked, ToolError> {
    trail.row.args_sha256 = Some(hex::encode(Sha256::digest(call.arguments.as_bytes())).into());
    // A guess at what was meant is no basis for something dangerous.
    let repairs = match tool.facts().declared_tier {
        Some(SafetyTier::Privileged) => Repairs::Off,
        _ => Repairs::Allowed,
    };
    let CheckedArguments { args, repaired, ignored } = tool.schema().check(&call.arguments, repairs)?;
    if repairs == Repairs::Off {
        tool.schema().ensure_whole_numbers(&args)?;
    }
    Ok(Checked { call, tool, args, notes: Notes { repaired, ignored } })
}
