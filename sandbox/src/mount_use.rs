//! Records which mounts a call has used so far. The record can be read while the guest runs.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

/// A mark for each mount of a job, in the order of [`GuestJob::mounts`](crate::GuestJob::mounts). Clones share the
/// marks: the worker sets them, and the caller reads them. A mark is set before the guest gets any data of its mount.
#[derive(Clone)]
pub struct MountUse {
    marks: Arc<[AtomicU8]>,
    before_use: Option<Arc<BeforeUse>>,
}

/// The host's function that runs before a guest first uses a mount. The argument is the index of the mount, whose mark
/// is already set. The function runs on the worker's thread, and may block it until the call's deadline.
///
/// # Errors
/// The refusal. The guest then gets no data of the mount, and the call is denied.
pub type BeforeUse = dyn Fn(usize) -> Result<(), MountRefusal> + Send + Sync;

/// The host's refusal of a mount that the grant includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRefusal {
    /// The policy rule behind the refusal.
    pub rule: String,
    /// Advice for the caller, which a model can read.
    pub hint: String,
}

impl MountUse {
    /// Creates unset marks for this number of mounts.
    #[must_use]
    pub fn new(mounts: usize) -> Self {
        Self { marks: (0..mounts).map(|_| AtomicU8::new(UNUSED)).collect(), before_use: None }
    }

    /// Sets the function that the host runs before the first use of each mount.
    #[must_use]
    pub fn with_before_use(self, before_use: Arc<BeforeUse>) -> Self {
        Self { before_use: Some(before_use), ..self }
    }

    /// Marks a mount as used.
    ///
    /// # Panics
    /// If this mount has no mark, because its use would go unnoticed.
    pub fn mark(&self, index: usize) {
        // `fetch_max`: a mount that was entered stays entered.
        self.marks[index].fetch_max(MARKED, Ordering::AcqRel);
    }

    /// Marks a mount as used, and calls the host before the first use. A refused mount stays marked, and its next use
    /// calls the host again.
    ///
    /// # Errors
    /// The host's refusal.
    ///
    /// # Panics
    /// As in [`Self::mark`].
    pub(crate) fn enter(&self, index: usize) -> Result<(), MountRefusal> {
        if self.marks[index].load(Ordering::Acquire) == ENTERED {
            return Ok(());
        }
        // The mark comes first. A session that starts after it sees the mark, and the host sees every session that
        // started before it.
        self.mark(index);
        if let Some(before_use) = &self.before_use {
            before_use(index)?;
        }
        self.marks[index].store(ENTERED, Ordering::Release);
        Ok(())
    }

    /// Returns whether a mount was used. A mount without a mark counts as used.
    #[must_use]
    pub fn is_used(&self, index: usize) -> bool {
        self.marks.get(index).is_none_or(|mark| mark.load(Ordering::Acquire) != UNUSED)
    }
}

/// Leaves out the host's function.
impl fmt::Debug for MountUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountUse").field("marks", &self.marks).finish_non_exhaustive()
    }
}

/// The states of a mark, in ascending order.
const UNUSED: u8 = 0;
const MARKED: u8 = 1;
const ENTERED: u8 = 2;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn the_host_is_asked_once_and_after_the_mark() {
        let ask_count = Arc::new(AtomicUsize::new(0));
        let marks = MountUse::new(2);
        let (seen_marks, count) = (marks.clone(), Arc::clone(&ask_count));
        let marks = marks.with_before_use(Arc::new(move |index| {
            assert!(seen_marks.is_used(index));
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }));
        marks.enter(1).unwrap();
        marks.enter(1).unwrap();
        assert_eq!((marks.is_used(0), marks.is_used(1)), (false, true));
        marks.mark(1);
        marks.enter(1).unwrap();
        assert_eq!(ask_count.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_refused_mount_stays_refused_and_marked() {
        let refusal = MountRefusal { rule: "rule".to_owned(), hint: "hint".to_owned() };
        let answer = refusal.clone();
        let marks = MountUse::new(1).with_before_use(Arc::new(move |_| Err(answer.clone())));
        for _ in 0..2 {
            assert_eq!(marks.enter(0), Err(refusal.clone()));
            assert!(marks.is_used(0));
        }
    }
}
