//! Passes progress and partial results of a running call to the caller.

use std::sync::Arc;

use portcullis_policy::OutputBytes;
use portcullis_types::{ProgressFn, ToolEvent, ToolUpdateFn};

use crate::{
    call::Caller,
    pipeline::{bound::cut_partial, shape::shorten},
    sandbox::StreamFrame,
};

/// Returns the listener for partial results, which truncates each of them like a result. `None` if the caller
/// has no listener.
pub(super) fn update_forwarder(
    call_id: &str,
    caller: &Caller,
    limit: Option<OutputBytes>,
) -> Option<ToolUpdateFn> {
    caller.watches_frames().then(|| {
        let (watcher, id) = (caller.clone(), call_id.to_owned());
        let forward: ToolUpdateFn = Arc::new(move |partial| {
            let frame = StreamFrame::Update(partial);
            let frame = match limit {
                Some(limit) => bound_frame(frame, limit),
                None => frame,
            };
            forward_frame(frame, &id, &watcher);
        });
        forward
    })
}

/// Returns the listener for progress. `None` if the caller has no listener.
pub(super) fn progress_forwarder(call_id: &str, caller: &Caller) -> Option<ProgressFn> {
    caller.watches_frames().then(|| {
        let (watcher, id) = (caller.clone(), call_id.to_owned());
        let forward: ProgressFn = Arc::new(move |text: String| {
            let text = shorten(&text, MAX_PROGRESS_BYTES);
            forward_frame(StreamFrame::Progress(text), &id, &watcher);
        });
        forward
    })
}

/// Truncates a report to a length that can be shown.
pub(super) fn bound_frame(frame: StreamFrame, limit: OutputBytes) -> StreamFrame {
    match frame {
        StreamFrame::Progress(text) => StreamFrame::Progress(shorten(&text, MAX_PROGRESS_BYTES)),
        StreamFrame::Update(mut partial) => {
            cut_partial(&mut partial, usize::try_from(limit.0).unwrap_or(usize::MAX));
            StreamFrame::Update(partial)
        }
    }
}

/// The maximum length of a progress text that is forwarded: 4 KiB, like the limit of errors. Progress is one
/// line for a person.
const MAX_PROGRESS_BYTES: usize = 4096;

/// Passes a progress or update frame to the caller's listeners.
pub(super) fn forward_frame(frame: StreamFrame, call_id: &str, caller: &Caller) {
    let call_id = call_id.to_owned();
    match frame {
        StreamFrame::Progress(text) => {
            if let Some(listener) = &caller.on_progress {
                listener(text.clone());
            }
            caller.emit(&ToolEvent::Progress { call_id, text });
        }
        StreamFrame::Update(partial) => {
            if let Some(listener) = &caller.on_update {
                listener(partial.clone());
            }
            caller.emit(&ToolEvent::Update { call_id, partial });
        }
    }
}
