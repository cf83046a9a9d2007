//! Conversations that outlive a process, in the state folder: one file each, private to its user.
//!
//! | file | what it is |
//! |---|---|
//! | `id.rs` | a conversation's id, which is also the id of its run |
//! | `record.rs` | the content of a file |
//! | `folder.rs` | the folder: finds, locks, reads, writes and removes files |
//! | `kept.rs` | a conversation as a loop's store |
//! | `error.rs` | why a conversation cannot be continued or kept |

mod error;
mod folder;
mod id;
mod kept;
mod record;

pub(crate) use error::ConversationError;
pub(crate) use folder::{ConversationFile, ConversationFolder};
pub(crate) use id::ConversationId;
pub(crate) use kept::KeptConversation;
pub(crate) use record::ConversationRecord;
