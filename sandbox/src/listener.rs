//! Sends progress and partial results of a running call to its observer through a bounded queue.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use portcullis_types::ToolOutput;
use tokio::sync::mpsc;

/// The capacity of a call's queue of progress and update frames. When the queue is full, new frames are dropped and
/// counted.
pub(super) const LISTENER_CAPACITY: usize = 32;

/// A frame for the observer of a call.
#[derive(Debug)]
pub enum StreamFrame {
    /// The guest's progress text.
    Progress(String),
    /// A partial result.
    Update(ToolOutput),
}

/// The sending end of a call's progress and update frames.
#[derive(Debug)]
pub struct Listener {
    pub(super) sender: mpsc::Sender<StreamFrame>,
    /// The number of frames that were dropped because the queue was full.
    pub(super) dropped_frames: Arc<AtomicU64>,
}

impl Listener {
    pub(super) fn send(&self, frame: StreamFrame) {
        if self.sender.try_send(frame).is_err() {
            self.dropped_frames.fetch_add(1, Ordering::Relaxed);
        }
    }
}
