//! Approvals that hold for a session: for one tool, as long as its grant stays the same.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use portcullis_policy::Grant;
use portcullis_types::SafetyTier;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{ApprovalRequest, origin};

/// How many approvals a session keeps at most. After that each call is asked about again.
const MAX_KEPT: usize = 256;

/// Calls that an approver has approved for the rest of a session.
///
/// An approval covers later calls of the tool with other arguments, as long as mounts, profile, limits, the
/// origins of addresses and everything else that the call may touch stay the same. Privileged tools, and
/// calls that a flow rule asks about, are asked about each time.
#[derive(Debug, Default)]
pub struct SessionApprovals {
    kept: Mutex<BTreeSet<[u8; 32]>>,
}

impl SessionApprovals {
    /// Whether an approval of this call may cover later calls.
    #[must_use]
    pub fn may_keep(request: &ApprovalRequest) -> bool {
        let mut grants = grants(request);
        request.tier != SafetyTier::Privileged && grants.all(|grant| grant.flow.is_none())
    }

    /// Whether an earlier answer covers this call.
    #[must_use]
    pub fn covers(&self, request: &ApprovalRequest) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Self::may_keep(request) && key(request).is_some_and(|key| kept.contains(&key))
    }

    /// Keeps an approval, if the call may have one for the session.
    pub fn keep(&self, request: &ApprovalRequest) {
        if !Self::may_keep(request) {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = key(request)
            && kept.len() < MAX_KEPT
        {
            kept.insert(key);
        }
    }
}

/// The grants of a call: its own, and those of its steps.
fn grants(request: &ApprovalRequest) -> impl Iterator<Item = &Grant> {
    std::iter::once(&request.grant).chain(request.steps.iter().map(|step| &step.grant))
}

/// The hash that a session's approval is bound to: tool, tier, policy digest (modules included), and the
/// grants. The subjects count by their origins only: approving one page must not approve other sites.
fn key(request: &ApprovalRequest) -> Option<[u8; 32]> {
    let mut hasher = Sha256::new();
    let ApprovalRequest { tool, tier, unconfined, policy_digest, .. } = request;
    let head = format!("{tool}\0{tier}\0{unconfined}\0{policy_digest}\0");
    hasher.update(head);
    for grant in grants(request) {
        let subjects = &grant.subjects;
        // A grant that cannot be serialised gets no key, so no approval is kept for it.
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
        approval::{ApprovalAnswer, Approver},
        new_call,
    };

    #[derive(Default)]
    struct Keeps(Mutex<Option<ApprovalRequest>>);

    #[async_trait]
    impl Approver for Keeps {
        async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer {
            *self.0.lock().expect("not poisoned") = Some(request.clone());
            ApprovalAnswer::Deny { reason: None }
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
        let keeps = Arc::new(Keeps::default());
        let mut caller = Caller::new("tester", "run");
        caller.approver = Some(Arc::clone(&keeps) as Arc<dyn Approver>);
        let call = new_call("echo", serde_json::json!({ "message": message }).to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(registry.execute_with_policy(call, &caller)).outcome.expect_err("refused");
        keeps.0.lock().expect("not poisoned").take().expect("asked")
    }

    #[test]
    fn a_session_approval_covers_other_arguments_and_no_other_grant() {
        let approvals = SessionApprovals::default();
        let first = request("WorkspaceRead", "a");
        assert!(!approvals.covers(&first));
        approvals.keep(&first);
        assert!(approvals.covers(&first));
        assert!(approvals.covers(&request("WorkspaceRead", "b")));
        assert!(!approvals.covers(&request("FileReadWrite", "a")));
        let mut other = request("WorkspaceRead", "a");
        other.tool = "other".to_owned();
        assert!(!approvals.covers(&other));
        let mut under_another_policy = first;
        under_another_policy.policy_digest.replace_range(..1, "x");
        assert!(!approvals.covers(&under_another_policy));
    }

    #[test]
    fn a_session_approval_of_an_address_covers_its_origin_only() {
        let approvals = SessionApprovals::default();
        let of = |url: &str| {
            let mut request = request("WorkspaceRead", "a");
            request.grant.subjects =
                vec![RequestedSubject::Url { argument: "url".to_owned(), url: url.to_owned() }];
            request
        };
        approvals.keep(&of("https://docs.example/a"));
        for covered in ["https://docs.example/b?c", "HTTPS://DOCS.example.:443/"] {
            assert!(approvals.covers(&of(covered)), "{covered}");
        }
        for other in [
            "https://evil.example/a",
            "https://docs.example.evil.example/",
            "https://docs.example:8443/",
            "http://docs.example/",
            "https://d\u{43e}cs.example/",
        ] {
            assert!(!approvals.covers(&of(other)), "{other}");
        }
        // An address that cannot be parsed equals no other.
        approvals.keep(&of("https://["));
        assert!(!approvals.covers(&of("http://[")));
    }

    #[test]
    fn privileged_calls_are_asked_about_each_time() {
        let approvals = SessionApprovals::default();
        let mut privileged = request("WorkspaceRead", "a");
        privileged.tier = SafetyTier::Privileged;
        approvals.keep(&privileged);
        assert!(!approvals.covers(&privileged));
        assert!(approvals.kept.lock().expect("not poisoned").is_empty());
    }

    #[test]
    fn a_session_keeps_a_bounded_number_of_approvals() {
        let approvals = SessionApprovals::default();
        let mut asked = request("WorkspaceRead", "a");
        for number in 0..MAX_KEPT + 3 {
            asked.tool = format!("tool_{number}");
            approvals.keep(&asked);
        }
        assert_eq!(approvals.kept.lock().expect("not poisoned").len(), MAX_KEPT);
        assert!(!approvals.covers(&asked));
    }
}
