//! Step 4: what the call may touch. Policy decides on names, the mounts' directory handles on where those
//! names lead, and then, with the grant in hand, whoever must be asked is asked.

use std::os::fd::{AsFd, BorrowedFd};

use portcullis_policy::{
    Approval, CallRequest, Denial, DenialCode, Grant, RequestedSubject, WorkspaceSecurityPolicy,
};
use portcullis_types::{Access, ArgumentRole, GuestPath, RoleKind, ToolArgs, ToolError, ToolEvent};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};
use serde_json::Value;

use super::{
    Host, PendingRecord,
    admit::{Gated, admit, refuse},
    caller_deadline::within_deadline,
    check::{Checked, check_again},
};
use crate::{
    approval::{self, ApprovalRequest, NotApproved, StepGrant},
    audit::{self, Subject, SubjectKind},
    call::Caller,
    registered::RegisteredTool,
    sandbox::links::{self, Exposed, Suspect},
    sandbox::mounts::{MountTable, real_path, resolve_beneath},
    sandbox::repository,
};

/// How often an approver may change the arguments of one call.
const MAX_CHANGES: usize = 8;

/// A call that may run with exactly its grant. Only [`authorize`] makes these.
#[derive(Debug)]
pub(crate) struct Authorized {
    pub(super) checked: Checked,
    pub(super) grant: Grant,
    /// The mounts that no other call may write while this one runs, by name.
    pub(super) writes: Vec<String>,
}

/// Authorizes the call, or refuses it. Arguments that the approver changed start again at the check.
pub(crate) async fn authorize(
    gated: Gated,
    host: &Host,
    caller: &Caller,
    pending: &mut PendingRecord,
) -> Result<Authorized, ToolError> {
    let mut gated = gated;
    for _ in 0..=MAX_CHANGES {
        let Grants { own: grant, steps } = grants(&gated.checked, host, pending).await?;
        let writes = writes(gated.checked.tool.backend().writes_alone(&grant, &steps, caller));
        let strictest = steps.iter().map(|step| step.grant.approval).max().unwrap_or(Approval::Allow);
        if gated.approval.max(grant.approval).max(strictest) != Approval::Ask {
            // Unless somebody was asked before and changed the arguments to these.
            pending.row.approval.get_or_insert_with(|| "not_required".into());
            return Ok(Authorized { checked: gated.checked, grant, writes });
        }
        if caller.step.is_some() {
            // By whoever approved of the operation and saw this grant.
            pending.row.approval = Some("approved".into());
            return Ok(Authorized { checked: gated.checked, grant, writes });
        }
        let asked = Grants { own: grant.clone(), steps: steps.clone() };
        match consent(&gated, &grant, steps, &host.policy, caller, pending).await? {
            // An answer may take minutes: what it was given for must still be so.
            None if grants(&gated.checked, host, pending).await? == asked => {
                return Ok(Authorized { checked: gated.checked, grant, writes });
            }
            None => {}
            Some(arguments) => {
                let Checked { mut call, tool, .. } = gated.checked;
                call.arguments = arguments;
                let checked = check_again(call, tool, host, caller, pending).await?;
                // What a hook made of an approver's arguments nobody has seen.
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

/// The mounts that a call must be the only writer of, by name. A guest may read a file and write it back, and so may
/// an operation's steps. A native tool is handed no mount; a command may take as long as it likes, and its session is
/// what keeps it from others.
fn writes(grants: Vec<&Grant>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for mount in grants.into_iter().flat_map(|grant| &*grant.mounts) {
        if mount.access == Access::Write && !names.iter().any(|name| name == mount.name.as_str()) {
            names.push(mount.name.as_str().to_owned());
        }
    }
    names
}

/// Where paths lead, and what was found there of private files.
#[derive(Clone, Copy)]
struct Places<'a> {
    mounts: &'a MountTable,
    exposed: &'a Exposed,
}

/// What a call may touch.
#[derive(PartialEq)]
struct Grants {
    own: Grant,
    /// What each step may touch, where the call is an operation: its arguments are judged as theirs, before
    /// anything runs. Each is judged again in the step's own call.
    steps: Vec<StepGrant>,
}

/// The grants of a call, by names and by where they lead.
async fn grants(checked: &Checked, host: &Host, pending: &mut PendingRecord) -> Result<Grants, ToolError> {
    let (tool, args) = (&checked.tool, &checked.args);
    let (policy, mounts) = (&*host.policy, &*host.mounts);
    let exposed = &*mounts.private_links().exposed().await;
    let places = Places { mounts, exposed };
    let subjects = subjects(tool, args)?;
    pending.row.subjects = subjects.iter().map(row_subject).collect();
    let mut steps = Vec::new();
    // An operation touches nothing by itself: its arguments are its steps'.
    let own: &[RequestedSubject] = if tool.steps().is_empty() { &subjects } else { &[] };
    let grant = judge(tool, own, policy, places).map_err(|denial| refuse(*denial, pending))?;
    for step in tool.steps() {
        let subjects = self::subjects(step, args)?;
        let grant = judge(step, &subjects, policy, places).map_err(|denial| refuse(*denial, pending))?;
        steps.push(StepGrant { step: step.facts().name.to_string(), grant });
    }
    pending.row.decision = Some(audit::Verdict::Allow);
    pending.row.rule = Some(rule_of(&grant).into());
    pending.row.mounts = grant
        .mounts
        .iter()
        .map(|mount| audit::MountAccess { name: mount.name.as_str().into(), access: mount.access })
        .collect();
    Ok(Grants { own: grant, steps })
}

/// The rule that grants.
fn rule_of(grant: &Grant) -> String {
    match grant.shell {
        Some(_) => "shell".to_owned(),
        None => format!("profiles.{}", grant.profile),
    }
}

/// Judges what a tool, or a step, is asked to touch.
fn judge(
    tool: &RegisteredTool,
    subjects: &[RequestedSubject],
    policy: &WorkspaceSecurityPolicy,
    places: Places<'_>,
) -> Result<Grant, Box<Denial>> {
    let grant = policy.authorize(&CallRequest { tool: tool.facts(), subjects }).map_err(Box::new)?;
    // A command opens files past us, so one of its mounts could hold such a name.
    if grant.shell.is_some()
        && let Some(suspect) = places.exposed.suspects_any()
    {
        return Err(Box::new(no_command(suspect, places.exposed)));
    }
    for subject in subjects {
        match subject {
            RequestedSubject::Path { argument, path, access } => {
                let of_argument = |role: &&ArgumentRole| role.argument == *argument;
                let mut roles = tool.facts().roles.iter().filter(of_argument);
                // One that is something else besides is followed.
                let last = if roles.all(|role| role.role == RoleKind::Entry) {
                    LastName::Itself
                } else {
                    LastName::Followed
                };
                follow(path, *access, last, policy, places)?;
            }
            // Judged by their text alone, above.
            RequestedSubject::Url { .. } | RequestedSubject::Command { .. } => {}
        }
    }
    Ok(grant)
}

/// What the arguments name, by the roles that the tool declares.
fn subjects(tool: &RegisteredTool, args: &ToolArgs) -> Result<Vec<RequestedSubject>, ToolError> {
    let mut subjects = Vec::new();
    for role in &tool.facts().roles {
        let argument = &role.argument;
        let text = match args.value().get(argument) {
            Some(Value::String(text)) => text.as_str(),
            // A default stands for an argument that is left out; it is a path like any other.
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

/// Follows a path through its mount's directory handle, links included, and refuses what the name alone
/// did not show: a way out, a special file, a protected path under another name.
fn follow(
    path: &GuestPath,
    access: Access,
    last: LastName,
    policy: &WorkspaceSecurityPolicy,
    places: Places<'_>,
) -> Result<(), Box<Denial>> {
    let Some(mount) = path.mount().and_then(|name| places.mounts.get(name)) else { return Ok(()) };
    let root = mount.directory().as_fd();
    let deny = |code, hint: &str| {
        Err(Box::new(Denial {
            code,
            rule: "mounts".to_owned(),
            subject: path.to_string(),
            hint: hint.to_owned(),
        }))
    };
    let mut existing = path.below_mount();
    let mut missing = Vec::new();
    loop {
        // A parent is always followed: by way of it the name is reached.
        let flags = match last {
            LastName::Itself if missing.is_empty() => OFlags::NOFOLLOW,
            LastName::Itself | LastName::Followed => OFlags::empty(),
        };
        match resolve_beneath(root, existing, flags) {
            Ok(target) => {
                if missing.is_empty() && is_special(target.as_fd()) {
                    return deny(DenialCode::SpecialFile, "tools read and write files and folders only");
                }
                let is_at_home = mount.name().is_vault();
                // A name that is removed or renamed itself leaves the file as it is.
                let is_opened = missing.is_empty() && matches!(last, LastName::Followed);
                if is_opened && !is_at_home {
                    match suspect(target.as_fd(), places.exposed) {
                        Some(Suspect::Private) => return deny(DenialCode::HardLink, links::PRIVATE),
                        Some(Suspect::Unknown(why)) => {
                            return deny(DenialCode::LinksUnknown, &why.hint());
                        }
                        None => {}
                    }
                }
                if access == Access::Write {
                    let Some(below) = below(root, target.as_fd(), &missing) else {
                        return deny(DenialCode::PathEscapesMount, "it cannot be told where the path leads");
                    };
                    let found = policy.protected().covers(&below).map(str::to_owned);
                    let found = found.or_else(|| repository::protects(policy.protected(), root, &below));
                    if let Some(pattern) = found {
                        let hint = format!("it leads to `{pattern}`, which is protected at any depth");
                        return deny(DenialCode::ProtectedPath, &hint);
                    }
                }
                return Ok(());
            }
            Err(Errno::XDEV) => {
                return deny(DenialCode::LinkEscapesMount, "name a path whose links stay within the mount");
            }
            // What is missing is judged by where its nearest existing parent leads.
            Err(Errno::NOENT) => match existing.rsplit_once('/') {
                Some((parent, name)) => {
                    missing.push(name);
                    existing = parent;
                }
                None if existing != "." => {
                    missing.push(existing);
                    existing = ".";
                }
                None => return Ok(()),
            },
            // A loop, a file where a folder should be, a folder that may not be entered: the tool finds
            // the same and says so in its own words.
            Err(_) => return Ok(()),
        }
    }
}

/// What a link at the end of a path stands for.
#[derive(Clone, Copy)]
enum LastName {
    /// What it leads to.
    Followed,
    /// Itself: it is the link that is removed or renamed.
    Itself,
}

/// Whether it may be a private file under another name.
fn suspect(handle: BorrowedFd<'_>, exposed: &Exposed) -> Option<Suspect> {
    let stat = rustix::fs::fstat(handle).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file { exposed.suspects(&stat) } else { None }
}

/// Why no command runs, and of which file's name.
fn no_command(suspect: Suspect, exposed: &Exposed) -> Denial {
    let rule = "shell".to_owned();
    match suspect {
        Suspect::Private => {
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
        Suspect::Unknown(why) => Denial {
            code: DenialCode::LinksUnknown,
            rule,
            subject: "a file in a mount".to_owned(),
            hint: why.hint(),
        },
    }
}

fn is_special(handle: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(handle).is_ok_and(|stat| {
        !matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::RegularFile | FileType::Directory | FileType::Symlink
        )
    })
}

/// The components of a target below its mount, with what is missing appended; none where the kernel does
/// not say, or the mount was moved away meanwhile.
fn below(root: BorrowedFd<'_>, target: BorrowedFd<'_>, missing: &[&str]) -> Option<Vec<String>> {
    let (root, target) = (real_path(root).ok()?, real_path(target).ok()?);
    let existing = target.strip_prefix(&root).ok()?;
    let existing = existing.iter().map(|part| part.to_string_lossy().into_owned());
    Some(existing.chain(missing.iter().rev().map(|part| (*part).to_owned())).collect())
}

/// Asks for the approval; `Some` are the arguments that the approver put in place of the call's own.
async fn consent(
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
        tier: pending.row.tier.unwrap_or(portcullis_types::SafetyTier::Privileged),
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
            pending.row.approval = Some("approved".into());
            Ok(None)
        }
        Ok(Some(arguments)) => {
            pending.row.approval = Some("approved_with_changes".into());
            Ok(Some(arguments))
        }
        Err(NotApproved { code, reason }) => {
            pending.row.approval = Some(code.as_str().into());
            let rule = asking_rule(gated, policy);
            let hint = reason.unwrap_or_default();
            Err(refuse(Denial { code, rule, subject: tool.to_owned(), hint }, pending))
        }
    }
}

/// What asks about a call: what gated it, else the rule of the first of its steps that asks.
fn asking_rule(gated: &Gated, policy: &WorkspaceSecurityPolicy) -> String {
    let steps = gated.checked.tool.steps();
    if steps.is_empty() || gated.approval == Approval::Ask {
        return gated.approval_rule.clone();
    }
    let steps = steps.iter().map(|step| (step.facts(), policy.describe(step.facts())));
    let mut asking = steps.filter(|(_, assigned)| assigned.approval == Approval::Ask);
    asking.next().map_or_else(String::new, |(facts, assigned)| policy.approval_rule(facts, &assigned))
}
