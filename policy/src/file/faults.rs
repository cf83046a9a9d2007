//! Collects the faults of one text and turns byte offsets into lines and columns.

use std::collections::BTreeSet;

use crate::{PolicyFault, PolicySource, shown::Shown};

use super::Placed;

/// How many faults are kept; the rest is counted. An overlay written by an agent could hold thousands.
const MAX_FAULTS: usize = 50;

/// The faults found in one text so far.
#[derive(Debug)]
pub(crate) struct Faults<'s> {
    source: PolicySource<'s>,
    found: Vec<(usize, PolicyFault)>,
    left_out: usize,
    warned: Vec<(usize, PolicyFault)>,
    /// Names of mounts and profiles that are there with a fault of their own: what refers to them has none.
    excused: BTreeSet<String>,
}

impl<'s> Faults<'s> {
    pub(crate) fn new(source: PolicySource<'s>) -> Self {
        Self { source, found: Vec::new(), left_out: 0, warned: Vec::new(), excused: BTreeSet::new() }
    }

    /// The text that faults are collected for.
    pub(crate) fn source(&self) -> PolicySource<'s> {
        self.source
    }

    /// Adds a fault at a byte offset of the text.
    pub(crate) fn add(&mut self, at: usize, key: &str, message: impl AsRef<str>) {
        if self.found.len() == MAX_FAULTS {
            self.left_out += 1;
            return;
        }
        let fault = self.told(at, key, message.as_ref());
        self.found.push((at, fault));
    }

    /// Adds something that holds as it is written, and hardly is what its author means.
    pub(crate) fn warn_at<T>(&mut self, placed: &Placed<T>, message: impl AsRef<str>) {
        if self.warned.len() < MAX_FAULTS {
            let warning = self.told(placed.at, &placed.key, message.as_ref());
            self.warned.push((placed.at, warning));
        }
    }

    /// What is said of a place of the text.
    pub(crate) fn told(&self, at: usize, key: &str, message: &str) -> PolicyFault {
        let (line, column) = place(self.source.text, at);
        PolicyFault {
            file: self.source.name.to_owned(),
            line,
            column,
            key: Shown(key).to_string(),
            message: message.to_owned(),
        }
    }

    /// Remembers that something of this name is there, though with a fault.
    pub(crate) fn excuse(&mut self, name: &str) {
        self.excused.insert(name.to_owned());
    }

    /// Whether something of this name has a fault of its own, so that its absence is none.
    pub(crate) fn is_excused(&self, name: &str) -> bool {
        self.excused.contains(name)
    }

    /// Adds a fault where a value stands.
    pub(crate) fn add_at<T>(&mut self, placed: &Placed<T>, message: impl AsRef<str>) {
        self.add(placed.at, &placed.key, message);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The faults in the order of the text, and how many more there were.
    pub(crate) fn into_parts(mut self) -> (Vec<PolicyFault>, usize) {
        self.found.sort_by_key(|(at, _)| *at);
        (self.found.into_iter().map(|(_, fault)| fault).collect(), self.left_out)
    }

    /// Takes the warnings, in the order of the text.
    pub(crate) fn take_warnings(&mut self) -> Vec<PolicyFault> {
        self.warned.sort_by_key(|(at, _)| *at);
        self.warned.drain(..).map(|(_, warning)| warning).collect()
    }
}

/// Line and column of a byte offset, both from 1, the column in characters.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a\nüb\n";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 2), (2, 1));
        assert_eq!(place(text, 4), (2, 2));
        assert_eq!(place(text, 99), (3, 1));
    }

    #[test]
    fn faults_are_bounded_and_in_the_order_of_the_text() {
        let text = " ".repeat(100);
        let mut faults = Faults::new(PolicySource { name: "p", text: &text });
        for at in (0..60).rev() {
            faults.add(at, "k", "m");
        }
        let (found, left_out) = faults.into_parts();
        assert_eq!((found.len(), left_out), (50, 10));
        assert!(found.is_sorted_by_key(|fault| fault.column));
    }
}
