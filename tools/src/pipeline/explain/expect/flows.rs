//! Evaluates `[[never]]`: searches for a chain of calls that carries data to a forbidden place.

use std::collections::{BTreeMap, VecDeque};

use portcullis_policy::{Approval, ExpectedSource, ForbiddenFlow, HostRule, TunnelRule};

use super::{
    super::{
        ExplainedTool, Explainer, FlowStep, ReachSource,
        reach::{MODEL, is_secret, model_after},
    },
    coverage::Mentions,
    report::{Counterexample, ExpectationKind, ExpectationResult},
};

/// The source of data that a model makes up.
const NO_SOURCE: &str = "anything";

impl Explainer {
    pub(super) fn decide_flow(
        &self,
        flow: &ForbiddenFlow,
        tools: &[ExplainedTool],
        mentions: &mut Mentions,
    ) -> ExpectationResult {
        mentions.flow(flow);
        let (start, steps) = match &flow.reads {
            Some(source) => {
                let source = reach_source(source);
                (source.to_string(), self.reach(&source, tools))
            }
            None => {
                let mut steps = Vec::new();
                self.flows_from_model(NO_SOURCE, &[], tools, &mut steps);
                (model_after(NO_SOURCE), steps)
            }
        };
        let steps: Vec<FlowStep> =
            steps.into_iter().filter(|step| is_open(step, flow.only_unasked)).collect();
        let chain = if flow.writes.is_none() && flow.reaches.is_none() {
            // Without a destination, the read itself is forbidden.
            steps.iter().find(|step| step.from == start).map(|step| vec![step.clone()])
        } else {
            chain_to(&start, &steps, |location| is_end(flow, location))
        };
        ExpectationResult {
            kind: ExpectationKind::Never,
            name: flow.name.clone().unwrap_or_else(|| summary(flow)),
            location: flow.location.clone(),
            holds: chain.is_none(),
            cases: u64::try_from(steps.len()).unwrap_or(u64::MAX),
            counterexample: chain.map(|steps| Counterexample::Flow { steps }),
        }
    }
}

fn reach_source(source: &ExpectedSource) -> ReachSource {
    match source {
        ExpectedSource::Mount(mount) => ReachSource::Mount(mount.clone()),
        ExpectedSource::Web => ReachSource::Web,
        ExpectedSource::Secret(secret) => ReachSource::Secret(secret.clone()),
        ExpectedSource::Variable(name) => ReachSource::Variable(name.clone()),
    }
}

/// Whether data can flow through a step.
fn is_open(step: &FlowStep, only_unasked: bool) -> bool {
    match step.verdict {
        Approval::Allow => true,
        Approval::Ask => !only_unasked || step.unasked.is_some(),
        Approval::Deny => false,
    }
}

fn is_end(flow: &ForbiddenFlow, location: &str) -> bool {
    match location.strip_prefix('/') {
        Some(mount) => flow.writes.as_ref().is_some_and(|forbidden| forbidden.as_str() == mount),
        None if location == MODEL => false,
        // A host that cannot be parsed may be any host.
        None => flow.reaches.as_ref().is_some_and(|hosts| {
            let rule = location.parse::<HostRule>().ok();
            let rule = rule.or_else(|| location.parse::<TunnelRule>().ok().map(|rule| rule.rule().clone()));
            rule.is_none_or(|rule| hosts.meets(&rule))
        }),
    }
}

/// Finds the shortest chain of steps from a place to a destination, by a breadth-first search.
fn chain_to(start: &str, steps: &[FlowStep], is_end: impl Fn(&str) -> bool) -> Option<Vec<FlowStep>> {
    let mut by_location: BTreeMap<&str, Vec<&FlowStep>> = BTreeMap::new();
    for step in steps {
        by_location.entry(&step.from).or_default().push(step);
    }
    // For each place, the step that leads to it. That step names the previous place.
    let mut predecessors: BTreeMap<String, Option<FlowStep>> = BTreeMap::from([(start.to_owned(), None)]);
    let mut pending = VecDeque::from([start.to_owned()]);
    while let Some(location) = pending.pop_front() {
        for step in by_location.get(location.as_str()).into_iter().flatten() {
            // The model also sees the response to a request that carries a secret.
            let responded = is_secret(&location).then(|| MODEL.to_owned());
            for to in step.to.iter().cloned().chain(responded) {
                let one = FlowStep { to: vec![to.clone()], ..(*step).clone() };
                if is_end(&to) {
                    return Some(chain_of(one, &predecessors));
                }
                let next = if to == MODEL { model_after(&location) } else { to };
                if !predecessors.contains_key(&next) {
                    predecessors.insert(next.clone(), Some(one));
                    pending.push_back(next);
                }
            }
        }
    }
    None
}

/// Collects the steps that lead to the last one, and the last one.
fn chain_of(last: FlowStep, predecessors: &BTreeMap<String, Option<FlowStep>>) -> Vec<FlowStep> {
    let mut chain = vec![last];
    while let Some(Some(before)) = chain.last().and_then(|step| predecessors.get(&step.from)) {
        chain.push(before.clone());
    }
    chain.reverse();
    chain
}

fn summary(flow: &ForbiddenFlow) -> String {
    let mut text = String::from("never");
    if flow.only_unasked {
        text.push_str(" unasked");
    }
    if let Some(source) = &flow.reads {
        text.push_str(&format!(" from {}", reach_source(source)));
    }
    if let Some(mount) = &flow.writes {
        text.push_str(&format!(" to /{mount}"));
    }
    match &flow.reaches {
        Some(portcullis_policy::ExpectedHosts::Any) => text.push_str(" to the web"),
        Some(portcullis_policy::ExpectedHosts::Rule(rule) | portcullis_policy::ExpectedHosts::Host(rule)) => {
            text.push_str(&format!(" to {rule}"));
        }
        None => {}
    }
    text
}
