//! [`SharedState`]: state that a registry shares with the registry that it replaces and with
//! its own replacement.

use std::{mem, sync::Arc};

use parking_lot::Mutex;

/// State that can be merged with another registry's. After that, both use one state.
#[derive(Debug, Default)]
pub(crate) struct SharedState<T>(Mutex<Arc<Mutex<T>>>);

impl<T: Default> SharedState<T> {
    /// Returns the current state.
    pub(crate) fn current(&self) -> Arc<Mutex<T>> {
        Arc::clone(&self.0.lock())
    }

    /// Switches to the other's state. `take_over` merges the own state into it.
    pub(crate) fn share_with(&self, other: &Self, take_over: impl FnOnce(&mut T, T)) {
        let other_state = other.current();
        let own_state = mem::replace(&mut *self.0.lock(), Arc::clone(&other_state));
        if !Arc::ptr_eq(&own_state, &other_state) {
            let own_state = mem::take(&mut *own_state.lock());
            take_over(&mut other_state.lock(), own_state);
        }
    }
}
