//! Authorizes a call: checks the subjects of its arguments against the tool's assignment.

use std::sync::Arc;

use portcullis_types::{Access, GuestPath, RoleKind};
use serde::Serialize;

use crate::{
    Approval, Denial, DenialCode, FlowLabel, Grant, GrantLimits, GrantedMount, MatchedFlowRule,
    ProtectedKinds, RunFacts, ShellGrant, ToolAssignment, ToolFacts, WorkspaceSecurityPolicy, flow,
    network::check_url,
};

/// One call, as the policy sees it.
#[derive(Debug, Clone, Copy)]
pub struct CallRequest<'a> {
    /// The called tool.
    pub tool: &'a ToolFacts,
    /// The subjects of its arguments, by their roles. An omitted argument has no subject.
    pub subjects: &'a [RequestedSubject],
    /// The run that it belongs to, with what that has read.
    pub run: &'a RunFacts<'a>,
}

/// The subject that one argument names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RequestedSubject {
    /// A file or folder.
    Path {
        /// The argument's name.
        argument: String,
        /// The path that it names.
        path: GuestPath,
        /// How the tool accesses it.
        access: Access,
    },
    /// An address.
    Url {
        /// The argument's name.
        argument: String,
        /// The address that it names.
        url: String,
    },
    /// A shell command.
    Command {
        /// The argument's name.
        argument: String,
        /// The command line.
        command: String,
    },
}

impl WorkspaceSecurityPolicy {
    /// Decides one call. A granted call may still need an approval ([`Grant::approval`]).
    ///
    /// The decision is on names. A name that passed here may be a link to another file, which the mount's
    /// directory handle must refuse with its own [`Denial`]. A URL that passed here is judged again when it
    /// is requested, with every address of its host ([`Grant::judge_address`]).
    ///
    /// # Errors
    /// The [`Denial`] of the first subject that does not pass; every subject must.
    pub fn authorize(&self, request: &CallRequest<'_>) -> Result<Grant, Denial> {
        let assignment = self.assign(request.tool)?;
        if assignment.approval == Approval::Deny {
            return Err(self.approval_denied(request.tool, &assignment));
        }
        let mounts = self.mounts_of(&assignment.profile);
        for subject in request.subjects {
            match subject {
                RequestedSubject::Path { argument, path, access } => {
                    let access = stronger_access(request.tool, argument, *access);
                    self.check_path(path, access, &assignment, mounts)?;
                }
                RequestedSubject::Url { url, .. } => {
                    let ToolAssignment { profile, .. } = &assignment;
                    check_url(self.network_of(profile), profile, mounts, &request.tool.name, url)?;
                }
                RequestedSubject::Command { argument, command } => {
                    self.check_command(request.tool, argument, command, &assignment)?;
                }
            }
        }
        let shell = self.shell().filter(|_| assignment.profile.is_shell());
        let network = self.shared_network_of(&assignment.profile);
        let mut grant = Grant {
            tool: request.tool.name.clone(),
            mounts: self.shared_mounts_of(&assignment.profile),
            secrets: match &network {
                Some(_) => self.secrets_of(request.tool.name.as_str()),
                None => Arc::new([]),
            },
            network,
            profile: assignment.profile,
            approval: assignment.approval,
            limits: GrantLimits {
                timeout: assignment.timeout,
                memory: assignment.memory,
                max_output: assignment.max_output,
            },
            subjects: request.subjects.to_vec(),
            shell: shell.map(|shell| ShellGrant::of(shell, assignment.memory, self.shared_shell_network())),
            flow: None,
        };
        grant.flow = self.strictest_flow_match(&grant, request.run);
        match &grant.flow {
            Some(matched) if matched.approval == Approval::Deny => return Err(flow_denied(request, matched)),
            Some(_) => grant.approval = Approval::Ask,
            None => {}
        }
        Ok(grant)
    }

    /// The strictest flow rule that matches this grant and the labels of this run, if any does. [`Self::authorize`]
    /// applies it; a caller asks again where time has passed since.
    #[must_use]
    pub fn strictest_flow_match(&self, grant: &Grant, run: &RunFacts<'_>) -> Option<MatchedFlowRule> {
        let policy = self.effective();
        flow::strictest_match(&policy.flow, &policy.kinds, grant, run)
    }

    /// The flow rule that denies, or asks about, the use of the network by a run with this label; none if no rule does.
    /// A session with a network must be ended before its run gets the label.
    #[must_use]
    pub fn network_rule_after(&self, label: &FlowLabel) -> Option<String> {
        flow::network_rule(&self.effective().flow, label)
    }

    /// The protected kinds, if a call with this grant must not write any in a run that has read this: a flow rule asks
    /// about them or denies them, and no argument of the call names one. The enforcing layer refuses them, since a
    /// guest may write other files than its arguments name.
    #[must_use]
    pub fn withheld_kinds(&self, grant: &Grant, run: &RunFacts<'_>) -> Option<Arc<ProtectedKinds>> {
        let policy = self.effective();
        flow::withholds_kinds(&policy.flow, &policy.kinds, grant, run).then(|| self.shared_kinds())
    }

    fn check_path(
        &self,
        path: &GuestPath,
        access: Access,
        assignment: &ToolAssignment,
        mounts: &[GrantedMount],
    ) -> Result<(), Denial> {
        let deny = |code, rule: String| Denial {
            code,
            rule,
            subject: path.to_string(),
            hint: reachable_mounts_hint(access, mounts),
        };
        let profile = &assignment.profile;
        if path.climbs_out() {
            return Err(deny(DenialCode::PathEscapesMount, "mounts".to_owned()));
        }
        let Some(mount) = path.mount().filter(|mount| self.effective().mounts.contains_key(*mount)) else {
            return Err(deny(DenialCode::UnknownMount, "mounts".to_owned()));
        };
        let rule = || match profile.is_shell() {
            true => format!("shell.mounts.{mount}"),
            false => format!("profiles.{profile}.mounts.{mount}"),
        };
        let Some(granted) = mounts.iter().find(|granted| granted.name.as_str() == mount) else {
            return Err(deny(DenialCode::MountNotGranted, rule()));
        };
        match (access, granted.access) {
            (Access::Read, Access::Read | Access::Write) => Ok(()),
            (Access::Write, Access::Read) => Err(deny(DenialCode::MountReadOnly, rule())),
            (Access::Write, Access::Write) => match self.protected().covers(path.below_mount().split('/')) {
                None => Ok(()),
                Some(pattern) => Err(Denial {
                    hint: format!("`{pattern}` is protected at any depth; choose another path"),
                    ..deny(DenialCode::ProtectedPath, format!("protect.paths[\"{pattern}\"]"))
                }),
            },
        }
    }

    fn approval_denied(&self, tool: &ToolFacts, assignment: &ToolAssignment) -> Denial {
        Denial {
            code: DenialCode::ApprovalDenied,
            rule: self.approval_rule(tool, assignment),
            subject: tool.name.to_string(),
            hint: String::new(),
        }
    }
}

fn flow_denied(request: &CallRequest<'_>, matched: &MatchedFlowRule) -> Denial {
    let RunFacts { agent, run, .. } = request.run;
    Denial {
        code: DenialCode::FlowDenied,
        rule: matched.rule.clone(),
        subject: request.tool.name.to_string(),
        hint: format!(
            "call `{}` of this run (`{run}` of `{agent}`) read `{}`; begin a new run for it. {}",
            matched.call_id,
            matched.label,
            matched.place()
        ),
    }
}

/// The stronger of the requested access and the one that the argument's role declares: a caller that misreads
/// the roles must not get write access for a read.
fn stronger_access(tool: &ToolFacts, argument: &str, requested: Access) -> Access {
    let role = tool.roles.iter().find(|role| role.argument == argument).map(|role| role.role);
    role.and_then(RoleKind::path_access).map_or(requested, |declared| declared.max(requested))
}

/// The hint that lists the mounts which the tool has for this access.
fn reachable_mounts_hint(access: Access, mounts: &[GrantedMount]) -> String {
    let (word, usable): (_, Vec<String>) = match access {
        Access::Read => ("readable", mounts.iter().map(|mount| format!("/{}", mount.name)).collect()),
        Access::Write => {
            let writable = mounts.iter().filter(|mount| mount.access == Access::Write);
            ("writable", writable.map(|mount| format!("/{}", mount.name)).collect())
        }
    };
    if usable.is_empty() {
        format!("nothing is {word} for this tool")
    } else {
        format!("{word} here: {}", usable.join(", "))
    }
}
