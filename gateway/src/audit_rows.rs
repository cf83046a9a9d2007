//! `RunAuditRows`: reads the audit rows of a run.

use std::path::PathBuf;

use portcullis_tools::audit::{AuditError, newest_row_lines};
use serde_json::Value;

/// The maximum number of rows that are read, from the newest backwards, to find those of a run.
const MAX_READ: usize = 200_000;

/// Reads the rows of runs.
#[derive(Debug)]
pub(crate) struct RunAuditRows {
    log: PathBuf,
}

impl RunAuditRows {
    pub(crate) fn new(log: PathBuf) -> Self {
        Self { log }
    }

    /// Returns the newest rows of a run, the oldest of them first.
    ///
    /// # Errors
    /// [`AuditError`] if the log cannot be read.
    pub(crate) fn rows_of(&self, run: &str, at_most: usize) -> Result<Vec<Value>, AuditError> {
        let mut rows = Vec::new();
        for line in newest_row_lines(&self.log).take(MAX_READ) {
            let line = line?;
            if line.row.run_id.as_deref() == Some(run) {
                // The reader has parsed the line as a row, so parsing cannot fail.
                rows.extend(serde_json::from_slice(&line.line).ok());
                if rows.len() == at_most {
                    break;
                }
            }
        }
        rows.reverse();
        Ok(rows)
    }
}
