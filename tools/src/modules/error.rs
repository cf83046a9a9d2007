//! Errors of foreign modules, of the modules folder, and of the lock file. For the operator.

use std::{io, path::PathBuf};

use portcullis_confine::trusted::TrustError;
use portcullis_types::ToolName;
use thiserror::Error;

use crate::{RegistryError, audit::AuditError, sandbox::WasmError};

/// Why a foreign module is refused. The other modules are used.
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
    /// It is a link. The target of a link can change without a change in the folder.
    #[error("it is a link, and links are not followed")]
    Link,
    /// It is a folder, a FIFO, a socket or a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// Another user could change the file.
    #[error("its file is not trusted")]
    Untrusted(#[source] TrustError),
    /// It is too large.
    #[error("it has more than {limit} bytes")]
    TooLarge {
        /// The size limit, in bytes.
        limit: usize,
    },
    /// Its file name is not UTF-8, so no message could name it exactly.
    #[error("its file name is not UTF-8")]
    Name,
    /// It cannot be compiled, linked or described.
    #[error("it cannot be loaded")]
    Wasm(#[from] WasmError),
    /// One of its tools cannot be registered.
    #[error("its tools cannot be registered")]
    Registry(#[from] RegistryError),
    /// Another module has a tool with the same or a similar name. A module found in the folder is then
    /// refused. If both were found there, both are refused, because choosing one would be a guess.
    #[error("its tool `{tool}` is named like `{other_tool}` of module `{module}`")]
    Ambiguous {
        /// This module's tool.
        tool: ToolName,
        /// The tool of the other module.
        other_tool: ToolName,
        /// The other module's name.
        module: String,
    },
}

/// Why the whole module folder is unusable.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModuleFolderError {
    /// It cannot be opened or listed.
    #[error("cannot list the module folder `{}`", path.display())]
    Unusable {
        /// The folder's path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Another user could put a module there, which would get the rights that the policy gives its tools.
    #[error("the module folder `{}` is not trusted", path.display())]
    Untrusted {
        /// The folder's path.
        path: PathBuf,
        /// The fault, with the remedy.
        #[source]
        source: TrustError,
    },
    /// The folder has more entries or modules than the limit.
    #[error("the folder of modules `{}` has more than {limit} {what}", path.display())]
    TooMany {
        /// The folder's path.
        path: PathBuf,
        /// The items over the limit: `entries` or `modules`.
        what: &'static str,
        /// The maximum number of these items.
        limit: usize,
    },
    /// The folder is relative, but the policy is not a file, so there is no base folder.
    #[error("the folder of modules `{}` is relative, but the policy is not a file, so there is no folder to resolve it in", path.display())]
    NoBase {
        /// The folder's path.
        path: PathBuf,
    },
}

/// Why the text of a lock is not one that this program writes.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InvalidLock {
    /// It is not a regular file of text, or too large.
    #[error("{0}")]
    File(io::Error),
    /// It is not TOML, or has other keys. The parser's message is escaped, and quotes no line.
    #[error("{0}")]
    Syntax(String),
    /// It has the version of another program.
    #[error("it has version {found}; this build reads version {}", super::pins::VERSION)]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// A hash is not one.
    #[error("tools.{tool}.{key} is not a SHA-256 in lower-case hexadecimal")]
    Hash {
        /// The tool whose pin it is.
        tool: ToolName,
        /// The key of the hash.
        key: &'static str,
    },
}

/// Why the lock file cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// It cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The lock file's path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The file does not have the format that this program writes. It is ignored as a whole, and a new
    /// approval does not overwrite it.
    #[error(
        "`{}` is damaged: {reason}; repair it, or delete it and approve each tool again",
        path.display()
    )]
    Malformed {
        /// The lock file's path.
        path: PathBuf,
        /// The problem with its content.
        reason: InvalidLock,
    },
    /// It cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The lock file's path.
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
        /// The name as it was given.
        name: String,
    },
    /// The tool does not come from a foreign module. Shipped tools are approved with the program.
    #[error("`{name}` is not a tool of a foreign module; shipped tools are approved with the program")]
    NotForeign {
        /// The tool's name.
        name: ToolName,
    },
}

/// Why a tool cannot be pinned, or its pin cannot be withdrawn.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PinError {
    /// Nothing is pinned under the name.
    #[error("nothing is approved under the name `{}`", name.escape_default())]
    NotPinned {
        /// The name as it was given.
        name: String,
    },
    /// The change cannot be recorded in the audit log, so it was not made.
    #[error("the change cannot be recorded, so it was not made")]
    Unrecorded {
        /// The error of the audit log.
        #[from]
        source: AuditError,
    },
    /// The change was recorded, but the lock file cannot be read or written.
    #[error("the lock cannot be changed")]
    Lock {
        /// The lock's error.
        #[from]
        source: LockError,
    },
}
