//! Explains a recorded call under the policy that was in force. The state folder keeps each
//! policy under its digest.

use std::{
    io,
    path::{Path, PathBuf},
};

use portcullis_confine::bounded::{self, FinalSymlink};
use portcullis_policy::{Approval, CallRequest, RunContext, Trace, WorkspaceSecurityPolicy};
use portcullis_types::{RunnerBootstrapEnvelope, SandboxTier};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::{Explainer, Explanation, named_answer};
use crate::{
    audit::{self, AuditError, POLICIES_DIR, RecordedApprover, Row, RowEvent, SharedText},
    error::BootstrapError,
    policy_files::PolicyFiles,
    replay::{RecordedCall, recorded_verdict},
};

/// The maximum size of a stored policy: 4 MiB. The canonical JSON is longer than the text
/// that it was made from.
const MAX_STORED_POLICY_BYTES: u64 = 4 << 20;

/// Why a row cannot be explained.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RowError {
    /// The log has no row of this number.
    #[error("the audit log has no row {seq}; its last row is {last}")]
    NoRow {
        /// The number of the row that was asked for.
        seq: u64,
        /// The number of the last row; 0 for an empty log.
        last: u64,
    },
    /// The log cannot be read.
    #[error("the audit log cannot be read")]
    Log(#[from] AuditError),
    /// The row does not record a call.
    #[error("row {seq} is not about a call: it is of the kind `{kind}`")]
    NotACall {
        /// The number of the row.
        seq: u64,
        /// The kind of the row.
        kind: RowEvent,
    },
    /// The row has no decision, because the call failed before the policy judged it.
    #[error("row {seq} has no decision: the call failed before the policy judged it")]
    NoDecision {
        /// The number of the row.
        seq: u64,
    },
    /// The row names no policy.
    #[error("row {seq} names no policy")]
    NoDigest {
        /// The number of the row.
        seq: u64,
    },
    /// The row is not complete enough to judge the call again.
    #[error(
        "the call of row {seq} cannot be judged again: its subjects or labels did not fit into the row, or its tool is not known"
    )]
    Incomplete {
        /// The number of the row.
        seq: u64,
    },
    /// The stored policy of the row cannot be read.
    #[error("the policy of row {seq} cannot be read from `{}`", path.display())]
    Policy {
        /// The number of the row.
        seq: u64,
        /// The host path of the stored policy.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The stored file is not the policy that the row names.
    #[error("`{}` is not the policy of row {seq}: its SHA-256 is {found}", path.display())]
    OtherPolicy {
        /// The number of the row.
        seq: u64,
        /// The host path of the stored file.
        path: PathBuf,
        /// The hash of the file.
        found: String,
    },
    /// This version cannot load the stored policy.
    #[error("the policy of row {seq} cannot be loaded")]
    Load {
        /// The number of the row.
        seq: u64,
        /// Why the stored policy cannot be loaded.
        #[source]
        source: Box<BootstrapError>,
    },
}

/// The decision that a row records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedDecision {
    /// The row's number.
    pub seq: u64,
    /// The row's time in UTC, with microseconds.
    pub time: String,
    /// The id of the call.
    pub call_id: SharedText,
    /// The agent that made the call.
    pub agent: Option<SharedText>,
    /// The policy's decision.
    pub decision: audit::Decision,
    /// The code of a denial or an error.
    pub code: Option<SharedText>,
    /// The deciding rule.
    pub rule: Option<SharedText>,
    /// The result of the approval.
    pub approval: Option<SharedText>,
    /// The approver that approved or refused the call. `None` if no approval was needed, or no one answered.
    pub approver: Option<RecordedApprover>,
    /// The digest of the policy.
    pub policy_digest: SharedText,
    /// The recorded verdict in the terms of an explanation: if a person refused the call,
    /// the verdict is `ask`.
    pub verdict: Approval,
    /// Whether the explanation has the same verdict.
    pub agrees: bool,
}

/// The explanation of a recorded call, beside the decision in its row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedExplanation {
    /// The explanation under the policy that was in force.
    #[serde(flatten)]
    pub explanation: Explanation,
    /// The recorded decision.
    pub recorded: RecordedDecision,
}

/// Explains the call of a row of an envelope's audit log. Judges names only, and opens no file.
///
/// # Errors
/// [`RowError`] if the row does not exist, is not a call, or its policy is not available.
pub fn explain_row(envelope: &RunnerBootstrapEnvelope, seq: u64) -> Result<RecordedExplanation, RowError> {
    let row = find_row(&audit::log_path(&envelope.state), seq)?;
    if !matches!(row.event, RowEvent::Begin | RowEvent::End) {
        return Err(RowError::NotACall { seq, kind: row.event });
    }
    let decision = row.decision.ok_or(RowError::NoDecision { seq })?;
    let digest = row.policy_digest.clone().ok_or(RowError::NoDigest { seq })?;
    let (explainer, differing) =
        policy_of_row(&envelope.state.join(POLICIES_DIR), seq, &digest, envelope.sandbox_tier)?;
    let call = RecordedCall::of(&row).ok_or(RowError::Incomplete { seq })?;
    let run = RunContext {
        agent: row.agent.as_deref().unwrap_or_default(),
        run: row.run_id.as_deref().unwrap_or_default(),
        labels: call.labels.clone().into(),
    };
    let request = CallRequest { tool: &call.descriptor, subjects: &call.subjects, run: &run };
    let mut trace = Trace::default();
    // The verdict comes from the same function as elsewhere; the trace adds the rules that led to it.
    let denial = explainer.policy.authorize_traced(&request, &mut trace).err();
    let (verdict, rule, _) = named_answer(&explainer.policy, &request);
    let subject = call.subjects.first();
    let mut explanation =
        explainer.explanation(&call.descriptor, subject, (verdict, rule), denial.as_ref(), trace);
    explanation.unchecked = vec![
        "symlinks and files at the time of the call: only the names in the row were judged".to_owned(),
        "the rate, hooks, the approver's answer, and the layers of the kernel".to_owned(),
    ];
    if !differing.is_empty() {
        explanation.unchecked.push(format!(
            "the stored policy text differs from the hashed policy in: {}",
            differing.join(", ")
        ));
    }
    let recorded = recorded_verdict(&row, decision);
    Ok(RecordedExplanation {
        recorded: RecordedDecision {
            seq,
            time: format!("{:.6}", row.time),
            call_id: row.call_id,
            agent: row.agent,
            decision,
            code: row.code,
            rule: row.rule,
            approval: row.approval,
            approver: row.approver,
            policy_digest: digest,
            verdict: recorded,
            agrees: recorded == explanation.verdict,
        },
        explanation,
    })
}

/// Finds a row. A malformed line is an error only if the row is not found.
fn find_row(log: &Path, seq: u64) -> Result<Row, RowError> {
    let mut last = 0;
    let mut fault = None;
    for row in audit::rows(log) {
        match row {
            Ok(row) if row.seq == seq => return Ok(row),
            Ok(row) => last = row.seq,
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    Err(fault.map_or(RowError::NoRow { seq, last }, RowError::Log))
}

/// Loads the policy with a digest, and lists the sections in which it differs from the JSON that was hashed.
fn policy_of_row(
    folder: &Path,
    seq: u64,
    digest: &str,
    tier: SandboxTier,
) -> Result<(Explainer, Vec<String>), RowError> {
    // The digest becomes a file name, so refuse any other text.
    if !audit::is_sha256(digest) {
        return Err(RowError::NoDigest { seq });
    }
    let path = folder.join(format!("{digest}.json"));
    let json = match read_stored_policy(&path) {
        Ok(json) => json,
        Err(source) => return Err(RowError::Policy { seq, path, source }),
    };
    let found = hex::encode(Sha256::digest(&json));
    if found != digest {
        return Err(RowError::OtherPolicy { seq, path, found });
    }
    let load = || {
        let files = PolicyFiles::read(&folder.join(format!("{digest}.toml")))?;
        let policy = files.load(tier)?;
        let provenance = portcullis_policy::PolicyProvenance::read(&files.options(tier));
        Ok((policy, provenance))
    };
    let (policy, provenance) = load().map_err(|source| RowError::Load { seq, source: Box::new(source) })?;
    let differing = differing_sections(&json, &policy);
    Ok((Explainer::by_names(policy, provenance), differing))
}

/// Lists the sections that differ. Module hashes are added at startup and are in no policy text.
fn differing_sections(hashed: &[u8], policy: &WorkspaceSecurityPolicy) -> Vec<String> {
    let read = |json: &[u8]| serde_json::from_slice::<serde_json::Map<String, Value>>(json);
    let (Ok(hashed), Ok(kept)) = (read(hashed), read(&policy.canonical_json())) else {
        return vec!["everything: it is not JSON".to_owned()];
    };
    let keys: std::collections::BTreeSet<&String> = hashed.keys().chain(kept.keys()).collect();
    let differs = |key: &&String| key.as_str() != "modules" && hashed.get(*key) != kept.get(*key);
    keys.into_iter().filter(differs).cloned().collect()
}

fn read_stored_policy(path: &Path) -> io::Result<Vec<u8>> {
    bounded::read_bytes(bounded::open_regular(path, FinalSymlink::Refuse)?, MAX_STORED_POLICY_BYTES)
}
