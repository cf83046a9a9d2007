//! The map of what each tool may do in each mount. Entries come from the function that judges real calls.

use std::{collections::BTreeMap, sync::Arc};

use portcullis_policy::{
    Approval, CallRequest, FlowLabel, Grant, ProfileName, RequestedSubject, RunContext, SourceLocation,
    ToolDescriptor,
};
use portcullis_types::{Access, GuestPath};
use serde::Serialize;

use super::{EARLIER_CALL, EXPLAINED_RUN, ExplainedTool, Explainer, verdict_by_names};

/// The grants of one tool, or of one step of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolGrants {
    /// The name of the tool.
    pub tool: String,
    /// The step of the operation that holds these grants; `None` for a tool without steps.
    pub step: Option<String>,
    /// The name of the profile that the grants come from.
    pub profile: String,
    /// Whether any call runs, asks or is refused, regardless of its arguments.
    pub verdict: Approval,
    /// The rule of that verdict.
    pub rule: String,
    /// The source location of the rule; `None` for a default.
    #[serde(rename = "place")]
    pub location: Option<SourceLocation>,
    /// The mounts that the tool may read or write, sorted by name.
    pub mounts: Vec<MountGrant>,
    /// The hosts that it may request, or that its commands may reach.
    pub hosts: Vec<String>,
}

/// The grant of a tool in one mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MountGrant {
    /// The name of the mount.
    pub mount: String,
    /// Whether the tool may only read, or also write.
    pub access: Access,
    /// The rule that grants it.
    pub rule: String,
    /// The source location of the rule; `None` for a default.
    #[serde(rename = "place")]
    pub location: Option<SourceLocation>,
}

impl Explainer {
    /// Returns the mounts and hosts that these tools may use. An operation has one entry per step, because
    /// steps never hold their grants at the same time.
    #[must_use]
    pub fn grants_of(&self, tools: &[ExplainedTool]) -> Vec<ToolGrants> {
        tools.iter().flat_map(|tool| self.all_grants(tool)).collect()
    }

    /// Returns the grants of a tool or of one of its steps, in a run that has read nothing.
    pub(super) fn grants(&self, tool: &ExplainedTool, step: Option<&ToolDescriptor>) -> ToolGrants {
        let descriptor = step.unwrap_or(&tool.descriptor);
        let (verdict, rule) = self.strictest_of(tool, descriptor, &[], None);
        let profile = self.policy.describe(descriptor).profile;
        let grant = self.judge_call(descriptor, &[], None, |request| self.policy.authorize(request).ok());
        ToolGrants {
            tool: tool.descriptor.name.to_string(),
            step: step.map(|step| step.name.to_string()),
            profile: profile.to_string(),
            verdict,
            location: self.provenance.location_of(&rule),
            rule,
            mounts: self.mounts_of(descriptor, &profile),
            hosts: grant.as_ref().map(hosts_of).unwrap_or_default(),
        }
    }

    /// Returns the mounts that a tool may access.
    fn mounts_of(&self, descriptor: &ToolDescriptor, profile: &ProfileName) -> Vec<MountGrant> {
        let mounts = self.policy.mounts().iter().filter_map(|mount| {
            let access = self.policy.access_to(descriptor, &mount.name)?;
            let rule = profile.mount_rule(mount.name.as_str());
            let location = self.provenance.location_of(&rule);
            Some(MountGrant { mount: mount.name.to_string(), access, rule, location })
        });
        mounts.collect()
    }

    /// Returns the verdict on a call with one path or none, and the deciding rule.
    pub(super) fn verdict(
        &self,
        descriptor: &ToolDescriptor,
        labels: &[FlowLabel],
        path: Option<(&GuestPath, Access)>,
    ) -> (Approval, String) {
        self.judge_call(descriptor, labels, path, |request| verdict_by_names(&self.policy, request))
    }

    /// Judges a call with one path or none, in a run with these labels.
    fn judge_call<T>(
        &self,
        descriptor: &ToolDescriptor,
        labels: &[FlowLabel],
        path: Option<(&GuestPath, Access)>,
        judge: impl FnOnce(&CallRequest<'_>) -> T,
    ) -> T {
        let labels: BTreeMap<FlowLabel, String> =
            labels.iter().map(|label| (label.clone(), EARLIER_CALL.to_owned())).collect();
        let run = RunContext { agent: "", run: EXPLAINED_RUN, labels: Arc::new(labels) };
        let subject = path.map(|(path, access)| RequestedSubject::unnamed_path(path.clone(), access));
        let subjects: Vec<_> = subject.into_iter().collect();
        judge(&CallRequest { tool: descriptor, subjects: &subjects, run: &run })
    }
}

/// Returns the hosts of a grant, for its requests or its commands.
fn hosts_of(grant: &Grant) -> Vec<String> {
    let requests = grant.network.iter().flat_map(|network| network.hosts.iter().map(ToString::to_string));
    let shell = grant.shell.iter().filter_map(|shell| shell.network.as_ref());
    requests.chain(shell.flat_map(|network| network.hosts.iter().map(ToString::to_string))).collect()
}
