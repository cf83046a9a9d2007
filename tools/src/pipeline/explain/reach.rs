//! Finds the places to which data can flow from a mount, a secret, a variable or the web, through chains of calls.
//!
//! A tool's result goes to the model, and the model can pass it to any tool. So there are two kinds of flows:
//! from a place to the model or, within one operation, to another place; and from the model to a place, under
//! the flow rules for a run that has read the first place. The result over-approximates: it may list a flow
//! that carries no data, but it misses no flow that the grants allow.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
};

use portcullis_policy::{
    Approval, CallRequest, FlowLabel, MountName, PathClasses, RequestedSubject, RunContext, SecretName,
    ToolDescriptor, is_flow_rule,
};
use portcullis_types::{Access, GuestPath};
use serde::Serialize;

use super::{EARLIER_CALL, EXPLAINED_RUN, ExplainedTool, Explainer, ToolGrants};

/// The source of a data-flow query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReachSource {
    /// The files of a mount.
    Mount(MountName),
    /// The responses to requests.
    Web,
    /// A secret of the policy.
    Secret(SecretName),
    /// A variable of the operator's environment.
    Variable(String),
}

/// Writes the name of the place where the flows start.
impl fmt::Display for ReachSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(mount) => write!(f, "/{mount}"),
            Self::Web => f.write_str("the web"),
            Self::Secret(name) => write!(f, "{SECRET_START}{name}"),
            Self::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

/// One step of a data flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowStep {
    /// The place where the data comes from.
    pub from: String,
    /// The name of the tool that moves the data.
    pub tool: String,
    /// Whether the call runs, asks, or is refused.
    pub verdict: Approval,
    /// The rule of that verdict.
    pub rule: String,
    /// The `unasked` rule that lets some of the calls run without a question. `None` if every call
    /// asks, or no call does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unasked: Option<String>,
    /// The places that the data reaches: `/MOUNT`, a host, or `the model`. Empty if the call is refused.
    pub to: Vec<String>,
}

/// The name of the model as a place.
pub(super) const MODEL: &str = "the model";

/// The prefix of a secret's place.
const SECRET_START: &str = "secret ";

/// Whether a place is a secret. A model never sees it, but may see a response to a request that carries it.
pub(super) fn is_secret(location: &str) -> bool {
    location.starts_with(SECRET_START)
}

/// Returns the place of data that a model has seen in a run that has read another place.
pub(super) fn model_after(location: &str) -> String {
    let reason = if is_secret(location) { "a response to " } else { "" };
    format!("{MODEL}, after {reason}{location}")
}

impl Explainer {
    /// Returns the flows from a source, nearest first. Data that reaches a mount can be read there by another
    /// run, which lacks the label of the source; those flows follow.
    #[must_use]
    pub fn reach(&self, source: &ReachSource, tools: &[ExplainedTool]) -> Vec<FlowStep> {
        let mut steps = Vec::new();
        let mut reached_mounts = BTreeSet::new();
        let mut pending = VecDeque::new();
        match source {
            ReachSource::Mount(mount) => {
                reached_mounts.insert(mount.as_str().to_owned());
                pending.push_back(mount.clone());
            }
            ReachSource::Web => self.flows_from_web(tools, &mut steps),
            ReachSource::Secret(secret) => self.flows_from_secret(secret, tools, &mut steps),
            ReachSource::Variable(name) => self.flows_from_variable(name, tools, &mut steps),
        }
        let mut queue_new_mounts = |steps: &[FlowStep], pending: &mut VecDeque<MountName>| {
            for location in steps.iter().flat_map(|step| &step.to) {
                if let Some(mount) = location.strip_prefix('/').and_then(|mount| MountName::parse(mount).ok())
                    && reached_mounts.insert(mount.as_str().to_owned())
                {
                    pending.push_back(mount);
                }
            }
        };
        queue_new_mounts(&steps, &mut pending);
        while let Some(mount) = pending.pop_front() {
            let mut from_mount = Vec::new();
            self.flows_from_mount(&mount, tools, &mut from_mount);
            queue_new_mounts(&from_mount, &mut pending);
            steps.append(&mut from_mount);
        }
        steps
    }

    fn flows_from_mount(&self, mount: &MountName, tools: &[ExplainedTool], steps: &mut Vec<FlowStep>) {
        let from = format!("/{mount}");
        let mut reaches_model = false;
        for tool in tools {
            let grants = self.all_grants(tool);
            let reads = |grants: &ToolGrants| grants.mounts.iter().any(|grant| grant.mount == mount.as_str());
            if !grants.iter().any(reads) {
                continue;
            }
            let (verdict, rule) = strictest_verdict(&grants);
            // An operation passes the data that one step reads to the next step; the result of any other tool
            // goes to the model.
            let mut to = locations(&grants, Some(mount));
            if tool.steps.is_empty() {
                to.insert(0, MODEL.to_owned());
                reaches_model |= verdict != Approval::Deny;
            }
            let to = if verdict == Approval::Deny { Vec::new() } else { to };
            let unasked = self.unasked_rule(tool, &[], (verdict, &rule), Some((mount, Access::Read)));
            steps.push(FlowStep { from: from.clone(), tool: name_of(tool), verdict, rule, unasked, to });
        }
        if reaches_model {
            self.flows_from_model(&from, &[FlowLabel::of_mount(mount)], tools, steps);
        }
    }

    /// Adds the flows from a model that has read a place, in a run with these labels.
    pub(super) fn flows_from_model(
        &self,
        location: &str,
        labels: &[FlowLabel],
        tools: &[ExplainedTool],
        steps: &mut Vec<FlowStep>,
    ) {
        let from = model_after(location);
        for tool in tools {
            // Judge each place separately: a flow rule can ask about one place and not about another.
            let mut flows: BTreeMap<(Approval, String, Option<String>), BTreeSet<String>> = BTreeMap::new();
            let mut add = |(verdict, rule): (Approval, String), mount: Option<&MountName>, location| {
                let mount = mount.map(|mount| (mount, Access::Write));
                let unasked = self.unasked_rule(tool, labels, (verdict, &rule), mount);
                flows.entry((verdict, rule, unasked)).or_default().insert(location)
            };
            for (descriptor, grants) in self.grants_by_tool(tool) {
                for grant in grants.mounts.iter().filter(|grant| grant.access == Access::Write) {
                    let location = format!("/{}", grant.mount);
                    if let (Ok(path), Ok(mount)) =
                        (GuestPath::parse(&location), MountName::parse(&grant.mount))
                    {
                        add(self.strictest_of(tool, descriptor, labels, Some(&path)), Some(&mount), location);
                    }
                }
                for host in grants.hosts {
                    add(self.strictest_of(tool, descriptor, labels, None), None, host);
                }
            }
            steps.extend(flows.into_iter().map(|((verdict, rule, unasked), locations)| {
                let to = if verdict == Approval::Deny { Vec::new() } else { locations.into_iter().collect() };
                FlowStep { from: from.clone(), tool: name_of(tool), verdict, rule, unasked, to }
            }));
        }
    }

    /// Returns the strictest verdict on a call of an operation and its step that writes this path.
    pub(super) fn strictest_of(
        &self,
        tool: &ExplainedTool,
        descriptor: &ToolDescriptor,
        labels: &[FlowLabel],
        path: Option<&GuestPath>,
    ) -> (Approval, String) {
        let answer = self.verdict(descriptor, labels, path.map(|path| (path, Access::Write)));
        if tool.steps.is_empty() {
            return answer;
        }
        let own_verdict = self.verdict(&tool.descriptor, labels, None);
        if own_verdict.0 > answer.0 { own_verdict } else { answer }
    }

    fn flows_from_web(&self, tools: &[ExplainedTool], steps: &mut Vec<FlowStep>) {
        let from = ReachSource::Web.to_string();
        let mut reaches_model = false;
        for tool in tools {
            let grants = self.all_grants(tool);
            if grants.iter().all(|grants| grants.hosts.is_empty()) {
                continue;
            }
            let (verdict, rule) = strictest_verdict(&grants);
            reaches_model |= verdict != Approval::Deny;
            let to = if verdict == Approval::Deny { Vec::new() } else { vec![MODEL.to_owned()] };
            let unasked = self.unasked_rule(tool, &[], (verdict, &rule), None);
            steps.push(FlowStep { from: from.clone(), tool: name_of(tool), verdict, rule, unasked, to });
        }
        if reaches_model {
            self.flows_from_model(&from, &[FlowLabel::Web], tools, steps);
        }
    }

    /// A secret goes only to its hosts, in requests of its tools: the host attaches it, and no guest or model
    /// sees it. A response may reveal the secret.
    fn flows_from_secret(&self, name: &SecretName, tools: &[ExplainedTool], steps: &mut Vec<FlowStep>) {
        let Some((_, secret)) = self.policy.secrets().find(|(known, _)| *known == name) else { return };
        let from = ReachSource::Secret(name.clone()).to_string();
        let hosts: Vec<String> = secret.hosts.iter().map(ToString::to_string).collect();
        let mut is_sent = false;
        for tool in tools {
            let mut names =
                std::iter::once(&tool.descriptor.name).chain(tool.steps.iter().map(|step| &step.name));
            if !secret.enabled || !names.any(|name| secret.tools.contains(name)) {
                continue;
            }
            let grants = self.all_grants(tool);
            let (verdict, rule) = strictest_verdict(&grants);
            is_sent |= verdict != Approval::Deny;
            let to = if verdict == Approval::Deny { Vec::new() } else { hosts.clone() };
            steps.push(FlowStep {
                from: from.clone(),
                tool: name_of(tool),
                verdict,
                rule,
                unasked: None,
                to,
            });
        }
        if is_sent {
            self.flows_from_model(&from, &[FlowLabel::Secret(name.clone())], tools, steps);
        }
    }

    /// A variable reaches commands if `[shell] environment` lists it.
    fn flows_from_variable(&self, name: &str, tools: &[ExplainedTool], steps: &mut Vec<FlowStep>) {
        let is_passed_on = self
            .policy
            .shell()
            .is_some_and(|shell| shell.environment.iter().any(|known| known.as_str() == name));
        let from = ReachSource::Variable(name.to_owned()).to_string();
        let mut reaches_model = false;
        for tool in tools.iter().filter(|tool| is_passed_on && tool.descriptor.may_run_commands()) {
            let grants = self.all_grants(tool);
            let (verdict, rule) = strictest_verdict(&grants);
            let mut to = locations(&grants, None);
            to.insert(0, MODEL.to_owned());
            reaches_model |= verdict != Approval::Deny;
            let to = if verdict == Approval::Deny { Vec::new() } else { to };
            let unasked = self.unasked_rule(tool, &[], (verdict, &rule), None);
            steps.push(FlowStep { from: from.clone(), tool: name_of(tool), verdict, rule, unasked, to });
        }
        // A variable adds no label to a run, so no flow rule stops its value.
        if reaches_model {
            self.flows_from_model(&from, &[], tools, steps);
        }
    }

    /// Returns the `unasked` rule that lets some calls of a tool run without a question. For a file tool,
    /// only calls that name a path in the mount count. A command that a rule covers may do everything
    /// that the shell may.
    fn unasked_rule(
        &self,
        tool: &ExplainedTool,
        labels: &[FlowLabel],
        (verdict, rule): (Approval, &str),
        mount: Option<(&MountName, Access)>,
    ) -> Option<String> {
        // A flow rule that asks takes precedence over `unasked` rules.
        if verdict != Approval::Ask || !tool.steps.is_empty() || is_flow_rule(rule) {
            return None;
        }
        if let Some(shell) = self.policy.shell().filter(|_| tool.descriptor.may_run_commands()) {
            return shell.commands.allowed_commands().next().map(|rule| format!("shell.unasked[\"{rule}\"]"));
        }
        let (mount, access) = mount?;
        let labels = labels.iter().map(|label| (label.clone(), EARLIER_CALL.to_owned())).collect();
        let run = RunContext { agent: "", run: EXPLAINED_RUN, labels: Arc::new(labels) };
        let mut classes = PathClasses::new(&self.policy);
        let name = &tool.descriptor.name;
        let patterns = self.policy.unasked_patterns(name);
        let mut patterns =
            patterns.filter(|(_, pattern)| pattern.mount(self.policy.home()) == mount.as_str());
        patterns.find_map(|(argument, pattern)| {
            // In doubt, assume that the pattern matches.
            let Ok(paths) = classes.of(pattern) else {
                return Some(format!("tools.{name}.unasked.{argument}[\"{pattern}\"]"));
            };
            paths.into_iter().find_map(|path| {
                let subject = RequestedSubject::Path { argument: argument.to_owned(), path, access };
                let request = CallRequest { tool: &tool.descriptor, subjects: &[subject], run: &run };
                let grant = self.policy.authorize(&request).ok()?;
                (grant.approval == Approval::Allow).then(|| grant.unasked.join(", "))
            })
        })
    }

    /// Returns the grants of a tool, or of all its steps.
    pub(super) fn all_grants(&self, tool: &ExplainedTool) -> Vec<ToolGrants> {
        self.grants_by_tool(tool).into_iter().map(|(_, grants)| grants).collect()
    }

    fn grants_by_tool<'a>(&self, tool: &'a ExplainedTool) -> Vec<(&'a ToolDescriptor, ToolGrants)> {
        if tool.steps.is_empty() {
            vec![(&tool.descriptor, self.grants(tool, None))]
        } else {
            tool.steps.iter().map(|step| (step, self.grants(tool, Some(step)))).collect()
        }
    }
}

fn name_of(tool: &ExplainedTool) -> String {
    tool.descriptor.name.to_string()
}

/// Returns the strictest verdict of a tool or its steps, with its rule.
fn strictest_verdict(grants: &[ToolGrants]) -> (Approval, String) {
    let strictest = grants.iter().max_by_key(|grants| grants.verdict);
    strictest.map_or((Approval::Deny, String::new()), |grants| (grants.verdict, grants.rule.clone()))
}

/// Returns the hosts of these grants, and the mounts that they may write except the source itself.
fn locations(grants: &[ToolGrants], own: Option<&MountName>) -> Vec<String> {
    let mut locations = BTreeSet::new();
    for grants in grants {
        let writable = grants.mounts.iter().filter(|grant| grant.access == Access::Write);
        for grant in writable.filter(|grant| own.is_none_or(|own| own.as_str() != grant.mount)) {
            locations.insert(format!("/{}", grant.mount));
        }
        for host in &grants.hosts {
            locations.insert(host.clone());
        }
    }
    locations.into_iter().collect()
}
