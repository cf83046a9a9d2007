//! [`StoreError`]: why an operation of a store failed.

use std::{error::Error, fmt, io, path::PathBuf};

use thiserror::Error;

use crate::model::{ApprovalStatus, ExternalCallStatus};

/// An operation of a store failed. Nothing was written, except where [`DatabaseFailure::Unavailable`] and
/// [`DatabaseFailure::TimedOut`] say otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No such row.
    #[error("the store has no {entity} `{id}`")]
    NotFound {
        /// The kind of the row.
        entity: Entity,
        /// The id that the store does not have.
        id: String,
    },
    /// A row with this id is there already.
    #[error("the store already has the {entity} `{id}`")]
    AlreadyExists {
        /// The kind of the row.
        entity: Entity,
        /// The id that is taken.
        id: String,
    },
    /// The run has changed since its version was read.
    #[error("the run `{run}` has version {found}, not {expected}: it was changed in the meantime")]
    Conflict {
        /// The id of the run.
        run: String,
        /// The version that the caller has read.
        expected: i64,
        /// The stored version.
        found: i64,
    },
    /// The row has changed since its version was read.
    #[error("the {entity} `{id}` has version {found}, not {expected}: it was changed in the meantime")]
    Changed {
        /// The kind of the row.
        entity: Entity,
        /// The id of the row.
        id: String,
        /// The version that the caller has read.
        expected: i64,
        /// The stored version.
        found: i64,
    },
    /// Another run or step has consumed some of the inbox entries that the run would begin with, or some
    /// never existed.
    #[error("the inbox of `{agent}` lacks some of the entries {first} to {last}")]
    InboxConsumed {
        /// The agent whose inbox it is.
        agent: String,
        /// The ordinal of the first entry.
        first: i64,
        /// The ordinal of the last entry.
        last: i64,
    },
    /// The caller no longer has the lease of the run: it has expired, was released, or belongs to another
    /// owner.
    #[error("the lease of the run `{run}` no longer belongs to `{owner}`")]
    LeaseLost {
        /// The id of the run.
        run: String,
        /// The owner that the caller named.
        owner: String,
    },
    /// Another owner has the lease of the run.
    #[error("the run `{run}` is driven by `{owner}`")]
    Leased {
        /// The id of the run.
        run: String,
        /// The owner of the lease.
        owner: String,
        /// When the lease expires, in milliseconds since the Unix epoch.
        until: i64,
    },
    /// The run has ended, so it cannot be driven.
    #[error("the run `{run}` has ended")]
    Ended {
        /// The id of the run.
        run: String,
    },
    /// The run has not ended, so it cannot be opened again.
    #[error("the run `{run}` has not ended")]
    StillOpen {
        /// The id of the run.
        run: String,
    },
    /// The call no longer takes a result.
    #[error("the call `{id}` is {status}")]
    CallClosed {
        /// The id of the call.
        id: String,
        /// Its status.
        status: ExternalCallStatus,
    },
    /// The approval no longer takes an answer.
    #[error("the approval `{id}` is {status}")]
    ApprovalClosed {
        /// The id of the request for an approval.
        id: String,
        /// Its status.
        status: ApprovalStatus,
    },
    /// The answer names another hash than the approval, so it is about other content.
    #[error("the approval `{id}` is bound to another hash")]
    OtherHash {
        /// The id of the request for an approval.
        id: String,
    },
    /// A text is empty where a name is needed, or has control characters.
    #[error("{field} is empty or has control characters")]
    Name {
        /// The text, for example `the agent`.
        field: &'static str,
    },
    /// A text has a NUL character, which PostgreSQL cannot keep.
    #[error("{field} has a NUL character")]
    Nul {
        /// The text, for example `the workspace`.
        field: &'static str,
    },
    /// A value does not have the required form.
    #[error("{field} is not {expected}")]
    Invalid {
        /// The value, for example `the hash of the token`.
        field: &'static str,
        /// The required form.
        expected: &'static str,
    },
    /// A payload is not JSON.
    #[error("a payload is not JSON")]
    Json {
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// A bound of [`limits`](crate::limits) is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database has failed.
    #[error("the store cannot {action}: {failure}")]
    Database {
        /// The failed operation, as a verb with its object.
        action: &'static str,
        /// The kind of the failure.
        failure: DatabaseFailure,
        /// The database's error.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Returns the failure of the database, if it is the reason.
    #[must_use]
    pub fn failure(&self) -> Option<DatabaseFailure> {
        match self {
            Self::Database { failure, .. } => Some(*failure),
            _ => None,
        }
    }

    pub(crate) fn database(
        action: &'static str,
        failure: DatabaseFailure,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Database { action, failure, source: source.into() }
    }

    pub(crate) fn not_found(entity: Entity, id: &str) -> Self {
        Self::NotFound { entity, id: id.to_owned() }
    }

    pub(crate) fn exists(entity: Entity, id: &str) -> Self {
        Self::AlreadyExists { entity, id: id.to_owned() }
    }
}

/// The kinds of rows that an error names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entity {
    /// A run of an agent.
    Run,
    /// A call whose result comes later.
    Call,
    /// A started call.
    StartedCall,
    /// A request for an approval.
    Approval,
    /// A user or an agent.
    Participant,
    /// A space, in which participants exchange messages.
    Space,
    /// A message of a space.
    Message,
    /// A token, which identifies a caller.
    Token,
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "run",
            Self::Call => "call",
            Self::StartedCall => "started call",
            Self::Approval => "approval",
            Self::Participant => "participant",
            Self::Space => "space",
            Self::Message => "message",
            Self::Token => "token",
        })
    }
}

/// A bound is exceeded.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A value is too large.
    #[error("{field} has {bytes} bytes; at most {limit} are kept")]
    TooLarge {
        /// The value, for example `the arguments`.
        field: &'static str,
        /// The size of the value, in bytes.
        bytes: usize,
        /// The maximum size.
        limit: usize,
    },
    /// There are too many rows.
    #[error("{field} would be {count}; at most {limit} are kept")]
    TooMany {
        /// The rows, for example `the steps of a run`.
        field: &'static str,
        /// Their number after the write.
        count: i64,
        /// The maximum number.
        limit: i64,
    },
}

/// The kind of a database's failure. It decides what a caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatabaseFailure {
    /// Another process holds a lock for too long, two transactions waited for each other, or all connections of this
    /// process are in use. A retry may succeed.
    Busy,
    /// The server cannot be reached, or the connection was lost. The next call connects again. If the
    /// connection was lost during a commit, the write may have succeeded. The run's version shows whether it
    /// did.
    Unavailable,
    /// The server has not answered within the time limit of a statement. If it has not answered at all, the
    /// write may have succeeded, as for [`DatabaseFailure::Unavailable`].
    TimedOut,
    /// The database is read-only: a read-only file or folder, or a standby server.
    ReadOnly,
    /// The disk is full, or the database has reached its maximum size.
    Full,
    /// The file or a row is damaged.
    Corrupt,
    /// The server refuses the user, the password, the certificate, or the right to do this.
    Refused,
    /// Any other failure. See the source error.
    Other,
}

impl fmt::Display for DatabaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "another process holds its lock",
            Self::Unavailable => "the database cannot be reached",
            Self::TimedOut => "the database has not answered in time",
            Self::ReadOnly => "the database does not accept writes",
            Self::Full => "the disk or the database is full",
            Self::Corrupt => "the database is damaged",
            Self::Refused => "the database refuses it",
            Self::Other => "the database has failed",
        })
    }
}

/// A store cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A newer version of Portcullis has written the store. Nothing was changed.
    #[error("the store has version {found}; this program knows versions up to {supported}")]
    NewerVersion {
        /// The version of the store.
        found: i64,
        /// The newest version that this program knows.
        supported: i64,
    },
    /// The file is a database of another program. Nothing was changed.
    #[error("`{path}` is the database of another program", path = .path.display())]
    Foreign {
        /// The host path of the file.
        path: PathBuf,
    },
    /// Users other than the owner can access the folder or the file, or another user owns it.
    #[error("`{path}` must belong only to this user: mode {expected:04o}, not {found:04o} of user {uid}", path = .path.display())]
    NotPrivate {
        /// The folder or file.
        path: PathBuf,
        /// The widest mode that is accepted.
        expected: u32,
        /// The mode of the folder or file.
        found: u32,
        /// The id of its owner.
        uid: u32,
    },
    /// The path is a symlink, has a second hard link, or is not a regular file in a folder.
    #[error("`{path}` is a link or not a regular file", path = .path.display())]
    NotRegular {
        /// The host path that is refused.
        path: PathBuf,
    },
    /// The folder or the file cannot be examined or made.
    #[error("cannot open the store `{path}`", path = .path.display())]
    Io {
        /// The host path of the folder or file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The URL of the server cannot be used. The message omits the URL, which may contain a password.
    #[error("invalid URL of the store: {reason}")]
    Url {
        /// Why the URL cannot be used, as a clause without a full stop.
        reason: &'static str,
        /// The parser's error.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The database's encoding is not UTF-8, so it cannot store every text.
    #[error("the database has the encoding {found}; make it with `encoding 'UTF8'`")]
    Encoding {
        /// The database's encoding, as the server names it.
        found: String,
    },
    /// The root certificates for the server's certificate cannot be read.
    #[error("cannot read the certificates of authorities")]
    Roots {
        /// Why the certificates cannot be read, or the error of the TLS library.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}
