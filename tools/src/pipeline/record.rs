//! Step 7: the last row, and only then the result.

use std::sync::Arc;

use portcullis_types::ToolEvent;

use super::{Trail, shape::Shaped, trail::unrecorded};
use crate::{
    audit::{Ending, Outcome},
    call::{Caller, ToolResult},
};

/// Writes the end of the call and releases its result; a call whose end cannot be written has none.
pub(crate) fn record(shaped: Shaped, mut trail: Trail, caller: &Caller) -> ToolResult {
    let call_id = trail.row.call_id.to_string();
    let tool = trail.row.tool.to_string();
    let duration = trail.started().elapsed();
    let usage = shaped.usage;
    let ending = Ending {
        outcome: match &shaped.outcome {
            Ok(_) => Outcome::Ok,
            Err(error) => Outcome::Error(error.kind()),
        },
        code: shaped.outcome.as_ref().err().map(|error| Arc::from(error.code())),
        duration: Some(duration),
        cpu: usage.as_ref().map(|usage| usage.cpu),
        peak_memory_bytes: usage.as_ref().map(|usage| usage.peak_memory_bytes),
        output_bytes: Some(shaped.original_bytes),
        truncated: Some(shaped.truncated),
        mounts_used: usage.map(|usage| usage.mounts_used).unwrap_or_default(),
    };
    let outcome = match trail.end(ending) {
        Ok(()) => shaped.outcome,
        Err(error) => Err(unrecorded(&error)),
    };
    caller.emit(&ToolEvent::Finished {
        call_id: call_id.clone(),
        tool: tool.clone(),
        error: outcome.as_ref().err().map(|error| error.kind()),
        duration,
        bytes: shaped.original_bytes,
        truncated: shaped.truncated,
    });
    ToolResult {
        call_id,
        tool,
        outcome,
        details: shaped.details,
        truncated: shaped.truncated,
        original_bytes: shaped.original_bytes,
        duration,
    }
}
