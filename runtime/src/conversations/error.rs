//! [`ConversationError`]: why a conversation cannot be continued or kept.

use std::{io, path::PathBuf};

use portcullis_tools::policy::InvalidFlowLabel;
use thiserror::Error;

use super::ConversationId;
use crate::output::text;

/// Why a conversation cannot be continued or kept.
#[derive(Debug, Error)]
pub(crate) enum ConversationError {
    /// The text is no id.
    #[error(
        "`{}` is no id of a conversation; an id is `run_` and 16 hexadecimal digits, as `portcullis agent` prints it",
        text::inline(text)
    )]
    InvalidId { text: String },
    /// The system gives no random bytes for an id.
    #[error("cannot make an id for the conversation")]
    Random { source: getrandom::Error },
    /// There is nothing to continue.
    #[error(
        "there is no conversation about `{workspace}` to continue; `portcullis agent` without `--continue` begins one"
    )]
    None { workspace: String },
    /// No conversation has the id.
    #[error(
        "there is no conversation `{id}` in `{}`; the oldest ones are removed, and each workspace has its own",
        folder.display()
    )]
    Unknown { id: ConversationId, folder: PathBuf },
    /// The folder of conversations cannot be used.
    #[error("cannot use the folder of conversations `{}`", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
    /// The folder or a file belongs to another user.
    #[error(
        "`{}` belongs to user {owner}, and a conversation must belong to this program's user ({own})",
        path.display()
    )]
    Foreign { path: PathBuf, owner: u32, own: u32 },
    /// The path is no regular file.
    #[error("`{}` is not a regular file, and a conversation is one", path.display())]
    NoFile { path: PathBuf },
    /// The file cannot be read.
    #[error("cannot read the conversation `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is larger than every conversation that this program writes.
    #[error("the conversation `{}` is larger than {limit}, so it was not written by this program", path.display())]
    Oversized { path: PathBuf, limit: String },
    /// The file has other content than a conversation.
    #[error("the file `{}` has not the form of a conversation; remove it, or restore it from a copy", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    /// The file's name and content disagree.
    #[error("the file `{}` has the conversation `{id}`, whose name is another", path.display())]
    Misnamed { path: PathBuf, id: ConversationId },
    /// A label of the run is unknown. Without it a rule of the policy could not hold.
    #[error("the conversation `{}` has read data whose label is unknown, so no flow rule could hold", path.display())]
    Label { path: PathBuf, source: InvalidFlowLabel },
    /// A later version of the program wrote the file.
    #[error(
        "the conversation `{}` has the format {found}, and this program knows formats up to {known}; a newer \
         `portcullis` wrote it, and can continue it",
        path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    /// The conversation is about another workspace.
    #[error("the conversation `{id}` is about `{other}`, and this workspace is `{workspace}`")]
    OtherWorkspace { id: ConversationId, other: String, workspace: String },
    /// Another process has the conversation open.
    #[error("the conversation `{id}` is open in another process; end it there first")]
    InUse { id: ConversationId },
    /// The conversation has grown beyond the limit.
    #[error("the conversation is longer than {limit}, and is not kept any further; begin a new one")]
    TooLong { limit: String },
    /// The conversation cannot be encoded.
    #[error("cannot encode the conversation")]
    Encode { source: serde_json::Error },
    /// The file cannot be written.
    #[error("cannot write the conversation `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl ConversationError {
    /// Whether the conversation that the person named cannot be continued, rather than that of this process be kept.
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            Self::InvalidId { .. }
            | Self::None { .. }
            | Self::Unknown { .. }
            | Self::Foreign { .. }
            | Self::NoFile { .. }
            | Self::Oversized { .. }
            | Self::Malformed { .. }
            | Self::Misnamed { .. }
            | Self::Label { .. }
            | Self::Newer { .. }
            | Self::OtherWorkspace { .. }
            | Self::InUse { .. } => true,
            Self::Random { .. }
            | Self::Folder { .. }
            | Self::Read { .. }
            | Self::TooLong { .. }
            | Self::Encode { .. }
            | Self::Write { .. } => false,
        }
    }
}
