//! Explains calls without making them. Both enforcement and this module decide with [`judge_call`]; this
//! module only chooses its inputs and words the answer. It creates nothing on disk and runs nothing.

mod expect;
mod grants;
mod reach;
mod recorded;

use std::{collections::BTreeMap, sync::Arc};

use portcullis_policy::{
    Approval, CallRequest, Denial, DenialCode, FlowLabel, Grant, Operation, PolicyProvenance,
    RequestedSubject, RunContext, SourceLocation, ToolDescriptor, ToolOrigin, Trace, TracedRule,
    WorkspaceSecurityPolicy, shipped_tools,
};
use portcullis_types::{Access, GuestPath, RoleKind, RunnerBootstrapEnvelope, ToolError};
use serde::Serialize;

pub use expect::{
    Counterexample, Coverage, ExpectationKind, ExpectationReport, ExpectationResult, FailedExpectations,
    JudgedCall, UncoveredGrant,
};
pub use grants::{MountGrant, ToolGrants};
pub use reach::{FlowStep, ReachSource};
pub use recorded::{RecordedDecision, RecordedExplanation, RowError, explain_row};

use super::{
    backend::{CONFIGURED_URL, SERVER_URL},
    judge::{Grants, JudgedTool, judge_call, rule_of},
    path_target::PathContext,
};
use crate::{
    bootstrap::existing_mounts,
    error::BootstrapError,
    home::NonDefaultHome,
    http_tool::HttpTarget,
    policy_files::PolicyFiles,
    registered::RegisteredTool,
    sandbox::{hard_links::ExposedFiles, mounts::MountTable},
};

/// A tool to be explained, with the descriptor that the policy judges.
#[derive(Debug, Clone)]
pub struct ExplainedTool {
    descriptor: ToolDescriptor,
    /// The steps of an operation.
    steps: Vec<ToolDescriptor>,
    /// The request of an HTTP tool or an MCP tool, whose URL no argument names.
    target: Option<HttpTarget>,
}

impl ExplainedTool {
    /// Returns a shipped tool; `None` for any other name, and for a step, which no call can name.
    #[must_use]
    pub fn shipped(name: &str) -> Option<Self> {
        shipped_tools().find(|tool| tool.name.as_str() == name).and_then(Self::callable)
    }

    /// Returns every shipped tool that a call can name under a policy.
    pub fn all_shipped(policy: &WorkspaceSecurityPolicy) -> impl Iterator<Item = Self> {
        policy.offered_tools().filter_map(Self::callable)
    }

    /// Adds the steps of a shipped tool; `None` if it is a step itself.
    fn callable(descriptor: ToolDescriptor) -> Option<Self> {
        let name = descriptor.name.as_str();
        if Operation::has_step(name) {
            return None;
        }
        let operation = Operation::ALL.iter().find(|operation| operation.name == name);
        let steps = operation.map_or_else(Vec::new, |operation| {
            let find = |step: &&str| shipped_tools().find(|tool| tool.name.as_str() == *step);
            operation.steps.iter().filter_map(find).collect()
        });
        Some(Self { descriptor, steps, target: None })
    }

    fn opens_unnamed_paths(&self) -> bool {
        opens_unnamed_paths(&self.descriptor)
    }
}

/// Whether a tool may open files that no argument names, judging by its declarations.
fn opens_unnamed_paths(descriptor: &ToolDescriptor) -> bool {
    let names_paths = descriptor.roles.iter().any(|role| role.role.path_access().is_some());
    !names_paths
        && matches!(descriptor.origin, ToolOrigin::ForeignModule | ToolOrigin::Native | ToolOrigin::External)
}

/// Returns the subject of a configured tool's call: the tool's URL, with the query of the requested subject
/// if there is one.
fn configured_subject(
    tool: &ExplainedTool,
    target: &HttpTarget,
    request: &ExplainRequest<'_>,
) -> Result<RequestedSubject, ToolError> {
    let url = request.subject.unwrap_or(target.url());
    if !target.is_at(url) {
        let message = format!("`{}` requests `{}` and nothing else", tool.descriptor.name, target.url());
        return Err(ToolError::invalid_arguments(message));
    }
    let argument = if tool.descriptor.origin == ToolOrigin::Mcp { SERVER_URL } else { CONFIGURED_URL };
    Ok(RequestedSubject::Url { argument: argument.to_owned(), url: url.to_owned() })
}

impl From<&RegisteredTool> for ExplainedTool {
    fn from(tool: &RegisteredTool) -> Self {
        let steps = tool.steps().iter().map(|step| step.descriptor().clone()).collect();
        Self { descriptor: tool.descriptor().clone(), steps, target: tool.http_target().cloned() }
    }
}

/// The call to be explained.
#[derive(Debug, Clone, Default)]
pub struct ExplainRequest<'a> {
    /// The path, URL or command; `None` for a call whose arguments name nothing.
    pub subject: Option<&'a str>,
    /// Whether the path is written, regardless of the tool's declaration.
    pub writes: bool,
    /// The agent's name.
    pub agent: &'a str,
    /// The labels that the run has from earlier calls.
    pub after: &'a [FlowLabel],
}

/// One rule of the chain that leads to the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocatedRule {
    /// The rule, as a path in the policy file.
    pub rule: String,
    /// The rule's contribution.
    pub finding: String,
    /// The source location; `None` for a default.
    #[serde(rename = "place")]
    pub location: Option<SourceLocation>,
}

/// The answer to a call, and its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The name of the called tool.
    pub tool: String,
    /// The subject in its judged form; `None` if there is none.
    pub subject: Option<String>,
    /// Whether the call runs, asks, or is refused.
    pub verdict: Approval,
    /// The code of a denial.
    pub code: Option<DenialCode>,
    /// The deciding rule.
    pub rule: String,
    /// The source location of the deciding rule; `None` for a default.
    #[serde(rename = "place")]
    pub location: Option<SourceLocation>,
    /// The message of a denial, for people.
    pub message: Option<String>,
    /// The denial's hint: what to do instead.
    pub hint: Option<String>,
    /// The profile of the tool.
    pub profile: String,
    /// All rules that were checked, in order. The last one decides.
    pub chain: Vec<LocatedRule>,
    /// Tools that may do the same, at most five. Empty unless the call is denied.
    pub nearest: Vec<LocatedRule>,
    /// The parts of a real call that were not checked.
    #[serde(rename = "not_looked_at")]
    pub unchecked: Vec<String>,
}

/// A policy with its source locations and its existing mounts, ready to explain calls.
#[derive(Debug)]
pub struct Explainer {
    policy: WorkspaceSecurityPolicy,
    provenance: PolicyProvenance,
    mounts: MountTable,
    exposed_files: Arc<ExposedFiles>,
    /// The mounts whose folders do not exist.
    missing_mounts: Vec<String>,
}

impl Explainer {
    /// Loads the policy and opens the mounts that exist. Creates no folder.
    ///
    /// # Errors
    /// [`BootstrapError`] for a policy or a mount that a start would refuse.
    ///
    /// # Cancellation
    /// Safe: the function changes nothing.
    pub async fn new(
        envelope: &RunnerBootstrapEnvelope,
        files: &PolicyFiles,
    ) -> Result<Self, BootstrapError> {
        let policy = files.load(envelope.sandbox_tier)?;
        let provenance = PolicyProvenance::read(&files.options(envelope.sandbox_tier));
        let (mounts, missing) = existing_mounts(envelope, files, &policy);
        let mounts = mounts?;
        let exposed = mounts.private_links().exposed().await;
        let missing = missing.iter().map(|mount| mount.name.to_string()).collect();
        Ok(Self { policy, provenance, mounts, exposed_files: exposed, missing_mounts: missing })
    }

    /// Returns the policy that the calls are judged by.
    #[must_use]
    pub fn policy(&self) -> &WorkspaceSecurityPolicy {
        &self.policy
    }

    /// Explains one call.
    ///
    /// # Errors
    /// [`ToolError`] for a subject that no call can have, such as an empty path.
    pub fn explain(
        &self,
        tool: &ExplainedTool,
        request: &ExplainRequest<'_>,
    ) -> Result<Explanation, ToolError> {
        let mut explanation = self.judged(tool, request)?;
        if explanation.verdict == Approval::Deny && request.subject.is_some() {
            let shipped: Vec<ExplainedTool> = ExplainedTool::all_shipped(&self.policy).collect();
            let others = self.explain_all(&shipped, request);
            let allowed = others
                .into_iter()
                .filter(|other| other.verdict != Approval::Deny && other.tool != explanation.tool);
            explanation.nearest = allowed
                .take(MAX_NEAREST)
                .map(|other| LocatedRule {
                    finding: format!("`{}` may ({})", other.tool, other.verdict),
                    rule: other.rule,
                    location: other.location,
                })
                .collect();
        }
        Ok(explanation)
    }

    /// Explains the call for each of these tools whose arguments can name such a subject, and for each tool
    /// of a module without such arguments, because it may open files that no argument names. The shell is
    /// omitted: its arguments name no paths, and its commands reach all mounts of `[shell]`.
    #[must_use]
    pub fn explain_all(&self, tools: &[ExplainedTool], request: &ExplainRequest<'_>) -> Vec<Explanation> {
        let Some(subject) = request.subject else { return Vec::new() };
        let is_url = is_url(subject);
        let takes = |tool: &ExplainedTool| {
            if let Some(target) = &tool.target {
                return target.is_at(subject);
            }
            let kinds = tool.descriptor.roles.iter().map(|role| role.role);
            if !is_url && tool.opens_unnamed_paths() {
                return true;
            }
            let access = if request.writes { Access::Write } else { Access::Read };
            kinds.into_iter().any(|kind| match kind {
                RoleKind::Url => is_url,
                RoleKind::Path(_) | RoleKind::Entry => {
                    !is_url && kind.path_access().is_some_and(|declared| declared >= access)
                }
                RoleKind::Command => false,
            })
        };
        tools.iter().filter(|tool| takes(tool)).filter_map(|tool| self.judged(tool, request).ok()).collect()
    }

    fn judged(&self, tool: &ExplainedTool, request: &ExplainRequest<'_>) -> Result<Explanation, ToolError> {
        let labels: BTreeMap<FlowLabel, String> =
            request.after.iter().map(|label| (label.clone(), EARLIER_CALL.to_owned())).collect();
        let mut run = RunContext { agent: request.agent, run: EXPLAINED_RUN, labels: Arc::new(labels) };
        let subjects = |descriptor: &ToolDescriptor| self.subjects(descriptor, request);
        let own_subjects = match &tool.target {
            Some(target) => vec![configured_subject(tool, target, request)?],
            None if tool.steps.is_empty() => subjects(&tool.descriptor)?,
            None => Vec::new(),
        };
        let judged_tool = JudgedTool { descriptor: &tool.descriptor, subjects: own_subjects };
        let steps =
            tool.steps.iter().map(|step| Ok(JudgedTool { descriptor: step, subjects: subjects(step)? }));
        let steps = steps.collect::<Result<Vec<_>, ToolError>>()?;
        let subject = std::iter::once(&judged_tool).chain(&steps).flat_map(|tool| &tool.subjects).next();
        let paths = PathContext { mounts: &self.mounts, exposed_files: &self.exposed_files };
        let mut trace = Trace::default();
        let judged =
            judge_call(&judged_tool, &steps, &mut run, EXPLAINED_CALL, &self.policy, paths, &mut trace);
        let answer = match &judged {
            Ok(grants) => self.granted(tool, grants),
            Err(denial) => (Approval::Deny, denial.rule.clone()),
        };
        let denial = judged.err();
        let mut explanation = self.explanation(&tool.descriptor, subject, answer, denial.as_deref(), trace);
        explanation.unchecked = self.unchecked_parts(tool, subject.is_some());
        Ok(explanation)
    }

    /// Words a verdict. Leaves `unchecked` empty.
    fn explanation(
        &self,
        descriptor: &ToolDescriptor,
        subject: Option<&RequestedSubject>,
        (verdict, rule): (Approval, String),
        denial: Option<&Denial>,
        trace: Trace,
    ) -> Explanation {
        let finding = match (verdict, denial) {
            (_, Some(denial)) => denial.message(),
            (Approval::Ask, None) => "the approver is asked about the call".to_owned(),
            (Approval::Allow | Approval::Deny, None) => "the call runs without a question".to_owned(),
        };
        let mut rules = trace.into_rules();
        rules.push(TracedRule { rule: rule.clone(), finding: format!("decides: {finding}") });
        let chain = rules.into_iter().map(|TracedRule { rule, finding }| LocatedRule {
            location: self.provenance.location_of(&rule),
            rule,
            finding,
        });
        Explanation {
            tool: descriptor.name.to_string(),
            subject: subject.map(|subject| match subject {
                RequestedSubject::Path { path, .. } => path.to_string(),
                RequestedSubject::Url { url, .. } => url.clone(),
                RequestedSubject::Command { command, .. } => command.clone(),
            }),
            verdict,
            code: denial.map(|denial| denial.code),
            location: self.provenance.location_of(&rule),
            rule,
            message: denial.map(Denial::message),
            hint: denial.map(|denial| denial.hint.clone()).filter(|hint| !hint.is_empty()),
            profile: self.policy.describe(descriptor).profile.to_string(),
            chain: chain.collect(),
            nearest: Vec::new(),
            unchecked: Vec::new(),
        }
    }

    /// Returns the verdict and the deciding rule of a call that is not refused. Of an operation and its
    /// steps, the strictest verdict counts.
    fn granted(&self, tool: &ExplainedTool, grants: &Grants) -> (Approval, String) {
        let mut all = std::iter::once((&tool.descriptor, &grants.own_grant))
            .chain(tool.steps.iter().zip(grants.steps.iter().map(|step| &step.grant)));
        if let Some((descriptor, grant)) = all.find(|(_, grant)| grant.approval == Approval::Ask) {
            let rule = asking_rule(&self.policy, descriptor, grant);
            return (Approval::Ask, rule);
        }
        let deciding = grants.steps.first().map_or(&grants.own_grant, |step| &step.grant);
        (Approval::Allow, rule_of(deciding))
    }

    /// Returns the subjects of a tool's call: the requested subject, as the argument that takes it.
    fn subjects(
        &self,
        descriptor: &ToolDescriptor,
        request: &ExplainRequest<'_>,
    ) -> Result<Vec<RequestedSubject>, ToolError> {
        // Searches have no subject of their own: the policy names the URL of the provider.
        let search = self.policy.search().filter(|_| descriptor.name.as_str() == "web_search_request");
        let text = match (search, request.subject) {
            (Some(search), _) => search.url.to_string(),
            (None, Some(text)) => text.to_owned(),
            (None, None) => return Ok(Vec::new()),
        };
        let role_paths = |role: RoleKind| match role {
            RoleKind::Path(_) | RoleKind::Entry if is_url(&text) => None,
            // Prefer an argument with the requested access. The policy raises a weaker one
            // (`stronger_access`).
            RoleKind::Path(_) | RoleKind::Entry => {
                Some((role.path_access() == Some(Access::Write)) != request.writes)
            }
            RoleKind::Url | RoleKind::Command => Some(false),
        };
        let is_step = Operation::has_step(descriptor.name.as_str());
        let mut roles: Vec<_> =
            descriptor.roles.iter().filter_map(|role| Some((role_paths(role.role)?, role))).collect();
        // A path is one argument of an operation, so the step with the other access does not get it.
        if is_step {
            roles.retain(|(is_other_access, _)| !is_other_access);
        }
        roles.sort_by_key(|(is_other_access, _)| *is_other_access);
        let unnamed = (!is_url(&text) && opens_unnamed_paths(descriptor)).then_some({
            let access = if request.writes { Access::Write } else { Access::Read };
            (RequestedSubject::NO_ARGUMENT.to_owned(), RoleKind::Path(access))
        });
        let named = roles.first().map(|(_, role)| (role.argument.clone(), role.role));
        let Some((argument, role)) = named.or(unnamed) else { return Ok(Vec::new()) };
        Ok(vec![match role {
            RoleKind::Path(_) | RoleKind::Entry => {
                let declared = role.path_access().unwrap_or(Access::Write);
                let access = if request.writes { Access::Write } else { declared };
                let text = match NonDefaultHome::new(self.policy.home()) {
                    Some(home) if !text.is_empty() => home.absolute(&text),
                    _ => text,
                };
                let path = GuestPath::parse(&text)
                    .map_err(|error| ToolError::invalid_arguments(format!("`{text}`: {error}")))?;
                RequestedSubject::Path { argument, path, access }
            }
            RoleKind::Url => RequestedSubject::Url { argument, url: text },
            RoleKind::Command => RequestedSubject::Command { argument, command: text },
        }])
    }

    fn unchecked_parts(&self, tool: &ExplainedTool, has_subject: bool) -> Vec<String> {
        let mut parts = Vec::new();
        if !has_subject {
            parts.push("paths, URLs and commands: no argument was judged".to_owned());
        }
        if !self.missing_mounts.is_empty() {
            parts.push(format!(
                "links in mounts whose folders do not exist yet: {}",
                self.missing_mounts.join(", ")
            ));
        }
        if self.policy.network_of(&self.policy.describe(&tool.descriptor).profile).is_some()
            || tool
                .steps
                .iter()
                .any(|step| self.policy.network_of(&self.policy.describe(step).profile).is_some())
        {
            parts.push("the addresses of the host's name, redirects, and robots.txt".to_owned());
        }
        parts.push("other arguments, and files that a guest opens without naming them".to_owned());
        parts.push("the rate, hooks, the approver's answer, and the layers of the kernel".to_owned());
        parts
    }
}

/// Returns the verdict on a call by the names of its subjects, and the deciding rule. Follows no symlink.
pub(crate) fn verdict_by_names(
    policy: &WorkspaceSecurityPolicy,
    request: &CallRequest<'_>,
) -> (Approval, String) {
    let (verdict, rule, _) = named_answer(policy, request);
    (verdict, rule)
}

/// Like [`verdict_by_names`], with the code of a denial.
fn named_answer(
    policy: &WorkspaceSecurityPolicy,
    request: &CallRequest<'_>,
) -> (Approval, String, Option<DenialCode>) {
    match policy.authorize(request) {
        Err(denial) => (Approval::Deny, denial.rule, Some(denial.code)),
        Ok(grant) if grant.approval == Approval::Ask => {
            (Approval::Ask, asking_rule(policy, request.tool, &grant), None)
        }
        Ok(grant) => (Approval::Allow, rule_of(&grant), None),
    }
}

/// Returns the rule that requires an approval of a call with this grant.
fn asking_rule(policy: &WorkspaceSecurityPolicy, descriptor: &ToolDescriptor, grant: &Grant) -> String {
    match &grant.flow {
        Some(matched) => matched.rule.clone(),
        None => policy.approval_rule(descriptor, &policy.describe(descriptor)),
    }
}

fn is_url(text: &str) -> bool {
    text.contains("://")
}

/// The maximum number of tools listed as nearest.
const MAX_NEAREST: usize = 5;

/// The names of the explained run and its calls. They appear only in texts.
const EXPLAINED_RUN: &str = "explained";
const EXPLAINED_CALL: &str = "explained-call";
const EARLIER_CALL: &str = "earlier-call";
