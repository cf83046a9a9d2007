//! [`SharedState`]: state that a registry shares with the registry that it replaces, and with the one that replaces it.

use std::{mem, sync::Arc};

use parking_lot::Mutex;

/// State that can be joined with another registry's. From then on both see one state.
#[derive(Debug, Default)]
pub(crate) struct SharedState<T>(Mutex<Arc<Mutex<T>>>);

impl<T: Default> SharedState<T> {
    /// The state in use at present.
    pub(crate) fn current(&self) -> Arc<Mutex<T>> {
        Arc::clone(&self.0.lock())
    }

    /// Uses the other's state from now on. `take_over` adds this one's own state to it.
    pub(crate) fn share_with(&self, other: &Self, take_over: impl FnOnce(&mut T, T)) {
        let other_state = other.current();
        let own_state = mem::replace(&mut *self.0.lock(), Arc::clone(&other_state));
        if !Arc::ptr_eq(&own_state, &other_state) {
            let own_state = mem::take(&mut *own_state.lock());
            take_over(&mut other_state.lock(), own_state);
        }
    }
}
