//! [`State`]: a value that the calls of native tools share.

use std::{
    any::{TypeId, type_name},
    fmt,
    ops::Deref,
    sync::Arc,
};

use crate::{Extensions, ToolContext, ToolError};

/// A value that lives as long as its registry and is lent to the calls of native tools.
///
/// The builder of a registry takes the value (`RegistryBuilder::tool_state`), and a tool takes it as a
/// parameter `&State<T>`. Calls run concurrently on several threads, so a value that changes needs a lock or
/// atomics inside. Clones share the value.
pub struct State<T: ?Sized>(Arc<T>);

impl<T: 'static> State<T> {
    /// Wraps a value. A test passes it to a tool with `ctx.extensions.insert(State::new(value))`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// Returns the state of this type in a call's context.
    ///
    /// # Errors
    /// `internal` if the context has none, for example outside a registry. A registry refuses a tool without
    /// its state before the first call.
    pub fn of(ctx: &ToolContext) -> Result<&Self, ToolError>
    where
        T: Send + Sync,
    {
        ctx.extensions.get().ok_or_else(|| {
            let (tool, ty) = (&ctx.tool_name, type_name::<T>());
            ToolError::internal(format!("tool `{tool}` takes `&State<{ty}>`, and its caller has given none"))
        })
    }
}

impl<T: ?Sized> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("State").field(&&*self.0).finish()
    }
}

/// The type of a state that a tool takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateType {
    /// The type id of the `State`, by which the extensions of a context store it.
    id: TypeId,
    name: &'static str,
}

impl StateType {
    /// Returns the type of a `State<T>`.
    #[must_use]
    pub fn of<T: 'static>() -> Self {
        Self { id: TypeId::of::<State<T>>(), name: type_name::<T>() }
    }

    /// The name of the type within the `State`, with its path, for people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether these extensions contain a state of the type.
    #[must_use]
    pub fn is_in(&self, extensions: &Extensions) -> bool {
        extensions.contains(self.id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::ToolErrorKind;

    #[test]
    fn a_tool_finds_the_state_of_its_context_by_type() {
        let mut ctx = ToolContext::detached("count");
        let missing = State::<AtomicU64>::of(&ctx).expect_err("none");
        assert_eq!(missing.kind(), ToolErrorKind::Internal);
        let count = State::new(AtomicU64::new(1));
        assert!(!StateType::of::<AtomicU64>().is_in(&ctx.extensions));
        ctx.extensions.insert(count.clone());
        assert!(StateType::of::<AtomicU64>().is_in(&ctx.extensions));
        assert!(!StateType::of::<u64>().is_in(&ctx.extensions));
        State::<AtomicU64>::of(&ctx).expect("given").fetch_add(1, Ordering::Relaxed);
        assert_eq!(count.load(Ordering::Relaxed), 2, "clones share the value");
    }
}
