//! Passes bytes from one guest's standard output to another's standard input, while both run.
//!
//! A few chunks may wait. Unlike progress frames no chunk is ever dropped: the sender waits for the receiver,
//! on its own worker thread, up to its deadline or cancellation.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use portcullis_types::{MAX_CHUNK_BYTES, MAX_TRANSFER_BYTES};

use super::{
    GuestFault,
    control::{CallControl, CallStop},
};

/// Limit of chunks that wait for the receiver, 512 KiB each at most. With the one at each end, this is all
/// the memory of a transfer.
const CAPACITY: usize = 4;

/// Length of one wait, so that a deadline or a cancellation is noticed soon.
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
    waiting: VecDeque<Vec<u8>>,
    /// Bytes of all chunks sent so far.
    bytes: u64,
    phase: TransferPhase,
    /// Whether the receiver got a chunk or the end.
    is_received: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferPhase {
    Open,
    /// All chunks were sent, and the sender has ended and is on record.
    Ended,
    /// The receiver knows that the transfer is complete.
    EndReceived,
    BrokenOff,
}

/// The end of a transfer that a call has.
#[derive(Debug, Clone)]
pub enum TransferEnd {
    /// Sends its standard output.
    Sending(Arc<Transfer>),
    /// Receives on its standard input.
    Receiving(Arc<Transfer>),
}

/// An item that the receiver gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TransferItem {
    Chunk(Vec<u8>),
    /// The transfer is complete; the number of its bytes.
    End(u64),
    /// The transfer was broken off before its end.
    BrokenOff,
}

impl Transfer {
    /// A transfer with the default limit of bytes.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with_limit(MAX_TRANSFER_BYTES)
    }

    /// A complete transfer of bytes that are all in memory already, for a receiver alone.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Arc<Self> {
        let transfer = Self::with_limit(MAX_TRANSFER_BYTES);
        let mut state = transfer.state();
        state.waiting = bytes.chunks(MAX_CHUNK_BYTES).map(<[u8]>::to_vec).collect();
        state.bytes = bytes.len() as u64;
        state.phase = TransferPhase::Ended;
        drop(state);
        transfer
    }

    fn with_limit(limit_bytes: u64) -> Arc<Self> {
        let state = TransferState {
            waiting: VecDeque::new(),
            bytes: 0,
            phase: TransferPhase::Open,
            is_received: false,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), limit_bytes })
    }

    /// Completes the transfer. Before this, no receiver takes its data as complete.
    pub fn end(&self) {
        let mut state = self.state();
        if state.phase == TransferPhase::Open {
            state.phase = TransferPhase::Ended;
            self.changed.notify_all();
        }
    }

    /// Prevents the receiver from getting the end; `false` if it has it already.
    pub fn break_off(&self) -> bool {
        let mut state = self.state();
        if state.phase == TransferPhase::EndReceived {
            return false;
        }
        state.phase = TransferPhase::BrokenOff;
        state.waiting.clear();
        self.changed.notify_all();
        true
    }

    /// How many bytes were sent.
    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Whether the receiver got a chunk or the end.
    pub fn is_received(&self) -> bool {
        self.state().is_received
    }

    /// Sends a chunk; waits for room.
    fn send(&self, chunk: Vec<u8>, control: &CallControl) -> Result<(), SendRefusal> {
        let mut state = self.state();
        loop {
            if state.phase != TransferPhase::Open {
                return Err(SendRefusal::BrokenOff);
            }
            if state.bytes + chunk.len() as u64 > self.limit_bytes {
                return Err(SendRefusal::TooMuch);
            }
            if state.waiting.len() < CAPACITY {
                state.bytes += chunk.len() as u64;
                state.waiting.push_back(chunk);
                self.changed.notify_all();
                return Ok(());
            }
            if let Some(reason) = control.stop_reason() {
                return Err(SendRefusal::Stopped(reason));
            }
            state = self.wait(state);
        }
    }

    /// Waits for the next item.
    pub(super) fn receive(&self, control: &CallControl) -> Result<TransferItem, CallStop> {
        let mut state = self.state();
        loop {
            if let Some(chunk) = state.waiting.pop_front() {
                state.is_received = true;
                self.changed.notify_all();
                return Ok(TransferItem::Chunk(chunk));
            }
            match state.phase {
                TransferPhase::Open => {}
                TransferPhase::Ended | TransferPhase::EndReceived => {
                    (state.phase, state.is_received) = (TransferPhase::EndReceived, true);
                    return Ok(TransferItem::End(state.bytes));
                }
                TransferPhase::BrokenOff => return Ok(TransferItem::BrokenOff),
            }
            if let Some(reason) = control.stop_reason() {
                return Err(reason);
            }
            state = self.wait(state);
        }
    }

    /// A panic while locked leaves the state valid: each change is a single step.
    fn state(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, TransferState>) -> MutexGuard<'a, TransferState> {
        self.changed.wait_timeout(state, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Why a chunk was not sent.
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
    /// Sends a chunk; waits for room.
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
