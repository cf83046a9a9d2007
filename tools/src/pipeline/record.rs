//! Step 7: writes the final audit row, then releases the result.

use std::{mem::take, sync::Arc};

use portcullis_types::{ToolEvent, ToolOutcome, ToolResult};
use serde_json::Map;

use super::{PendingRecord, pending_record::unrecorded, shape::Shaped};
use crate::{
    audit::{CallEnd, Outcome},
    call::Caller,
};

/// Writes the call's end and releases its result. If the end cannot be written, the result is withheld.
pub(crate) fn record(shaped: Shaped, caller: &Caller, mut pending_record: PendingRecord) -> ToolResult {
    let call_id = pending_record.row.call_id.to_string();
    let tool = pending_record.row.tool.to_string();
    let duration = pending_record.elapsed();
    let Shaped { outcome, details, truncated, original_bytes, mut usage } = shaped;
    let ending = CallEnd {
        outcome: match &outcome {
            ToolOutcome::Output(_) => Outcome::Ok,
            ToolOutcome::Error(error) => Outcome::Error(error.kind()),
            ToolOutcome::Pending { .. } => Outcome::Pending,
        },
        code: outcome.error().map(|error| Arc::from(error.code())),
        duration: Some(duration),
        cpu: usage.as_ref().map(|usage| usage.cpu),
        peak_memory_bytes: usage.as_ref().map(|usage| usage.peak_memory_bytes),
        output_bytes: Some(original_bytes),
        truncated: Some(truncated),
        connections_omitted: usage.as_ref().map_or(0, |usage| usage.connections_omitted),
        connections: usage.as_mut().map(|usage| take(&mut usage.connections)).unwrap_or_default(),
        touched: usage.as_mut().and_then(|usage| usage.touched.take()),
        touched_paths: usage.as_mut().map(|usage| take(&mut usage.touched_paths)).unwrap_or_default(),
        mounts_used: usage.map(|usage| usage.mounts_used).unwrap_or_default(),
    };
    let (outcome, details, truncated, original_bytes) = match pending_record.end(ending) {
        Ok(()) => (outcome, details, truncated, original_bytes),
        // Withhold details and sizes too: the id of a stored output would reveal a call that no row records.
        Err(error) => (ToolOutcome::Error(unrecorded(&error)), Map::new().into(), false, 0),
    };
    // Notify listeners only after the row is written.
    caller.emit(&ToolEvent::Finished {
        call_id: call_id.clone(),
        tool: tool.clone(),
        error: outcome.error().map(portcullis_types::ToolError::kind),
        is_pending: matches!(outcome, ToolOutcome::Pending { .. }),
        duration,
        bytes: original_bytes,
        truncated,
    });
    ToolResult { call_id, tool, outcome, details, truncated, original_bytes, duration }
}
