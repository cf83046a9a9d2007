//! Decides `[[never]]`: looks for a chain of calls that leads data where it must not go.

use std::collections::{BTreeMap, VecDeque};

use portcullis_policy::{ExpectedSource, ForbiddenWay, HostRule, TunnelRule};

use super::{
    super::{
        ExplainedTool, Explainer, ReachSource, ReachStep, Verdict,
        reach::{MODEL, model_after},
    },
    coverage::Mentions,
    report::{Counterexample, ExpectationKind, ExpectationResult},
};

/// The place of data that a model makes up.
const NO_SOURCE: &str = "anything";

impl Explainer {
    pub(super) fn decide_way(
        &self,
        way: &ForbiddenWay,
        tools: &[ExplainedTool],
        mentions: &mut Mentions,
    ) -> ExpectationResult {
        mentions.way(way);
        let (start, steps) = match &way.reads {
            Some(source) => {
                let source = reach_source(source);
                (source.to_string(), self.reach(&source, tools))
            }
            None => {
                let mut steps = Vec::new();
                self.ways_from_model(NO_SOURCE, &[], tools, &mut steps);
                (format!("{MODEL}, after {NO_SOURCE}"), steps)
            }
        };
        let steps: Vec<ReachStep> =
            steps.into_iter().filter(|step| is_open(step, way.only_unasked)).collect();
        let chain = if way.writes.is_none() && way.reaches.is_none() {
            // Without an end, reading alone is forbidden.
            steps.iter().find(|step| step.from == start).map(|step| vec![step.clone()])
        } else {
            chain_to(&start, &steps, |place| is_end(way, place))
        };
        ExpectationResult {
            kind: ExpectationKind::Never,
            name: way.name.clone().unwrap_or_else(|| summary(way)),
            place: way.place.clone(),
            holds: chain.is_none(),
            cases: u64::try_from(steps.len()).unwrap_or(u64::MAX),
            counterexample: chain.map(|steps| Counterexample::Way { steps }),
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

/// Whether data can take a step.
fn is_open(step: &ReachStep, only_unasked: bool) -> bool {
    match step.verdict {
        Verdict::Allow => true,
        Verdict::Ask => !only_unasked || step.unasked.is_some(),
        Verdict::Deny => false,
    }
}

fn is_end(way: &ForbiddenWay, place: &str) -> bool {
    match place.strip_prefix('/') {
        Some(mount) => way.writes.as_ref().is_some_and(|forbidden| forbidden.as_str() == mount),
        None if place == MODEL => false,
        // A host that cannot be read is any host.
        None => way.reaches.as_ref().is_some_and(|hosts| {
            let rule = place.parse::<HostRule>().ok();
            let rule = rule.or_else(|| place.parse::<TunnelRule>().ok().map(|rule| rule.rule().clone()));
            rule.is_none_or(|rule| hosts.meets(&rule))
        }),
    }
}

/// The shortest chain of steps from a place to an end.
fn chain_to(start: &str, steps: &[ReachStep], is_end: impl Fn(&str) -> bool) -> Option<Vec<ReachStep>> {
    let mut by_place: BTreeMap<&str, Vec<&ReachStep>> = BTreeMap::new();
    for step in steps {
        by_place.entry(&step.from).or_default().push(step);
    }
    // For each place the step that leads to it, which names the place before.
    let mut ways: BTreeMap<String, Option<ReachStep>> = BTreeMap::from([(start.to_owned(), None)]);
    let mut pending = VecDeque::from([start.to_owned()]);
    while let Some(place) = pending.pop_front() {
        for step in by_place.get(place.as_str()).into_iter().flatten() {
            // The response to a secret goes to the model too.
            let responded = place.starts_with("secret ").then(|| MODEL.to_owned());
            for to in step.to.iter().cloned().chain(responded) {
                let one = ReachStep { to: vec![to.clone()], ..(*step).clone() };
                if is_end(&to) {
                    return Some(chain_of(one, &ways));
                }
                let next = if to == MODEL { model_after(&place) } else { to };
                if !ways.contains_key(&next) {
                    ways.insert(next.clone(), Some(one));
                    pending.push_back(next);
                }
            }
        }
    }
    None
}

/// The steps that lead to the last one, and the last one.
fn chain_of(last: ReachStep, ways: &BTreeMap<String, Option<ReachStep>>) -> Vec<ReachStep> {
    let mut chain = vec![last];
    while let Some(Some(before)) = chain.last().and_then(|step| ways.get(&step.from)) {
        chain.push(before.clone());
    }
    chain.reverse();
    chain
}

fn summary(way: &ForbiddenWay) -> String {
    let mut text = String::from("never");
    if way.only_unasked {
        text.push_str(" unasked");
    }
    if let Some(source) = &way.reads {
        text.push_str(&format!(" from {}", reach_source(source)));
    }
    if let Some(mount) = &way.writes {
        text.push_str(&format!(" to /{mount}"));
    }
    match &way.reaches {
        Some(portcullis_policy::ExpectedHosts::Any) => text.push_str(" to the web"),
        Some(portcullis_policy::ExpectedHosts::Rule(rule) | portcullis_policy::ExpectedHosts::Host(rule)) => {
            text.push_str(&format!(" to {rule}"));
        }
        None => {}
    }
    text
}
