//! The bootstrap envelope of a runner. The command line builds an envelope from its options. A program that
//! receives an envelope as text parses it with [`RunnerBootstrapEnvelope::from_json`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

crate::word_enum! {
    /// The isolation of the runner itself. Each tier may have a section in the policy, which can only reduce access.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord, Serialize, Deserialize)]
    pub enum SandboxTier as "sandbox tier" {
        /// A process on the operator's machine.
        #[default]
        Process = "process",
        /// A container, which shares the kernel of its machine.
        Container = "container",
        /// A dedicated virtual machine.
        MicroVm = "micro_vm",
    }
}

/// The envelope from which a registry is built.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunnerBootstrapEnvelope {
    /// The version: [`RunnerBootstrapEnvelope::VERSION`].
    pub version: u32,
    /// The isolation of the runner.
    #[serde(default)]
    pub sandbox_tier: SandboxTier,
    /// The host folder that contains the policy's mounts.
    pub workspace: PathBuf,
    /// The host folder of the audit log, the cache and the stored outputs.
    pub state: PathBuf,
    /// The host folder of compiled modules, which several state folders may share. `None` means the state folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// The operator's policy file; `None` means the usual locations, then the shipped default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PathBuf>,
    /// Foreign module files to load in addition to those in the policy's folder. An unusable
    /// file fails the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<PathBuf>,
    /// The program that compiles foreign modules in a separate process: a `portcullis`. Without it, foreign
    /// modules are refused unless an earlier start has compiled them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiler: Option<PathBuf>,
    /// The shell sidecar that runs beside this process. `None` means that a front end provides a sidecar, or that
    /// there is no shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<SidecarSocket>,
}

/// The address of a running shell sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidecarSocket {
    /// The sidecar's Unix socket.
    pub path: PathBuf,
    /// The file with the sidecar's token. Only the file's owner can read it.
    pub token_file: PathBuf,
}

impl RunnerBootstrapEnvelope {
    /// The version that this build reads: 1.
    pub const VERSION: u32 = 1;

    /// Creates an envelope of this version with the tier [`SandboxTier::Process`].
    #[must_use]
    pub fn new(workspace: PathBuf, state: PathBuf) -> Self {
        Self {
            version: Self::VERSION,
            sandbox_tier: SandboxTier::Process,
            workspace,
            state,
            cache: None,
            policy: None,
            modules: Vec::new(),
            compiler: None,
            sidecar: None,
        }
    }

    /// Parses an envelope from JSON text, for a program that another program starts. The command line
    /// uses options instead.
    ///
    /// # Errors
    /// [`EnvelopeError`] if the version differs, a field is unknown, or the JSON is invalid.
    pub fn from_json(text: &str) -> Result<Self, EnvelopeError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        // Read the version first, so that a newer envelope is refused because of its version and not
        // because of a new field.
        let Version { version } = serde_json::from_str(text)?;
        if version != Self::VERSION {
            return Err(EnvelopeError::Version { found: version });
        }
        Ok(serde_json::from_str(text)?)
    }
}

/// Why an envelope cannot be used.
#[derive(Debug, Error)]
pub enum EnvelopeError {
    /// The version of the envelope is not supported.
    #[error(
        "the envelope has version {found}; this build reads version {}",
        RunnerBootstrapEnvelope::VERSION
    )]
    Version {
        /// The version of the envelope.
        found: u32,
    },
    /// The text is not a valid envelope.
    #[error("the envelope cannot be read")]
    Malformed(#[from] serde_json::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_round_trips_and_refuses_what_it_does_not_know() {
        let envelope = RunnerBootstrapEnvelope::new("/w".into(), "/s".into());
        let text = serde_json::to_string(&envelope).expect("encodes");
        assert_eq!(RunnerBootstrapEnvelope::from_json(&text).expect("decodes"), envelope);
        let newer = text.replace("\"version\":1", "\"version\":2,\"gateway\":{}");
        assert!(matches!(
            RunnerBootstrapEnvelope::from_json(&newer),
            Err(EnvelopeError::Version { found: 2 })
        ));
        let unknown = text.replace("\"version\":1", "\"version\":1,\"gateway\":{}");
        assert!(matches!(RunnerBootstrapEnvelope::from_json(&unknown), Err(EnvelopeError::Malformed(_))));
    }
}
