//! Flow rules ask about or deny calls of a run after earlier calls of the run have read certain data.
//!
//! Each call gives its run labels for what it reads. A rule names labels and sinks. Once the run has one of
//! the labels, the rule applies to every call whose grant has one of the sinks, because the data that the run
//! has read could leave through the sink.

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
    Approval, Grant, MountName, ProtectedKinds, SecretName, SecretRule, TraceSink, TracedRule,
    effective::find_mount,
    file::{Faults, FlowEntry, LabelWord, Located, SinkWord, did_you_mean},
    protected_kinds,
    render::quoted_texts,
};

/// A label of a run: a source that the run's calls have read.
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
    /// Returns the label of a call that has read a mount.
    #[must_use]
    pub fn of_mount(name: &MountName) -> Self {
        if name.is_vault() { Self::Vault } else { Self::Mount(name.clone()) }
    }
}

/// A text that is not a label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a label of a run", .0.escape_default())]
pub struct InvalidFlowLabel(pub String);

impl FromStr for FlowLabel {
    type Err = InvalidFlowLabel;

    /// Reads the text that [`Display`](fmt::Display) writes.
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

/// A way in which a call could pass on the data that its run has read.
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

/// The sink of protected kinds. A policy with a rule about this sink must not have a mount called
/// `protected`.
const KINDS_SINK: &str = "write:protected";

impl FlowSink {
    /// Returns whether a call with this grant has the sink.
    fn applies_to(&self, grant: &Grant, kinds: &ProtectedKinds) -> bool {
        match self {
            Self::WriteKinds => protected_kinds::may_write(grant, kinds),
            Self::Network => grant.reaches_network(),
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

/// A `[[flow]]` section. It applies to calls with one of the sinks in runs with one of the labels.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct FlowRule {
    pub(crate) after: BTreeSet<FlowLabel>,
    pub(crate) then: BTreeSet<FlowSink>,
    /// `ask` or `deny`.
    pub(crate) approval: Approval,
}

/// The run of a call, with the data sources that its calls have read so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunContext<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The run's id.
    pub run: &'a str,
    /// The run's labels, each with the id of the call that added it. Shared, because every call of the run is
    /// judged by them.
    pub labels: Arc<BTreeMap<FlowLabel, String>>,
}

/// The flow rule that governs a call. A rule that denies takes precedence over a rule that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MatchedFlowRule {
    /// The rule, as `flow[vault -> shell]`: the label that the run has, and the sink that the call has.
    pub rule: String,
    /// The label of the run that the rule names.
    pub label: FlowLabel,
    /// The sink, as the policy writes it.
    #[serde(skip)]
    pub sink: String,
    /// The id of the call that added the label.
    pub call_id: String,
    /// `ask` or `deny`.
    pub approval: Approval,
}

impl FlowRule {
    /// Returns the label of the run that makes the rule apply, or `None` if the rule does not apply to the
    /// run.
    fn label_in(&self, run: &RunContext<'_>) -> Option<&FlowLabel> {
        self.after.iter().find(|label| run.labels.contains_key(*label))
    }

    /// Returns the whole rule, for a trace.
    fn traced(&self, finding: &str) -> TracedRule {
        let after: Vec<String> = self.after.iter().map(ToString::to_string).collect();
        let then: Vec<String> = self.then.iter().map(ToString::to_string).collect();
        TracedRule::new(rule_name(&after.join(", "), &then.join(", ")), finding)
    }
}

impl MatchedFlowRule {
    /// Returns the location of the rule in the policy, for hints.
    #[must_use]
    pub fn describe_for_hint(&self) -> String {
        let Self { label, sink, approval, .. } = self;
        format!(
            "The rule is the `[[flow]]` of the policy with `{label}` in `after`, `{sink}` in `then` and `approval = \"{approval}\"`"
        )
    }
}

/// Returns the strictest rule that applies to a call with this grant in this run.
pub(crate) fn strictest_match<T: TraceSink>(
    rules: &BTreeSet<FlowRule>,
    kinds: &ProtectedKinds,
    grant: &Grant,
    run: &RunContext<'_>,
    trace: &mut T,
) -> Option<MatchedFlowRule> {
    let matches = rules.iter().filter_map(|rule| {
        let Some(label) = rule.label_in(run) else {
            trace.record(|| rule.traced("is not met: the run has none of these labels"));
            return None;
        };
        let Some(sink) = rule.then.iter().find(|sink| sink.applies_to(grant, kinds)) else {
            trace.record(|| rule.traced("is not met: the call has none of these sinks"));
            return None;
        };
        trace.record(|| {
            let verb =
                if rule.approval == Approval::Deny { "denies the call" } else { "asks about the call" };
            TracedRule::new(rule_of(label, sink), verb)
        });
        Some(MatchedFlowRule {
            rule: rule_of(label, sink),
            label: label.clone(),
            sink: sink.to_string(),
            call_id: run.labels.get(label)?.clone(),
            approval: rule.approval,
        })
    });
    // `reduce` instead of `max_by_key`, because the first of equally strict rules is named.
    matches.reduce(|strictest, next| if next.approval > strictest.approval { next } else { strictest })
}

/// Returns the rule that denies, or asks about, the network for a run with this label.
pub(crate) fn network_rule(rules: &BTreeSet<FlowRule>, label: &FlowLabel) -> Option<String> {
    restricts_network(rules, label).then(|| rule_of(label, &FlowSink::Network))
}

/// Returns whether a rule denies, or asks about, the network for a run with this label.
pub(crate) fn restricts_network(rules: &BTreeSet<FlowRule>, label: &FlowLabel) -> bool {
    rules.iter().any(|rule| rule.after.contains(label) && rule.then.contains(&FlowSink::Network))
}

/// Returns the name of a rule for a call with this sink, in a run with this label.
fn rule_of(label: &FlowLabel, sink: &FlowSink) -> String {
    rule_name(&label.to_string(), &sink.to_string())
}

fn rule_name(labels: &str, sinks: &str) -> String {
    format!("{RULE_START}{labels}{RULE_ARROW}{sinks}{RULE_END}")
}

/// Returns the labels and the sinks in the name of a rule. `None` for the name of any other rule. For
/// [`WITHHELD_KIND_RULE`] there are no labels.
pub(crate) fn parse_rule_name(rule: &str) -> Option<(Option<&str>, &str)> {
    let inner = rule.strip_prefix(RULE_START)?.strip_suffix(RULE_END)?;
    Some(match inner.split_once(RULE_ARROW) {
        Some((labels, sinks)) => (Some(labels), sinks),
        None => (None, inner),
    })
}

/// Returns whether a decision names a flow rule.
#[must_use]
pub fn is_flow_rule(rule: &str) -> bool {
    parse_rule_name(rule).is_some()
}

/// The rule of a guest that must not write a file of a protected kind, which no argument of its call names.
/// Any label of the run can be the reason.
pub const WITHHELD_KIND_RULE: &str = "flow[write:protected]";

/// The parts of a rule's name, such as `flow[vault -> shell]`.
const RULE_START: &str = "flow[";
const RULE_ARROW: &str = " -> ";
const RULE_END: &str = "]";

/// Returns whether a call of this run must not write files of a protected kind. It must not if a rule about
/// these files applies to the run and the call does not have the rule's sink, because its arguments name
/// other files.
pub(crate) fn withholds_kinds(
    rules: &BTreeSet<FlowRule>,
    kinds: &ProtectedKinds,
    grant: &Grant,
    run: &RunContext<'_>,
) -> bool {
    let withholds =
        |rule: &FlowRule| rule.then.contains(&FlowSink::WriteKinds) && rule.label_in(run).is_some();
    rules.iter().any(withholds) && !protected_kinds::may_write(grant, kinds)
}

/// Resolves the mounts and secrets that rules name. An unknown name is a fault, because a rule about it would
/// have no effect.
pub(crate) fn resolve_flow(
    entries: &[FlowEntry],
    mounts: &BTreeMap<MountName, String>,
    secrets: &BTreeMap<SecretName, SecretRule>,
    faults: &mut Faults<'_>,
) -> Vec<Located<FlowRule>> {
    let rules = entries.iter().map(|entry| {
        let after = entry.after.iter().filter_map(|label| {
            let name = match &label.value {
                LabelWord::Web => return Some(FlowLabel::Web),
                LabelWord::Secret(name) => return find_secret(secrets, &label.with_value(name.clone()), faults),
                LabelWord::Vault => MountName::VAULT,
                LabelWord::Mount(name) => name,
            };
            Some(FlowLabel::of_mount(&find_mount(mounts, &label.with_value(name.to_owned()), faults)?))
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
                    FlowSink::Write(find_mount(mounts, &sink.with_value(name.clone()), faults)?)
                }
            })
        });
        entry.location.with_value(FlowRule { after, then: then.collect(), approval: entry.approval })
    });
    rules.collect()
}

fn find_secret(
    secrets: &BTreeMap<SecretName, SecretRule>,
    name: &Located<String>,
    faults: &mut Faults<'_>,
) -> Option<FlowLabel> {
    let label = secrets.get_key_value(name.value.as_str()).map(|(name, _)| FlowLabel::Secret(name.clone()));
    if label.is_none() && !faults.is_excused(&name.value) {
        let suggestion = did_you_mean(&name.value, secrets.keys().map(SecretName::as_str));
        faults.add_at(name, format!("unknown secret; {suggestion}"));
    }
    label
}

/// Writes the rules in the syntax of a policy file.
pub(crate) fn write_flow(out: &mut String, rules: &BTreeSet<FlowRule>) -> fmt::Result {
    for FlowRule { after, then, approval } in rules {
        let (after, then) = (texts(after), texts(then));
        writeln!(out, "\n[[flow]]")?;
        writeln!(out, "after = [{}]\nthen = [{}]", quoted_texts(&after), quoted_texts(&then))?;
        writeln!(out, "approval = \"{approval}\"")?;
    }
    Ok(())
}

/// Writes one line for each rule, for people.
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
    fn the_name_of_a_rule_round_trips_through_its_parts() {
        let name = rule_of(&FlowLabel::Web, &FlowSink::WriteKinds);
        assert_eq!(parse_rule_name(&name), Some((Some("web"), KINDS_SINK)));
        assert_eq!(parse_rule_name(WITHHELD_KIND_RULE), Some((None, KINDS_SINK)));
        for other in ["flow", "flow[web", "profiles.R", "hide.paths[\"*\"]"] {
            assert!(!is_flow_rule(other), "{other}");
        }
    }

    #[test]
    fn a_label_round_trips_through_its_text() {
        for text in ["vault", "web", "secret:api", "mount:tmp"] {
            assert_eq!(text.parse::<FlowLabel>().map(|label| label.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("mount:vault".parse(), Ok(FlowLabel::Vault));
        for text in ["", "Vault", "vault:x", "secret", "secret:", "mount:a b", "other:a"] {
            assert_eq!(text.parse::<FlowLabel>(), Err(InvalidFlowLabel(text.to_owned())));
        }
    }
}
