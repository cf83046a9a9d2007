//! Authorizes a call: checks the subjects of its arguments against the tool's assignment.

use std::sync::Arc;

use portcullis_types::{Access, GuestPath, RoleKind};
use serde::Serialize;

use crate::{
    Approval, Denial, DenialCode, FlowLabel, Grant, GrantLimits, GrantedMount, HiddenNames, MatchedFlowRule,
    MountName, NoTrace, ProtectedKinds, RunContext, ShellGrant, ToolAssignment, ToolDescriptor, ToolOrigin,
    TraceSink, TracedRule, WorkspaceSecurityPolicy, flow, network::check_url,
};

/// A call, with everything that the policy considers.
#[derive(Debug, Clone, Copy)]
pub struct CallRequest<'a> {
    /// The called tool.
    pub tool: &'a ToolDescriptor,
    /// The subjects of the call's arguments, according to their roles. An omitted argument has no subject.
    pub subjects: &'a [RequestedSubject],
    /// The run that the call belongs to, with what the run has read.
    pub run: &'a RunContext<'a>,
}

/// The subject that one argument names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RequestedSubject {
    /// A file or a folder.
    Path {
        /// The argument's name.
        argument: String,
        /// The path that the argument names.
        path: GuestPath,
        /// How the tool accesses the path.
        access: Access,
    },
    /// A URL that the tool requests.
    Url {
        /// The argument's name.
        argument: String,
        /// The URL that the argument names.
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

impl RequestedSubject {
    /// The argument name of a subject that no argument names, such as a file that a guest opens by itself. It
    /// matches no declared role, so the access stays as given.
    pub const NO_ARGUMENT: &str = "";

    /// Creates a path that no argument names.
    #[must_use]
    pub fn unnamed_path(path: GuestPath, access: Access) -> Self {
        Self::Path { argument: Self::NO_ARGUMENT.to_owned(), path, access }
    }
}

impl WorkspaceSecurityPolicy {
    /// Decides about one call. A granted call may still need an approval ([`Grant::approval`]).
    ///
    /// The decision is about names. A path that passes may be a symlink to another file. The mount's
    /// directory handle must refuse such a symlink with its own [`Denial`]. A URL that passes is judged again
    /// when it is requested, together with every address of its host ([`Grant::judge_address`]).
    ///
    /// # Errors
    /// The [`Denial`] of the first subject that does not pass. Every subject must pass.
    pub fn authorize(&self, request: &CallRequest<'_>) -> Result<Grant, Denial> {
        self.authorize_traced(request, &mut NoTrace)
    }

    /// Returns the access of a tool to a mount, for a call that names only the mount, in a run that has read
    /// nothing. `None` without access.
    #[must_use]
    pub fn access_to(&self, tool: &ToolDescriptor, mount: &MountName) -> Option<Access> {
        let path = GuestPath::parse(&format!("/{mount}")).ok()?;
        let run = RunContext::default();
        [Access::Write, Access::Read].into_iter().find(|access| {
            let subject = RequestedSubject::unnamed_path(path.clone(), *access);
            self.authorize(&CallRequest { tool, subjects: &[subject], run: &run }).is_ok()
        })
    }

    /// Like [`Self::authorize`], but records each rule that decides or contributes in a trace.
    ///
    /// # Errors
    /// As in [`Self::authorize`]. The denial names the deciding rule, so the trace does not repeat it.
    pub fn authorize_traced<T: TraceSink>(
        &self,
        request: &CallRequest<'_>,
        trace: &mut T,
    ) -> Result<Grant, Denial> {
        let assignment = self.assign_traced(request.tool, trace)?;
        if assignment.approval == Approval::Deny {
            return Err(self.approval_denied(request.tool, &assignment));
        }
        let mounts = self.mounts_of(&assignment.profile);
        for subject in request.subjects {
            match subject {
                RequestedSubject::Path { argument, path, access } => {
                    let access = stronger_access(request.tool, argument, *access);
                    self.check_path(path, access, &assignment, mounts, trace)?;
                }
                RequestedSubject::Url { url, .. } => {
                    let ToolAssignment { profile, .. } = &assignment;
                    let network = self.network_of(profile);
                    let rule = check_url(network, profile, mounts, &request.tool.name, url)?;
                    trace.record(|| {
                        TracedRule::new(format!("profiles.{profile}.hosts[\"{rule}\"]"), "covers the URL")
                    });
                }
                RequestedSubject::Command { argument, command } => {
                    self.check_command(request.tool, argument, command, &assignment, trace)?;
                }
            }
        }
        let shell = self.shell().filter(|_| assignment.profile.is_shell());
        let network = self.shared_network_of(&assignment.profile);
        let mut grant = Grant {
            tool: request.tool.name.clone(),
            mounts: self.shared_mounts_of(&assignment.profile),
            // A tool without hosts cannot send a secret.
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
            sends_arguments_out: matches!(
                request.tool.origin,
                ToolOrigin::External | ToolOrigin::ShippedGateway
            ),
            shell: shell.map(|shell| ShellGrant::new(shell, assignment.memory, self.shared_shell_network())),
            unasked: Vec::new(),
            flow: None,
        };
        // Last, because the sinks of flow rules depend on the whole grant.
        grant.flow = self.flow_match_traced(&grant, request.run, trace);
        match &grant.flow {
            Some(matched) if matched.approval == Approval::Deny => return Err(flow_denied(request, matched)),
            // A flow rule that asks takes precedence over the rules of `unasked`.
            Some(_) => grant.approval = Approval::Ask,
            None if grant.approval == Approval::Ask => {
                grant.unasked = self.unasked_rules(&grant);
                if !grant.unasked.is_empty() {
                    grant.unasked.iter().for_each(|rule| {
                        trace.record(|| TracedRule::new(rule.as_str(), "exempts the call from approval"));
                    });
                    grant.approval = Approval::Allow;
                }
            }
            None => {}
        }
        Ok(grant)
    }

    /// Returns the strictest flow rule that matches this grant and the labels of this run, if any.
    /// [`Self::authorize`] applies it. A caller that waits afterwards must check again, because the run may
    /// have read more.
    #[must_use]
    pub fn strictest_flow_match(&self, grant: &Grant, run: &RunContext<'_>) -> Option<MatchedFlowRule> {
        self.flow_match_traced(grant, run, &mut NoTrace)
    }

    fn flow_match_traced<T: TraceSink>(
        &self,
        grant: &Grant,
        run: &RunContext<'_>,
        trace: &mut T,
    ) -> Option<MatchedFlowRule> {
        let policy = self.effective();
        flow::strictest_match(&policy.flow, &policy.kinds, grant, run, trace)
    }

    /// Returns the flow rule that denies, or asks about, the use of the network by a run with this label, or
    /// `None` if there is no such rule. A session with a network must end before its run gets the label.
    #[must_use]
    pub fn network_rule_after(&self, label: &FlowLabel) -> Option<String> {
        flow::network_rule(&self.effective().flow, label)
    }

    /// Returns whether [`Self::network_rule_after`] returns a rule.
    #[must_use]
    pub fn restricts_network_after(&self, label: &FlowLabel) -> bool {
        flow::restricts_network(&self.effective().flow, label)
    }

    /// Returns the protected kinds that a call with this grant must not write in this run. This is `Some`
    /// only if a flow rule asks about or denies protected kinds after the reads of the run, and no argument
    /// of the call names a file of such a kind. The enforcing layer refuses these writes, because a guest may
    /// write files that its arguments do not name.
    #[must_use]
    pub fn forbidden_kinds(&self, grant: &Grant, run: &RunContext<'_>) -> Option<Arc<ProtectedKinds>> {
        let policy = self.effective();
        flow::withholds_kinds(&policy.flow, &policy.kinds, grant, run).then(|| self.shared_kinds())
    }

    /// Returns the rules that exempt a call from approval. Empty unless they cover every command of the call.
    fn unasked_rules(&self, grant: &Grant) -> Vec<String> {
        let Some(shell) = self.shell().filter(|_| grant.shell.is_some()) else {
            return self.unasked_paths(grant);
        };
        let mut all_rules = Vec::new();
        for subject in &grant.subjects {
            if let RequestedSubject::Command { command, .. } = subject {
                // If no rule covers one of the commands, the whole call needs approval.
                let Ok(rules) = shell.commands.unasked_rules(command) else { return Vec::new() };
                all_rules.extend(rules.iter().map(|rule| format!("shell.unasked[\"{rule}\"]")));
            }
        }
        all_rules
    }

    /// Returns the rules that cover all paths of a file tool's call. Empty if a reduction demands an
    /// approval.
    fn unasked_paths(&self, grant: &Grant) -> Vec<String> {
        let policy = self.effective();
        let Some(rule) = policy.tools.get(&grant.tool) else { return Vec::new() };
        let rules = rule.unasked.covering(&grant.subjects, &policy.home);
        rules.into_iter().map(|covering| format!("tools.{}.unasked.{covering}", grant.tool)).collect()
    }

    fn check_path<T: TraceSink>(
        &self,
        path: &GuestPath,
        access: Access,
        assignment: &ToolAssignment,
        mounts: &[GrantedMount],
        trace: &mut T,
    ) -> Result<(), Denial> {
        let deny = |code, rule: String| Denial {
            code,
            rule,
            subject: path.to_string(),
            hint: reachable_mounts_hint(access, mounts),
        };
        let profile = &assignment.profile;
        // The order fixes the code that the caller sees: mount, grant, hidden name, then access and
        // protection.
        if path.climbs_out() {
            return Err(deny(DenialCode::PathEscapesMount, "mounts".to_owned()));
        }
        let Some(mount) = path.mount().filter(|mount| self.effective().mounts.contains_key(*mount)) else {
            return Err(deny(DenialCode::UnknownMount, "mounts".to_owned()));
        };
        trace.record(|| TracedRule::new(format!("mounts.{mount}"), "holds the path"));
        let rule = || profile.mount_rule(mount);
        let Some(granted) = mounts.iter().find(|granted| granted.name.as_str() == mount) else {
            return Err(deny(DenialCode::MountNotGranted, rule()));
        };
        trace.record(|| TracedRule::new(rule(), format!("grants `{}`", granted.access)));
        if HiddenNames::apply_to_mount(mount)
            && let Some(pattern) = self.hidden().covers(path.below_mount().split('/'))
        {
            return Err(Denial {
                hint: format!(
                    "the operator hides `{pattern}` at any depth, whether it exists or not; continue without it"
                ),
                ..deny(DenialCode::HiddenPath, format!("hide.paths[\"{pattern}\"]"))
            });
        }
        if HiddenNames::apply_to_mount(mount) && !self.hidden().is_empty() {
            trace.record(|| TracedRule::new("hide.paths", "hides no name of the path"));
        }
        match (access, granted.access) {
            (Access::Read, Access::Read | Access::Write) => Ok(()),
            (Access::Write, Access::Read) => Err(deny(DenialCode::MountReadOnly, rule())),
            (Access::Write, Access::Write) => match self.protected().covers(path.below_mount().split('/')) {
                None => {
                    trace.record(|| TracedRule::new("protect.paths", "protects no name of the path"));
                    Ok(())
                }
                Some(pattern) => Err(Denial {
                    hint: format!("`{pattern}` is protected at any depth; choose another path"),
                    ..deny(DenialCode::ProtectedPath, format!("protect.paths[\"{pattern}\"]"))
                }),
            },
        }
    }

    fn approval_denied(&self, tool: &ToolDescriptor, assignment: &ToolAssignment) -> Denial {
        Denial {
            code: DenialCode::ApprovalDenied,
            rule: self.approval_rule(tool, assignment),
            subject: tool.name.to_string(),
            hint: String::new(),
        }
    }
}

fn flow_denied(request: &CallRequest<'_>, matched: &MatchedFlowRule) -> Denial {
    let RunContext { agent, run, .. } = request.run;
    Denial {
        code: DenialCode::FlowDenied,
        rule: matched.rule.clone(),
        subject: request.tool.name.to_string(),
        hint: format!(
            "call `{}` of this run (`{run}` of `{agent}`) read `{}`; begin a new run for it. {}",
            matched.call_id,
            matched.label,
            matched.describe_for_hint()
        ),
    }
}

/// Returns the stronger of the requested access and the access that the argument's role declares, so that a
/// caller that misreads the roles cannot have a write checked as a read.
fn stronger_access(tool: &ToolDescriptor, argument: &str, requested: Access) -> Access {
    let role = tool.roles.iter().find(|role| role.argument == argument).map(|role| role.role);
    role.and_then(RoleKind::path_access).map_or(requested, |declared| declared.max(requested))
}

/// Returns a hint that lists the tool's mounts with this access.
fn reachable_mounts_hint(access: Access, mounts: &[GrantedMount]) -> String {
    let (word, mount_names): (_, Vec<String>) = match access {
        Access::Read => ("readable", mounts.iter().map(|mount| format!("/{}", mount.name)).collect()),
        Access::Write => {
            let writable = mounts.iter().filter(|mount| mount.access == Access::Write);
            ("writable", writable.map(|mount| format!("/{}", mount.name)).collect())
        }
    };
    if mount_names.is_empty() {
        format!("nothing is {word} for this tool")
    } else {
        format!("{word} here: {}", mount_names.join(", "))
    }
}
