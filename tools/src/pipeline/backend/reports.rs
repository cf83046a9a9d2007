//! Progress and partial results of a running call, on their way to the caller.

use std::sync::Arc;

use portcullis_policy::OutputBytes;
use portcullis_types::{ProgressFn, ToolEvent, ToolUpdateFn};

use crate::{
    call::Caller,
    pipeline::{bound::cut_partial, shape::shortened},
    sandbox::StreamFrame,
};

/// The listener for partial results, each bounded like the result. `None` if the caller has no listener.
pub(super) fn on_update(call_id: &str, caller: &Caller, limit: Option<OutputBytes>) -> Option<ToolUpdateFn> {
    caller.watches_frames().then(|| {
        let (watcher, id) = (caller.clone(), call_id.to_owned());
        let pass: ToolUpdateFn = Arc::new(move |partial| {
            let frame = StreamFrame::Update(partial);
            let frame = match limit {
                Some(limit) => bounded(frame, limit),
                None => frame,
            };
            pass_on(frame, &id, &watcher);
        });
        pass
    })
}

/// The listener for progress. `None` if the caller has no listener.
pub(super) fn on_progress(call_id: &str, caller: &Caller) -> Option<ProgressFn> {
    caller.watches_frames().then(|| {
        let (watcher, id) = (caller.clone(), call_id.to_owned());
        let pass: ProgressFn = Arc::new(move |text: String| {
            let text = shortened(&text, MAX_PROGRESS_BYTES);
            pass_on(StreamFrame::Progress(text), &id, &watcher);
        });
        pass
    })
}

/// Cuts a report to a length that is fit to show.
pub(super) fn bounded(frame: StreamFrame, limit: OutputBytes) -> StreamFrame {
    match frame {
        StreamFrame::Progress(text) => StreamFrame::Progress(shortened(&text, MAX_PROGRESS_BYTES)),
        StreamFrame::Update(mut partial) => {
            cut_partial(&mut partial, usize::try_from(limit.0).unwrap_or(usize::MAX));
            StreamFrame::Update(partial)
        }
    }
}

/// The longest progress text that is passed on: 4 KiB, as for errors. Progress is one line for a watcher.
const MAX_PROGRESS_BYTES: usize = 4096;

/// Passes a progress or update frame to the caller's listeners.
pub(super) fn pass_on(frame: StreamFrame, call_id: &str, caller: &Caller) {
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
