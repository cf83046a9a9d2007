//! What can be wrong with a module from outside, with the folder of modules, with the lock. For the
//! operator.

use std::{io, path::PathBuf};

use portcullis_confine::trusted::TrustError;
use portcullis_types::ToolName;
use thiserror::Error;

use crate::{RegistryError, audit::AuditError, sandbox::WasmError};

/// Why a module from outside is not used. The others are.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// Its file cannot be read.
    #[error("its file cannot be read")]
    Read {
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// It is a link. What a link leads to can change without the folder being touched.
    #[error("it is a link, and links are not followed")]
    Link,
    /// It is a folder, a FIFO, a socket or a device.
    #[error("it is no regular file")]
    NotAFile,
    /// Somebody else could change it.
    #[error("it is not used")]
    Untrusted(#[source] TrustError),
    /// It is too large.
    #[error("it has more than {limit} bytes")]
    TooLarge {
        /// How large it may be.
        limit: usize,
    },
    /// Its file name is no text, so nobody could be told which one it is.
    #[error("its file name is not UTF-8")]
    Name,
    /// It cannot be compiled, linked or asked what it has.
    #[error("it cannot be loaded")]
    Wasm(#[from] WasmError),
    /// A tool of it cannot be registered.
    #[error("its tools cannot be registered")]
    Registry(#[from] RegistryError),
    /// Another module has a tool of a name that is or looks the same. Neither gets it: which one was meant is
    /// not ours to guess.
    #[error("its tool `{tool}` is named like `{other}` of module `{module}`")]
    Ambiguous {
        /// Its own tool.
        tool: ToolName,
        /// The other's tool.
        other: ToolName,
        /// The other module.
        module: String,
    },
}

/// Why the folder of modules cannot be used at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It cannot be opened or listed.
    #[error("cannot list the folder of modules `{}`", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Somebody else could put a module there, which would get what the policy gives to tools of its names.
    #[error("the folder of modules `{}` is not used", path.display())]
    Untrusted {
        /// The folder.
        path: PathBuf,
        /// What is wrong, and what would be right.
        #[source]
        source: TrustError,
    },
    /// It has more than anybody would look through.
    #[error("the folder of modules `{}` has more than {limit} {what}", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// A relative folder, in a policy that is no file.
    #[error("the folder of modules `{}` is relative, and the policy is no file that it could be relative to", path.display())]
    NoBase {
        /// The folder.
        path: PathBuf,
    },
}

/// Why what was approved cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// It cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// It is not what was written: nothing in it counts, and nothing is approved in its place.
    #[error(
        "`{}` is damaged: {reason}; mend it, or remove it and approve each tool anew",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// Why a tool cannot be approved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ApproveError {
    /// There is no such tool.
    #[error("no tool is named `{}`", name.escape_default())]
    Unknown {
        /// The name.
        name: String,
    },
    /// It is not of a module from outside, so there is nothing to pin.
    #[error("`{name}` is no tool of a module from outside; what ships is approved with the program")]
    NotOutside {
        /// The tool.
        name: ToolName,
    },
}

/// Why a tool cannot be pinned, or its pin not be withdrawn.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PinError {
    /// Nothing is pinned under the name.
    #[error("nothing is approved under the name `{}`", name.escape_default())]
    NotPinned {
        /// The name.
        name: String,
    },
    /// It cannot be put on record, so it is not done.
    #[error("it cannot be recorded, so it is not done")]
    Unrecorded {
        /// What is wrong with the log.
        #[from]
        source: AuditError,
    },
    /// It is on record, and the lock cannot be read or written.
    #[error("the lock cannot be changed")]
    Lock {
        /// What is wrong with it.
        #[from]
        source: LockError,
    },
}
