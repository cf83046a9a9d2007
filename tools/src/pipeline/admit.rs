//! Step 3: tier, approval and rate. This step decides whether an approver must be asked. The next step asks,
//! since it knows the call's grant.

use std::panic::{AssertUnwindSafe, catch_unwind};

use portcullis_policy::{Approval, Denial, DenialCode};
use portcullis_types::ToolError;

use super::{Host, PendingRecord, check::Checked};
use crate::{approval::ApprovalRule, audit::Verdict, call::Caller};

/// A call that may continue, perhaps after an approval.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(super) checked: Checked,
    /// Allow or ask; a denied call does not get here.
    pub(super) approval: Approval,
    /// The rule that asks: a key of the policy file, or the caller's own policy; empty if none asks.
    pub(super) approval_source: String,
}

/// Admits the call, or refuses it.
pub(crate) fn admit(
    checked: Checked,
    host: &Host,
    caller: &Caller,
    pending: &mut PendingRecord,
) -> Result<Gated, ToolError> {
    let policy = &*host.policy;
    let facts = checked.tool.facts();
    let assignment = policy.assign(facts).map_err(|denial| refuse(denial, pending))?;
    pending.call.tier = Some(assignment.tier);
    pending.call.profile = Some(assignment.profile.as_str().into());
    let mut approval = assignment.approval;
    let mut approval_source = match approval {
        Approval::Allow => String::new(),
        Approval::Ask | Approval::Deny => policy.approval_rule(facts, &assignment),
    };
    if let Some(callers_policy) = &caller.approval_policy {
        let deny = |code, hint| Denial {
            code,
            rule: CALLERS_POLICY.to_owned(),
            subject: facts.name.to_string(),
            hint,
        };
        // The policy is embedder code: if it panics, the call is denied.
        match catch_unwind(AssertUnwindSafe(|| callers_policy.decide(facts, checked.args.value()))) {
            Ok(ApprovalRule::Allow) => {}
            Ok(ApprovalRule::Ask) if approval < Approval::Ask => {
                approval = Approval::Ask;
                approval_source = CALLERS_POLICY.to_owned();
            }
            Ok(ApprovalRule::Ask) => {}
            Ok(ApprovalRule::Deny { reason }) => {
                return Err(refuse(deny(DenialCode::ApprovalDenied, reason), pending));
            }
            Err(_panic) => {
                return Err(refuse(deny(DenialCode::ApprovalUnavailable, String::new()), pending));
            }
        }
    }
    if caller.operation_step.is_none() {
        host.rates.admit(caller.counted_as(), facts.name.as_str())?;
    }
    Ok(Gated { checked, approval, approval_source })
}

/// The rule in the audit row when the caller's approval policy asks or denies.
const CALLERS_POLICY: &str = "the caller's approval policy";

/// Turns a denial into an error for the model, and notes rule and decision in the row.
pub(super) fn refuse(denial: Denial, pending: &mut PendingRecord) -> ToolError {
    pending.call.decision = Some(Verdict::Deny);
    pending.call.rule = Some(denial.rule.as_str().into());
    denial.into()
}
