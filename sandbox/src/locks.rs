//! Locks of guests: the functions that a guest imports, and the channel to the host that takes the locks.
//!
//! | function | does |
//! |---|---|
//! | `lock(path, len)` | waits for the lock of an absolute guest path; returns the lock's number, or minus an error number of WASI |
//! | `unlock(number)` | releases a lock |
//!
//! A guest's thread cannot open the lock files. It passes each request on, and blocks until it is answered,
//! its deadline expires, or the call is cancelled. All locks of a call are released when its guest has
//! ended, for whatever reason.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, mpsc as blocking},
};

use portcullis_types::{LOCK_IMPORT, MAX_HELD_LOCKS};
use tokio::sync::mpsc;
use wasmtime::{Caller, Linker, Result};

use super::{
    control::CallControl,
    fs_result::{Errno, FsResult},
    guest::GuestState,
    host_answer::await_answer,
    memory::{as_unsigned, text},
    path_locks::{HeldLock, LockKey, PathLocks},
    preview1::parts,
};

/// A request of a guest to the host's end of the channel.
#[derive(Debug)]
enum LockOperation {
    Lock { key: LockKey, reply: blocking::SyncSender<FsResult<u32>> },
    Unlock { number: u32, reply: blocking::SyncSender<()> },
}

/// The guest's end of the channel for locks.
#[derive(Debug)]
pub(super) struct LockOperationSender(mpsc::Sender<LockOperation>);

/// The host's end, which holds the call's locks.
#[derive(Debug)]
pub(super) struct CallLocks<'a> {
    locks: &'a PathLocks,
    control: Arc<CallControl>,
    questions: mpsc::Receiver<LockOperation>,
    held_locks: HashMap<u32, HeldLock>,
    next_number: u32,
}

impl<'a> CallLocks<'a> {
    /// Creates a channel and returns both ends. `control` belongs to the call.
    pub(super) fn open(locks: &'a PathLocks, control: &Arc<CallControl>) -> (LockOperationSender, Self) {
        // A capacity of 1 is enough, because a guest makes one request at a time.
        let (sender, questions) = mpsc::channel(1);
        let control = Arc::clone(control);
        (
            LockOperationSender(sender),
            Self { locks, control, questions, held_locks: HashMap::new(), next_number: 0 },
        )
    }

    /// Serves the guest. The future never completes: it is dropped when the call ends.
    ///
    /// # Cancellation
    /// A dropped wait for a lock leaves the lock's queue. Locks that are held stay held until [`Self`] is
    /// dropped.
    async fn serve(&mut self) -> Infallible {
        while let Some(question) = self.questions.recv().await {
            // A guest that has ended in the meantime does not receive the answer.
            let _is_received = match question {
                LockOperation::Lock { key, reply } => reply.try_send(self.lock(key).await).is_ok(),
                LockOperation::Unlock { number, reply } => {
                    self.held_locks.remove(&number);
                    reply.try_send(()).is_ok()
                }
            };
        }
        std::future::pending().await
    }

    async fn lock(&mut self, key: LockKey) -> FsResult<u32> {
        // The call would deadlock on itself.
        if self.held_locks.values().any(|lock| lock.key() == key) {
            return Err(Errno::BUSY);
        }
        if self.held_locks.len() >= MAX_HELD_LOCKS {
            return Err(Errno::NOLCK);
        }
        let lock = self.locks.acquire(key).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "a lock of a path cannot be taken");
            Errno::IO
        })?;
        // A call cannot use up the numbers below `i32::MAX`, because each lock takes a switch between
        // threads.
        let number = self.next_number;
        self.next_number = number.wrapping_add(1) & MAX_NUMBER;
        self.held_locks.insert(number, lock);
        Ok(number)
    }
}

/// Serves the locks of a guest until its report arrives.
///
/// # Cancellation
/// As in [`CallLocks::serve`].
pub(super) async fn serving<T>(call_locks: Option<CallLocks<'_>>, report: impl Future<Output = T>) -> T {
    match call_locks {
        None => report.await,
        Some(mut call_locks) => tokio::select! {
            report = report => report,
            never = call_locks.serve() => match never {},
        },
    }
}

/// The greatest number of a lock. It is non-negative for the guest.
const MAX_NUMBER: u32 = i32::MAX.unsigned_abs();

impl Drop for CallLocks<'_> {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.held_locks);
        if !held.is_empty() {
            // A caller can return before the guest's thread has stopped. Until then the guest may still
            // write.
            self.control.hold(Box::new(held));
        }
    }
}

/// The guest's access to its locks.
#[derive(Debug)]
pub(super) struct GuestLocks(Option<LockOperationSender>);

impl GuestLocks {
    /// `None` for a module that does not import the functions.
    pub(super) fn new(operations: Option<LockOperationSender>) -> Self {
        Self(operations)
    }

    fn ask<T>(
        &self,
        control: &CallControl,
        ask: impl FnOnce(blocking::SyncSender<T>) -> LockOperation,
    ) -> Result<FsResult<T>> {
        let Some(LockOperationSender(operations)) = &self.0 else { return Ok(Err(Errno::IO)) };
        let (sender, receiver) = blocking::sync_channel(1);
        if operations.try_send(ask(sender)).is_err() {
            return Ok(Err(Errno::IO));
        }
        Ok(await_answer(&receiver, control)?.ok_or(Errno::IO))
    }
}

/// Defines the lock functions.
pub(super) fn add_to_linker(linker: &mut Linker<GuestState>) -> Result<()> {
    linker.func_wrap(
        LOCK_IMPORT,
        "lock",
        |mut caller: Caller<'_, GuestState>, path: i32, len: i32| -> Result<i32> {
            let (memory, state, _) = parts(&mut caller)?;
            let answer = match text(memory, path, len).and_then(|path| state.fs.judge_lock(path)) {
                Ok(key) => {
                    state.locks.ask(&state.control, |reply| LockOperation::Lock { key, reply })?.flatten()
                }
                Err(errno) => Err(errno),
            };
            Ok(answer.map_or_else(|errno| -errno.0, u32::cast_signed))
        },
    )?;
    linker.func_wrap(
        LOCK_IMPORT,
        "unlock",
        |mut caller: Caller<'_, GuestState>, number: i32| -> Result<()> {
            let (_, state, _) = parts(&mut caller)?;
            let number = as_unsigned(number);
            // No answer means that the call has ended, which also released its locks.
            let _ = state.locks.ask(&state.control, |reply| LockOperation::Unlock { number, reply })?;
            Ok(())
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn control(limit: Duration) -> Arc<CallControl> {
        Arc::new(CallControl::new(Instant::now() + limit, None))
    }

    fn key(name: &str) -> LockKey {
        LockKey::new(&rustix::fs::stat("/").expect("the path exists"), name)
    }

    #[tokio::test]
    async fn a_call_never_waits_for_itself_and_holds_few_locks() {
        let state = tempfile::tempdir().expect("a folder");
        let locks = PathLocks::new(state.path());
        let (_port, mut call) = CallLocks::open(&locks, &control(Duration::from_secs(60)));
        let first = call.lock(key("0")).await.expect("free");
        assert_eq!(call.lock(key("0")).await, Err(Errno::BUSY));
        for number in 1..MAX_HELD_LOCKS {
            call.lock(key(&number.to_string())).await.expect("free");
        }
        assert_eq!(call.lock(key("more")).await, Err(Errno::NOLCK));
        call.held_locks.remove(&first);
        call.lock(key("0")).await.expect("free again");
    }

    #[tokio::test]
    async fn an_abandoned_call_keeps_its_locks_until_its_thread_is_free() {
        let state = tempfile::tempdir().expect("a folder");
        let locks = PathLocks::new(state.path());
        let control = control(Duration::from_secs(60));
        let (_port, mut call) = CallLocks::open(&locks, &control);
        call.lock(key("a")).await.expect("free");
        drop(call);
        let mut waiting = Box::pin(locks.acquire(key("a")));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        control.finish();
        control.release_resources();
        waiting.await.expect("free");

        let (_port, mut call) = CallLocks::open(&locks, &control);
        call.lock(key("a")).await.expect("free");
        drop(call);
        locks.acquire(key("a")).await.expect("the thread was free before");
    }

    #[test]
    fn a_waiting_guest_ends_with_its_call() {
        let (sender, mut questions) = mpsc::channel(1);
        let guest = GuestLocks::new(Some(LockOperationSender(sender)));
        let expired = control(Duration::ZERO);
        let ask = |reply| LockOperation::Lock { key: key("a"), reply };
        guest.ask(&expired, ask).expect_err("over");
        questions.try_recv().expect("was asked");
        drop(questions);
        assert_eq!(guest.ask(&expired, ask).expect("answered").flatten(), Err(Errno::IO));
    }
}
