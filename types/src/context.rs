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

/// Receives partial results while a tool runs. Called synchronously, on the tool's thread.
pub type ToolUpdateFn = Arc<dyn Fn(ToolOutput) + Send + Sync>;

/// Receives short progress texts while a tool runs. Called synchronously.
pub type ProgressFn = Arc<dyn Fn(String) + Send + Sync>;

/// The context of one call. The registry makes it; a tool reads it. Updates and progress texts never reach a
/// model: only the tool's result does.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The call's id, unique within the registry's lifetime.
    pub call_id: String,
    /// The tool's registered name.
    pub tool_name: String,
    /// The run that the call belongs to.
    pub run_id: String,
    /// The agent that makes the call.
    pub agent_id: String,
    /// The agent's space, for tools whose results are shown in one.
    pub space_id: Option<String>,
    /// A key that stays the same for every attempt of this call: 64 hexadecimal digits, usable as the
    /// `Idempotency-Key` of a request. It is derived from agent, run and call id, so it is unique as long as
    /// they are, as in a loop's run. Empty in a guest, which reaches no service that would take one.
    pub idempotency_key: String,
    /// Fires when the caller cancels the call.
    pub cancel: CancellationToken,
    /// The call's deadline; none outside a running call.
    pub deadline: Option<Instant>,
    /// Takes partial results, if there is a listener.
    pub on_update: Option<ToolUpdateFn>,
    /// Takes progress texts, if there is a listener.
    pub on_progress: Option<ProgressFn>,
    /// Values from the host for tools of its own process, by type.
    pub extensions: Extensions,
}

impl ToolContext {
    /// A context without caller, deadline or listeners: for tests, and as the base that the registry and the
    /// guest entry point complete.
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

    /// Reports a partial result; does nothing without a listener.
    pub fn update(&self, partial: ToolOutput) {
        if let Some(listener) = &self.on_update {
            listener(partial);
        }
    }

    /// Reports progress; does nothing without a listener.
    pub fn progress(&self, text: impl Into<String>) {
        if let Some(listener) = &self.on_progress {
            listener(text.into());
        }
    }

    /// The time left until the deadline; none without a deadline.
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

/// Values by their type, at most one of each.
///
/// An ordered map, since a hash map would ask a guest's host for randomness at every call.
#[derive(Clone, Default)]
pub struct Extensions(BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Extensions {
    /// Inserts a value; replaces one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The value of a type.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref())
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
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&heard);
        ctx.on_progress = Some(Arc::new(move |text| sink.lock().expect("not poisoned").push(text)));
        ctx.progress("half");
        assert_eq!(*heard.lock().expect("not poisoned"), ["half"]);
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
