//! Step 4: the call's grant. The policy decides on names, and the mounts' directory handles on where those
//! names lead. Then, with the grant known, the approver is asked if needed.

use std::sync::Arc;

use portcullis_policy::{
    Approval, CallRequest, Denial, DenialCode, FlowLabel, Grant, RequestedSubject, RunFacts,
    WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, ArgumentRole, GuestPath, RoleKind, ToolArgs, ToolError, ToolEvent};
use serde_json::Value;

use super::{
    Host, PendingRecord,
    admit::{Gated, admit, refuse},
    caller_deadline::within_deadline,
    check::{Checked, check_again},
    flow::judged_run,
    path_target::{LastName, PathContext, judge_target},
};
use crate::{
    approval::{self, ApprovalRequest, NotApproved, StepGrant},
    audit::{self, Subject, SubjectKind},
    call::Caller,
    registered::RegisteredTool,
    sandbox::links::{ExposedFiles, LinkSuspicion},
};

/// The most times that an approver may change the arguments of one call.
const MAX_CHANGES: usize = 8;

/// A call that may run with exactly its grant. Only [`authorize`] constructs it.
#[derive(Debug)]
pub(crate) struct Authorized {
    pub(super) checked: Checked,
    pub(super) grant: Grant,
    /// The grants of its steps, if it is an operation.
    pub(super) steps: Vec<StepGrant>,
    /// The mounts that no other call may write while this one runs, by name.
    pub(super) exclusive: Vec<String>,
}

/// Authorizes the call, or refuses it. Arguments that the approver changed go back to the check (step 2).
pub(crate) async fn authorize(
    gated: Gated,
    host: &Host,
    caller: &Caller,
    pending: &mut PendingRecord,
) -> Result<Authorized, ToolError> {
    let mut gated = gated;
    for _ in 0..=MAX_CHANGES {
        let Grants { own: grant, steps } = judge_grants(&gated.checked, host, caller, pending).await?;
        let exclusive = exclusive_mounts(gated.checked.tool.backend().writes_alone(&grant, &steps, caller));
        let strictest = steps.iter().map(|step| step.grant.approval).max().unwrap_or(Approval::Allow);
        if gated.approval.max(grant.approval).max(strictest) != Approval::Ask {
            // Keep `approved_with_changes` if the approver changed the arguments to these.
            pending.call.approval.get_or_insert_with(|| "not_required".into());
            return Ok(Authorized { checked: gated.checked, grant, steps, exclusive });
        }
        if let Some(step) = &caller.operation_step {
            // The approver of the operation saw this grant and approved it. If the operation was not asked about, its run has
            // read more since, and the step would need a question of its own.
            if !step.is_approved {
                return Err(refuse_flow(unasked(&gated.checked, &grant), pending));
            }
            pending.call.approval = Some("approved".into());
            return Ok(Authorized { checked: gated.checked, grant, steps, exclusive });
        }
        let asked = Grants { own: grant.clone(), steps: steps.clone() };
        match ask_approval(&gated, &grant, steps.clone(), &host.policy, caller, pending).await? {
            // An answer may take minutes: recompute the grants, and ask again if they changed.
            None if judge_grants(&gated.checked, host, caller, pending).await? == asked => {
                return Ok(Authorized { checked: gated.checked, grant, steps, exclusive });
            }
            None => {}
            Some(arguments) => {
                let Checked { mut call, tool, .. } = gated.checked;
                call.arguments = arguments;
                let checked = check_again(call, tool, host, caller, pending).await?;
                // A hook has changed the arguments of the approver's answer, which the approver has not seen: ask again.
                let unseen = checked.notes.hooked;
                gated = admit(checked, host, caller, pending)?;
                if unseen {
                    gated.approval = gated.approval.max(Approval::Ask);
                }
            }
        }
    }
    Err(ToolError::denied(format!("the approver changed the arguments more than {MAX_CHANGES} times")))
}

/// Denies a step that needs an approval which its operation did not need.
fn unasked(checked: &Checked, grant: &Grant) -> Denial {
    let rule = grant
        .flow
        .as_ref()
        .map_or_else(|| format!("profiles.{}", grant.profile), |matched| matched.rule.clone());
    Denial {
        code: DenialCode::FlowDenied,
        rule,
        subject: checked.tool.facts().name.to_string(),
        hint: "this run has read more since the call was judged; call it again".to_owned(),
    }
}

/// The mounts that a call must be the only writer of, by name. A guest, or an operation's steps, may read a
/// file and write it back. A native tool gets no mount. Commands take no write slot: a command may run long,
/// and its session isolates it.
fn exclusive_mounts(grants: Vec<&Grant>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for mount in grants.into_iter().flat_map(|grant| &*grant.mounts) {
        if mount.access == Access::Write && !names.iter().any(|name| name == mount.name.as_str()) {
            names.push(mount.name.as_str().to_owned());
        }
    }
    names
}

/// The grants of a call.
#[derive(PartialEq)]
struct Grants {
    own: Grant,
    /// The grant of each step of an operation. The operation's arguments are judged as the steps' before
    /// anything runs, and each step is judged again in its own call.
    steps: Vec<StepGrant>,
}

/// The grants of a call, judged by the names and by the places that these lead to.
async fn judge_grants(
    checked: &Checked,
    host: &Host,
    caller: &Caller,
    pending: &mut PendingRecord,
) -> Result<Grants, ToolError> {
    let (tool, args) = (&checked.tool, &checked.args);
    let (policy, mounts) = (&*host.policy, &*host.mounts);
    let exposed = &*mounts.private_links().exposed().await;
    let paths = PathContext { mounts, exposed };
    let subjects = subjects(tool, args)?;
    pending.call.subjects = subjects.iter().map(row_subject).collect();
    let mut steps = Vec::new();
    // An operation touches nothing itself. Its arguments belong to its steps.
    let own: &[RequestedSubject] = if tool.steps().is_empty() { &subjects } else { &[] };
    let mut run = judged_run(host, caller, pending);
    let grant = judge(tool, own, &run, policy, paths).map_err(|denial| refuse_flow(*denial, pending))?;
    let of_steps = tool.backend().arguments_of_steps(args)?;
    for step in tool.steps() {
        let subjects = self::subjects(step, of_steps.as_ref().unwrap_or(args))?;
        let grant =
            judge(step, &subjects, &run, policy, paths).map_err(|denial| refuse_flow(*denial, pending))?;
        // A later step is judged as if this one had read all that it may, since the approver is asked once,
        // beforehand.
        for label in labels_of(&grant) {
            Arc::make_mut(&mut run.labels).entry(label).or_insert_with(|| checked.call.id.clone());
        }
        steps.push(StepGrant { step: step.facts().name.to_string(), grant });
    }
    let matched =
        std::iter::once(&grant).chain(steps.iter().map(|step| &step.grant)).find_map(|it| it.flow.as_ref());
    pending.call.flow_rule = matched.map(|matched| matched.rule.as_str().into());
    pending.call.decision = Some(audit::Verdict::Allow);
    pending.call.rule = Some(rule_of(&grant).into());
    pending.call.mounts = grant
        .mounts
        .iter()
        .map(|mount| audit::RecordedMount { name: mount.name.as_str().into(), access: mount.access })
        .collect();
    Ok(Grants { own: grant, steps })
}

/// Refuses the call. The row gets the flow rule if a flow rule denied it.
pub(super) fn refuse_flow(denial: Denial, pending: &mut PendingRecord) -> ToolError {
    if denial.code == DenialCode::FlowDenied {
        pending.call.flow_rule = Some(denial.rule.as_str().into());
    }
    refuse(denial, pending)
}

/// The labels of a call that has read all mounts of its grant and sent all its secrets.
fn labels_of(grant: &Grant) -> impl Iterator<Item = FlowLabel> {
    let mounts = grant.mounts.iter().map(|mount| FlowLabel::of_mount(&mount.name));
    mounts.chain(grant.secrets_of_subjects().map(|secret| FlowLabel::Secret(secret.name.clone())))
}

/// The policy rule that grants.
fn rule_of(grant: &Grant) -> String {
    match grant.shell {
        Some(_) => "shell".to_owned(),
        None => format!("profiles.{}", grant.profile),
    }
}

/// Judges the subjects that a tool or a step wants to touch.
fn judge(
    tool: &RegisteredTool,
    subjects: &[RequestedSubject],
    run: &RunFacts<'_>,
    policy: &WorkspaceSecurityPolicy,
    paths: PathContext<'_>,
) -> Result<Grant, Box<Denial>> {
    let grant = policy.authorize(&CallRequest { tool: tool.facts(), subjects, run }).map_err(Box::new)?;
    // A command opens files without these checks, so a private file exposed in any mount refuses every
    // command.
    if grant.shell.is_some()
        && let Some(suspect) = paths.exposed.suspects_any()
    {
        return Err(Box::new(command_denial(suspect, paths.exposed)));
    }
    for subject in subjects {
        match subject {
            RequestedSubject::Path { argument, path, access } => {
                let of_argument = |role: &&ArgumentRole| role.argument == *argument;
                let mut roles = tool.facts().roles.iter().filter(of_argument);
                // An argument that also has another role is followed.
                let last = if roles.all(|role| role.role == RoleKind::Entry) {
                    LastName::Itself
                } else {
                    LastName::Followed
                };
                judge_target(path, *access, last, policy, paths)?;
            }
            // The policy has judged these by their text, above.
            RequestedSubject::Url { .. } | RequestedSubject::Command { .. } => {}
        }
    }
    Ok(grant)
}

/// The subjects that the arguments name, by the roles that the tool declares.
fn subjects(tool: &RegisteredTool, args: &ToolArgs) -> Result<Vec<RequestedSubject>, ToolError> {
    let mut subjects = Vec::new();
    for role in &tool.facts().roles {
        let argument = &role.argument;
        let text = match args.value().get(argument) {
            Some(Value::String(text)) => text.as_str(),
            // The tool will use the default of an absent argument, so it is judged like any other path.
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
    Subject { argument: argument.as_str().into(), kind, value: value.into() }
}

/// The denial of a command while a private file is exposed in a mount.
fn command_denial(suspect: LinkSuspicion, exposed: &ExposedFiles) -> Denial {
    let rule = "shell".to_owned();
    match suspect {
        LinkSuspicion::Private => {
            let hint = "a command could use it under another name; an operator removes the other name, which \
                        `find MOUNT -samefile FILE` shows, or makes the file anew";
            let more = exposed.named().len() + exposed.unnamed() - 1;
            Denial {
                code: DenialCode::HardLink,
                rule,
                subject: exposed.named().first().cloned().unwrap_or_default(),
                hint: if more == 0 { hint.to_owned() } else { format!("{hint}; so have {more} more") },
            }
        }
        LinkSuspicion::Unknown(why) => Denial {
            code: DenialCode::LinksUnknown,
            rule,
            subject: "a file in a mount".to_owned(),
            hint: why.hint(),
        },
    }
}

/// Asks for the approval. `Some` are arguments that the approver put in place of the call's own.
async fn ask_approval(
    gated: &Gated,
    grant: &Grant,
    steps: Vec<StepGrant>,
    policy: &WorkspaceSecurityPolicy,
    caller: &Caller,
    pending: &mut PendingRecord,
) -> Result<Option<String>, ToolError> {
    let checked = &gated.checked;
    let tool = checked.tool.facts().name.as_str();
    let request = ApprovalRequest {
        call_id: checked.call.id.clone(),
        agent_id: caller.agent_id.clone(),
        run_id: caller.run_id.clone(),
        tool: tool.to_owned(),
        tier: pending.call.tier.unwrap_or(portcullis_types::SafetyTier::Privileged),
        unconfined: checked.tool.backend().is_unconfined(),
        arguments: checked.args.text().to_owned(),
        grant: grant.clone(),
        policy_digest: policy.digest().as_str().to_owned(),
        binding: approval::binding(tool, checked.args.text(), grant, &steps, policy.digest().as_str())?,
        steps,
    };
    let call_id = || checked.call.id.clone();
    caller.emit(&ToolEvent::ApprovalRequested { call_id: call_id() });
    pending.begin_wait();
    let answer = within_deadline(caller, approval::ask(caller.approver.as_ref(), &request)).await;
    pending.end_wait();
    let answer = answer?;
    caller.emit(&ToolEvent::ApprovalResolved { call_id: call_id(), approved: answer.is_ok() });
    match answer {
        Ok(None) => {
            pending.call.approval = Some("approved".into());
            Ok(None)
        }
        Ok(Some(arguments)) => {
            pending.call.approval = Some("approved_with_changes".into());
            Ok(Some(arguments))
        }
        Err(NotApproved { code, reason }) => {
            pending.call.approval = Some(code.as_str().into());
            let rule = asking_rule(gated, policy);
            let hint = reason.unwrap_or_default();
            Err(refuse(Denial { code, rule, subject: tool.to_owned(), hint }, pending))
        }
    }
}

/// The rule behind a question: the call's own, or that of the first step that asks.
fn asking_rule(gated: &Gated, policy: &WorkspaceSecurityPolicy) -> String {
    let steps = gated.checked.tool.steps();
    if steps.is_empty() || gated.approval == Approval::Ask {
        return gated.approval_source.clone();
    }
    let steps = steps.iter().map(|step| (step.facts(), policy.describe(step.facts())));
    let mut asking = steps.filter(|(_, assigned)| assigned.approval == Approval::Ask);
    asking.next().map_or_else(String::new, |(facts, assigned)| policy.approval_rule(facts, &assigned))
}
