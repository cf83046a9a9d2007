//! The lines of a record's file: one JSON object per line, in the order of events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::path_state::{FileOwner, MountPath, PathState, RootIdentity};

/// The version of the format. A reader refuses records of a newer version.
pub(crate) const VERSION: u32 = 1;

/// The call that made changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallIdentity {
    /// The call's id, as in the audit log.
    pub call: String,
    /// The run of the call, as in the audit log.
    pub run: String,
    /// The agent that made the call.
    pub agent: String,
    /// The name of the tool.
    pub tool: String,
}

/// Why the content of a file was not stored. The record still has the file's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OmissionReason {
    /// The file is larger than [`MAX_FILE_BYTES`](crate::MAX_FILE_BYTES).
    LargeFile,
    /// The call has changed more than [`MAX_CALL_BYTES`](crate::MAX_CALL_BYTES).
    LargeCall,
    /// The file was removed, replaced or unreadable when it was opened.
    Unreadable,
}

impl OmissionReason {
    /// The reason, for a sentence such as "its content was not recorded: …".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LargeFile => "the file is too large",
            Self::LargeCall => "the call changed too much",
            Self::Unreadable => "the file could not be read",
        }
    }
}

/// The place where the content of a file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ContentLocation {
    /// In the record's file with this number.
    #[serde(rename = "kept")]
    InFile(u32),
    /// It is not stored.
    #[serde(rename = "not_kept")]
    Omitted(OmissionReason),
}

/// The state of a path before a call changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathBefore {
    pub(crate) mount: String,
    pub(crate) path: MountPath,
    #[serde(rename = "node")]
    pub(crate) state: PathState,
    /// The owner, if the path was a regular file or a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<FileOwner>,
    /// The content, if the path was a regular file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<ContentLocation>,
}

/// The state of a path after the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathAfter {
    pub(crate) mount: String,
    pub(crate) path: MountPath,
    #[serde(rename = "node")]
    pub(crate) state: PathState,
}

/// One line of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordLine {
    /// The first line.
    Call {
        v: u32,
        /// Seconds since the epoch.
        time: u64,
        #[serde(flatten)]
        identity: CallIdentity,
        /// The records that were undone, if an undo made these changes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        undoes: Vec<String>,
        /// The mounts that the call could change, by name.
        mounts: BTreeMap<String, RootIdentity>,
    },
    Before(PathBefore),
    /// The call ended. If this line is missing, the process died during the call.
    End {
        after: Vec<PathAfter>,
        /// Whether paths are missing, because the call changed more than [`MAX_CALL_PATHS`](crate::MAX_CALL_PATHS).
        incomplete: bool,
    },
}
