//! The front matter of a task file: YAML between two lines `---` at the start.
//!
//! It is read with bounds on size, depth and aliases. It is edited in place, so that comments and style stay, and read
//! again afterwards: an edit that changes another key is refused.

use std::{ops::Range, str::FromStr as _};

use serde_json::{Map, Value};
use yaml_edit::Document;

use crate::{
    error::FileError,
    json_text,
    ledger::{LEDGER_KEY, Ledger},
    limits::{MAX_FRONT_MATTER_BYTES, MAX_FRONT_MATTER_DEPTH},
};

/// The front matter of a file, as it was found.
#[derive(Debug)]
pub(crate) struct FrontMatter {
    /// The YAML text, without the two lines `---`. Empty at the start of the file if there is no front matter.
    yaml: Range<usize>,
    /// Where the body begins.
    pub(crate) body: usize,
    values: Map<String, Value>,
    is_present: bool,
}

impl FrontMatter {
    /// Finds and reads the front matter.
    ///
    /// # Errors
    /// A front matter that cannot be read is never taken as missing, because the calls of its ledger would run again.
    pub(crate) fn read(text: &str) -> Result<Self, FileError> {
        let start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len_utf8() } else { 0 };
        let Some((yaml, body)) = find(text, start)? else {
            return Ok(Self { yaml: start..start, body: start, values: Map::new(), is_present: false });
        };
        let values = parse(&text[yaml.clone()])?;
        Ok(Self { yaml, body, values, is_present: true })
    }

    /// The ledger in it.
    pub(crate) fn ledger(&self) -> Result<Ledger, FileError> {
        Ledger::read(self.values.get(LEDGER_KEY))
    }

    /// The file's text with another ledger. The body does not change.
    ///
    /// # Errors
    /// [`FileError::FrontMatterEdit`] if other keys would change, and [`FileError::FrontMatterTooLarge`].
    pub(crate) fn with_ledger(&self, text: &str, ledger: &Ledger) -> Result<String, FileError> {
        let before = &text[self.yaml.clone()];
        let newline = newline_of(if self.is_present { before } else { text });
        // The editor writes `\n` only, so a mixed text would result.
        let before = before.replace("\r\n", "\n");
        let edited = match self.values.is_empty() {
            // Nothing, or only comments, to which there is nothing to edit.
            true => format!("{before}{}", rows(ledger)?),
            false => edit(&before, ledger)?,
        };
        let mut expected = self.values.clone();
        let rows = serde_json::to_value(ledger.rows()).map_err(FileError::Ledger)?;
        expected.insert(LEDGER_KEY.to_owned(), rows);
        // An editor of YAML can touch more than its key, so the result is compared as a whole.
        if parse(&edited).ok().as_ref() != Some(&expected) {
            return Err(FileError::FrontMatterEdit);
        }
        let edited = if newline == "\n" { edited } else { edited.replace('\n', newline) };
        if edited.len() > MAX_FRONT_MATTER_BYTES {
            return Err(FileError::FrontMatterTooLarge);
        }
        let (head, body) = (&text[..self.yaml.start], &text[self.yaml.end..]);
        let written = match self.is_present {
            true => format!("{head}{edited}{body}"),
            false => format!("{head}---{newline}{edited}---{newline}{body}"),
        };
        // The next read must find exactly this front matter and this body.
        let again = Self::read(&written).map_err(|_broken| FileError::FrontMatterEdit)?;
        if again.values != expected || written[again.body..] != text[self.body..] {
            return Err(FileError::FrontMatterEdit);
        }
        Ok(written)
    }
}

const BYTE_ORDER_MARK: char = '\u{feff}';

/// The line break of a text: that of its first line.
pub(crate) fn newline_of(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// The ranges of the YAML text, and the start of the body. `None` without a front matter: a file may begin with a
/// thematic break, which is also written `---`.
fn find(text: &str, start: usize) -> Result<Option<(Range<usize>, usize)>, FileError> {
    let Some(first) = text[start..].split_inclusive('\n').next().filter(|line| is_mark(line)) else {
        return Ok(None);
    };
    let yaml = start + first.len();
    let mut at = yaml;
    for line in text[yaml..].split_inclusive('\n') {
        if is_mark(line) {
            return match at - yaml > MAX_FRONT_MATTER_BYTES {
                true => Err(FileError::FrontMatterTooLarge),
                false => Ok(Some((yaml..at, at + line.len()))),
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

/// The maximum number of events of a front matter's parser, after its aliases are followed: more than 64 KiB of YAML
/// without aliases has.
const MAX_EVENTS: usize = 70_000;

/// The maximum number of aliases, and of anchors.
const MAX_ALIASES: usize = 64;

/// The ledger as YAML. A row is one line of JSON, which is YAML as well.
fn rows(ledger: &Ledger) -> Result<String, FileError> {
    let mut rows = format!("{LEDGER_KEY}:\n");
    for row in ledger.rows() {
        rows.push_str("  - ");
        rows.push_str(&json_text::line(row).map_err(FileError::Ledger)?);
        rows.push('\n');
    }
    Ok(rows)
}

/// Sets the ledger in YAML text whose line break is `\n`.
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
