//! Step 3: tier, approval and rate limit. This step decides whether an approver must be asked. The next step
//! asks, because only it knows the call's grant.

use std::panic::{AssertUnwindSafe, catch_unwind};

use portcullis_policy::{Approval, Denial, DenialCode};
use portcullis_types::ToolError;

use super::{Host, PendingRecord, check::Checked};
use crate::{approval::ApprovalRule, audit::Decision, call::Caller};

/// A call that may continue, possibly only after an approval.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(super) checked: Checked,
    /// `Allow` or `Ask`. `Ask` requires an approval even if an `unasked` rule of the policy matches: the
    /// caller's own policy asks, or a hook changed the arguments that the approver saw.
    pub(super) fixed_approval: Approval,
    /// The rule that requires the approval: a key of the policy file, or the caller's own policy. Empty if no
    /// rule requires one.
    pub(super) approval_source: String,
}

/// Admits the call, or refuses it.
pub(crate) fn admit(
    checked: Checked,
    host: &Host,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<Admitted, ToolError> {
    let policy = &*host.policy;
    let descriptor = checked.tool.descriptor();
    let assignment = policy.assign(descriptor).map_err(|denial| refuse(denial, pending_record))?;
    pending_record.row.tier = Some(assignment.tier);
    pending_record.row.profile = Some(assignment.profile.as_str().into());
    let mut fixed_approval = Approval::Allow;
    let mut approval_source = match assignment.approval {
        Approval::Allow => String::new(),
        Approval::Ask | Approval::Deny => policy.approval_rule(descriptor, &assignment),
    };
    if let Some(callers_policy) = &caller.approval_policy {
        let deny = |code, hint| Denial {
            code,
            rule: CALLERS_POLICY.to_owned(),
            subject: descriptor.name.to_string(),
            hint,
        };
        // The caller's policy is foreign code. If it panics, the call is denied.
        match catch_unwind(AssertUnwindSafe(|| callers_policy.decide(descriptor, checked.args.value()))) {
            Ok(ApprovalRule::Allow) => {}
            Ok(ApprovalRule::Ask) => {
                if assignment.approval < Approval::Ask {
                    approval_source = CALLERS_POLICY.to_owned();
                }
                fixed_approval = Approval::Ask;
            }
            Ok(ApprovalRule::Deny { reason }) => {
                return Err(refuse(deny(DenialCode::ApprovalDenied, reason), pending_record));
            }
            Err(_panic) => {
                return Err(refuse(deny(DenialCode::ApprovalUnavailable, String::new()), pending_record));
            }
        }
    }
    // Steps do not count towards the rate limit; their operation does.
    if caller.operation_step.is_none() {
        host.rates.admit(caller.counted_as(), descriptor.name.as_str())?;
    }
    Ok(Admitted { checked, fixed_approval, approval_source })
}

/// The rule that the audit row shows if the caller's approval policy asks or denies.
const CALLERS_POLICY: &str = "the caller's approval policy";

/// Turns a denial into an error for the model, and records the rule and the decision in the audit row.
pub(super) fn refuse(denial: Denial, pending_record: &mut PendingRecord) -> ToolError {
    pending_record.row.decision = Some(Decision::Deny);
    pending_record.row.rule = Some(denial.rule.as_str().into());
    denial.into()
}
