//! [`KeptConversation`]: a conversation as the store of an agent loop.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use portcullis_agent::{MessageStore, RunState, StoreError, Usage};
use portcullis_tools::{Caller, ToolRegistry};
use portcullis_types::{Message, async_trait};

use super::{ConversationError, ConversationFile, ConversationRecord};

/// A conversation that is written to its file after each step of a run, together with the labels of what the run has
/// read.
#[derive(Debug)]
pub(crate) struct KeptConversation {
    registry: Arc<ToolRegistry>,
    /// The caller of the run's calls.
    caller: Caller,
    was_interrupted: bool,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    file: ConversationFile,
    record: ConversationRecord,
}

impl KeptConversation {
    /// Continues a conversation, or begins one. The labels of its run hold from now on, before the first call.
    ///
    /// # Errors
    /// [`ConversationError::Label`] if a label is unknown. A record that was read from a file has none.
    pub(crate) fn new(
        registry: Arc<ToolRegistry>,
        caller: Caller,
        file: ConversationFile,
        mut record: ConversationRecord,
    ) -> Result<Self, ConversationError> {
        let labels = record.labels().map_err(|source| file.label_error(source))?;
        registry.add_run_labels(&caller, labels);
        let was_interrupted = record.mend();
        Ok(Self { registry, caller, was_interrupted, content: Mutex::new(Content { file, record }) })
    }

    /// Whether the last process ended before the run of its question did. The model is told that the effects of the
    /// calls that had begun are unknown.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    /// Whether the conversation has a message.
    pub(crate) fn has_messages(&self) -> bool {
        !self.lock().record.messages.is_empty()
    }

    /// The tokens and the time of all questions together.
    pub(crate) fn totals(&self) -> (Usage, Duration) {
        let content = self.lock();
        (content.record.usage, content.record.elapsed())
    }

    /// Adds the tokens and the time of a question that has ended, and writes the file.
    ///
    /// # Errors
    /// [`ConversationError`] if the file cannot be written.
    pub(crate) fn end_question(&self, usage: Usage, elapsed: Duration) -> Result<(), ConversationError> {
        let mut content = self.lock();
        content.record.count(usage, elapsed);
        self.write(&mut content)
    }

    /// Writes the file. This blocks until the file is on the disk, as the rows of the audit log do.
    fn write(&self, content: &mut Content) -> Result<(), ConversationError> {
        let Content { file, record } = content;
        record.set_labels(&self.registry.run_labels(&self.caller));
        file.write(record)
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        // Every change is complete in itself, so a poisoned lock is safe to use.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl MessageStore for KeptConversation {
    async fn load(&self) -> Result<Vec<Message>, StoreError> {
        Ok(self.lock().record.messages.clone())
    }

    async fn append(&self, mut messages: Vec<Message>) -> Result<(), StoreError> {
        self.lock().record.messages.append(&mut messages);
        Ok(())
    }

    async fn keep(&self, state: &RunState) -> Result<(), StoreError> {
        let mut content = self.lock();
        content.record.state = Some(state.clone());
        self.write(&mut content)
            .map_err(|error| StoreError::new("the conversation is not kept").with_source(error))
    }
}
