//! The values that an embedding program passes to its native tools as state.

use portcullis_types::{Extensions, State, StateType, Tool};

use crate::registry::RegistryError;

/// The state values added so far, at most one of each type.
#[derive(Default)]
pub(crate) struct NativeStates {
    states: Extensions,
    /// The first type that was added twice.
    duplicate_type: Option<StateType>,
}

impl NativeStates {
    /// Adds a state value. A second value of the same type makes [`Self::complete`] fail.
    pub(crate) fn add<T: Send + Sync + 'static>(&mut self, value: T) {
        let ty = StateType::of::<T>();
        if ty.is_in(&self.states) {
            self.duplicate_type.get_or_insert(ty);
        }
        self.states.insert(State::new(value));
    }

    /// Returns the state values for these tools.
    ///
    /// # Errors
    /// [`RegistryError::StateGivenTwice`], and [`RegistryError::StateMissing`] for the first tool whose state
    /// was not added.
    pub(crate) fn complete<'t>(
        self,
        tools: impl IntoIterator<Item = &'t dyn Tool>,
    ) -> Result<Extensions, RegistryError> {
        if let Some(ty) = self.duplicate_type {
            return Err(RegistryError::StateGivenTwice { ty: ty.name() });
        }
        tools.into_iter().try_for_each(|tool| ensure_states_added(tool, &self.states))?;
        Ok(self.states)
    }
}

/// Refuses a tool whose state is not among these values.
///
/// # Errors
/// [`RegistryError::StateMissing`] for the first state of the tool that is not among them.
pub(crate) fn ensure_states_added(tool: &dyn Tool, states: &Extensions) -> Result<(), RegistryError> {
    match tool.states().into_iter().find(|ty| !ty.is_in(states)) {
        Some(ty) => Err(RegistryError::StateMissing { tool: tool.schema().name, ty: ty.name() }),
        None => Ok(()),
    }
}
