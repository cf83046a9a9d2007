//! The mounts that a call has used so far, readable while its guest runs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A mark for each mount of a job, in the order of [`GuestJob::mounts`](crate::GuestJob::mounts). Clones share the
/// marks: the worker sets them, the caller reads them. A mark is set before the guest gets anything of its mount.
#[derive(Debug, Clone)]
pub struct MountUse(Arc<[AtomicBool]>);

impl MountUse {
    /// Marks for this number of mounts, none of them set.
    #[must_use]
    pub fn of(mounts: usize) -> Self {
        Self((0..mounts).map(|_| AtomicBool::new(false)).collect())
    }

    /// Marks a mount as used.
    ///
    /// # Panics
    /// If there is no mark for this mount: its use would not be seen.
    pub fn mark(&self, index: usize) {
        self.0[index].store(true, Ordering::Release);
    }

    /// Whether a mount was used; a mount without a mark counts as used.
    #[must_use]
    pub fn is_used(&self, index: usize) -> bool {
        self.0.get(index).is_none_or(|used| used.load(Ordering::Acquire))
    }
}
