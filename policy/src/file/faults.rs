//! Collects the faults of one text and turns byte offsets into lines and columns.

use std::collections::BTreeSet;

use portcullis_types::EscapedText;

use crate::{LintCode, PolicyFault, PolicySource};

use super::Located;

/// The maximum number of faults that are kept; further faults are only counted. An overlay written by an agent could
/// have thousands.
const MAX_FAULTS: usize = 50;

/// The faults found in one text so far.
#[derive(Debug)]
pub(crate) struct Faults<'s> {
    source: PolicySource<'s>,
    faults: Vec<(usize, PolicyFault)>,
    omitted_faults: usize,
    warnings: Vec<(usize, PolicyFault)>,
    omitted_warnings: usize,
    locations: LineIndex,
    /// The names of mounts, profiles and secrets whose own entry is faulty. A reference to such a name is not
    /// a second fault.
    excused_names: BTreeSet<String>,
}

impl<'s> Faults<'s> {
    pub(crate) fn new(source: PolicySource<'s>) -> Self {
        Self {
            source,
            faults: Vec::new(),
            omitted_faults: 0,
            warnings: Vec::new(),
            omitted_warnings: 0,
            locations: LineIndex::new(source.text),
            excused_names: BTreeSet::new(),
        }
    }

    /// Returns the text that faults are collected for.
    pub(crate) fn source(&self) -> PolicySource<'s> {
        self.source
    }

    /// Adds a fault at a byte offset of the text.
    pub(crate) fn add(&mut self, offset: usize, key: &str, message: impl AsRef<str>) {
        if self.faults.len() == MAX_FAULTS {
            self.omitted_faults += 1;
            return;
        }
        let fault = self.fault_at(offset, key, message.as_ref());
        self.faults.push((offset, fault));
    }

    /// Adds a warning: the line is valid, but probably does not express its author's intent.
    pub(crate) fn warn_at<T>(&mut self, code: LintCode, located: &Located<T>, message: impl AsRef<str>) {
        if self.warnings.len() < MAX_FAULTS {
            let warning = self.fault_at(located.offset, &located.key, message.as_ref());
            self.warnings.push((located.offset, PolicyFault { code, ..warning }));
        } else {
            self.omitted_warnings += 1;
        }
    }

    /// Returns the fault for an offset in the text.
    pub(crate) fn fault_at(&self, offset: usize, key: &str, message: &str) -> PolicyFault {
        let (line, column) = self.locations.line_and_column(self.source.text, offset);
        PolicyFault {
            file: self.source.name.to_owned(),
            line,
            column,
            key: EscapedText(key).to_string(),
            message: message.to_owned(),
            code: LintCode::Fault,
        }
    }

    /// Records that an entry has this name but is faulty, so that references to it are not reported.
    pub(crate) fn excuse(&mut self, name: &str) {
        self.excused_names.insert(name.to_owned());
    }

    /// Returns whether an entry with this name is faulty. A reference to the name is then not a second fault.
    pub(crate) fn is_excused(&self, name: &str) -> bool {
        self.excused_names.contains(name)
    }

    /// Like [`Self::add_at`], for a fault with its own lint code.
    pub(crate) fn add_coded<T>(&mut self, code: LintCode, located: &Located<T>, message: impl AsRef<str>) {
        let count = self.faults.len();
        self.add_at(located, message);
        if let Some((_, fault)) = self.faults.get_mut(count) {
            fault.code = code;
        }
    }

    /// Adds a fault at the position of a value.
    pub(crate) fn add_at<T>(&mut self, located: &Located<T>, message: impl AsRef<str>) {
        self.add(located.offset, &located.key, message);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// Returns the number of faults, including those that were left out.
    pub(crate) fn count(&self) -> usize {
        self.faults.len() + self.omitted_faults
    }

    /// Returns the faults in the order of the text, and the number of faults that were left out.
    pub(crate) fn into_parts(mut self) -> (Vec<PolicyFault>, usize) {
        self.faults.sort_by_key(|(offset, _)| *offset);
        (self.faults.into_iter().map(|(_, fault)| fault).collect(), self.omitted_faults)
    }

    /// Takes the warnings, in the order of the text. The last one gives the number of those that were left
    /// out, if any.
    pub(crate) fn take_warnings(&mut self) -> Vec<PolicyFault> {
        self.warnings.sort_by_key(|(offset, _)| *offset);
        let mut warnings: Vec<PolicyFault> = self.warnings.drain(..).map(|(_, warning)| warning).collect();
        warnings.extend(omitted_warnings_note(&warnings, std::mem::take(&mut self.omitted_warnings)));
        warnings
    }
}

/// Returns the warning that gives the number of the warnings that were left out, or `None` if there are none.
pub(crate) fn omitted_warnings_note(warnings: &[PolicyFault], omitted: usize) -> Option<PolicyFault> {
    let last_warning = warnings.last().filter(|_| omitted > 0)?;
    let message = format!("and {omitted} more warnings, which are not listed");
    Some(PolicyFault { key: String::new(), message, ..last_warning.clone() })
}

/// The starts of lines and the character counts of a text. They are computed once, because a text may have
/// thousands of entries for tools, and each needs a position.
#[derive(Debug)]
struct LineIndex {
    /// The start of each line, in bytes.
    lines: Vec<usize>,
    /// The number of characters before each step of the text.
    characters: Vec<usize>,
}

impl LineIndex {
    fn new(text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(breaks.map(|(offset, _)| offset + 1)).collect();
        let mut character_count = 0;
        let steps = text.as_bytes().chunks(STEP_BYTES).map(|step| {
            let begin = character_count;
            character_count += count_characters(step);
            begin
        });
        let mut characters: Vec<usize> = steps.collect();
        // One more count, for the end of the text: if the length is a multiple of a step, no step starts there.
        characters.push(character_count);
        Self { lines, characters }
    }

    /// Returns the line and the column of a byte offset. Both count from 1. The column counts characters.
    fn line_and_column(&self, text: &str, offset: usize) -> (usize, usize) {
        let offset = offset.min(text.len());
        let line = self.lines.partition_point(|begin| *begin <= offset);
        // `line` is at least 1, because the first line starts at 0.
        let begin = self.lines.get(line.saturating_sub(1)).copied().unwrap_or_default();
        (line, self.characters_before(text, offset) - self.characters_before(text, begin) + 1)
    }

    /// Returns the number of characters that start before a byte offset.
    fn characters_before(&self, text: &str, offset: usize) -> usize {
        let step = offset / STEP_BYTES;
        let rest_of_step = text.as_bytes().get(step * STEP_BYTES..offset).unwrap_or_default();
        self.characters.get(step).copied().unwrap_or_default() + count_characters(rest_of_step)
    }
}

/// Returns the number of characters that start in a part of a text.
fn count_characters(bytes: &[u8]) -> usize {
    // In UTF-8, every byte except a continuation byte (`10xxxxxx`) starts a character.
    bytes.iter().filter(|byte| **byte & 0b1100_0000 != 0b1000_0000).count()
}

/// The distance in bytes between stored character counts. A line may be as long as the text, so counting from its start
/// would be too slow.
const STEP_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let location_of = |text: &str, at| LineIndex::new(text).line_and_column(text, at);
        let text = "a\nüb\n";
        assert_eq!(location_of(text, 0), (1, 1));
        assert_eq!(location_of(text, 2), (2, 1));
        assert_eq!(location_of(text, 4), (2, 2));
        assert_eq!(location_of(text, 99), (3, 1));
        assert_eq!(location_of("", 0), (1, 1));
        let long = format!("x\n{}y", "ü".repeat(STEP_BYTES));
        assert_eq!(location_of(&long, 2 + 2 * STEP_BYTES), (2, STEP_BYTES + 1));
        assert_eq!(location_of(&long, 4), (2, 2));
    }

    #[test]
    fn warnings_are_bounded_and_the_rest_is_counted() {
        let text = " ".repeat(100);
        let mut faults = Faults::new(PolicySource { name: "p", text: &text });
        for at in 0..60 {
            faults.warn_at(LintCode::Unused, &Located { value: (), offset: at, key: "k".to_owned() }, "m");
        }
        let warnings = faults.take_warnings();
        assert_eq!(warnings.len(), 51);
        assert!(warnings[50].message.contains("and 10 more warnings"), "{}", warnings[50]);
    }

    #[test]
    fn faults_are_bounded_and_in_the_order_of_the_text() {
        let text = " ".repeat(100);
        let mut faults = Faults::new(PolicySource { name: "p", text: &text });
        for at in (0..60).rev() {
            faults.add(at, "k", "m");
        }
        let (reported_faults, omitted) = faults.into_parts();
        assert_eq!((reported_faults.len(), omitted), (50, 10));
        assert!(reported_faults.is_sorted_by_key(|fault| fault.column));
    }
}
