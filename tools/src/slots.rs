//! Slots of calls: how many run at once, and which may run together. Ten slots by default, a bounded queue
//! before them, and one writer per mount.
//!
//! A call that may write a mount never runs together with another call that may write it, whatever their
//! callers and tools: a tool that reads a file, thinks, and writes it back would lose the other's changes.
//! Calls that only read run beside it. A call gets its slot and its mounts in one step, or waits for both. If
//! it held one while waiting for the other, two calls could deadlock, and waiting writers would keep readers
//! out.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use portcullis_types::{CancellationToken, ToolError};
use tokio::sync::oneshot;

/// The most calls that may wait for a slot; one more is refused, so that a flood of calls costs no memory.
pub(crate) const MAX_QUEUED: usize = 1024;

/// The most calls whose work may go on after they were given up, such as native tools that block their
/// threads. At this number new calls are refused until one of them returns.
pub(crate) const MAX_ABANDONED: usize = 64;

/// Hands out the slots.
#[derive(Debug)]
pub(crate) struct CallSlots {
    shared: Arc<SharedSlots>,
}

/// A call's slot, with the mounts that only this call may write. Nested calls share their parent's slot, and
/// have mounts of their own.
#[derive(Debug, Clone)]
pub(crate) struct CallSlot {
    /// Released when the last part of the call that could still write has dropped it. Declared before the
    /// slot, so that it drops first and the next waiter finds both.
    _writes: Option<Arc<TakenSlot>>,
    held: Arc<SlotLease>,
}

#[derive(Debug)]
struct SlotLease {
    /// None after the call was given up.
    taken: Mutex<Option<TakenSlot>>,
    shared: Arc<SharedSlots>,
}

/// A slot and mounts, handed out together.
#[derive(Debug, Default)]
struct SlotRequest {
    slot: bool,
    /// Names of mounts to write.
    writes: Vec<String>,
}

/// A slot and mounts that were handed out; returned on drop.
#[derive(Debug)]
struct TakenSlot {
    wants: SlotRequest,
    shared: Arc<SharedSlots>,
}

#[derive(Debug)]
struct SharedSlots {
    state: Mutex<SlotsState>,
    abandoned: AtomicUsize,
}

#[derive(Debug)]
struct SlotsState {
    free: usize,
    /// The mounts that a running call may write.
    written: Vec<String>,
    /// In order of arrival. The first waiter whose wants are free is served next.
    queue: VecDeque<Waiter>,
    next_number: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    wants: SlotRequest,
    reply: oneshot::Sender<TakenSlot>,
}

impl CallSlot {
    /// Frees the slot for the next call, though work of this one may go on. That work counts as abandoned
    /// until it drops the slot too.
    pub(crate) fn abandon(&self) {
        let taken = self.held.taken.lock().unwrap_or_else(PoisonError::into_inner).take();
        if taken.is_some() {
            self.held.shared.abandoned.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        if self.taken.get_mut().unwrap_or_else(PoisonError::into_inner).is_none() {
            self.shared.abandoned.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl CallSlots {
    pub(crate) fn new(count: usize) -> Self {
        let state = SlotsState { free: count, written: Vec::new(), queue: VecDeque::new(), next_number: 0 };
        Self { shared: Arc::new(SharedSlots { state: Mutex::new(state), abandoned: AtomicUsize::new(0) }) }
    }

    /// Takes a slot and the mounts that the call may write, waiting if needed.
    ///
    /// # Cancellation
    /// A dropped or cancelled wait leaves the queue.
    pub(crate) async fn take(
        &self,
        writes: Vec<String>,
        cancel: &CancellationToken,
    ) -> Result<CallSlot, ToolError> {
        let abandoned = self.shared.abandoned.load(Ordering::Acquire);
        if abandoned >= MAX_ABANDONED && !cancel.is_cancelled() {
            let message = format!("{abandoned} calls that were given up have not stopped yet");
            return Err(ToolError::unavailable(message).with_code("threads_exhausted"));
        }
        let mut taken = self.acquire(SlotRequest { slot: true, writes }, cancel).await?;
        // The two are returned separately: the slot may be freed while abandoned work still writes.
        let writes = std::mem::take(&mut taken.wants.writes);
        let shared = Arc::clone(&self.shared);
        let writes = (!writes.is_empty()).then(|| {
            Arc::new(TakenSlot { wants: SlotRequest { slot: false, writes }, shared: Arc::clone(&shared) })
        });
        Ok(CallSlot { _writes: writes, held: Arc::new(SlotLease { taken: Mutex::new(Some(taken)), shared }) })
    }

    /// The slot for a nested call, with the mounts that it may write. It waits only for the mounts; their
    /// holder is running, so the wait ends.
    ///
    /// # Cancellation
    /// A dropped or cancelled wait leaves the queue.
    pub(crate) async fn take_nested(
        &self,
        parent: &CallSlot,
        writes: Vec<String>,
        cancel: &CancellationToken,
    ) -> Result<CallSlot, ToolError> {
        if writes.is_empty() {
            return Ok(parent.clone());
        }
        let writes = self.acquire(SlotRequest { slot: false, writes }, cancel).await?;
        Ok(CallSlot { _writes: Some(Arc::new(writes)), held: Arc::clone(&parent.held) })
    }

    async fn acquire(&self, wants: SlotRequest, cancel: &CancellationToken) -> Result<TakenSlot, ToolError> {
        let cancelled = || ToolError::cancelled("the call was cancelled before it ran");
        if cancel.is_cancelled() {
            return Err(cancelled());
        }
        let (number, mut granted) = {
            let mut state = self.shared.state();
            let is_free = state.can_have(&wants);
            if is_free && !state.queue.iter().any(|waiter| waiter.wants.comes_before(&wants)) {
                state.hand_out(&wants);
                return Ok(TakenSlot { wants, shared: Arc::clone(&self.shared) });
            }
            if state.queue.len() >= MAX_QUEUED {
                let message = format!("{MAX_QUEUED} calls are waiting already; try again later");
                return Err(ToolError::resource_limit(message).with_code("queue_full"));
            }
            let (reply, granted) = oneshot::channel();
            let number = state.next_number;
            state.next_number += 1;
            state.queue.push_back(Waiter { number, wants, reply });
            (number, granted)
        };
        let _queued = QueuePosition { shared: &self.shared, number };
        // `biased`: a batch that is cancelled frees slots, and none of its own may take them.
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(cancelled()),
            taken = &mut granted => taken.map_err(|closed| ToolError::internal(closed.to_string())),
        }
    }
}

impl SlotRequest {
    /// Whether an earlier waiter must be served before a later one: both want to write the same mount. A
    /// nested call (which has a slot) never waits for a call without a slot: that one may be waiting for the
    /// slot of the nested call's parent.
    fn comes_before(&self, later: &Self) -> bool {
        (later.slot || !self.slot) && self.shares_mount(&later.writes)
    }

    fn shares_mount(&self, mounts: &[String]) -> bool {
        self.writes.iter().any(|name| mounts.contains(name))
    }
}

impl SlotsState {
    fn can_have(&self, wants: &SlotRequest) -> bool {
        (!wants.slot || self.free > 0) && !wants.shares_mount(&self.written)
    }

    fn hand_out(&mut self, wants: &SlotRequest) {
        self.free -= usize::from(wants.slot);
        self.written.extend(wants.writes.iter().cloned());
    }

    fn take_back(&mut self, wants: &SlotRequest) {
        self.free += usize::from(wants.slot);
        self.written.retain(|name| !wants.writes.contains(name));
    }
}

impl SharedSlots {
    fn state(&self) -> MutexGuard<'_, SlotsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves waiters with what is free, in order of arrival.
    fn serve(self: &Arc<Self>) {
        loop {
            let (reply, taken) = {
                let mut state = self.state();
                let Some(at) = state.next() else { return };
                let Some(Waiter { wants, reply, .. }) = state.queue.remove(at) else { return };
                state.hand_out(&wants);
                (reply, TakenSlot { wants, shared: Arc::clone(self) })
            };
            // If the waiter has just given up, this drops `TakenSlot`, which takes the lock: not under the
            // lock.
            drop(reply.send(taken));
        }
    }
}

impl SlotsState {
    /// The next waiter to serve: the first whose wants are free and not claimed by an earlier waiter.
    fn next(&self) -> Option<usize> {
        // Fast path: no slot is free, and every waiter needs one.
        if self.free == 0 && self.queue.iter().all(|waiter| waiter.wants.slot) {
            return None;
        }
        let mut before: Vec<&SlotRequest> = Vec::new();
        for (at, Waiter { wants, .. }) in self.queue.iter().enumerate() {
            if self.can_have(wants) && !before.iter().any(|earlier| earlier.comes_before(wants)) {
                return Some(at);
            }
            // Mounts are few: one waiter represents all that want the same.
            let is_same =
                |earlier: &&SlotRequest| earlier.slot == wants.slot && earlier.writes == wants.writes;
            if !wants.writes.is_empty() && !before.iter().any(is_same) {
                before.push(wants);
            }
        }
        None
    }
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        if !self.wants.slot && self.wants.writes.is_empty() {
            return;
        }
        let is_waited_for = {
            let mut state = self.shared.state();
            state.take_back(&self.wants);
            !state.queue.is_empty()
        };
        if is_waited_for {
            self.shared.serve();
        }
    }
}

/// A position in the queue; left on drop.
struct QueuePosition<'a> {
    shared: &'a Arc<SharedSlots>,
    number: u64,
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let was_waiting = {
            let mut state = self.shared.state();
            let at = state.queue.iter().position(|waiter| waiter.number == self.number);
            at.and_then(|at| state.queue.remove(at))
        };
        // Later waiters may have waited only for this one.
        if was_waiting.is_some() {
            self.shared.serve();
        }
    }
}

/// Frees a slot on drop, even if others still hold it.
#[derive(Debug)]
pub(crate) struct AbandonOnDrop(pub(crate) CallSlot);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use portcullis_types::ToolErrorKind;

    use super::*;

    fn shared_mount() -> Vec<String> {
        vec!["shared".to_owned()]
    }

    async fn reading(slots: &CallSlots) -> Result<CallSlot, ToolError> {
        slots.take(Vec::new(), &CancellationToken::new()).await
    }

    async fn writing(slots: &CallSlots) -> Result<CallSlot, ToolError> {
        slots.take(shared_mount(), &CancellationToken::new()).await
    }

    #[tokio::test]
    async fn work_that_does_not_stop_keeps_no_place_but_is_bounded() {
        let slots = CallSlots::new(1);
        let mut still_working = Vec::new();
        for _ in 0..MAX_ABANDONED {
            let slot = reading(&slots).await.expect("free");
            still_working.push(slot.clone());
            drop(AbandonOnDrop(slot));
        }
        let refused = reading(&slots).await.expect_err("too many");
        assert_eq!((refused.kind(), refused.code()), (ToolErrorKind::Unavailable, "threads_exhausted"));
        still_working.pop();
        let slot = reading(&slots).await.expect("one came back");
        drop(slot);
        drop(still_working);
        assert_eq!(slots.shared.abandoned.load(Ordering::Acquire), 0);
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_a_cancelled_wait_leaves_it() {
        let slots = Arc::new(CallSlots::new(1));
        let held = reading(&slots).await.expect("free");
        let cancel = CancellationToken::new();
        let mut waiting: Vec<_> = (0..MAX_QUEUED)
            .map(|_| {
                let (slots, cancel) = (Arc::clone(&slots), cancel.clone());
                Box::pin(async move { slots.take(Vec::new(), &cancel).await })
            })
            .collect();
        for wait in &mut waiting {
            assert!(poll!(wait).is_pending());
        }
        let refused = reading(&slots).await.expect_err("full");
        assert_eq!((refused.kind(), refused.code()), (ToolErrorKind::ResourceLimit, "queue_full"));
        cancel.cancel();
        for wait in waiting {
            assert_eq!(wait.await.expect_err("cancelled").kind(), ToolErrorKind::Cancelled);
        }
        assert!(slots.shared.state().queue.is_empty());
        drop(held);
        reading(&slots).await.expect("free again");
    }

    #[tokio::test]
    async fn writers_of_a_mount_wait_in_turn_and_block_no_reader() {
        let slots = CallSlots::new(3);
        let first = writing(&slots).await.expect("free");
        let (mut second, mut third) = (Box::pin(writing(&slots)), Box::pin(writing(&slots)));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        // Two slots are free, although a writer waits for the mount.
        let readers = [reading(&slots).await, reading(&slots).await];
        let mut late = Box::pin(reading(&slots));
        assert!(poll!(&mut late).is_pending());
        // Mount and slot are returned together, and waiters are served in order.
        drop(first);
        let second = second.await.expect("its turn");
        assert!(poll!(&mut third).is_pending() && poll!(&mut late).is_pending());
        drop(readers);
        late.await.expect("a slot");
        assert!(poll!(&mut third).is_pending());
        drop(second);
        third.await.expect("its turn");
        let state = slots.shared.state();
        assert_eq!((state.free, state.written.len(), state.queue.len()), (3, 0, 0));
    }

    #[tokio::test]
    async fn writers_of_different_mounts_run_beside_each_other() {
        let slots = CallSlots::new(3);
        let cancel = CancellationToken::new();
        let one = slots.take(vec!["a".into(), "b".into()], &cancel).await.expect("free");
        let _other = slots.take(vec!["c".into()], &cancel).await.expect("free");
        let mut both = Box::pin(slots.take(vec!["b".into(), "c".into()], &cancel));
        assert!(poll!(&mut both).is_pending());
        drop(one);
        assert!(poll!(&mut both).is_pending(), "it gets nothing before it gets all");
        slots.take(vec!["a".into()], &cancel).await.expect("nobody waits for this one");
    }

    #[tokio::test]
    async fn a_nested_call_never_waits_for_a_call_without_a_slot() {
        let slots = CallSlots::new(1);
        let parent = reading(&slots).await.expect("free");
        let mut outside = Box::pin(writing(&slots));
        assert!(poll!(&mut outside).is_pending());
        let cancel = CancellationToken::new();
        let within = slots.take_nested(&parent, shared_mount(), &cancel).await.expect("no deadlock");
        let mut beside = Box::pin(slots.take_nested(&parent, shared_mount(), &cancel));
        assert!(poll!(&mut beside).is_pending(), "one writer, also within a call");
        drop(within);
        drop(beside.await.expect("its turn"));
        drop(parent);
        outside.await.expect("its turn");
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_when_its_turn_has_come_passes_it_on() {
        let slots = CallSlots::new(2);
        let first = writing(&slots).await.expect("free");
        let (mut gone, mut next) = (Box::pin(writing(&slots)), Box::pin(writing(&slots)));
        assert!(poll!(&mut gone).is_pending() && poll!(&mut next).is_pending());
        drop(first);
        drop(gone);
        next.await.expect("its turn");
    }
}
