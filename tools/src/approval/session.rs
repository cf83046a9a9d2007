//! Approvals that hold for the rest of a session. Each covers one tool with one grant.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use portcullis_policy::Grant;
use portcullis_types::SafetyTier;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{ApprovalRequest, origin};

/// The maximum number of approvals that a session keeps: 256. Beyond that, every call that none of them
/// covers needs an approval.
const MAX_KEPT: usize = 256;

/// The approvals that an approver has given for the rest of a session.
///
/// An approval covers later calls of the same tool with other arguments. The mounts, the profile, the limits,
/// the origins of the URLs and everything else that the call may access must be the same. Privileged tools,
/// and calls that a flow rule asks about, need an approval each time.
#[derive(Debug, Default)]
pub struct SessionApprovals {
    approved_keys: Mutex<BTreeSet<[u8; 32]>>,
}

impl SessionApprovals {
    /// Whether an approval of this call may cover later calls.
    #[must_use]
    pub fn may_keep(request: &ApprovalRequest) -> bool {
        let mut grants = grants(request);
        request.tier != SafetyTier::Privileged && grants.all(|grant| grant.flow.is_none())
    }

    /// Whether an earlier approval covers this call.
    #[must_use]
    pub fn covers(&self, request: &ApprovalRequest) -> bool {
        let approved_keys = self.approved_keys.lock().unwrap_or_else(PoisonError::into_inner);
        Self::may_keep(request) && key(request).is_some_and(|key| approved_keys.contains(&key))
    }

    /// Keeps an approval for the session, if [`Self::may_keep`] allows it.
    pub fn keep(&self, request: &ApprovalRequest) {
        if !Self::may_keep(request) {
            return;
        }
        let mut approved_keys = self.approved_keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = key(request)
            && approved_keys.len() < MAX_KEPT
        {
            approved_keys.insert(key);
        }
    }
}

/// Returns the call's own grant and the grants of its steps.
fn grants(request: &ApprovalRequest) -> impl Iterator<Item = &Grant> {
    std::iter::once(&request.grant).chain(request.steps.iter().map(|step| &step.grant))
}

/// Computes the hash that a session's approval is bound to: tool, tier, policy digest (modules included), and
/// the grants. A URL counts only by its origin, because an approval of one page must not cover another site.
fn key(request: &ApprovalRequest) -> Option<[u8; 32]> {
    let mut hasher = Sha256::new();
    let ApprovalRequest { tool, tier, unconfined, policy_digest, .. } = request;
    let head = format!("{tool}\0{tier}\0{unconfined}\0{policy_digest}\0");
    hasher.update(head);
    for grant in grants(request) {
        let subjects = &grant.subjects;
        // A grant that cannot be serialized gets no key, so no approval is kept for it.
        let mut grant = serde_json::to_value(grant).ok()?;
        if let Value::Object(fields) = &mut grant {
            fields.remove("subjects");
        }
        hasher.update(grant.to_string());
        hasher.update([0]);
        for subject in subjects {
            if let Some(origin) = origin(subject) {
                hasher.update(origin);
                hasher.update([0]);
            }
        }
    }
    Some(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use portcullis_policy::{
        DEFAULT_POLICY, LoadOptions, PolicySource, RequestedSubject, WorkspaceSecurityPolicy,
    };
    use portcullis_types::SandboxTier;

    use super::*;
    use crate::{
        Caller, ToolRegistry,
        approval::{ApprovalAnswer, Approver, AttributedAnswer},
        new_call,
    };

    #[derive(Default)]
    struct RecordingApprover(Mutex<Option<ApprovalRequest>>);

    #[async_trait]
    impl Approver for RecordingApprover {
        async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
            *self.0.lock().expect("not poisoned") = Some(request.clone());
            ApprovalAnswer::Deny { reason: None }.into()
        }
    }

    /// The request that an approver gets for a call of `echo` under this profile.
    fn request(profile: &str, message: &str) -> ApprovalRequest {
        let state = tempfile::tempdir().expect("a folder");
        let text = format!("{DEFAULT_POLICY}\n[tools.echo]\napproval = \"ask\"\nprofile = \"{profile}\"\n");
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "test", text: &text },
            overlay: None,
            sandbox_tier: SandboxTier::Process,
        });
        let registry = ToolRegistry::builder().default_tools().policy(policy.expect("loads"));
        let registry = registry.state(state.path()).build().expect("builds");
        let approver = Arc::new(RecordingApprover::default());
        let mut caller = Caller::new("tester", "run");
        caller.approver = Some(Arc::clone(&approver) as Arc<dyn Approver>);
        let call = new_call("echo", serde_json::json!({ "message": message }).to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(registry.execute_with_policy(call, &caller)).into_result().expect_err("refused");
        approver.0.lock().expect("not poisoned").take().expect("asked")
    }

    #[test]
    fn a_session_approval_covers_other_arguments_and_no_other_grant() {
        let approvals = SessionApprovals::default();
        let approved = request("WorkspaceRead", "a");
        assert!(!approvals.covers(&approved));
        approvals.keep(&approved);
        assert!(approvals.covers(&approved));
        assert!(approvals.covers(&request("WorkspaceRead", "b")));
        assert!(!approvals.covers(&request("FileReadWrite", "a")));
        let mut other_request = request("WorkspaceRead", "a");
        other_request.tool = "other".to_owned();
        assert!(!approvals.covers(&other_request));
        let mut other_policy = approved;
        other_policy.policy_digest.replace_range(..1, "x");
        assert!(!approvals.covers(&other_policy));
    }

    #[test]
    fn a_session_approval_of_an_address_covers_its_origin_only() {
        let approvals = SessionApprovals::default();
        let request_for = |url: &str| {
            let mut request = request("WorkspaceRead", "a");
            request.grant.subjects =
                vec![RequestedSubject::Url { argument: "url".to_owned(), url: url.to_owned() }];
            request
        };
        approvals.keep(&request_for("https://docs.example/a"));
        for covered in ["https://docs.example/b?c", "HTTPS://DOCS.example.:443/"] {
            assert!(approvals.covers(&request_for(covered)), "{covered}");
        }
        for other_url in [
            "https://evil.example/a",
            "https://docs.example.evil.example/",
            "https://docs.example:8443/",
            "http://docs.example/",
            "https://d\u{43e}cs.example/",
        ] {
            assert!(!approvals.covers(&request_for(other_url)), "{other_url}");
        }
        // A URL that cannot be parsed counts as its own origin, which matches no other.
        approvals.keep(&request_for("https://["));
        assert!(!approvals.covers(&request_for("http://[")));
    }

    #[test]
    fn privileged_calls_are_asked_about_each_time() {
        let approvals = SessionApprovals::default();
        let mut privileged = request("WorkspaceRead", "a");
        privileged.tier = SafetyTier::Privileged;
        approvals.keep(&privileged);
        assert!(!approvals.covers(&privileged));
        assert!(approvals.approved_keys.lock().expect("not poisoned").is_empty());
    }

    #[test]
    fn a_session_keeps_a_bounded_number_of_approvals() {
        let approvals = SessionApprovals::default();
        let mut call_request = request("WorkspaceRead", "a");
        for number in 0..MAX_KEPT + 3 {
            call_request.tool = format!("tool_{number}");
            approvals.keep(&call_request);
        }
        assert_eq!(approvals.approved_keys.lock().expect("not poisoned").len(), MAX_KEPT);
        assert!(!approvals.covers(&call_request));
    }
}
