//! The bounds of what a store keeps, and the checks of texts and sizes before a write.

use crate::error::{LimitError, StoreError};

/// The maximum length of an id and of the name of an agent, a tool or a kind: 256 bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// The maximum length of a free text, such as a summary, a question or a label: 64 KiB.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// The maximum size of a message, a result, an entry of an inbox or the state of a run: 16 MiB. A store reads such a
/// value as a whole, so a model or a tool could otherwise exhaust the memory of the process that resumes the run.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 20;

/// The maximum size of a call's arguments: 1 MiB.
pub const MAX_ARGUMENTS_BYTES: usize = 1 << 20;

/// The maximum number of messages of one [`CommitStep`](crate::CommitStep) or [`NewRun`](crate::NewRun): 1,024. Their
/// bytes together are at most [`MAX_COMMIT_BYTES`].
pub const MAX_COMMIT_MESSAGES: usize = 1024;

/// The maximum size of the state and the messages in one transaction: 64 MiB.
pub const MAX_COMMIT_BYTES: usize = 64 << 20;

/// The maximum number of steps of one run: 100,000. A run that repeats itself cannot fill the disk with steps.
pub const MAX_STEPS: i64 = 100_000;

/// The maximum number of messages of one run: 1,000,000.
pub const MAX_MESSAGES: i64 = 1_000_000;

/// The maximum number of started calls of one run: 100,000.
pub const MAX_STARTED_CALLS: i64 = 100_000;

/// The maximum number of open calls of one run: 1,000.
pub const MAX_OPEN_CALLS: i64 = 1_000;

/// The maximum number of waiting approvals of one run: 1,000.
pub const MAX_OPEN_APPROVALS: i64 = 1_000;

/// The maximum number of unread entries in an agent's inbox: 10,000. A sender cannot fill the disk with entries
/// for an agent that never runs.
pub const MAX_UNREAD_ENTRIES: i64 = 10_000;

/// The maximum number of labels of a run or a started call: 256.
pub const MAX_LABELS: usize = 256;

/// The maximum size of the definition of a participant: 256 KiB.
pub const MAX_DEFINITION_BYTES: usize = 256 << 10;

/// The maximum number of participants of a store: 10,000.
pub const MAX_PARTICIPANTS: i64 = 10_000;

/// The maximum number of spaces of a store: 10,000. A removed space counts until it is swept.
pub const MAX_SPACES: i64 = 10_000;

/// The maximum number of members of a space: 1,000.
pub const MAX_MEMBERS: i64 = 1_000;

/// The maximum length of a message's text in a space: 256 KiB.
pub const MAX_MESSAGE_TEXT_BYTES: usize = 256 << 10;

/// The maximum size of a message's metadata in a space: 1 MiB.
pub const MAX_METADATA_BYTES: usize = 1 << 20;

/// The maximum number of messages of a space: 1,000,000.
pub const MAX_SPACE_MESSAGES: i64 = 1_000_000;

/// The maximum number of different words of a message that a search finds: its first 1,000.
pub const MAX_INDEXED_WORDS: usize = 1_000;

/// The maximum length of a word that a search distinguishes, in characters: 64. Longer words are cut.
pub const MAX_WORD_CHARS: usize = 64;

/// The maximum number of different words of a search: 8.
pub const MAX_SEARCH_WORDS: usize = 8;

/// The maximum number of topics of an event: 16.
pub const MAX_TOPICS: usize = 16;

/// The maximum size of the data of an event: 2 MiB, so that a message with its metadata has room.
pub const MAX_EVENT_BYTES: usize = 2 << 20;

/// The maximum number of notes of one kind that an agent has: 1,000.
pub const MAX_NOTES: i64 = 1_000;

/// The maximum size of a note: 64 KiB.
pub const MAX_NOTE_BYTES: usize = 64 << 10;

/// The minimum interval of a plan that repeats, in milliseconds: 1,000.
pub const MIN_PLAN_INTERVAL_MS: i64 = 1_000;

/// The maximum number of tokens of a store: 10,000.
pub const MAX_TOKENS: i64 = 10_000;

/// The maximum number of changes of one [`SpaceStore::apply`](crate::SpaceStore::apply), with those that changes make:
/// 2,048. A message reaches the inboxes of all members of a space with one transaction.
pub const MAX_CHANGES: usize = 2048;

/// The maximum number of rows of a page: 1,000. Larger requests are reduced to this.
pub const MAX_PAGE_ROWS: u32 = 1_000;

/// The bytes of payload after which a page ends: 32 MiB. A page has at least one row, so it is at most one payload
/// larger.
pub const MAX_PAGE_BYTES: i64 = 32 << 20;

/// The maximum number of rows that one call of [`RunStore::remove_ended_before`](crate::RunStore::remove_ended_before),
/// [`RunStore::expire_external_calls`](crate::RunStore::expire_external_calls),
/// [`RunStore::expire_approvals`](crate::RunStore::expire_approvals),
/// [`SpaceStore::sweep_spaces`](crate::SpaceStore::sweep_spaces),
/// [`SpaceStore::remove_events_before`](crate::SpaceStore::remove_events_before) or
/// [`SpaceStore::take_due_plans`](crate::SpaceStore::take_due_plans) changes: 1,000. Larger requests are reduced to
/// this, so that no transaction holds up others for long.
pub const MAX_SWEPT_ROWS: u32 = 1_000;

/// Checks that a name or an id is not empty, not too long, and free of control characters.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), StoreError> {
    // Control characters could disguise a name on a terminal. NUL is one of them, and PostgreSQL cannot keep
    // it.
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(StoreError::Name { field });
    }
    check_size(field, name.len(), MAX_NAME_BYTES)
}

/// A free text: bounded, without NUL, which PostgreSQL cannot keep.
pub(crate) fn check_text(field: &'static str, text: &str) -> Result<(), StoreError> {
    check_text_within(field, text, MAX_TEXT_BYTES)
}

/// A free text with a separate bound.
pub(crate) fn check_text_within(field: &'static str, text: &str, limit: usize) -> Result<(), StoreError> {
    if text.contains('\0') {
        return Err(StoreError::Nul { field });
    }
    check_size(field, text.len(), limit)
}

pub(crate) fn check_labels(labels: &[String]) -> Result<(), StoreError> {
    check_count("the labels", to_i64(labels.len()), to_i64(MAX_LABELS))?;
    labels.iter().try_for_each(|label| check_name("a label", label))
}

/// Refuses more bytes than the limit.
pub(crate) fn check_size(field: &'static str, bytes: usize, limit: usize) -> Result<(), StoreError> {
    if bytes > limit {
        return Err(LimitError::TooLarge { field, bytes, limit }.into());
    }
    Ok(())
}

/// Refuses more items than the limit.
pub(crate) fn check_count(field: &'static str, count: i64, limit: i64) -> Result<(), StoreError> {
    if count > limit {
        return Err(LimitError::TooMany { field, count, limit }.into());
    }
    Ok(())
}

/// Converts a size to the integer type of the databases. The bounds above keep it far from the ends of the
/// type.
pub(crate) fn to_i64(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
