//! The front matter of a task file: YAML between two lines `---` at the start.
//!
//! It is parsed with limits on size, depth and aliases. It is edited in place, so that comments and style are
//! kept. The result is parsed again, and an edit that would change another key is refused.

use std::{ops::Range, str::FromStr as _};

use serde_json::{Map, Value};
use yaml_edit::Document;

use crate::{
    error::FileError,
    json_text,
    ledger::{LEDGER_KEY, Ledger},
    limits::{MAX_FRONT_MATTER_BYTES, MAX_FRONT_MATTER_DEPTH},
};

/// The parsed front matter of a file.
#[derive(Debug)]
pub(crate) struct FrontMatter {
    /// The range of the YAML text, without the two lines `---`. It is empty if there is no front matter.
    yaml: Range<usize>,
    /// The byte offset of the body.
    pub(crate) body: usize,
    values: Map<String, Value>,
    is_present: bool,
}

impl FrontMatter {
    /// Finds and reads the front matter.
    ///
    /// # Errors
    /// `FileError` if the front matter cannot be parsed. It is not treated as missing, because the calls of
    /// its ledger would run again.
    pub(crate) fn read(text: &str) -> Result<Self, FileError> {
        let start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
        let Some((yaml, body)) = find(text, start)? else {
            return Ok(Self { yaml: start..start, body: start, values: Map::new(), is_present: false });
        };
        let values = parse(&text[yaml.clone()])?;
        Ok(Self { yaml, body, values, is_present: true })
    }

    /// Returns the ledger.
    pub(crate) fn ledger(&self) -> Result<Ledger, FileError> {
        Ledger::read(self.values.get(LEDGER_KEY))
    }

    /// Returns the file's text with another ledger. The body does not change.
    ///
    /// # Errors
    /// [`FileError::FrontMatterEdit`] if other keys would change, and [`FileError::FrontMatterTooLarge`].
    pub(crate) fn with_ledger(&self, text: &str, ledger: &Ledger) -> Result<String, FileError> {
        let before = &text[self.yaml.clone()];
        let newline = newline_of(if self.is_present { before } else { text });
        // The editor writes only `\n`. Convert first, so that the text is not mixed.
        let before = before.replace("\r\n", "\n");
        let edited = match self.values.is_empty() {
            // There are no keys that could be edited, only comments or nothing.
            true => format!("{before}{}", rows(ledger)?),
            false => edit(&before, ledger)?,
        };
        let mut expected = self.values.clone();
        let rows = serde_json::to_value(ledger.rows()).map_err(FileError::Ledger)?;
        expected.insert(LEDGER_KEY.to_owned(), rows);
        // The YAML editor may touch other keys too, so compare the whole result.
        if parse(&edited).ok().as_ref() != Some(&expected) {
            return Err(FileError::FrontMatterEdit);
        }
        let edited = if newline == "\n" { edited } else { edited.replace('\n', newline) };
        if edited.len() > MAX_FRONT_MATTER_BYTES {
            return Err(FileError::FrontMatterTooLarge);
        }
        let (head, body) = (&text[..self.yaml.start], &text[self.yaml.end..]);
        let written = if self.is_present {
            format!("{head}{edited}{body}")
        } else {
            format!("{head}---{newline}{edited}---{newline}{body}")
        };
        // Reading the result must give exactly this front matter and this body.
        let again = Self::read(&written).map_err(|_broken| FileError::FrontMatterEdit)?;
        if again.values != expected || written[again.body..] != text[self.body..] {
            return Err(FileError::FrontMatterEdit);
        }
        Ok(written)
    }
}

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Returns the line break of a text's first line.
pub(crate) fn newline_of(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Returns the range of the YAML text and the start of the body, or `None` without a front matter. A file may
/// also begin with a thematic break, which is written `---` as well.
fn find(text: &str, start: usize) -> Result<Option<(Range<usize>, usize)>, FileError> {
    let Some(first) = text[start..].split_inclusive('\n').next().filter(|line| is_mark(line)) else {
        return Ok(None);
    };
    let yaml = start + first.len();
    let mut at = yaml;
    for line in text[yaml..].split_inclusive('\n') {
        if is_mark(line) {
            return if at - yaml > MAX_FRONT_MATTER_BYTES {
                Err(FileError::FrontMatterTooLarge)
            } else {
                Ok(Some((yaml..at, at + line.len())))
            };
        }
        at += line.len();
    }
    Ok(None)
}

fn is_mark(line: &str) -> bool {
    line.trim_end_matches([' ', '\t', '\r', '\n']) == "---"
}

fn parse(yaml: &str) -> Result<Map<String, Value>, FileError> {
    let budget = serde_saphyr::budget! {
        max_depth: MAX_FRONT_MATTER_DEPTH,
        flow_nesting_limit: MAX_FRONT_MATTER_DEPTH,
        max_events: MAX_EVENTS,
        max_aliases: MAX_ALIASES,
        max_anchors: MAX_ALIASES,
        max_nodes: MAX_EVENTS,
    };
    let options = serde_saphyr::options! { budget: budget, with_snippet: false };
    let value: Value = serde_saphyr::from_str_with_options(yaml, options)
        .map_err(|error| FileError::FrontMatterSyntax(Box::new(error)))?;
    match value {
        Value::Object(values) => Ok(values),
        Value::Null => Ok(Map::new()),
        _ => Err(FileError::FrontMatterShape),
    }
}

/// The maximum number of parser events in a front matter, with aliases expanded. It exceeds what 64 KiB of
/// YAML without aliases can have.
const MAX_EVENTS: usize = 70_000;

/// The maximum number of aliases, and of anchors.
const MAX_ALIASES: usize = 64;

/// Renders the ledger as YAML. A row is one line of JSON, which is also YAML.
fn rows(ledger: &Ledger) -> Result<String, FileError> {
    let mut rows = format!("{LEDGER_KEY}:\n");
    for row in ledger.rows() {
        rows.push_str("  - ");
        rows.push_str(&json_text::line(row).map_err(FileError::Ledger)?);
        rows.push('\n');
    }
    Ok(rows)
}

/// Sets the ledger in YAML text with `\n` line breaks.
fn edit(yaml: &str, ledger: &Ledger) -> Result<String, FileError> {
    let parsed = |text: &str| Document::from_str(text).map_err(|_unreadable| FileError::FrontMatterEdit);
    let value = parsed(&rows(ledger)?)?.get(LEDGER_KEY).ok_or(FileError::FrontMatterEdit)?;
    let document = parsed(yaml)?;
    if !document.set(LEDGER_KEY, value) {
        return Err(FileError::FrontMatterEdit);
    }
    let mut edited = document.to_string();
    if !edited.ends_with('\n') {
        edited.push('\n');
    }
    Ok(edited)
}

#[cfg(test)]
mod tests;
