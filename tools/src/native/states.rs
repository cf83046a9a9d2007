//! The states that an embedding program gives to its native tools.

use portcullis_types::{Extensions, State, StateType, Tool};

use crate::registry::RegistryError;

/// The states given to a builder so far, at most one of each type.
#[derive(Default)]
pub(crate) struct NativeStates {
    states: Extensions,
    /// The first type that was given twice.
    given_twice: Option<StateType>,
}

impl NativeStates {
    /// Adds a state. A second one of its type makes [`Self::complete`] fail.
    pub(crate) fn add<T: Send + Sync + 'static>(&mut self, value: T) {
        let ty = StateType::of::<T>();
        if ty.is_in(&self.states) {
            self.given_twice.get_or_insert(ty);
        }
        self.states.insert(State::new(value));
    }

    /// The states, for these tools.
    ///
    /// # Errors
    /// [`RegistryError::StateGivenTwice`], and [`RegistryError::StateMissing`] for the first tool that takes another
    /// state.
    pub(crate) fn complete<'t>(
        self,
        tools: impl IntoIterator<Item = &'t dyn Tool>,
    ) -> Result<Extensions, RegistryError> {
        if let Some(ty) = self.given_twice {
            return Err(RegistryError::StateGivenTwice { ty: ty.name() });
        }
        tools.into_iter().try_for_each(|tool| ensure_given(tool, &self.states))?;
        Ok(self.states)
    }
}

/// Refuses a tool that takes a state which is not among these.
///
/// # Errors
/// [`RegistryError::StateMissing`].
pub(crate) fn ensure_given(tool: &dyn Tool, states: &Extensions) -> Result<(), RegistryError> {
    match tool.states().into_iter().find(|ty| !ty.is_in(states)) {
        Some(ty) => Err(RegistryError::StateMissing { tool: tool.schema().name, ty: ty.name() }),
        None => Ok(()),
    }
}
