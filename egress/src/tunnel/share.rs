//! Limits the tunnels of one owner.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits for the tunnels of one owner: 128 at a time. A thread carries 1,024, so one owner cannot take them all.
/// Cheap to clone: all clones take permits from the same pool.
#[derive(Clone, Debug)]
pub struct TunnelShare(Arc<Semaphore>);

impl Default for TunnelShare {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_TUNNELS_OF_AN_OWNER)))
    }
}

impl TunnelShare {
    /// Returns whether this is the only clone, and no tunnel of the share is open.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Returns whether both are clones of one share.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Takes a permit for one tunnel. Returns `None` if the owner has reached its limit.
    pub(crate) fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

/// The maximum number of tunnels of one owner at a time: as many as the connections of two shell sessions.
const MAX_TUNNELS_OF_AN_OWNER: usize = 128;
