//! The decision about a call, independent of its host: the policy judges the names of its subjects, and the
//! mounts' descriptors show where these names lead. Enforcement and explanations both call [`judge_call`];
//! only the trace differs.

use std::sync::Arc;

use portcullis_policy::{
    CallRequest, Denial, DenialCode, FlowLabel, Grant, RequestedSubject, RunContext, ToolDescriptor,
    TraceSink, WorkspaceSecurityPolicy,
};
use portcullis_types::{ArgumentRole, RoleKind};

use super::path_target::{PathContext, SymlinkHandling, is_reached_as_written, judge_target};
use crate::{
    approval::StepGrant,
    sandbox::hard_links::{ExposedFiles, HardLinkSuspicion},
};

/// A tool, or a step of an operation, with the subjects of its arguments.
pub(super) struct JudgedTool<'a> {
    pub(super) descriptor: &'a ToolDescriptor,
    pub(super) subjects: Vec<RequestedSubject>,
}

/// The grants of a call.
#[derive(Debug, PartialEq)]
pub(super) struct Grants {
    pub(super) own_grant: Grant,
    /// The grant of each step of an operation. Before anything runs, the steps are judged by the operation's
    /// arguments. Each step is judged again in its own call.
    pub(super) steps: Vec<StepGrant>,
}

/// Judges a call and, for an operation, its steps. Adds to `run` the labels that the steps may bring.
pub(super) fn judge_call<T: TraceSink>(
    own: &JudgedTool<'_>,
    steps: &[JudgedTool<'_>],
    run: &mut RunContext<'_>,
    call_id: &str,
    policy: &WorkspaceSecurityPolicy,
    paths: PathContext<'_>,
    trace: &mut T,
) -> Result<Grants, Box<Denial>> {
    let grant = judge(own.descriptor, &own.subjects, run, policy, paths, trace)?;
    let mut step_grants = Vec::new();
    for step in steps {
        let grant = judge(step.descriptor, &step.subjects, run, policy, paths, trace)?;
        // Judge a later step as if this step had read everything that its grant allows, because the approver
        // is asked only once, in advance.
        for label in labels_of(&grant) {
            Arc::make_mut(&mut run.labels).entry(label).or_insert_with(|| call_id.to_owned());
        }
        step_grants.push(StepGrant { step: step.descriptor.name.to_string(), grant });
    }
    Ok(Grants { own_grant: grant, steps: step_grants })
}

/// Returns the policy rule that grants the call: the matching `unasked` rules, else the shell
/// table or the profile.
pub(super) fn rule_of(grant: &Grant) -> String {
    match grant.shell {
        _ if !grant.unasked.is_empty() => grant.unasked.join(", "),
        Some(_) => "shell".to_owned(),
        None => format!("profiles.{}", grant.profile),
    }
}

/// Returns the labels of a call that reads all mounts of its grant and sends all its secrets.
pub(super) fn labels_of(grant: &Grant) -> impl Iterator<Item = FlowLabel> {
    let mounts = grant.mounts.iter().map(|mount| FlowLabel::of_mount(&mount.name));
    mounts.chain(grant.secrets_of_subjects().map(|secret| FlowLabel::Secret(secret.name.clone())))
}

/// Judges the subjects that a tool or a step wants to access.
fn judge<T: TraceSink>(
    descriptor: &ToolDescriptor,
    subjects: &[RequestedSubject],
    run: &RunContext<'_>,
    policy: &WorkspaceSecurityPolicy,
    paths: PathContext<'_>,
    trace: &mut T,
) -> Result<Grant, Box<Denial>> {
    let mut grant =
        policy.authorize_traced(&CallRequest { tool: descriptor, subjects, run }, trace).map_err(Box::new)?;
    // A command opens files without these checks, so refuse every command while a private file is
    // exposed in any mount.
    if grant.shell.is_some()
        && let Some(suspect) = paths.exposed_files.suspects_any()
    {
        return Err(Box::new(command_denial(suspect, paths.exposed_files)));
    }
    for subject in subjects {
        match subject {
            RequestedSubject::Path { argument, path, access } => {
                let is_of_argument = |role: &&ArgumentRole| role.argument == *argument;
                let mut roles = descriptor.roles.iter().filter(is_of_argument);
                // If the argument also has another role, the tool follows a symlink at its end.
                let final_symlink = if roles.all(|role| role.role == RoleKind::Entry) {
                    SymlinkHandling::Keep
                } else {
                    SymlinkHandling::Follow
                };
                judge_target(path, *access, final_symlink, policy, paths)?;
                // The `unasked` rules of a file tool match the text of a path, so a symlink on
                // the path voids them.
                if grant.shell.is_none()
                    && !grant.unasked.is_empty()
                    && !is_reached_as_written(path, final_symlink, paths)
                {
                    grant.ask_despite_rules();
                }
            }
            // The policy has already judged these subjects by their text.
            RequestedSubject::Url { .. } | RequestedSubject::Command { .. } => {}
        }
    }
    Ok(grant)
}

/// Returns the denial of a command while a private file is exposed in a mount.
fn command_denial(suspect: HardLinkSuspicion, exposed: &ExposedFiles) -> Denial {
    let rule = "shell".to_owned();
    match suspect {
        HardLinkSuspicion::Private => {
            let hint = "a command could reach the file under another name; to fix it, an operator removes the other \
                        name, which `find MOUNT -samefile FILE` shows, or recreates the file";
            let more_count = exposed.names().len() + exposed.unnamed_count() - 1;
            Denial {
                code: DenialCode::HardLink,
                rule,
                subject: exposed.names().first().cloned().unwrap_or_default(),
                hint: if more_count == 0 {
                    hint.to_owned()
                } else {
                    format!("{hint}; {more_count} more have the same problem")
                },
            }
        }
        HardLinkSuspicion::Unknown(uncertainty) => Denial {
            code: DenialCode::LinksUnknown,
            rule,
            subject: "a file in a mount".to_owned(),
            hint: uncertainty.hint(),
        },
    }
}
