//! Why a registry could not be assembled, for the operator.

use std::path::PathBuf;

use portcullis_audit::KeyError;
use portcullis_confine::trusted::TrustError;
use portcullis_egress::Url;
use portcullis_policy::PolicyError;
use thiserror::Error;

use crate::{
    audit::AuditError,
    modules::{LockError, ModuleError, ModuleFolderError},
    output_store::OutputStoreError,
    pipeline::FailedExpectations,
    registry::RegistryError,
    sandbox::{WasmError, mounts::MountError},
    state::StateError,
};

/// Why no registry could be assembled.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The policy cannot be used.
    #[error("the policy cannot be loaded")]
    Policy(#[from] PolicyError),
    /// A policy file cannot be read.
    #[error("cannot read the policy file `{}`", path.display())]
    PolicyFile {
        /// The policy file's path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A checkpoint file of the audit log cannot be opened.
    #[error("cannot write checkpoints to `{}`, which the policy names in `audit.checkpoints`", path.display())]
    Checkpoints {
        /// The file's path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The public key of a witness is malformed.
    #[error("the witness `{url}`, which the policy names in `audit.checkpoints`, has an invalid URL or key")]
    Witness {
        /// The prefix of the witness's URL.
        url: Url,
        /// The fault in the key.
        #[source]
        source: KeyError,
    },
    /// The policy names a witness, but this registry has no HTTP client to reach it.
    #[error(
        "a registry without an HTTP client cannot reach the witness that the policy names in `audit.checkpoints`"
    )]
    NoWitnessClient,
    /// The thread that sends checkpoints to witnesses cannot be started.
    #[error("cannot start the thread that takes checkpoints to witnesses")]
    WitnessThread {
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// Another user could change the operator's policy, or a folder on its path.
    #[error("the policy file `{}` is refused", path.display())]
    UntrustedPolicy {
        /// The policy file's path.
        path: PathBuf,
        /// The fault, with the remedy.
        #[source]
        source: TrustError,
    },
    /// The expectations about the policy cannot be used.
    #[error("the expectations about the policy cannot be loaded")]
    ExpectationsFile(#[source] PolicyError),
    /// The policy does not meet its operator's expectations.
    #[error("the policy does not meet its expectations")]
    Expectations(#[source] FailedExpectations),
    /// The policy requires a confinement layer that this kernel lacks.
    #[error(
        "the policy requires `{layer}`, which is not available here: {reason}; to run without it, take it out of `require` in the policy"
    )]
    MissingLayer {
        /// The name of the missing layer.
        layer: &'static str,
        /// Why it is missing.
        reason: String,
    },
    /// A mount cannot be used.
    #[error("a mount cannot be opened")]
    Mount(#[from] MountError),
    /// The state folder cannot be used.
    #[error("the state folder cannot be opened")]
    State(#[from] StateError),
    /// There is no folder to keep state in.
    #[error("neither XDG_STATE_HOME nor HOME is set, so there is no folder for state; name one")]
    NoHome,
    /// The audit log cannot be used, so no call may run.
    #[error("the audit log cannot be opened")]
    Audit(#[from] AuditError),
    /// The store of complete outputs cannot be used.
    #[error("the output store cannot be opened")]
    Outputs(#[from] OutputStoreError),
    /// The runner of guests cannot be started, or a module cannot be loaded.
    #[error("the WebAssembly runner cannot be started")]
    Wasm(#[from] WasmError),
    /// The folder of modules cannot be used.
    #[error("the folder of modules cannot be read")]
    Folder(#[from] ModuleFolderError),
    /// A module that was named explicitly cannot be used.
    #[error("the module `{}` cannot be loaded", name.escape_debug())]
    Module {
        /// The module's name, as it was given.
        name: String,
        /// The fault of the module.
        #[source]
        source: ModuleError,
    },
    /// The lock file cannot be read, so it is unknown which modules were approved.
    #[error("the approvals of modules cannot be read")]
    Lock(#[from] LockError),
    /// The tools cannot be registered, for example because two have the same name.
    #[error("the tools cannot be registered")]
    Registry(#[from] RegistryError),
}
