//! The classes of a single name: which of the policy's patterns it matches.
//!
//! All patterns are followed together, character by character, as one automaton. Its states are explored from
//! the empty name on, so every reachable combination is found, with the shortest name that reaches it.

use std::collections::{BTreeMap, HashSet, VecDeque};

use crate::{HiddenNames, WorkspaceSecurityPolicy, protect::fold};

use super::states::PathRulesOfMount;

/// The maximum number of states of the automaton. The shipped policy has some hundred.
pub(super) const MAX_NAME_STATES: usize = 20_000;

/// A character that comparisons ignore.
const INVISIBLE: char = '\u{200c}';

/// The patterns that a name matches, with the shortest name that matches exactly these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NameClass {
    pub(super) name: String,
    pub(super) is_hidden: bool,
    /// Whether the name ends like a protected kind.
    pub(super) has_kind_ending: bool,
    /// The folded name, if it is part of a protected path or kind.
    pub(super) part: Option<String>,
    /// The globs of patterns that match.
    pub(super) globs: Vec<String>,
}

/// The source of a glob, which gives a match its meaning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    Hidden,
    KindEnding,
    /// A name of a protected path or kind.
    Part,
    /// A glob of a pattern of paths.
    Glob,
    /// `.` and `..`, which name no file.
    NoName,
}

#[derive(Debug)]
struct Glob {
    text: String,
    characters: Vec<char>,
    meaning: Meaning,
    /// Whether the folded form of a name is compared.
    is_folded: bool,
}

/// The globs that names of one mount are compared with.
#[derive(Debug)]
pub(super) struct NameGlobs {
    globs: Vec<Glob>,
    /// A character that is in no glob.
    other_character: char,
}

/// The sorted positions that a name has reached in globs. A glob that can no longer match has none.
type GlobPositions = Vec<(usize, usize)>;

impl NameGlobs {
    pub(super) fn new(
        policy: &WorkspaceSecurityPolicy,
        rules: &PathRulesOfMount,
        globs_of_pattern: &[String],
    ) -> Self {
        let mut all: BTreeMap<(String, Meaning), bool> = BTreeMap::new();
        let mut add = |text: &str, meaning, is_folded| {
            all.insert((text.to_owned(), meaning), is_folded);
        };
        if HiddenNames::apply_to_mount(rules.mount()) {
            policy.hidden().patterns().for_each(|pattern| add(pattern, Meaning::Hidden, true));
        }
        rules.kind_endings().for_each(|ending| add(ending, Meaning::KindEnding, true));
        rules.protected_names().for_each(|part| add(part, Meaning::Part, true));
        let globs = rules.globs().chain(globs_of_pattern.iter().map(String::as_str));
        globs.for_each(|glob| add(glob, Meaning::Glob, false));
        [".", ".."].into_iter().for_each(|dots| add(dots, Meaning::NoName, false));
        let globs: Vec<Glob> = all
            .into_iter()
            .map(|((text, meaning), is_folded)| Glob {
                characters: text.chars().collect(),
                text,
                meaning,
                is_folded,
            })
            .collect();
        // `other_character` represents every character that is in no glob. Names with it are shown to people, so a
        // letter is preferred. Globs can use up the 26 letters, but hardly the 20,992 CJK ideographs, which
        // have no case either.
        let is_used = |other: char| globs.iter().any(|glob| glob.characters.contains(&other));
        let mut others = ('a'..='z').rev().chain('\u{4e00}'..='\u{9fff}');
        let other = others.find(|other| !is_used(*other)).unwrap_or(char::REPLACEMENT_CHARACTER);
        Self { globs, other_character: other }
    }

    /// Returns all classes of names, or `None` if there are more states than `max_states`.
    pub(super) fn classes(&self, max_states: usize) -> Option<Vec<NameClass>> {
        // The subset construction: a state is the set of positions that a name has reached in all globs. The search is
        // breadth-first, so that each class gets one of its shortest names.
        let start = self.epsilon_closure((0..self.globs.len()).map(|glob| (glob, 0)).collect());
        // No name leads back to the start, because `.` is followed only from there.
        let mut seen = HashSet::from([start.clone()]);
        // For each state, the previous state and the character between them.
        let mut predecessors: Vec<(usize, char)> = vec![(0, self.other_character)];
        let mut pending = VecDeque::from([(0, start)]);
        let mut classes: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        while let Some((index, state)) = pending.pop_front() {
            if index != 0 {
                classes.entry(self.matched(&state)).or_insert(index);
            }
            for character in self.relevant_characters(&state) {
                let next = self.step(&state, character);
                if seen.contains(&next) {
                    continue;
                }
                if predecessors.len() >= max_states {
                    return None;
                }
                let new = predecessors.len();
                predecessors.push((index, character));
                seen.insert(next.clone());
                pending.push_back((new, next));
            }
        }
        let name_of = |mut index: usize| {
            let mut characters = Vec::new();
            while index != 0 {
                let (before, character) = predecessors[index];
                characters.push(character);
                index = before;
            }
            characters.into_iter().rev().collect::<String>()
        };
        Some(
            classes.into_iter().filter_map(|(matched, index)| self.class(&matched, name_of(index))).collect(),
        )
    }

    /// Returns the class of a name that matches these globs, or `None` for `.` and `..`.
    fn class(&self, matched: &[usize], name: String) -> Option<NameClass> {
        let globs = || matched.iter().map(|glob| &self.globs[*glob]);
        let has = |meaning: Meaning| globs().any(|glob| glob.meaning == meaning);
        let texts = |meaning: Meaning| {
            globs().filter(move |glob| glob.meaning == meaning).map(|glob| glob.text.clone())
        };
        (!has(Meaning::NoName)).then(|| NameClass {
            name,
            is_hidden: has(Meaning::Hidden),
            has_kind_ending: has(Meaning::KindEnding),
            part: texts(Meaning::Part).next(),
            globs: texts(Meaning::Glob).collect(),
        })
    }

    /// Returns the globs that match a name in this state. For a hidden name, these are one hiding glob and
    /// the globs of patterns.
    fn matched(&self, state: &GlobPositions) -> Vec<usize> {
        let is_end = |(glob, position): &&(usize, usize)| self.globs[*glob].characters.len() == *position;
        let matched: Vec<usize> = state.iter().filter(is_end).map(|(glob, _)| *glob).collect();
        let is_hiding = |glob: &usize| self.globs[*glob].meaning == Meaning::Hidden;
        let Some(hiding) = matched.iter().copied().find(is_hiding) else { return matched };
        let is_kept = |glob: &usize| {
            *glob == hiding || matches!(self.globs[*glob].meaning, Meaning::Glob | Meaning::NoName)
        };
        let mut kept: Vec<usize> = matched.into_iter().filter(is_kept).collect();
        // One glob represents all that hide the name.
        kept.iter_mut().filter(|glob| is_hiding(glob)).for_each(|glob| *glob = self.first_hiding());
        kept.sort_unstable();
        kept
    }

    fn first_hiding(&self) -> usize {
        self.globs.iter().position(|glob| glob.meaning == Meaning::Hidden).unwrap_or_default()
    }

    /// Returns whether every name that starts with this state's name is hidden.
    fn is_hidden_for_good(&self, (glob, position): (usize, usize)) -> bool {
        let Glob { characters, meaning, .. } = &self.globs[glob];
        *meaning == Meaning::Hidden && position + 1 == characters.len() && characters[position] == '*'
    }

    /// Returns one character for each distinct step from this state: the next characters of each glob in each
    /// form that a comparison distinguishes, an ignored character, and one that represents all others. A
    /// character whose folded form has several characters steps like these characters in turn.
    fn relevant_characters(&self, state: &GlobPositions) -> Vec<char> {
        let (mut as_written, mut variants) = (Vec::new(), Vec::new());
        for (glob, position) in state {
            let glob = &self.globs[*glob];
            let Some(next) = glob.characters.get(*position).copied().filter(|next| *next != '*') else {
                continue;
            };
            as_written.push(next);
            if glob.is_folded {
                let mut upper = next.to_uppercase();
                if let (Some(variant), None) = (upper.next(), upper.next())
                    && fold_of(variant).eq([next])
                {
                    variants.push(variant);
                }
            }
        }
        // The first name of a class is shown to people, so plain characters come first.
        let all = as_written.into_iter().chain([self.other_character]).chain(variants).chain([INVISIBLE]);
        let mut characters = Vec::new();
        for character in all {
            if !characters.contains(&character) {
                characters.push(character);
            }
        }
        characters
    }

    fn step(&self, state: &GlobPositions, character: char) -> GlobPositions {
        let folded: Vec<char> = fold_of(character).collect();
        let mut next = GlobPositions::new();
        for at in state {
            match (self.globs[at.0].is_folded, folded.as_slice()) {
                (false, _) => self.advance(*at, character, &mut next),
                (true, [one]) => self.advance(*at, *one, &mut next),
                // Comparisons ignore an invisible character, and a few characters compare as several.
                (true, characters) => {
                    let mut positions = vec![*at];
                    for character in characters {
                        let mut advanced = GlobPositions::new();
                        positions.iter().for_each(|at| self.advance(*at, *character, &mut advanced));
                        positions = self.epsilon_closure(advanced);
                    }
                    next.append(&mut positions);
                }
            }
        }
        self.epsilon_closure(next)
    }

    /// Adds the positions after one more character.
    fn advance(&self, (glob, position): (usize, usize), character: char, next: &mut GlobPositions) {
        match self.globs[glob].characters.get(position) {
            // A wildcard matches the character, and may continue or end with it.
            Some('*') => next.extend([(glob, position), (glob, position + 1)]),
            Some(expected) if *expected == character => next.push((glob, position + 1)),
            Some(_) | None => {}
        }
    }

    /// Adds the positions after wildcards, which may match nothing.
    fn epsilon_closure(&self, mut state: GlobPositions) -> GlobPositions {
        let mut index = 0;
        while let Some((glob, position)) = state.get(index).copied() {
            if self.globs[glob].characters.get(position) == Some(&'*') {
                state.push((glob, position + 1));
            }
            index += 1;
        }
        // A name that is already hidden for good needs no further protection states. Otherwise each set of
        // such globs would be a state.
        if let Some(hidden) = state.iter().copied().filter(|at| self.is_hidden_for_good(*at)).min() {
            state.retain(|at| {
                matches!(self.globs[at.0].meaning, Meaning::Glob | Meaning::NoName)
                    || *at == hidden
                    || *at == (hidden.0, hidden.1 + 1)
            });
        }
        state.sort_unstable();
        state.dedup();
        state
    }
}

fn fold_of(character: char) -> impl Iterator<Item = char> {
    let mut buffer = [0; 4];
    fold(character.encode_utf8(&mut buffer)).collect::<Vec<_>>().into_iter()
}
