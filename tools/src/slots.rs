//! Slots of calls: how many calls run concurrently, and which ones. There are ten slots by default, a bounded
//! queue, at most one writer per mount, and at most one call of a module that may change a server.
//!
//! Two calls that may write the same mount never run concurrently, regardless of caller and tool. Otherwise a
//! tool that reads a file and later writes it back could lose another tool's changes. The same applies to two
//! calls of one module that may send requests with effects. Calls that only read run beside both. A call gets
//! its slot and its exclusive locks together. If it held one while waiting for the other, it could cause a
//! deadlock, and waiting writers would block readers.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use portcullis_types::{CancellationToken, ToolError, ToolErrorCode};
use tokio::sync::oneshot;

use crate::{call::cancelled_before_run_error, sandbox::ModuleDigest};

/// The maximum number of calls that may wait for a slot: 1,024. Any further call is refused, so that a flood
/// of calls costs little memory.
pub(crate) const MAX_QUEUED: usize = 1024;

/// The maximum number of abandoned calls: 64. An abandoned call has returned to its caller, but its work
/// continues, for example because a native tool blocks its thread. At this number, new calls are refused
/// until an abandoned call finishes.
pub(crate) const MAX_ABANDONED: usize = 64;

/// Hands out the slots.
#[derive(Debug)]
pub(crate) struct CallSlots {
    shared_slots: Arc<SharedSlots>,
}

/// A lock that only one running call can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExclusiveLock {
    /// For writing to the mount with this name.
    Mount(String),
    /// For sending requests with effects as a tool of this module.
    Module(ModuleDigest),
}

/// A call's slot, with its exclusive locks. Nested calls share their parent's slot, but have their own locks.
#[derive(Debug, Clone)]
pub(crate) struct CallSlot {
    /// Shared by all parts of the call that can write. The last part to end releases the locks. This field
    /// must precede `permit`: fields drop in order, and the next waiter needs both the locks and the slot.
    _locks: Option<Arc<GrantedClaim>>,
    permit: Arc<SlotPermit>,
}

#[derive(Debug)]
struct SlotPermit {
    /// `None` once the slot was given back or the call was abandoned.
    granted_claim: Mutex<Option<GrantedClaim>>,
    /// Whether the call counts as abandoned.
    is_abandoned: AtomicBool,
    shared_slots: Arc<SharedSlots>,
}

/// A slot and locks that are acquired together.
#[derive(Debug, Default)]
struct SlotClaim {
    slot: bool,
    locks: Vec<ExclusiveLock>,
}

/// A slot and locks that were acquired. Dropping it releases them.
#[derive(Debug)]
struct GrantedClaim {
    claim: SlotClaim,
    shared_slots: Arc<SharedSlots>,
}

#[derive(Debug)]
struct SharedSlots {
    state: Mutex<SlotsState>,
    abandoned_threads: AtomicUsize,
}

#[derive(Debug)]
struct SlotsState {
    free_slots: usize,
    /// The locks of running calls.
    held_locks: Vec<ExclusiveLock>,
    /// The waiters, in order of arrival. The first one whose slot and locks are free is served next.
    queue: VecDeque<Waiter>,
    next_number: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    claim: SlotClaim,
    reply: oneshot::Sender<GrantedClaim>,
}

impl CallSlot {
    /// Frees the slot for the next call, although work of this call may continue. That work counts as
    /// abandoned until it drops the slot too.
    pub(crate) fn abandon(&self) {
        let granted_claim = self.permit.granted_claim.lock().take();
        if granted_claim.is_some() {
            self.permit.is_abandoned.store(true, Ordering::Release);
            self.permit.shared_slots.abandoned_threads.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Frees the slot for the next call, because the rest of this call only waits and uses no
    /// resources of this process.
    pub(crate) fn give_back(&self) {
        drop(self.permit.granted_claim.lock().take());
    }
}

impl Drop for SlotPermit {
    fn drop(&mut self) {
        if *self.is_abandoned.get_mut() {
            self.shared_slots.abandoned_threads.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl CallSlots {
    pub(crate) fn new(count: usize) -> Self {
        let state =
            SlotsState { free_slots: count, held_locks: Vec::new(), queue: VecDeque::new(), next_number: 0 };
        Self {
            shared_slots: Arc::new(SharedSlots {
                state: Mutex::new(state),
                abandoned_threads: AtomicUsize::new(0),
            }),
        }
    }

    /// Acquires a slot and the exclusive locks of the call. Waits if needed.
    ///
    /// # Cancellation
    /// A dropped or cancelled wait leaves the queue.
    pub(crate) async fn take(
        &self,
        locks: Vec<ExclusiveLock>,
        cancel: &CancellationToken,
    ) -> Result<CallSlot, ToolError> {
        let abandoned = self.shared_slots.abandoned_threads.load(Ordering::Acquire);
        // A cancelled call skips this check, so that it reports its cancellation.
        if abandoned >= MAX_ABANDONED && !cancel.is_cancelled() {
            let message = format!("{abandoned} cancelled calls have not stopped yet");
            return Err(ToolError::unavailable(message).with_code(ToolErrorCode::ThreadsExhausted));
        }
        let mut granted_claim = self.acquire(SlotClaim { slot: true, locks }, cancel).await?;
        // Slot and locks are released separately: the slot can be freed while abandoned work still writes.
        let locks = std::mem::take(&mut granted_claim.claim.locks);
        let shared = Arc::clone(&self.shared_slots);
        let locks = (!locks.is_empty()).then(|| {
            Arc::new(GrantedClaim {
                claim: SlotClaim { slot: false, locks },
                shared_slots: Arc::clone(&shared),
            })
        });
        Ok(CallSlot {
            _locks: locks,
            permit: Arc::new(SlotPermit {
                granted_claim: Mutex::new(Some(granted_claim)),
                is_abandoned: AtomicBool::new(false),
                shared_slots: shared,
            }),
        })
    }

    /// Returns the slot of a nested call, and acquires its exclusive locks. A nested call waits only for
    /// locks, never for a slot. The wait ends, because the call that holds the locks is already running and
    /// will release them.
    ///
    /// # Cancellation
    /// A dropped or cancelled wait leaves the queue.
    pub(crate) async fn take_nested(
        &self,
        parent: &CallSlot,
        locks: Vec<ExclusiveLock>,
        cancel: &CancellationToken,
    ) -> Result<CallSlot, ToolError> {
        if locks.is_empty() {
            return Ok(parent.clone());
        }
        let locks = self.acquire(SlotClaim { slot: false, locks }, cancel).await?;
        Ok(CallSlot { _locks: Some(Arc::new(locks)), permit: Arc::clone(&parent.permit) })
    }

    async fn acquire(&self, claim: SlotClaim, cancel: &CancellationToken) -> Result<GrantedClaim, ToolError> {
        if cancel.is_cancelled() {
            return Err(cancelled_before_run_error());
        }
        let (number, mut claim_receiver) = {
            let mut state = self.shared_slots.state();
            let is_free = state.can_grant(&claim);
            // Even if slot and locks are free, do not overtake a waiter for the same lock.
            if is_free && !state.queue.iter().any(|waiter| waiter.claim.comes_before(&claim)) {
                state.hand_out(&claim);
                return Ok(GrantedClaim { claim, shared_slots: Arc::clone(&self.shared_slots) });
            }
            if state.queue.len() >= MAX_QUEUED {
                let message = format!("{MAX_QUEUED} calls are waiting already; try again later");
                return Err(ToolError::resource_limit(message).with_code(ToolErrorCode::QueueFull));
            }
            let (reply, receiver) = oneshot::channel();
            let number = state.next_number;
            state.next_number += 1;
            state.queue.push_back(Waiter { number, claim, reply });
            (number, receiver)
        };
        let _queued = QueuePosition { shared_slots: &self.shared_slots, number };
        // `biased`: cancelling a batch frees slots, and no call of the same batch may take them.
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(cancelled_before_run_error()),
            result = &mut claim_receiver => result.map_err(|closed| ToolError::internal(closed.to_string())),
        }
    }
}

impl SlotClaim {
    /// Whether an earlier waiter must be served before a later one. It must if both want the same lock,
    /// unless the later one is a nested call: the earlier waiter may need the slot of the nested call's
    /// parent, which would be a deadlock.
    fn comes_before(&self, later: &Self) -> bool {
        (later.slot || !self.slot) && self.shares_lock(&later.locks)
    }

    fn shares_lock(&self, locks: &[ExclusiveLock]) -> bool {
        self.locks.iter().any(|lock| locks.contains(lock))
    }
}

impl SlotsState {
    fn can_grant(&self, claim: &SlotClaim) -> bool {
        (!claim.slot || self.free_slots > 0) && !claim.shares_lock(&self.held_locks)
    }

    fn hand_out(&mut self, claim: &SlotClaim) {
        self.free_slots -= usize::from(claim.slot);
        self.held_locks.extend(claim.locks.iter().cloned());
    }

    fn take_back(&mut self, claim: &SlotClaim) {
        self.free_slots += usize::from(claim.slot);
        self.held_locks.retain(|lock| !claim.locks.contains(lock));
    }
}

impl SharedSlots {
    fn state(&self) -> MutexGuard<'_, SlotsState> {
        self.state.lock()
    }

    /// Gives free slots and locks to the waiters, in order of arrival.
    fn serve(self: &Arc<Self>) {
        loop {
            let (reply, granted_claim) = {
                let mut state = self.state();
                let Some(index) = state.next_servable() else { return };
                let Some(Waiter { claim, reply, .. }) = state.queue.remove(index) else { return };
                state.hand_out(&claim);
                (reply, GrantedClaim { claim, shared_slots: Arc::clone(self) })
            };
            // If the waiter has just gone away, this drops the claim, which takes the lock again. The block
            // above has therefore released the lock.
            drop(reply.send(granted_claim));
        }
    }
}

impl SlotsState {
    /// Returns the next waiter to serve: the first whose slot and locks are free, and who need not wait for
    /// an earlier waiter.
    fn next_servable(&self) -> Option<usize> {
        // Fast path: no slot is free, and every waiter needs one.
        if self.free_slots == 0 && self.queue.iter().all(|waiter| waiter.claim.slot) {
            return None;
        }
        let mut earlier_claims: Vec<&SlotClaim> = Vec::new();
        for (index, Waiter { claim, .. }) in self.queue.iter().enumerate() {
            if self.can_grant(claim) && !earlier_claims.iter().any(|earlier| earlier.comes_before(claim)) {
                return Some(index);
            }
            // Equal claims block the same later claims, so keep only one of them. This keeps the scan short.
            let is_same = |earlier: &&SlotClaim| earlier.slot == claim.slot && earlier.locks == claim.locks;
            if !claim.locks.is_empty() && !earlier_claims.iter().any(is_same) {
                earlier_claims.push(claim);
            }
        }
        None
    }
}

impl Drop for GrantedClaim {
    fn drop(&mut self) {
        if !self.claim.slot && self.claim.locks.is_empty() {
            return;
        }
        // The block releases the lock of the state, which `serve` takes again.
        let is_waited_for = {
            let mut state = self.shared_slots.state();
            state.take_back(&self.claim);
            !state.queue.is_empty()
        };
        if is_waited_for {
            self.shared_slots.serve();
        }
    }
}

/// A position in the queue. Dropping it leaves the queue.
struct QueuePosition<'a> {
    shared_slots: &'a Arc<SharedSlots>,
    number: u64,
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let was_waiting = {
            let mut state = self.shared_slots.state();
            let index = state.queue.iter().position(|waiter| waiter.number == self.number);
            index.and_then(|index| state.queue.remove(index))
        };
        // Later waiters may have been blocked only by this one.
        if was_waiting.is_some() {
            self.shared_slots.serve();
        }
    }
}

/// Frees a slot when dropped, even if others still hold it.
#[derive(Debug)]
pub(crate) struct AbandonOnDrop(pub(crate) CallSlot);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, poll};
    use portcullis_types::ToolErrorKind;
    use proptest::prelude::*;

    use super::*;

    fn mount(name: &str) -> ExclusiveLock {
        ExclusiveLock::Mount(name.to_owned())
    }

    fn shared_mount() -> Vec<ExclusiveLock> {
        vec![mount("shared")]
    }

    async fn reading(slots: &CallSlots) -> Result<CallSlot, ToolError> {
        slots.take(Vec::new(), &CancellationToken::new()).await
    }

    async fn writing(slots: &CallSlots) -> Result<CallSlot, ToolError> {
        slots.take(shared_mount(), &CancellationToken::new()).await
    }

    #[tokio::test]
    async fn abandoned_calls_free_their_slot_but_are_bounded() {
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
        assert_eq!(slots.shared_slots.abandoned_threads.load(Ordering::Acquire), 0);
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_a_cancelled_wait_leaves_it() {
        let slots = Arc::new(CallSlots::new(1));
        let held_slot = reading(&slots).await.expect("free");
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
        assert!(slots.shared_slots.state().queue.is_empty());
        drop(held_slot);
        reading(&slots).await.expect("free again");
    }

    #[tokio::test]
    async fn writers_of_a_mount_wait_in_turn_and_block_no_reader() {
        let slots = CallSlots::new(3);
        let first = writing(&slots).await.expect("free");
        let (mut second, mut third) = (Box::pin(writing(&slots)), Box::pin(writing(&slots)));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        // Two slots are free, although a writer is waiting for the mount.
        let readers = [reading(&slots).await, reading(&slots).await];
        let mut late_reader = Box::pin(reading(&slots));
        assert!(poll!(&mut late_reader).is_pending());
        // Mount and slot are released together, and the waiters are served in order.
        drop(first);
        let second = second.await.expect("a slot is free");
        assert!(poll!(&mut third).is_pending() && poll!(&mut late_reader).is_pending());
        drop(readers);
        late_reader.await.expect("a slot");
        assert!(poll!(&mut third).is_pending());
        drop(second);
        third.await.expect("a slot is free");
        let state = slots.shared_slots.state();
        assert_eq!((state.free_slots, state.held_locks.len(), state.queue.len()), (3, 0, 0));
    }

    #[tokio::test]
    async fn writers_of_different_mounts_run_beside_each_other() {
        let slots = CallSlots::new(3);
        let cancel = CancellationToken::new();
        let first = slots.take(vec![mount("a"), mount("b")], &cancel).await.expect("free");
        let _other = slots.take(vec![mount("c")], &cancel).await.expect("free");
        let mut second = Box::pin(slots.take(vec![mount("b"), mount("c")], &cancel));
        assert!(poll!(&mut second).is_pending());
        drop(first);
        assert!(poll!(&mut second).is_pending(), "it gets nothing before it gets all");
        slots.take(vec![mount("a")], &cancel).await.expect("nobody waits for this one");
    }

    #[tokio::test]
    async fn two_calls_of_a_module_with_effects_run_one_after_the_other() {
        let slots = CallSlots::new(4);
        let cancel = CancellationToken::new();
        let module = |byte: u8| vec![ExclusiveLock::Module(ModuleDigest([byte; 32]))];
        let first = slots.take(module(1), &cancel).await.expect("free");
        let mut second = Box::pin(slots.take(module(1), &cancel));
        let mut third = Box::pin(slots.take(module(1), &cancel));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        let _other = slots.take(module(2), &cancel).await.expect("another module does not wait");
        let _reader = reading(&slots).await.expect("a call without effects does not wait");
        drop(first);
        let second = second.await.expect("a slot is free");
        assert!(poll!(&mut third).is_pending());
        drop(second);
        third.await.expect("a slot is free");
    }

    /// Two mounts and two modules, each selected or not.
    fn locks(wanted: u8) -> Vec<ExclusiveLock> {
        let all = [
            mount("a"),
            mount("b"),
            ExclusiveLock::Module(ModuleDigest([1; 32])),
            ExclusiveLock::Module(ModuleDigest([2; 32])),
        ];
        let is_wanted = |(index, lock): (usize, ExclusiveLock)| (wanted >> index & 1 == 1).then_some(lock);
        all.into_iter().enumerate().filter_map(is_wanted).collect()
    }

    proptest! {
        /// Calls arrive, give up and end in any order. No lock is ever held twice, no slot is over-committed,
        /// and of two waiters for the same lock the earlier is served first.
        #[test]
        fn locks_exclude_each_other_in_order_of_arrival(
            slot_count in 1_usize..4,
            steps in prop::collection::vec((0_u8..16, 0_usize..8, prop::bool::weighted(0.6)), 1..60),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let _entered = runtime.enter();
            let slots = CallSlots::new(slot_count);
            let cancel = CancellationToken::new();
            let (mut waiting, mut running) = (Vec::new(), Vec::new());
            for (wanted, position, arrives) in steps {
                match arrives {
                    true => waiting.push((wanted, Box::pin(slots.take(locks(wanted), &cancel)))),
                    // A waiter gives up, or a call ends.
                    false if position % 3 == 0 && !waiting.is_empty() => {
                        drop(waiting.remove(position % waiting.len()));
                    }
                    false if !running.is_empty() => drop(running.swap_remove(position % running.len())),
                    false => {}
                }
                let mut still_waiting = Vec::new();
                let mut overtaken = 0;
                for (wanted, mut wait) in waiting {
                    match wait.as_mut().now_or_never() {
                        Some(slot) => {
                            prop_assert_eq!(wanted & overtaken, 0, "a later waiter was served first");
                            running.push((wanted, slot.expect("served")));
                        }
                        None => {
                            overtaken |= wanted;
                            still_waiting.push((wanted, wait));
                        }
                    }
                }
                waiting = still_waiting;
                prop_assert!(running.len() <= slot_count);
                for lock in 0..4 {
                    prop_assert!(running.iter().filter(|(wanted, _)| wanted >> lock & 1 == 1).count() <= 1);
                }
            }
            // All remaining waiters are served when the calls before them end.
            while !waiting.is_empty() {
                running.clear();
                let count = waiting.len();
                let mut still_waiting = Vec::new();
                for (wanted, mut wait) in waiting {
                    match wait.as_mut().now_or_never() {
                        Some(slot) => running.push((wanted, slot.expect("served"))),
                        None => still_waiting.push((wanted, wait)),
                    }
                }
                waiting = still_waiting;
                prop_assert!(waiting.len() < count);
            }
            drop(running);
            prop_assert_eq!(slots.shared_slots.state().free_slots, slot_count);
        }
    }

    #[tokio::test]
    async fn a_nested_call_never_waits_for_a_call_without_a_slot() {
        let slots = CallSlots::new(1);
        let parent = reading(&slots).await.expect("free");
        let mut outer_writer = Box::pin(writing(&slots));
        assert!(poll!(&mut outer_writer).is_pending());
        let cancel = CancellationToken::new();
        let nested_writer = slots.take_nested(&parent, shared_mount(), &cancel).await.expect("no deadlock");
        let mut second_nested = Box::pin(slots.take_nested(&parent, shared_mount(), &cancel));
        assert!(poll!(&mut second_nested).is_pending(), "one writer, even within a call");
        drop(nested_writer);
        drop(second_nested.await.expect("a slot is free"));
        drop(parent);
        outer_writer.await.expect("a slot is free");
    }

    #[tokio::test]
    async fn an_abandoned_wait_passes_its_turn_on() {
        let slots = CallSlots::new(2);
        let first = writing(&slots).await.expect("free");
        let (mut dropped, mut next) = (Box::pin(writing(&slots)), Box::pin(writing(&slots)));
        assert!(poll!(&mut dropped).is_pending() && poll!(&mut next).is_pending());
        drop(first);
        drop(dropped);
        next.await.expect("a slot is free");
    }
}
