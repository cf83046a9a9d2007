//! The findings of `doctor` as values, which `doctor --json` writes.

use std::path::PathBuf;

use portcullis_tools::{
    HardLinkReport, ToolRegistry,
    confine::{Evidence, Layer, LayerStatus},
    examine_hard_links,
};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct Findings {
    pub(super) version: &'static str,
    /// Whether everything that the policy requires is enforced and proven.
    pub(super) ok: bool,
    pub(super) layers: Vec<LayerFinding>,
    /// The HTTP client, if the policy grants hosts.
    pub(super) egress: Option<EgressFinding>,
    pub(super) shell: Option<ShellFinding>,
    pub(super) kernel: KernelReport,
    /// The project that the current folder or the named policy leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) project: Option<ProjectFinding>,
    pub(super) workspace: PathBuf,
    pub(super) state: PathBuf,
    pub(super) policy: PolicyFinding,
    pub(super) secrets: Vec<SecretFinding>,
    pub(super) tools: Option<ToolCount>,
    pub(super) audit: Option<AuditFinding>,
    /// Files of the mounts that also have a name outside the mounts or in another mount.
    pub(super) hard_links: Option<HardLinkFinding>,
    /// The reason why the tools do not start, with the causes.
    pub(super) error: Option<String>,
    pub(super) missing: Vec<MissingPart>,
}

/// The project that the command works on.
#[derive(Debug, Serialize)]
pub(super) struct ProjectFinding {
    pub(super) name: String,
    pub(super) folder: PathBuf,
}

/// A layer, as a worker thread proved it.
#[derive(Debug, Serialize)]
pub(super) struct LayerFinding {
    pub(super) layer: Layer,
    pub(super) required: bool,
    /// Whether the thread saw the layer refuse an attempt.
    pub(super) proven: bool,
    #[serde(flatten)]
    pub(super) status: LayerStatus,
    pub(super) evidence: Vec<Evidence>,
}

/// The HTTP client, with the confinement that one of its threads proved.
#[derive(Debug, Serialize)]
pub(super) struct EgressFinding {
    /// Whether requests can be made on threads that proved every required layer.
    pub(super) ok: bool,
    pub(super) posture: Option<String>,
    /// The proxy that all connections go through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) proxy: Option<String>,
    pub(super) layers: Vec<LayerFinding>,
    /// The reason why no request can be made.
    pub(super) reason: Option<String>,
}

/// The sidecar, with the posture that one of its sessions proved.
#[derive(Debug, Serialize)]
pub(super) struct ShellFinding {
    /// Whether commands run in a session that proved at least the required posture.
    pub(super) ok: bool,
    /// Whether the configuration asks for a shell.
    pub(super) wanted: bool,
    pub(super) posture: Option<String>,
    /// The weakest posture that the policy accepts.
    pub(super) least: Option<String>,
    pub(super) layers: Vec<ShellLayer>,
    /// The hosts that the session's commands reach.
    pub(super) hosts: Vec<String>,
    /// The reason why the session's commands reach no host although the policy grants some.
    pub(super) network_absence: Option<String>,
    /// The reason why there is no shell.
    pub(super) reason: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ShellLayer {
    pub(super) layer: String,
    pub(super) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    pub(super) evidence: Vec<ProvenAttempt>,
}

#[derive(Debug, Serialize)]
pub(super) struct ProvenAttempt {
    pub(super) attempt: String,
    pub(super) before: String,
    pub(super) after: String,
}

#[derive(Debug, Serialize)]
pub(super) struct KernelReport {
    pub(super) release: String,
    pub(super) arch: &'static str,
    pub(super) landlock_abi: Option<u32>,
    pub(super) seccomp: bool,
    pub(super) pagemap_scan: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct PolicyFinding {
    pub(super) source: String,
    pub(super) overlay: Option<String>,
    pub(super) requires: Vec<&'static str>,
    pub(super) digest: String,
}

/// A secret of the policy, never its value.
#[derive(Debug, Serialize)]
pub(super) struct SecretFinding {
    pub(super) name: String,
    /// The secret's source and audience.
    pub(super) audience: String,
    /// The reason why the secret's value cannot be used, with the causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ToolCount {
    pub(super) wasm: usize,
    pub(super) egress: usize,
    pub(super) shell: usize,
    pub(super) native_unconfined: usize,
    pub(super) quarantined: usize,
    pub(super) refused_modules: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct AuditFinding {
    pub(super) path: PathBuf,
    pub(super) intact: bool,
    /// The output of `audit verify`, or the reason why the log could not be verified.
    pub(super) report: String,
}

/// Hard links out of mounts and between them.
#[derive(Debug, Serialize)]
pub(super) struct HardLinkFinding {
    pub(super) found: Vec<String>,
    pub(super) left_out: usize,
    /// Whether the mounts have more files than were examined.
    pub(super) has_more: bool,
    /// Whether a private file also has a name elsewhere. No command runs then.
    pub(super) is_private_exposed: bool,
    /// Some of the private files that also have a name elsewhere, by their private names.
    pub(super) private: Vec<String>,
    pub(super) private_left_out: usize,
    /// The reason why it is unknown whether private files are exposed. No command runs then either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unknown: Option<String>,
}

impl HardLinkFinding {
    pub(super) fn collect(registry: &ToolRegistry) -> Self {
        let HardLinkReport {
            shared_files: found,
            shared_files_omitted: left_out,
            has_more,
            is_private_exposed,
            private_files: private,
            private_files_omitted: private_left_out,
            search_fault: unknown,
        } = examine_hard_links(registry.mounts());
        Self { found, left_out, has_more, is_private_exposed, private, private_left_out, unknown }
    }
}

/// A missing part, and how to obtain it.
#[derive(Debug, Serialize)]
pub(super) struct MissingPart {
    pub(super) what: String,
    pub(super) required: bool,
    pub(super) remedy: String,
}
