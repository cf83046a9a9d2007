//! The classes of a path: its names in sequence, in each combination that a decision can distinguish.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::{PathPattern, WorkspaceSecurityPolicy};

use super::names::NameClass;

/// The maximum number of states of one pattern.
const MAX_PATH_STATES: usize = 50_000;

/// The policy's path patterns that apply to one mount.
#[derive(Debug)]
pub(super) struct PathRulesOfMount {
    mount: String,
    /// The names of each protected path, folded.
    protected: Vec<Vec<String>>,
    /// The names of each protected kind, folded.
    kinds: Vec<Vec<String>>,
    /// The endings of protected kinds, as globs.
    kind_endings: Vec<String>,
    /// The patterns of `unasked` in this mount.
    unasked: Vec<Vec<String>>,
}

impl PathRulesOfMount {
    pub(super) fn new(policy: &WorkspaceSecurityPolicy, mount: &str) -> Self {
        let parts = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<String>>();
        let (kind_endings, kinds): (Vec<String>, Vec<String>) =
            policy.protected_kinds().patterns().partition(|pattern| pattern.starts_with('*'));
        let of_tools = policy.effective().tools.values().flat_map(|rule| rule.unasked.rules());
        let unasked: BTreeSet<Vec<String>> = of_tools
            .filter_map(|(_, pattern)| {
                let (own_mount, components) = PathPattern::split(pattern, policy.home());
                (own_mount == mount).then(|| components.into_iter().map(str::to_owned).collect())
            })
            .collect();
        Self {
            mount: mount.to_owned(),
            protected: policy.protected().patterns().map(parts).collect(),
            kinds: kinds.iter().map(|pattern| parts(pattern)).collect(),
            kind_endings,
            unasked: unasked.into_iter().collect(),
        }
    }

    pub(super) fn mount(&self) -> &str {
        &self.mount
    }

    pub(super) fn kind_endings(&self) -> impl Iterator<Item = &str> {
        self.kind_endings.iter().map(String::as_str)
    }

    /// Returns the individual names of protected paths and kinds.
    pub(super) fn protected_names(&self) -> impl Iterator<Item = &str> {
        self.protected.iter().chain(&self.kinds).flatten().map(String::as_str)
    }

    /// Returns the individual globs of the patterns of `unasked`.
    pub(super) fn globs(&self) -> impl Iterator<Item = &str> {
        self.unasked.iter().flatten().map(String::as_str).filter(|name| *name != "**")
    }
}

/// The patterns that the names of a path have matched so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct MatchState {
    /// The positions in the pattern.
    pattern: Vec<usize>,
    /// Whether a name is hidden. Then only `pattern` still matters.
    is_hidden: bool,
    is_protected: bool,
    is_kind: bool,
    /// The protected paths that the last names begin, each with the number of matched names.
    protected: Vec<(usize, usize)>,
    /// The protected kinds that the last names begin, in the same form.
    kinds: Vec<(usize, usize)>,
    /// The positions in each pattern of `unasked`.
    unasked: Vec<Vec<usize>>,
}

/// The part of a state that a decision depends on: whether the path is hidden, protected, of a protected
/// kind, or a prefix of one, and which patterns of `unasked` cover it.
type Signature = ([bool; 4], Vec<bool>);

/// The search for the states of one pattern.
#[derive(Debug)]
pub(super) struct PathStates<'a> {
    rules: &'a PathRulesOfMount,
    pattern: &'a [&'a str],
    names: &'a [NameClass],
}

impl<'a> PathStates<'a> {
    pub(super) fn new(rules: &'a PathRulesOfMount, pattern: &'a [&'a str], names: &'a [NameClass]) -> Self {
        Self { rules, pattern, names }
    }

    /// Returns the names of one path for each class, or `None` if there are too many states.
    pub(super) fn representatives(&self) -> Option<Vec<Vec<&'a str>>> {
        let start = MatchState {
            pattern: epsilon_closure(self.pattern, vec![0]),
            unasked: self.rules.unasked.iter().map(|pattern| epsilon_closure(pattern, vec![0])).collect(),
            ..MatchState::default()
        };
        let mut predecessors: Vec<Option<(usize, &'a str)>> = vec![None];
        let mut seen: HashMap<MatchState, usize> = HashMap::from([(start.clone(), 0)]);
        // The search is breadth-first, so the example of each class is a shortest path.
        let mut pending = VecDeque::from([(0, start)]);
        let mut found: HashMap<Signature, usize> = HashMap::new();
        let mut order = Vec::new();
        while let Some((index, state)) = pending.pop_front() {
            if state.pattern.contains(&self.pattern.len()) {
                found.entry(self.signature(&state)).or_insert_with(|| {
                    order.push(index);
                    index
                });
            }
            for class in self.names {
                let next = self.step(&state, class);
                // From an empty set of positions, no further name leads to a match.
                if next.pattern.is_empty() || seen.contains_key(&next) {
                    continue;
                }
                if predecessors.len() == MAX_PATH_STATES {
                    return None;
                }
                let new = predecessors.len();
                predecessors.push(Some((index, &class.name)));
                seen.insert(next.clone(), new);
                pending.push_back((new, next));
            }
        }
        let names_of = |mut index: usize| {
            let mut names = Vec::new();
            while let Some((before, name)) = predecessors[index] {
                names.push(name);
                index = before;
            }
            names.reverse();
            names
        };
        Some(order.into_iter().map(names_of).collect())
    }

    fn step(&self, state: &MatchState, class: &NameClass) -> MatchState {
        let pattern = advance(self.pattern, &state.pattern, &class.globs);
        if state.is_hidden || class.is_hidden {
            return MatchState { pattern, is_hidden: true, ..MatchState::default() };
        }
        let (protected, completes_protected) = follow(&self.rules.protected, &state.protected, class);
        let (kinds, completes_kind) = follow(&self.rules.kinds, &state.kinds, class);
        let unasked = self.rules.unasked.iter().zip(&state.unasked);
        let unasked = unasked.map(|(pattern, positions)| advance(pattern, positions, &class.globs)).collect();
        MatchState {
            pattern,
            is_hidden: false,
            is_protected: state.is_protected || completes_protected,
            is_kind: state.is_kind || completes_kind || class.has_kind_ending,
            protected,
            kinds,
            unasked,
        }
    }

    fn signature(&self, state: &MatchState) -> Signature {
        let is_covered =
            |(pattern, positions): (&Vec<String>, &Vec<usize>)| positions.contains(&pattern.len());
        let flags = [state.is_hidden, state.is_protected, state.is_kind, !state.kinds.is_empty()];
        (flags, self.rules.unasked.iter().zip(&state.unasked).map(is_covered).collect())
    }
}

/// Returns the patterns that the last names begin after one more name, and whether the name completes one.
fn follow(
    patterns: &[Vec<String>],
    begun: &[(usize, usize)],
    class: &NameClass,
) -> (Vec<(usize, usize)>, bool) {
    let Some(part) = &class.part else { return (Vec::new(), false) };
    let mut next = BTreeMap::new();
    let mut is_complete = false;
    let starts = (0..patterns.len()).map(|pattern| (pattern, 0));
    for (pattern, length) in begun.iter().copied().chain(starts) {
        if patterns[pattern].get(length) == Some(part) {
            if length + 1 == patterns[pattern].len() {
                is_complete = true;
            } else {
                next.insert((pattern, length + 1), ());
            }
        }
    }
    (next.into_keys().collect(), is_complete)
}

/// Returns the positions in a pattern after one more name.
fn advance(pattern: &[impl AsRef<str>], positions: &[usize], globs: &[String]) -> Vec<usize> {
    let next = positions.iter().filter_map(|position| match pattern.get(*position)?.as_ref() {
        "**" => Some(*position),
        glob => globs.iter().any(|matched| matched == glob).then_some(position + 1),
    });
    epsilon_closure(pattern, next.collect())
}

/// Adds the positions after each `**`, which may match no name.
fn epsilon_closure(pattern: &[impl AsRef<str>], mut positions: Vec<usize>) -> Vec<usize> {
    let mut index = 0;
    while let Some(position) = positions.get(index).copied() {
        if pattern.get(position).is_some_and(|name| name.as_ref() == "**") {
            positions.push(position + 1);
        }
        index += 1;
    }
    positions.sort_unstable();
    positions.dedup();
    positions
}
