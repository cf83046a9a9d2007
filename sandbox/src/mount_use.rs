//! The mounts that a call has used so far, readable while its guest runs.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

/// A mark for each mount of a job, in the order of [`GuestJob::mounts`](crate::GuestJob::mounts). Clones
/// share the marks: the worker sets them, and the caller reads them. A mark is set before the guest gets
/// anything of its mount.
#[derive(Clone)]
pub struct MountUse {
    marks: Arc<[AtomicU8]>,
    before_use: Option<Arc<BeforeUse>>,
}

/// The host's action before a guest first uses a mount, given by its index. It is called on the worker's
/// thread, which it may block until the call's deadline. The mark is set already.
///
/// # Errors
/// The refusal. The guest then gets nothing of the mount, and the call is denied.
pub type BeforeUse = dyn Fn(usize) -> Result<(), MountRefusal> + Send + Sync;

/// The host's reason to refuse a mount that the grant includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRefusal {
    /// The policy rule behind it.
    pub rule: String,
    /// Advice for the caller, which a model may read.
    pub hint: String,
}

impl MountUse {
    /// Marks for this number of mounts, none of them set.
    #[must_use]
    pub fn of(mounts: usize) -> Self {
        Self { marks: (0..mounts).map(|_| AtomicU8::new(UNUSED)).collect(), before_use: None }
    }

    /// Calls the host before the first use of each mount.
    #[must_use]
    pub fn asking(self, before_use: Arc<BeforeUse>) -> Self {
        Self { before_use: Some(before_use), ..self }
    }

    /// Marks a mount as used.
    ///
    /// # Panics
    /// If there is no mark for this mount: its use would not be seen.
    pub fn mark(&self, index: usize) {
        // A mount that was entered stays entered.
        self.marks[index].fetch_max(MARKED, Ordering::AcqRel);
    }

    /// Marks a mount as used, and calls the host before the first use. A refused mount stays marked, and the
    /// next use calls the host again.
    ///
    /// # Errors
    /// The host's refusal.
    ///
    /// # Panics
    /// See [`Self::mark`].
    pub(crate) fn enter(&self, index: usize) -> Result<(), MountRefusal> {
        if self.marks[index].load(Ordering::Acquire) == ENTERED {
            return Ok(());
        }
        // The mark comes first: a session that starts from now on sees it, and the host sees all that started
        // before.
        self.mark(index);
        if let Some(before_use) = &self.before_use {
            before_use(index)?;
        }
        self.marks[index].store(ENTERED, Ordering::Release);
        Ok(())
    }

    /// Whether a mount was used. A mount without a mark counts as used.
    #[must_use]
    pub fn is_used(&self, index: usize) -> bool {
        self.marks.get(index).is_none_or(|mark| mark.load(Ordering::Acquire) != UNUSED)
    }
}

/// Omits the host's function.
impl fmt::Debug for MountUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountUse").field("marks", &self.marks).finish_non_exhaustive()
    }
}

/// The states of a mark, in order.
const UNUSED: u8 = 0;
const MARKED: u8 = 1;
const ENTERED: u8 = 2;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn the_host_is_asked_once_and_after_the_mark() {
        let asked = Arc::new(AtomicUsize::new(0));
        let marks = MountUse::of(2);
        let (seen, count) = (marks.clone(), Arc::clone(&asked));
        let marks = marks.asking(Arc::new(move |index| {
            assert!(seen.is_used(index));
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }));
        marks.enter(1).unwrap();
        marks.enter(1).unwrap();
        assert_eq!((marks.is_used(0), marks.is_used(1)), (false, true));
        marks.mark(1);
        marks.enter(1).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_refused_mount_stays_refused_and_marked() {
        let refusal = MountRefusal { rule: "rule".to_owned(), hint: "hint".to_owned() };
        let answer = refusal.clone();
        let marks = MountUse::of(1).asking(Arc::new(move |_| Err(answer.clone())));
        for _ in 0..2 {
            assert_eq!(marks.enter(0), Err(refusal.clone()));
            assert!(marks.is_used(0));
        }
    }
}
