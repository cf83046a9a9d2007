//! Passes bytes from the standard output of one guest to the standard input of another, while both run.
//!
//! A few chunks can be queued. Unlike progress frames, chunks are never dropped: the sender blocks on its
//! own worker thread until there is room, its deadline expires, or its call is cancelled.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::{Condvar, Mutex, MutexGuard};
use portcullis_types::{MAX_CHUNK_BYTES, MAX_TRANSFER_BYTES};

use super::{
    GuestFault,
    control::{CallControl, CallStop},
};

/// The maximum number of queued chunks, of at most 512 KiB each. Together with one chunk at each end, this
/// is all the memory of a transfer between two guests. [`Transfer::from_bytes`] queues all its bytes at
/// once.
const CAPACITY: usize = 4;

/// The length of one wait, which bounds how late a deadline or a cancellation is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A transfer, shared by its two ends and their caller.
#[derive(Debug)]
pub struct Transfer {
    state: Mutex<TransferState>,
    changed: Condvar,
    limit_bytes: u64,
}

#[derive(Debug)]
struct TransferState {
    chunks: VecDeque<Vec<u8>>,
    /// The number of bytes in all chunks sent so far.
    bytes: u64,
    phase: TransferPhase,
    /// Whether the receiver has received a chunk or the end.
    is_received: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferPhase {
    Open,
    /// All chunks were sent, and the sender has ended and was recorded.
    Complete,
    /// The receiver knows that the transfer is complete.
    CompletionReceived,
    Aborted,
}

/// The endpoint of a transfer that a call holds.
#[derive(Debug, Clone)]
pub enum TransferEndpoint {
    /// The call's standard output is sent.
    Sender(Arc<Transfer>),
    /// The call's standard input is received.
    Receiver(Arc<Transfer>),
}

/// An item for the receiver.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TransferItem {
    Chunk(Vec<u8>),
    /// The transfer is complete. The value is the number of its bytes.
    Complete(u64),
    /// The transfer was aborted.
    Aborted,
}

impl Transfer {
    /// Creates a transfer with the default limit of bytes.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with_limit(MAX_TRANSFER_BYTES)
    }

    /// Creates a complete transfer of bytes that are already in memory. It has only a receiver.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Arc<Self> {
        let transfer = Self::with_limit(MAX_TRANSFER_BYTES);
        let mut state = transfer.state();
        state.chunks = bytes.chunks(MAX_CHUNK_BYTES).map(<[u8]>::to_vec).collect();
        state.bytes = bytes.len() as u64;
        state.phase = TransferPhase::Complete;
        drop(state);
        transfer
    }

    fn with_limit(limit_bytes: u64) -> Arc<Self> {
        let state = TransferState {
            chunks: VecDeque::new(),
            bytes: 0,
            phase: TransferPhase::Open,
            is_received: false,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), limit_bytes })
    }

    /// Completes the transfer. No receiver treats its data as complete before this call.
    pub fn complete(&self) {
        let mut state = self.state();
        if state.phase == TransferPhase::Open {
            state.phase = TransferPhase::Complete;
            self.changed.notify_all();
        }
    }

    /// Aborts the transfer. Returns `false` if the receiver already knows that it is complete.
    pub fn abort(&self) -> bool {
        let mut state = self.state();
        if state.phase == TransferPhase::CompletionReceived {
            return false;
        }
        state.phase = TransferPhase::Aborted;
        // The receiver gets none of the queued chunks, so their memory is freed.
        state.chunks.clear();
        self.changed.notify_all();
        true
    }

    /// Returns the number of bytes sent so far.
    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Returns whether the receiver has received a chunk or the end.
    pub fn is_received(&self) -> bool {
        self.state().is_received
    }

    /// Sends a chunk. Blocks until there is room for it.
    fn send(&self, chunk: Vec<u8>, control: &CallControl) -> Result<(), SendRefusal> {
        let mut state = self.state();
        loop {
            if state.phase != TransferPhase::Open {
                return Err(SendRefusal::BrokenOff);
            }
            if state.bytes + chunk.len() as u64 > self.limit_bytes {
                return Err(SendRefusal::TooMuch);
            }
            if state.chunks.len() < CAPACITY {
                state.bytes += chunk.len() as u64;
                state.chunks.push_back(chunk);
                self.changed.notify_all();
                return Ok(());
            }
            if let Some(reason) = control.stop_reason() {
                return Err(SendRefusal::Stopped(reason));
            }
            self.wait(&mut state);
        }
    }

    /// Blocks until the next item arrives.
    pub(super) fn receive(&self, control: &CallControl) -> Result<TransferItem, CallStop> {
        let mut state = self.state();
        loop {
            // Queued chunks come before the phase, so the end follows the last chunk.
            if let Some(chunk) = state.chunks.pop_front() {
                state.is_received = true;
                self.changed.notify_all();
                return Ok(TransferItem::Chunk(chunk));
            }
            match state.phase {
                TransferPhase::Open => {}
                TransferPhase::Complete | TransferPhase::CompletionReceived => {
                    (state.phase, state.is_received) = (TransferPhase::CompletionReceived, true);
                    return Ok(TransferItem::Complete(state.bytes));
                }
                TransferPhase::Aborted => return Ok(TransferItem::Aborted),
            }
            if let Some(reason) = control.stop_reason() {
                return Err(reason);
            }
            self.wait(&mut state);
        }
    }

    /// Locks the state. Each change is a single step, so the state stays valid even if a holder of the lock
    /// panicked.
    fn state(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock()
    }

    fn wait(&self, state: &mut MutexGuard<'_, TransferState>) {
        self.changed.wait_for(state, POLL_INTERVAL);
    }
}

/// The reason why a chunk was not sent.
#[derive(Debug, PartialEq, Eq)]
enum SendRefusal {
    BrokenOff,
    TooMuch,
    Stopped(CallStop),
}

/// The sending end, used by the reader of a guest's standard output.
#[derive(Debug)]
pub(super) struct ChunkSink {
    pub(super) transfer: Arc<Transfer>,
    pub(super) control: Arc<CallControl>,
    pub(super) time_limit: Duration,
}

impl ChunkSink {
    /// Sends a chunk. Blocks until there is room for it.
    pub(super) fn send(&self, chunk: Vec<u8>) -> Result<(), GuestFault> {
        self.transfer.send(chunk, &self.control).map_err(|refused| match refused {
            SendRefusal::TooMuch => GuestFault::TransferTooLarge { limit_bytes: self.transfer.limit_bytes },
            SendRefusal::Stopped(CallStop::Deadline) => GuestFault::Timeout { limit: self.time_limit },
            SendRefusal::Stopped(CallStop::Cancelled) | SendRefusal::BrokenOff => GuestFault::Cancelled,
        })
    }
}

#[cfg(test)]
mod tests;
