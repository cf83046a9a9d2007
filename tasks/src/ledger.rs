//! `Ledger`: one row for each call of a task file that has begun or been asked about. It is in the front
//! matter under `tool_calls`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{error::FileError, limits::MAX_LEDGER_ROWS};

/// The key of the ledger in the front matter.
pub(crate) const LEDGER_KEY: &str = "tool_calls";

/// The identity of a call in its file: its content, not its position, so that text around it can be added and
/// moved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// The SHA-256 of the block's content in hexadecimal digits. Line breaks count as `\n`.
    pub block: String,
    /// The number of earlier blocks with the same content.
    pub ordinal: u32,
}

/// The status of a call, in the words of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LedgerStatus {
    /// The call has begun, or waits for an approval.
    Pending,
    /// The call has succeeded.
    Success,
    /// The call has failed, was refused, or is not a valid call.
    Failed,
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerRow {
    /// The hash of the block, as in [`CallKey`].
    pub block: String,
    /// The ordinal, as in [`CallKey`].
    pub ordinal: u32,
    /// The tool that was called. Empty if the block is not a valid call.
    pub tool: String,
    /// The id of the call in the audit log. Empty if there is none.
    pub call_id: String,
    /// Whether the call is pending, has succeeded or has failed.
    pub status: LedgerStatus,
    /// When the row was first written.
    pub started: String,
    /// When the call ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The duration of the call, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// The stable code of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The binding of a person's approval, while the call waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// The question to the person, while the call waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Whether an interrupted call may run again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub may_repeat: bool,
    /// The number of times that the call has begun.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// The parameters whose control characters were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sanitized: Vec<String>,
    /// The flow labels that the call has added to its task.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
}

impl LedgerRow {
    /// Creates the row of a call that waits or begins now.
    pub(crate) fn pending(key: &CallKey, tool: &str, started: String) -> Self {
        Self {
            block: key.block.clone(),
            ordinal: key.ordinal,
            tool: tool.to_owned(),
            call_id: String::new(),
            status: LedgerStatus::Pending,
            started,
            ended: None,
            duration_ms: None,
            code: None,
            approval: None,
            question: None,
            may_repeat: false,
            attempts: 0,
            sanitized: Vec::new(),
            labels: BTreeSet::new(),
        }
    }

    fn has_key(&self, key: &CallKey) -> bool {
        self.block == key.block && self.ordinal == key.ordinal
    }
}

/// The rows of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ledger(Vec<LedgerRow>);

impl Ledger {
    /// Parses the value of the key. A missing value is an empty ledger.
    ///
    /// # Errors
    /// [`FileError::Ledger`], [`FileError::LedgerTwice`] and [`FileError::LedgerTooLong`]. A ledger that
    /// cannot be parsed is never treated as empty, because its calls would run again.
    pub(crate) fn read(value: Option<&serde_json::Value>) -> Result<Self, FileError> {
        let rows: Vec<LedgerRow> = match value {
            None | Some(serde_json::Value::Null) => Vec::new(),
            Some(value) => Vec::deserialize(value).map_err(FileError::Ledger)?,
        };
        let ledger = Self(rows).bounded()?;
        let mut seen = BTreeSet::new();
        match ledger.0.iter().find(|row| !seen.insert((&row.block, row.ordinal))) {
            Some(twice) => Err(FileError::LedgerTwice { block: twice.block.clone(), ordinal: twice.ordinal }),
            None => Ok(ledger),
        }
    }

    pub(crate) fn row(&self, key: &CallKey) -> Option<&LedgerRow> {
        self.0.iter().find(|row| row.has_key(key))
    }

    pub(crate) fn rows(&self) -> &[LedgerRow] {
        &self.0
    }

    /// Returns the ledger with this row, which replaces the call's earlier row.
    pub(crate) fn with(&self, row: LedgerRow) -> Result<Self, FileError> {
        let mut rows = self.0.clone();
        match rows.iter_mut().find(|other| other.block == row.block && other.ordinal == row.ordinal) {
            Some(entry) => *entry = row,
            None => rows.push(row),
        }
        Self(rows).bounded()
    }

    /// Returns the flow labels of all rows.
    pub(crate) fn labels(&self) -> BTreeSet<String> {
        self.0.iter().flat_map(|row| row.labels.iter().cloned()).collect()
    }

    fn bounded(self) -> Result<Self, FileError> {
        if self.0.len() > MAX_LEDGER_ROWS { Err(FileError::LedgerTooLong) } else { Ok(self) }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_the_keys_of_a_row() {
        let row = LedgerRow {
            block: "b".to_owned(),
            ordinal: 1,
            tool: "echo".to_owned(),
            call_id: "c".to_owned(),
            status: LedgerStatus::Success,
            started: "s".to_owned(),
            ended: Some("e".to_owned()),
            duration_ms: Some(1),
            code: Some("failed".to_owned()),
            approval: Some("a".to_owned()),
            question: Some("q".to_owned()),
            may_repeat: true,
            attempts: 1,
            sanitized: vec!["p".to_owned()],
            labels: BTreeSet::from(["web".to_owned()]),
        };
        let written = serde_json::to_value(&row).expect("JSON");
        let keys: BTreeSet<&str> = written.as_object().expect("keys").keys().map(String::as_str).collect();
        let manual = include_str!("../../docs/tasks.md");
        let (_, table) = manual.split_once("| key | meaning |\n|---|---|\n| `block`").expect("the table");
        let rows = table.lines().take_while(|line| !line.is_empty());
        let first_cells =
            rows.map(|row| row.trim_start_matches("| ").split(" | ").next().unwrap_or_default());
        // The text between two backticks is a key; the first key was cut off by the split.
        let documented: BTreeSet<&str> = first_cells
            .flat_map(|cell| {
                cell.split('`').filter(|part| part.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
            })
            .filter(|part| !part.is_empty())
            .chain(["block"])
            .collect();
        assert_eq!(documented, keys);
    }
}
