//! The labels of runs: what the calls of each run have read so far.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use portcullis_policy::{FlowLabel, RunFacts};

use crate::call::{Caller, Owner};

/// The most runs that are remembered one by one. A caller could make up a run for every call; each costs some hundred
/// bytes.
const MAX_REMEMBERED_RUNS: usize = 16_384;

/// Collects labels per run.
#[derive(Debug, Default)]
pub(crate) struct RunLabels {
    remembered: Mutex<RememberedRuns>,
}

#[derive(Debug, Default)]
struct RememberedRuns {
    runs: HashMap<Owner, Arc<BTreeMap<FlowLabel, String>>>,
    /// The same runs, the oldest first.
    order: VecDeque<Owner>,
    /// The labels of runs that are no longer remembered. They hold for every run: one of them could be such a run, and
    /// a rule must not end because many runs were begun.
    forgotten: BTreeMap<FlowLabel, String>,
}

impl RunLabels {
    /// The caller's run, with its labels.
    pub(crate) fn facts<'a>(&self, caller: &'a Caller) -> RunFacts<'a> {
        let owner = caller.owner();
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut labels = remembered.runs.get(&owner).cloned().unwrap_or_default();
        if !remembered.forgotten.is_empty() {
            let mut all = remembered.forgotten.clone();
            all.extend(labels.iter().map(|(label, call_id)| (label.clone(), call_id.clone())));
            labels = Arc::new(all);
        }
        RunFacts { agent: &caller.agent_id, run: &caller.run_id, labels }
    }

    /// Adds the labels that a call has brought. The first call that brought a label stays the one that is named.
    pub(crate) fn add(&self, caller: &Caller, call_id: &str, labels: Vec<FlowLabel>) {
        if labels.is_empty() {
            return;
        }
        let owner = caller.owner();
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let RememberedRuns { runs, order, forgotten } = &mut *remembered;
        // The usual case: most calls of a run read where an earlier one has read.
        if runs.get(&owner).is_some_and(|own| labels.iter().all(|label| own.contains_key(label))) {
            return;
        }
        let own = runs.entry(owner.clone()).or_insert_with(|| {
            order.push_back(owner);
            Arc::default()
        });
        let own = Arc::make_mut(own);
        for label in labels {
            own.entry(label).or_insert_with(|| call_id.to_owned());
        }
        if order.len() > MAX_REMEMBERED_RUNS
            && let Some(oldest) = order.pop_front()
        {
            forgotten.extend(runs.remove(&oldest).map(Arc::unwrap_or_clone).unwrap_or_default());
        }
    }

    /// Forgets a run that is over, and nothing else.
    pub(crate) fn end_run(&self, owner: &Owner) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.runs.remove(owner).is_some() {
            remembered.order.retain(|other| other != owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels_of(labels: &RunLabels, run: &str) -> Vec<(String, String)> {
        let caller = Caller::new("a", run);
        let facts = labels.facts(&caller);
        facts.labels.iter().map(|(label, call_id)| (label.to_string(), call_id.clone())).collect()
    }

    #[test]
    fn each_run_has_its_own_labels_until_it_ends() {
        let labels = RunLabels::default();
        let run = Caller::new("a", "1");
        labels.add(&run, "c1", vec![FlowLabel::Vault]);
        labels.add(&run, "c2", vec![FlowLabel::Vault]);
        assert_eq!(labels_of(&labels, "1"), [("vault".to_owned(), "c1".to_owned())]);
        assert_eq!(labels_of(&labels, "2"), []);
        labels.end_run(&run.owner());
        assert_eq!(labels_of(&labels, "1"), []);
    }

    #[test]
    fn labels_of_a_forgotten_run_hold_for_all_runs() {
        let labels = RunLabels::default();
        labels.add(&Caller::new("a", "first"), "c1", vec![FlowLabel::Vault]);
        let other = FlowLabel::Mount(portcullis_policy::MountName::parse("tmp").expect("a name"));
        for number in 0..MAX_REMEMBERED_RUNS {
            labels.add(&Caller::new("a", number.to_string()), "c2", vec![other.clone()]);
        }
        assert!(labels_of(&labels, "first").contains(&("vault".to_owned(), "c1".to_owned())));
        assert!(labels_of(&labels, "another").contains(&("vault".to_owned(), "c1".to_owned())));
        let remembered = labels.remembered.lock().expect("not poisoned");
        assert_eq!(
            (remembered.runs.len(), remembered.order.len()),
            (MAX_REMEMBERED_RUNS, MAX_REMEMBERED_RUNS)
        );
    }
}
