//! Judges recorded calls under another policy. The verdicts come from the function that judges real calls;
//! its input comes from the call's audit row.

use std::collections::BTreeMap;

use portcullis_policy::{
    Approval, CallRequest, FlowLabel, RequestedSubject, RunContext, ToolDescriptor, ToolOrigin,
    WorkspaceSecurityPolicy, gateway_tools, shipped_tools,
};
use portcullis_types::{Access, GuestPath, RoleKind, SafetyTier, ToolName};
use serde::Serialize;

use crate::{
    audit::{Confinement, Decision, Row, RowEvent, SubjectKind},
    pipeline::{CONFIGURED_URL, SERVER_URL, verdict_by_names},
};

/// A group of recorded calls whose verdict would change in the same way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ChangedVerdict {
    /// The name of the called tool, as the rows record it.
    pub tool: String,
    /// The verdict under the old policy.
    pub was: Approval,
    /// The verdict under the new policy.
    pub would: Approval,
    /// The rule of the new verdict.
    pub rule: String,
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReplayReport {
    /// The calls that were judged again.
    pub calls: u64,
    /// The calls among them whose verdict is the same.
    pub same: u64,
    /// The rows of calls that could not be judged again: the call failed before the policy judged it, or its
    /// subjects did not fit into the row.
    pub undecided: u64,
    /// The verdicts that would change, each with its number of calls.
    #[serde(serialize_with = "as_list")]
    pub changed: BTreeMap<ChangedVerdict, u64>,
}

impl ReplayReport {
    /// Whether any call would get a more permissive verdict.
    #[must_use]
    pub fn is_wider(&self) -> bool {
        self.changed.keys().any(|group| group.would < group.was)
    }
}

/// Writes the groups as a list, because JSON keys are strings.
fn as_list<S: serde::Serializer>(
    groups: &BTreeMap<ChangedVerdict, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Counted<'a> {
        #[serde(flatten)]
        group: &'a ChangedVerdict,
        calls: u64,
    }
    serializer.collect_seq(groups.iter().map(|(group, calls)| Counted { group, calls: *calls }))
}

/// The two verdicts on a recorded call, and the rule of the new one.
struct VerdictPair {
    recorded: Approval,
    replayed: Approval,
    rule: String,
}

/// Replays rows under one policy.
#[derive(Debug)]
pub struct Replay<'p> {
    policy: &'p WorkspaceSecurityPolicy,
    shipped_tools: BTreeMap<ToolName, ToolDescriptor>,
    report: ReplayReport,
}

impl<'p> Replay<'p> {
    /// Starts a replay under this policy.
    #[must_use]
    pub fn new(policy: &'p WorkspaceSecurityPolicy) -> Self {
        let shipped = shipped_tools()
            .chain(gateway_tools())
            .map(|descriptor| (descriptor.name.clone(), descriptor))
            .collect();
        Self { policy, shipped_tools: shipped, report: ReplayReport::default() }
    }

    /// Judges the call of a row again. `before` is the policy that was in force, if it was stored. Without
    /// it, the recorded verdict is compared, which may also result from symlinks, a caller or a person.
    pub fn add(&mut self, row: &Row, before: Option<&WorkspaceSecurityPolicy>) {
        match self.decide(row, before) {
            None if row.event == RowEvent::End => self.report.undecided += 1,
            None => {}
            Some(VerdictPair { recorded, replayed, rule }) => {
                self.report.calls += 1;
                if recorded == replayed {
                    self.report.same += 1;
                } else {
                    let tool = row.tool.to_string();
                    let group = ChangedVerdict { tool, was: recorded, would: replayed, rule };
                    *self.report.changed.entry(group).or_default() += 1;
                }
            }
        }
    }

    /// Returns the result.
    #[must_use]
    pub fn into_report(self) -> ReplayReport {
        self.report
    }

    /// `None` if the row is not the decision of a call, or is not complete enough to judge the call.
    fn decide(&self, row: &Row, before: Option<&WorkspaceSecurityPolicy>) -> Option<VerdictPair> {
        let decision = row.decision.filter(|_| row.event == RowEvent::End)?;
        let RecordedCall { descriptor, subjects, labels } =
            RecordedCall::read(row, |name| self.shipped_tools.get(name).cloned())?;
        let run = RunContext {
            agent: row.agent.as_deref().unwrap_or_default(),
            run: row.run_id.as_deref().unwrap_or_default(),
            labels: labels.into(),
        };
        let request = CallRequest { tool: &descriptor, subjects: &subjects, run: &run };
        let (replayed, rule) = verdict_by_names(self.policy, &request);
        let recorded = match before {
            Some(before) => verdict_by_names(before, &request).0,
            None => recorded_verdict(row, decision),
        };
        Some(VerdictPair { recorded, replayed, rule })
    }
}

/// A recorded call, in the form that the policy judges.
#[derive(Debug)]
pub(crate) struct RecordedCall {
    pub(crate) descriptor: ToolDescriptor,
    pub(crate) subjects: Vec<RequestedSubject>,
    /// The labels of the run.
    pub(crate) labels: BTreeMap<FlowLabel, String>,
}

impl RecordedCall {
    /// Reads the call of a row. `None` if the row is not complete enough to judge the call.
    pub(crate) fn of(row: &Row) -> Option<Self> {
        Self::read(row, |name| {
            shipped_tools().chain(gateway_tools()).find(|descriptor| descriptor.name == *name)
        })
    }

    fn read(row: &Row, shipped: impl Fn(&ToolName) -> Option<ToolDescriptor>) -> Option<Self> {
        // The row lacks a part of the call, so its verdict could differ from the call's.
        if row.omitted > 0 {
            return None;
        }
        let descriptor = descriptor(row, shipped)?;
        let subjects = subjects(row, &descriptor)?;
        // A label that this version does not know could have matched a rule, so the call counts as undecided.
        let labels = row.labels.iter().map(|label| Some((label.parse::<FlowLabel>().ok()?, String::new())));
        Some(Self { descriptor, subjects, labels: labels.collect::<Option<BTreeMap<_, _>>>()? })
    }
}

/// Reconstructs the tool of a row. The row of a module's tool has its tier, and the module was approved,
/// because the tool was called.
fn descriptor(row: &Row, shipped: impl Fn(&ToolName) -> Option<ToolDescriptor>) -> Option<ToolDescriptor> {
    let name = ToolName::parse(&*row.tool).ok()?;
    if let Some(descriptor) = shipped(&name) {
        return Some(descriptor);
    }
    let origin = match row.confinement? {
        Confinement::Wasm => ToolOrigin::ForeignModule,
        Confinement::Native => ToolOrigin::Native,
        Confinement::External => ToolOrigin::External,
        Confinement::Internal => ToolOrigin::Internal,
        // A request of a module's tool has its own row, with a different subject.
        Confinement::Egress if has_subject(row, CONFIGURED_URL) => ToolOrigin::Http,
        Confinement::Egress if has_subject(row, SERVER_URL) => ToolOrigin::Mcp,
        Confinement::Egress | Confinement::Shell => return None,
    };
    Some(ToolDescriptor { declared_tier: row.tier, ..ToolDescriptor::undeclared(name, origin) })
}

fn has_subject(row: &Row, argument: &str) -> bool {
    row.subjects.iter().any(|subject| subject.source.as_str() == argument)
}

/// Reconstructs the subjects of a row. `None` if one of them cannot be parsed, such as a truncated path.
fn subjects(row: &Row, descriptor: &ToolDescriptor) -> Option<Vec<RequestedSubject>> {
    let named = row.subjects.iter().filter(|subject| subject.source.is_argument());
    // An operation accesses nothing itself; its steps have their own rows.
    let is_operation = descriptor.origin == ToolOrigin::ShippedOperation
        && row.mounts.is_empty()
        && !row_is_step(descriptor);
    if is_operation {
        return Some(Vec::new());
    }
    named
        .map(|subject| {
            let argument = subject.source.to_string();
            let value = subject.value.to_string();
            Some(match subject.kind {
                SubjectKind::Path => {
                    let role = descriptor.roles.iter().find(|role| role.argument == argument);
                    let declared = role.and_then(|role| RoleKind::path_access(role.role));
                    // An unknown tool of a module may write, unless its tier says otherwise.
                    let access = declared.unwrap_or(match row.tier {
                        Some(SafetyTier::ReadOnly) => Access::Read,
                        _ => Access::Write,
                    });
                    RequestedSubject::Path { argument, path: GuestPath::parse(&value).ok()?, access }
                }
                SubjectKind::Url => RequestedSubject::Url { argument, url: value },
                SubjectKind::Command => RequestedSubject::Command { argument, command: value },
            })
        })
        .collect()
}

fn row_is_step(descriptor: &ToolDescriptor) -> bool {
    portcullis_policy::Operation::has_step(descriptor.name.as_str())
}

/// Returns the verdict that the row records: if a person refused the call, the verdict is `ask`.
pub(crate) fn recorded_verdict(row: &Row, decision: Decision) -> Approval {
    match (row.approval.as_deref(), decision) {
        (None | Some("approval_denied"), Decision::Deny) => Approval::Deny,
        (Some("not_required") | None, _) => Approval::Allow,
        (Some(_), _) => Approval::Ask,
    }
}
