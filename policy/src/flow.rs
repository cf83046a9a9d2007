//! Flow rules: which calls of a run are asked about or denied after earlier calls of it have read something.
//!
//! A run collects labels from what its calls read. A call whose grant has a sink named in a rule is asked about or
//! denied once the run has a label of that rule: what was read could leave through the sink.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    str::FromStr,
    sync::Arc,
};

use portcullis_types::Access;
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::{
    Approval, Grant, MountName, ProtectedKinds, SecretName, SecretRule,
    effective::find_mount,
    file::{Faults, FlowEntry, LabelWord, PlacedValue, SinkWord, did_you_mean},
    kinds,
    render::quoted_texts,
};

/// A mark of a run, which says what its calls have read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowLabel {
    /// The mount `vault`, written `vault`.
    Vault,
    /// The network, written `web`.
    Web,
    /// A secret that a request carried, written `secret:NAME`.
    Secret(SecretName),
    /// Another mount, written `mount:NAME`.
    Mount(MountName),
}

impl FlowLabel {
    /// The label of a call that has read a mount.
    #[must_use]
    pub fn of_mount(name: &MountName) -> Self {
        if name.is_vault() { Self::Vault } else { Self::Mount(name.clone()) }
    }
}

/// A text that is no label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is no label of a run", .0.escape_default())]
pub struct InvalidFlowLabel(pub String);

impl FromStr for FlowLabel {
    type Err = InvalidFlowLabel;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let label = match text.split_once(':') {
            None if text == "vault" => Some(Self::Vault),
            None if text == "web" => Some(Self::Web),
            Some(("secret", name)) => SecretName::parse(name).ok().map(Self::Secret),
            Some(("mount", name)) => MountName::parse(name).ok().map(|name| Self::of_mount(&name)),
            None | Some(_) => None,
        };
        label.ok_or_else(|| InvalidFlowLabel(text.to_owned()))
    }
}

impl fmt::Display for FlowLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vault => f.write_str("vault"),
            Self::Web => f.write_str("web"),
            Self::Secret(name) => write!(f, "secret:{name}"),
            Self::Mount(name) => write!(f, "mount:{name}"),
        }
    }
}

impl Serialize for FlowLabel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A way by which a call can pass on the data that its run has read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FlowSink {
    /// The network, written `network`.
    Network,
    /// A shell, written `shell`.
    Shell,
    /// A mount that the call may write, written `write:NAME`.
    Write(MountName),
    /// A file of a protected kind, written [`KINDS_SINK`].
    WriteKinds,
}

/// The sink of protected kinds. No mount may have its name where a rule names it.
const KINDS_SINK: &str = "write:protected";

impl FlowSink {
    /// Whether a call with this grant has the sink.
    fn is_in(&self, grant: &Grant, kinds: &ProtectedKinds) -> bool {
        match self {
            Self::WriteKinds => kinds::may_write(grant, kinds),
            Self::Network => {
                grant.network.is_some() || grant.shell.as_ref().is_some_and(|shell| shell.network.is_some())
            }
            Self::Shell => grant.shell.is_some(),
            Self::Write(mount) => grant.access_to(mount.as_str()) == Some(Access::Write),
        }
    }
}

impl fmt::Display for FlowSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network => f.write_str("network"),
            Self::Shell => f.write_str("shell"),
            Self::Write(name) => write!(f, "write:{name}"),
            Self::WriteKinds => f.write_str(KINDS_SINK),
        }
    }
}

impl Serialize for FlowSink {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One `[[flow]]`: a call with one of the sinks, in a run with one of the labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct FlowRule {
    pub(crate) after: BTreeSet<FlowLabel>,
    pub(crate) then: BTreeSet<FlowSink>,
    /// `ask` or `deny`.
    pub(crate) approval: Approval,
}

/// The run of a call, with what its calls have read so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFacts<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The run's id.
    pub run: &'a str,
    /// The run's labels, each with the id of the call that brought it. Shared, since every call of a run is judged
    /// by them.
    pub labels: Arc<BTreeMap<FlowLabel, String>>,
}

/// The flow rule that a call meets. A rule that denies takes precedence over one that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatchedFlowRule {
    /// The rule, as `flow[vault -> shell]`: the label that the run has, and the sink that the call has.
    pub rule: String,
    /// The label.
    pub label: FlowLabel,
    /// The sink, as the policy writes it.
    #[serde(skip)]
    pub sink: String,
    /// The call that brought the label.
    pub call_id: String,
    /// `ask` or `deny`.
    pub approval: Approval,
}

impl FlowRule {
    /// The label for which the rule holds in a run; none if it does not hold there.
    fn label_in(&self, run: &RunFacts<'_>) -> Option<&FlowLabel> {
        self.after.iter().find(|label| run.labels.contains_key(*label))
    }
}

impl MatchedFlowRule {
    /// The place of the rule in the policy, for hints.
    #[must_use]
    pub fn place(&self) -> String {
        let Self { label, sink, approval, .. } = self;
        format!(
            "The rule is the `[[flow]]` of the policy with `{label}` in `after`, `{sink}` in `then` and `approval = \"{approval}\"`"
        )
    }
}

/// The strictest of the rules that a call of this run meets with this grant.
pub(crate) fn strictest_match(
    rules: &BTreeSet<FlowRule>,
    kinds: &ProtectedKinds,
    grant: &Grant,
    run: &RunFacts<'_>,
) -> Option<MatchedFlowRule> {
    let matches = rules.iter().filter_map(|rule| {
        let label = rule.label_in(run)?;
        let sink = rule.then.iter().find(|sink| sink.is_in(grant, kinds))?;
        Some(MatchedFlowRule {
            rule: rule_name(label, sink),
            label: label.clone(),
            sink: sink.to_string(),
            call_id: run.labels.get(label)?.clone(),
            approval: rule.approval,
        })
    });
    matches.reduce(|strictest, next| if next.approval > strictest.approval { next } else { strictest })
}

/// The rule by which a run with this label may not use the network, or only after a question.
pub(crate) fn network_rule(rules: &BTreeSet<FlowRule>, label: &FlowLabel) -> Option<String> {
    let is_met = |rule: &FlowRule| rule.after.contains(label) && rule.then.contains(&FlowSink::Network);
    rules.iter().any(is_met).then(|| rule_name(label, &FlowSink::Network))
}

fn rule_name(label: &FlowLabel, sink: &FlowSink) -> String {
    format!("flow[{label} -> {sink}]")
}

/// Whether a call of this run must not write a protected kind: a rule about them holds in the run, and the call does not
/// have its sink, since its arguments name other files.
pub(crate) fn withholds_kinds(
    rules: &BTreeSet<FlowRule>,
    kinds: &ProtectedKinds,
    grant: &Grant,
    run: &RunFacts<'_>,
) -> bool {
    let holds = |rule: &FlowRule| rule.then.contains(&FlowSink::WriteKinds) && rule.label_in(run).is_some();
    rules.iter().any(holds) && !kinds::may_write(grant, kinds)
}

/// Resolves the mounts and secrets that rules name. An unknown one is a fault, since its rule would have no
/// effect.
pub(crate) fn resolve_flow(
    entries: &[FlowEntry],
    mounts: &BTreeMap<MountName, String>,
    secrets: &BTreeMap<SecretName, SecretRule>,
    faults: &mut Faults<'_>,
) -> Vec<PlacedValue<FlowRule>> {
    let rules = entries.iter().map(|entry| {
        let after = entry.after.iter().filter_map(|label| {
            let name = match &label.value {
                LabelWord::Web => return Some(FlowLabel::Web),
                LabelWord::Secret(name) => return find_secret(secrets, &label.with(name.clone()), faults),
                LabelWord::Vault => MountName::VAULT,
                LabelWord::Mount(name) => name,
            };
            Some(FlowLabel::of_mount(&find_mount(mounts, &label.with(name.to_owned()), faults)?))
        });
        let after = after.collect();
        let then = entry.then.iter().filter_map(|sink| {
            Some(match &sink.value {
                SinkWord::Network => FlowSink::Network,
                SinkWord::Shell => FlowSink::Shell,
                SinkWord::WriteKinds => {
                    if let Some(mount) = mounts.keys().find(|mount| KINDS_SINK.ends_with(&format!(":{mount}"))) {
                        let message = format!("this names the protected kinds, not the mount `{mount}`; give the mount another name");
                        faults.add_at(sink, message);
                    }
                    FlowSink::WriteKinds
                }
                SinkWord::Write(name) => {
                    FlowSink::Write(find_mount(mounts, &sink.with(name.clone()), faults)?)
                }
            })
        });
        entry.place.with(FlowRule { after, then: then.collect(), approval: entry.approval })
    });
    rules.collect()
}

fn find_secret(
    secrets: &BTreeMap<SecretName, SecretRule>,
    name: &PlacedValue<String>,
    faults: &mut Faults<'_>,
) -> Option<FlowLabel> {
    let found = secrets.get_key_value(name.value.as_str()).map(|(name, _)| FlowLabel::Secret(name.clone()));
    if found.is_none() && !faults.is_excused(&name.value) {
        let right = did_you_mean(&name.value, secrets.keys().map(SecretName::as_str));
        faults.add_at(name, format!("unknown secret; {right}"));
    }
    found
}

/// Writes the rules as a policy file has them.
pub(crate) fn write_flow(out: &mut String, rules: &BTreeSet<FlowRule>) -> fmt::Result {
    for FlowRule { after, then, approval } in rules {
        let (after, then) = (texts(after), texts(then));
        writeln!(out, "\n[[flow]]")?;
        writeln!(out, "after = [{}]\nthen = [{}]", quoted_texts(&after), quoted_texts(&then))?;
        writeln!(out, "approval = \"{approval}\"")?;
    }
    Ok(())
}

/// One line a rule, for people.
pub(crate) fn write_flow_summary(out: &mut String, rules: &BTreeSet<FlowRule>) -> fmt::Result {
    if !rules.is_empty() {
        writeln!(out, "\nflow: what a run has read, and what its later calls meet")?;
    }
    for FlowRule { after, then, approval } in rules {
        writeln!(out, "  {:<24} {approval} {}", texts(after).join(", "), texts(then).join(", "))?;
    }
    Ok(())
}

fn texts<T: fmt::Display>(words: &BTreeSet<T>) -> Vec<String> {
    words.iter().map(T::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_is_written() {
        for text in ["vault", "web", "secret:api", "mount:tmp"] {
            assert_eq!(text.parse::<FlowLabel>().map(|label| label.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("mount:vault".parse(), Ok(FlowLabel::Vault));
        for text in ["", "Vault", "vault:x", "secret", "secret:", "mount:a b", "other:a"] {
            assert_eq!(text.parse::<FlowLabel>(), Err(InvalidFlowLabel(text.to_owned())));
        }
    }
}
