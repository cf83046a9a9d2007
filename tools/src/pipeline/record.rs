//! Step 7: writes the final row, then releases the result.

use std::{mem::take, sync::Arc};

use portcullis_types::{ToolEvent, ToolResult};
use serde_json::Map;

use super::{PendingRecord, call_log::unrecorded, shape::Shaped};
use crate::{
    audit::{CallEnding, Outcome},
    call::Caller,
};

/// Writes the call's end and releases its result; if the end cannot be written, the result is withheld.
pub(crate) fn record(shaped: Shaped, caller: &Caller, mut pending: PendingRecord) -> ToolResult {
    let call_id = pending.call.call_id.to_string();
    let tool = pending.call.tool.to_string();
    let duration = pending.elapsed();
    let Shaped { outcome, details, truncated, original_bytes, mut usage } = shaped;
    let ending = CallEnding {
        outcome: match &outcome {
            Ok(_) => Outcome::Ok,
            Err(error) => Outcome::Error(error.kind()),
        },
        code: outcome.as_ref().err().map(|error| Arc::from(error.code())),
        duration: Some(duration),
        cpu: usage.as_ref().map(|usage| usage.cpu),
        peak_memory_bytes: usage.as_ref().map(|usage| usage.peak_memory_bytes),
        output_bytes: Some(original_bytes),
        truncated: Some(truncated),
        connections_omitted: usage.as_ref().map_or(0, |usage| usage.connections_omitted),
        connections: usage.as_mut().map(|usage| take(&mut usage.connections)).unwrap_or_default(),
        mounts_used: usage.map(|usage| usage.mounts_used).unwrap_or_default(),
    };
    let (outcome, details, truncated, original_bytes) = match pending.end(ending) {
        Ok(()) => (outcome, details, truncated, original_bytes),
        // Withhold details and sizes too: a stored output's id would tell what no row records.
        Err(error) => (Err(unrecorded(&error)), Map::new().into(), false, 0),
    };
    caller.emit(&ToolEvent::Finished {
        call_id: call_id.clone(),
        tool: tool.clone(),
        error: outcome.as_ref().err().map(|error| error.kind()),
        duration,
        bytes: original_bytes,
        truncated,
    });
    ToolResult { call_id, tool, outcome, details, truncated, original_bytes, duration }
}
