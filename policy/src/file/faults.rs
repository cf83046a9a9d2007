//! Collects the faults of one text and turns byte offsets into lines and columns.

use std::collections::BTreeSet;

use portcullis_types::EscapedText;

use crate::{PolicyFault, PolicySource};

use super::PlacedValue;

/// The number of faults that are kept; the rest is counted. An overlay written by an agent could hold
/// thousands.
const MAX_FAULTS: usize = 50;

/// The faults found in one text so far.
#[derive(Debug)]
pub(crate) struct Faults<'s> {
    source: PolicySource<'s>,
    found: Vec<(usize, PolicyFault)>,
    left_out: usize,
    warned: Vec<(usize, PolicyFault)>,
    warned_out: usize,
    places: LineIndex,
    /// Names of mounts and profiles whose own entry is faulty: a reference to one of them is not a second
    /// fault.
    excused: BTreeSet<String>,
}

impl<'s> Faults<'s> {
    pub(crate) fn new(source: PolicySource<'s>) -> Self {
        Self {
            source,
            found: Vec::new(),
            left_out: 0,
            warned: Vec::new(),
            warned_out: 0,
            places: LineIndex::of(source.text),
            excused: BTreeSet::new(),
        }
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
        let fault = self.fault_at(at, key, message.as_ref());
        self.found.push((at, fault));
    }

    /// Adds a warning: the line is valid, but its author hardly means what it says.
    pub(crate) fn warn_at<T>(&mut self, placed: &PlacedValue<T>, message: impl AsRef<str>) {
        if self.warned.len() < MAX_FAULTS {
            let warning = self.fault_at(placed.at, &placed.key, message.as_ref());
            self.warned.push((placed.at, warning));
        } else {
            self.warned_out += 1;
        }
    }

    /// The fault for a place of the text.
    pub(crate) fn fault_at(&self, at: usize, key: &str, message: &str) -> PolicyFault {
        let (line, column) = self.places.of_offset(self.source.text, at);
        PolicyFault {
            file: self.source.name.to_owned(),
            line,
            column,
            key: EscapedText(key).to_string(),
            message: message.to_owned(),
        }
    }

    /// Notes that an entry of this name exists but is faulty.
    pub(crate) fn excuse(&mut self, name: &str) {
        self.excused.insert(name.to_owned());
    }

    /// Whether an entry of this name is faulty. Its absence is then not a second fault.
    pub(crate) fn is_excused(&self, name: &str) -> bool {
        self.excused.contains(name)
    }

    /// Adds a fault where a value stands.
    pub(crate) fn add_at<T>(&mut self, placed: &PlacedValue<T>, message: impl AsRef<str>) {
        self.add(placed.at, &placed.key, message);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The faults in the order of the text, and the number of those left out.
    pub(crate) fn into_parts(mut self) -> (Vec<PolicyFault>, usize) {
        self.found.sort_by_key(|(at, _)| *at);
        (self.found.into_iter().map(|(_, fault)| fault).collect(), self.left_out)
    }

    /// Takes the warnings, in the order of the text; the last one tells the number of those left out.
    pub(crate) fn take_warnings(&mut self) -> Vec<PolicyFault> {
        self.warned.sort_by_key(|(at, _)| *at);
        let mut told: Vec<PolicyFault> = self.warned.drain(..).map(|(_, warning)| warning).collect();
        told.extend(further(&told, std::mem::take(&mut self.warned_out)));
        told
    }
}

/// The warning that tells the number of those left out; none if there are none.
pub(crate) fn further(told: &[PolicyFault], left_out: usize) -> Option<PolicyFault> {
    let last = told.last().filter(|_| left_out > 0)?;
    let message = format!("and {left_out} further warnings, which are not told");
    Some(PolicyFault { key: String::new(), message, ..last.clone() })
}

/// The starts of lines and the character counts of a text, computed once: each entry for a tool needs a
/// place, and a text may have thousands of entries.
#[derive(Debug)]
struct LineIndex {
    /// The start of each line, in bytes.
    lines: Vec<usize>,
    /// The number of characters before each step of the text.
    characters: Vec<usize>,
}

impl LineIndex {
    fn of(text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        let mut before = 0;
        let steps = text.as_bytes().chunks(STEP_BYTES).map(|step| {
            let begin = before;
            before += characters(step);
            begin
        });
        let mut characters: Vec<usize> = steps.collect();
        // For the offset of the end, where no step begins if the length is a multiple of a step.
        characters.push(before);
        Self { lines, characters }
    }

    /// Line and column of a byte offset, both from 1, the column in characters.
    fn of_offset(&self, text: &str, at: usize) -> (usize, usize) {
        let at = at.min(text.len());
        let line = self.lines.partition_point(|begin| *begin <= at);
        // `line` is at least 1: the first line begins at 0.
        let begin = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        (line, self.before(text, at) - self.before(text, begin) + 1)
    }

    /// The number of characters that begin before a byte offset.
    fn before(&self, text: &str, at: usize) -> usize {
        let step = at / STEP_BYTES;
        let since = text.as_bytes().get(step * STEP_BYTES..at).unwrap_or_default();
        self.characters.get(step).copied().unwrap_or_default() + characters(since)
    }
}

/// The number of characters that begin in a part of a text.
fn characters(part: &[u8]) -> usize {
    // In UTF-8 every byte but a continuation byte (`10xxxxxx`) begins a character.
    part.iter().filter(|byte| **byte & 0b1100_0000 != 0b1000_0000).count()
}

/// The step in bytes at which character counts are stored. A line may be as long as the text, so counting
/// from its start would be too slow.
const STEP_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let place = |text: &str, at| LineIndex::of(text).of_offset(text, at);
        let text = "a\nüb\n";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 2), (2, 1));
        assert_eq!(place(text, 4), (2, 2));
        assert_eq!(place(text, 99), (3, 1));
        assert_eq!(place("", 0), (1, 1));
        let long = format!("x\n{}y", "ü".repeat(STEP_BYTES));
        assert_eq!(place(&long, 2 + 2 * STEP_BYTES), (2, STEP_BYTES + 1));
        assert_eq!(place(&long, 4), (2, 2));
    }

    #[test]
    fn warnings_are_bounded_and_the_rest_is_counted() {
        let text = " ".repeat(100);
        let mut faults = Faults::new(PolicySource { name: "p", text: &text });
        for at in 0..60 {
            faults.warn_at(&PlacedValue { value: (), at, key: "k".to_owned() }, "m");
        }
        let told = faults.take_warnings();
        assert_eq!(told.len(), 51);
        assert!(told[50].message.contains("and 10 further warnings"), "{}", told[50]);
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
