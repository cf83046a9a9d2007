//! [`MessageStore`]: keeps a conversation. [`InMemoryMessageStore`] keeps it in memory.

use std::{error::Error, sync::Arc};

use parking_lot::Mutex;
use portcullis_types::{Message, async_trait};
use thiserror::Error;

use super::RunState;

/// A store of one conversation, without the operator's instructions.
#[async_trait]
pub trait MessageStore: Send + Sync {
    /// Returns the conversation so far. A run reads it once, at its start.
    ///
    /// # Errors
    /// [`ConversationError`] if the conversation cannot be read. The run then ends.
    async fn load(&self) -> Result<Vec<Message>, ConversationError>;

    /// Adds all of the messages or none. A model's calls and their results are in one batch, so that no
    /// interruption leaves a call without a result.
    ///
    /// # Errors
    /// [`ConversationError`] if the messages cannot be kept. The run then ends.
    ///
    /// # Cancellation
    /// The future is dropped if it does not end within the grace period of a cancelled run.
    async fn append(&self, messages: Vec<Message>) -> Result<(), ConversationError>;

    /// Returns the messages for the run that have arrived in the store since the last call: late results of
    /// its calls. The loop appends them, and the store marks them as delivered when it saves the step.
    /// Default: none.
    ///
    /// # Errors
    /// [`ConversationError`] if they cannot be read. The run then ends.
    async fn take_arrived_messages(&self) -> Result<Vec<Message>, ConversationError> {
        Ok(Vec::new())
    }

    /// Stores the state of the run. Called after each step, after all messages of that step were appended. A
    /// store that outlives the process writes the state and the messages together. By default, the state is
    /// dropped.
    ///
    /// # Errors
    /// [`ConversationError`] if the state cannot be stored. The run then ends.
    ///
    /// # Cancellation
    /// Same as [`MessageStore::append`].
    async fn save_state(&self, _state: &RunState) -> Result<(), ConversationError> {
        Ok(())
    }
}

#[async_trait]
impl<S: MessageStore + ?Sized> MessageStore for Arc<S> {
    async fn load(&self) -> Result<Vec<Message>, ConversationError> {
        (**self).load().await
    }

    async fn append(&self, messages: Vec<Message>) -> Result<(), ConversationError> {
        (**self).append(messages).await
    }

    async fn take_arrived_messages(&self) -> Result<Vec<Message>, ConversationError> {
        (**self).take_arrived_messages().await
    }

    async fn save_state(&self, state: &RunState) -> Result<(), ConversationError> {
        (**self).save_state(state).await
    }
}

/// Why a conversation could not be read or stored.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct ConversationError {
    message: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ConversationError {
    /// Creates an error with a message for the operator.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// A conversation in memory. Clones share the conversation. It has no limit and drops no message.
#[derive(Debug, Clone, Default)]
pub struct InMemoryMessageStore {
    messages: Arc<Mutex<Vec<Message>>>,
}

impl InMemoryMessageStore {
    /// Creates an empty conversation.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the conversation so far.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        self.messages.lock().clone()
    }
}

impl From<Vec<Message>> for InMemoryMessageStore {
    fn from(messages: Vec<Message>) -> Self {
        Self { messages: Arc::new(Mutex::new(messages)) }
    }
}

#[async_trait]
impl MessageStore for InMemoryMessageStore {
    async fn load(&self) -> Result<Vec<Message>, ConversationError> {
        Ok(self.messages())
    }

    async fn append(&self, mut messages: Vec<Message>) -> Result<(), ConversationError> {
        self.messages.lock().append(&mut messages);
        Ok(())
    }
}
