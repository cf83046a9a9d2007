//! The context of a call: its identity, deadline and listeners.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use crate::ToolOutput;

/// Receives partial results while a tool runs. It is called synchronously, on the tool's thread.
pub type ToolUpdateFn = Arc<dyn Fn(ToolOutput) + Send + Sync>;

/// Receives short progress texts while a tool runs. It is called synchronously.
pub type ProgressFn = Arc<dyn Fn(String) + Send + Sync>;

/// The context of one call. The registry creates it, and a tool reads it. A model sees only the tool's result, never an
/// update or a progress text.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The call's id. A provider may have chosen it, so two calls can have the same id.
    pub call_id: String,
    /// The tool's registered name.
    pub tool_name: String,
    /// The run that the call belongs to.
    pub run_id: String,
    /// The agent that makes the call.
    pub agent_id: String,
    /// The agent's space, for tools whose results are shown in a space.
    pub space_id: Option<String>,
    /// A key that is the same for all attempts of this call: 64 hexadecimal digits, usable as the
    /// `Idempotency-Key` of a request. It is a hash of agent, run and call id, and thus as unique as these
    /// three together. The agent loop makes call ids unique within a run. Empty in a guest, which cannot
    /// reach a service that could use the key.
    pub idempotency_key: String,
    /// Cancelled when the caller cancels the call.
    pub cancel: CancellationToken,
    /// The call's deadline; `None` outside a running call.
    pub deadline: Option<Instant>,
    /// Receives partial results, if there is a listener.
    pub on_update: Option<ToolUpdateFn>,
    /// Receives progress texts, if there is a listener.
    pub on_progress: Option<ProgressFn>,
    /// Values that the host passes to tools in its own process, by type.
    pub extensions: Extensions,
}

impl ToolContext {
    /// Creates a context without caller, deadline or listeners. Tests use it as it is; the registry and the
    /// guest's entry point fill it in.
    #[must_use]
    pub fn detached(tool_name: impl Into<String>) -> Self {
        Self {
            call_id: String::new(),
            tool_name: tool_name.into(),
            run_id: String::new(),
            agent_id: String::new(),
            space_id: None,
            idempotency_key: String::new(),
            cancel: CancellationToken::new(),
            deadline: None,
            on_update: None,
            on_progress: None,
            extensions: Extensions::default(),
        }
    }

    /// Reports a partial result. Does nothing without a listener.
    pub fn update(&self, partial: ToolOutput) {
        if let Some(listener) = &self.on_update {
            listener(partial);
        }
    }

    /// Reports progress. Does nothing without a listener.
    pub fn progress(&self, text: impl Into<String>) {
        if let Some(listener) = &self.on_progress {
            listener(text.into());
        }
    }

    /// Returns the time left until the deadline; `None` without a deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("call_id", &self.call_id)
            .field("tool_name", &self.tool_name)
            .field("run_id", &self.run_id)
            .field("agent_id", &self.agent_id)
            .field("space_id", &self.space_id)
            .field("deadline", &self.deadline)
            .field("extensions", &self.extensions)
            .finish_non_exhaustive()
    }
}

/// Values by their type, at most one of each type.
///
/// The map is ordered, because a hash map would make a guest ask its host for randomness at every call.
#[derive(Clone, Default)]
pub struct Extensions(BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Extensions {
    /// Inserts a value, and replaces a value of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// Returns the value of a type.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref())
    }

    pub(crate) fn contains(&self, ty: TypeId) -> bool {
        self.0.contains_key(&ty)
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extensions({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn reports_reach_the_listener_and_are_harmless_without_one() {
        let mut ctx = ToolContext::detached("t");
        ctx.progress("nobody hears");
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        ctx.on_progress = Some(Arc::new(move |text| sink.lock().expect("not poisoned").push(text)));
        ctx.progress("half");
        assert_eq!(*reports.lock().expect("not poisoned"), ["half"]);
    }

    #[test]
    fn extensions_hold_one_value_of_each_type() {
        let mut extensions = Extensions::default();
        extensions.insert(1_u8);
        extensions.insert(2_u8);
        extensions.insert("text");
        assert_eq!(extensions.get::<u8>(), Some(&2));
        assert_eq!(extensions.get::<&str>(), Some(&"text"));
        assert_eq!(extensions.get::<u16>(), None);
    }
}
