//! Step 4: the call's grant. The policy judges the names in the arguments, and the directory descriptors of
//! the mounts show where these names lead. Once the grant is known, the approver is asked if needed.

use portcullis_policy::{
    Approval, Denial, DenialCode, Grant, NoTrace, RequestedSubject, WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, GuestPath, RoleKind, ToolArgs, ToolError, ToolEvent};
use serde_json::Value;

use super::{
    Host, PendingRecord,
    admit::{Admitted, admit, refuse},
    caller_deadline::within_deadline,
    check::{Checked, check_again},
    flow::judged_run,
    judge::{Grants, JudgedTool, judge_call, rule_of},
    path_target::PathContext,
    pending_record::ApprovalOutcome,
};
use crate::{
    approval::{self, ApprovalRequest, AskResult, NotApproved, StepGrant},
    audit::{self, Subject, SubjectKind},
    call::Caller,
    registered::RegisteredTool,
    slots::ExclusiveLock,
};

/// The maximum number of further rounds of one call's approval. Another round is needed if the approver
/// changed the arguments, or if the grants changed while the approver decided.
const MAX_CHANGES: usize = 8;

/// A call that may run with exactly its grant. Only [`authorize`] constructs it.
#[derive(Debug)]
pub(crate) struct Authorized {
    pub(super) checked: Checked,
    pub(super) grant: Grant,
    /// The grants of the steps, if the call is an operation.
    pub(super) steps: Vec<StepGrant>,
    /// The locks that the call must hold exclusively while it runs.
    pub(super) exclusive: Vec<ExclusiveLock>,
}

/// Authorizes the call, or refuses it. Arguments that the approver changed go through steps 2 and 3 again.
pub(crate) async fn authorize(
    admitted: Admitted,
    host: &Host,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<Authorized, ToolError> {
    let mut admitted = admitted;
    for _ in 0..=MAX_CHANGES {
        let Grants { own_grant: grant, steps } =
            judge_grants(&admitted.checked, host, caller, pending_record).await?;
        let exclusive = exclusive_locks(&admitted.checked.tool, &grant, &steps, caller);
        let strictest = steps.iter().map(|step| step.grant.approval).max().unwrap_or(Approval::Allow);
        if admitted.fixed_approval.max(grant.approval).max(strictest) != Approval::Ask {
            pending_record.record_no_approval_needed();
            return Ok(Authorized { checked: admitted.checked, grant, steps, exclusive });
        }
        if let Some(step) = &caller.operation_step {
            // The approver of the operation saw this grant and approved it. A step can need an approval that
            // its operation did not need, because the run has read more data since the operation was judged.
            // Deny the step then.
            if !step.is_approved {
                return Err(refuse_flow(denial_without_approval(&admitted.checked, &grant), pending_record));
            }
            pending_record.record_approval(ApprovalOutcome::Approved);
            return Ok(Authorized { checked: admitted.checked, grant, steps, exclusive });
        }
        let approved_grants = Grants { own_grant: grant.clone(), steps: steps.clone() };
        match ask_approval(&admitted, &grant, steps.clone(), host, caller, pending_record).await? {
            // An answer can take minutes. Compute the grants again, and ask again if they changed.
            None if judge_grants(&admitted.checked, host, caller, pending_record).await?
                == approved_grants =>
            {
                return Ok(Authorized { checked: admitted.checked, grant, steps, exclusive });
            }
            None => {}
            Some(arguments) => {
                let Checked { mut call, tool, .. } = admitted.checked;
                call.arguments = arguments;
                let checked = check_again(call, tool, host, caller, pending_record).await?;
                // A hook changed the arguments that the approver gave, and the approver has not seen the
                // result. Ask again.
                let is_unseen = checked.notes.hooked;
                admitted = admit(checked, host, caller, pending_record)?;
                if is_unseen {
                    admitted.fixed_approval = Approval::Ask;
                }
            }
        }
    }
    Err(ToolError::denied(format!(
        "every approval became invalid: the arguments or the grants changed more than {MAX_CHANGES} times; call it again"
    )))
}

/// Denies a step that needs an approval that its operation did not need.
fn denial_without_approval(checked: &Checked, grant: &Grant) -> Denial {
    let rule = grant
        .flow
        .as_ref()
        .map_or_else(|| format!("profiles.{}", grant.profile), |matched| matched.rule.clone());
    Denial {
        code: DenialCode::FlowDenied,
        rule,
        subject: checked.tool.descriptor().name.to_string(),
        hint: "this run has read more since the call was judged; call it again".to_owned(),
    }
}

/// The exclusive locks of a call: on the mounts that it writes, and on sending requests with effects. A
/// guest, or the steps of an operation, may read a file or a remote resource, modify it, and write it back. A
/// native tool gets no mount. A command does not lock a mount, because it may run long and its session
/// isolates it.
fn exclusive_locks(
    tool: &RegisteredTool,
    own: &Grant,
    steps: &[StepGrant],
    caller: &Caller,
) -> Vec<ExclusiveLock> {
    let mut locks: Vec<ExclusiveLock> = Vec::new();
    let grants = tool.backend().exclusive_write_grants(own, steps, caller);
    for mount in grants.into_iter().flat_map(|grant| &*grant.mounts) {
        let lock = ExclusiveLock::Mount(mount.name.as_str().to_owned());
        if mount.access == Access::Write && !locks.contains(&lock) {
            locks.push(lock);
        }
    }
    locks.extend(tool.backend().exclusive_request_module(own).map(ExclusiveLock::Module));
    locks
}

/// Judges the grants of a call, by the names in its arguments and by the targets of these names.
async fn judge_grants(
    checked: &Checked,
    host: &Host,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<Grants, ToolError> {
    let (tool, args) = (&checked.tool, &checked.args);
    let (policy, mounts) = (&*host.policy, &*host.mounts);
    let exposed = &*mounts.private_links().exposed().await;
    let paths = PathContext { mounts, exposed_files: exposed };
    let mut subjects = subjects(tool, args)?;
    subjects.extend(tool.backend().configured_subject(args)?);
    pending_record.row.subjects = subjects.iter().map(row_subject).collect();
    // An operation accesses nothing itself, so only its steps are judged by its arguments.
    let own_subjects = if tool.steps().is_empty() { subjects } else { Vec::new() };
    let judged_tool = JudgedTool { descriptor: tool.descriptor(), subjects: own_subjects };
    let step_arguments = tool.backend().arguments_of_steps(args)?;
    let step_arguments = step_arguments.as_ref().unwrap_or(args);
    let steps = tool.steps().iter().map(|step| {
        Ok(JudgedTool { descriptor: step.descriptor(), subjects: self::subjects(step, step_arguments)? })
    });
    let steps = steps.collect::<Result<Vec<_>, ToolError>>()?;
    let mut run = judged_run(host, caller, pending_record);
    let Grants { own_grant: grant, steps } =
        judge_call(&judged_tool, &steps, &mut run, &checked.call.id, policy, paths, &mut NoTrace)
            .map_err(|denial| refuse_flow(*denial, pending_record))?;
    let flow_match = std::iter::once(&grant)
        .chain(steps.iter().map(|step| &step.grant))
        .find_map(|grant| grant.flow.as_ref());
    pending_record.row.flow_rule = flow_match.map(|flow_match| flow_match.rule.as_str().into());
    pending_record.row.decision = Some(audit::Decision::Allow);
    pending_record.row.rule = Some(rule_of(&grant).into());
    pending_record.row.mounts = grant
        .mounts
        .iter()
        .map(|mount| audit::RecordedMount { name: mount.name.as_str().into(), access: mount.access })
        .collect();
    Ok(Grants { own_grant: grant, steps })
}

/// Refuses the call, and records the flow rule if one denied it.
pub(super) fn refuse_flow(denial: Denial, pending_record: &mut PendingRecord) -> ToolError {
    if denial.code == DenialCode::FlowDenied {
        pending_record.row.flow_rule = Some(denial.rule.as_str().into());
    }
    refuse(denial, pending_record)
}

/// Collects the subjects that the arguments name, according to the declared roles.
fn subjects(tool: &RegisteredTool, args: &ToolArgs) -> Result<Vec<RequestedSubject>, ToolError> {
    let mut subjects = Vec::new();
    for role in &tool.descriptor().roles {
        let argument = &role.argument;
        let text = match args.value().get(argument) {
            Some(Value::String(text)) => text.as_str(),
            // The tool will use the default of an absent argument, so judge the default like any other path.
            None | Some(Value::Null) => match tool.default_of(argument) {
                Some(text) => text,
                None => continue,
            },
            Some(_) => {
                return Err(ToolError::invalid_arguments(format!("field '{argument}': it must be a string")));
            }
        };
        let argument = argument.clone();
        subjects.push(match role.role {
            RoleKind::Path(_) | RoleKind::Entry => {
                let access = role.role.path_access().unwrap_or(Access::Write);
                let path = GuestPath::parse(text)
                    .map_err(|error| ToolError::invalid_arguments(format!("field '{argument}': {error}")))?;
                RequestedSubject::Path { argument, path, access }
            }
            RoleKind::Url => RequestedSubject::Url { argument, url: text.to_owned() },
            RoleKind::Command => RequestedSubject::Command { argument, command: text.to_owned() },
        });
    }
    Ok(subjects)
}

fn row_subject(subject: &RequestedSubject) -> Subject {
    let (argument, kind, value) = match subject {
        RequestedSubject::Path { argument, path, .. } => (argument, SubjectKind::Path, path.as_str()),
        RequestedSubject::Url { argument, url } => (argument, SubjectKind::Url, url.as_str()),
        RequestedSubject::Command { argument, command } => (argument, SubjectKind::Command, command.as_str()),
    };
    Subject { source: argument.as_str().into(), kind, value: value.into() }
}

/// Asks the approver. `Some` holds the arguments with which the approver replaced the call's own.
async fn ask_approval(
    admitted: &Admitted,
    grant: &Grant,
    steps: Vec<StepGrant>,
    host: &Host,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<Option<String>, ToolError> {
    let policy = &*host.policy;
    let checked = &admitted.checked;
    let tool = checked.tool.descriptor().name.as_str();
    let request = ApprovalRequest {
        call_id: checked.call.id.clone(),
        agent_id: caller.agent_id.clone(),
        run_id: caller.run_id.clone(),
        tool: tool.to_owned(),
        tier: pending_record.row.tier.unwrap_or(portcullis_types::SafetyTier::Privileged),
        unconfined: checked.tool.backend().is_unconfined(),
        confinement: checked.tool.confinement(),
        arguments: checked.args.text().to_owned(),
        grant: grant.clone(),
        policy_digest: policy.digest().as_str().to_owned(),
        binding: approval::approval_hash(tool, checked.args.text(), grant, &steps, policy.digest().as_str())?,
        steps,
        standing: None,
    };
    // `ask` consumes the request, so keep a copy for the audit row.
    let shown_request = request.clone();
    let rule = match &grant.flow {
        Some(flow_match) => flow_match.rule.clone(),
        None => asking_rule(admitted, policy),
    };
    // No offer if the caller's own policy asks: the offered rules would not stop it from asking again.
    let standing_approvals =
        host.standing_approvals.as_ref().filter(|_| admitted.fixed_approval == Approval::Allow);
    let call_id = || checked.call.id.clone();
    caller.emit(&ToolEvent::ApprovalRequested { call_id: call_id() });
    // The duration in the row does not include the wait for a person.
    pending_record.begin_wait();
    let answer =
        within_deadline(caller, approval::ask(caller.approver.as_ref(), request, standing_approvals)).await;
    pending_record.end_wait();
    let AskResult { outcome, author } = answer?;
    caller.emit(&ToolEvent::ApprovalResolved { call_id: call_id(), approved: outcome.is_ok() });
    if let Some((by, name)) = author {
        pending_record.record_approver(by, name, &rule, &shown_request)?;
    }
    match outcome {
        Ok(None) => {
            pending_record.record_approval(ApprovalOutcome::Approved);
            Ok(None)
        }
        Ok(Some(arguments)) => {
            pending_record.record_approval(ApprovalOutcome::ApprovedWithChanges);
            Ok(Some(arguments))
        }
        Err(NotApproved { code, reason }) => {
            pending_record.record_approval(ApprovalOutcome::NotApproved(code));
            let rule = asking_rule(admitted, policy);
            let hint = reason.unwrap_or_default();
            Err(refuse(Denial { code, rule, subject: tool.to_owned(), hint }, pending_record))
        }
    }
}

/// Returns the rule that requires the approval: the call's own rule, or that of the first step with one.
fn asking_rule(admitted: &Admitted, policy: &WorkspaceSecurityPolicy) -> String {
    let steps = admitted.checked.tool.steps();
    let asks_itself = admitted.fixed_approval == Approval::Ask || !admitted.approval_source.is_empty();
    if steps.is_empty() || asks_itself {
        return admitted.approval_source.clone();
    }
    let steps = steps.iter().map(|step| (step.descriptor(), policy.describe(step.descriptor())));
    let mut asking_steps = steps.filter(|(_, assigned)| assigned.approval == Approval::Ask);
    asking_steps
        .next()
        .map_or_else(String::new, |(descriptor, assigned)| policy.approval_rule(descriptor, &assigned))
}
