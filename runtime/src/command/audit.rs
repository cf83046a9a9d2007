//! `portcullis audit`: shows the audit log, verifies and seals it.

mod bundle;
mod filter;
mod log;
mod replay;
mod report;
mod verify;

use std::path::{Path, PathBuf};

use portcullis_tools::audit::{self, Row, RowEvent};

pub(crate) use self::{
    bundle::bundle,
    filter::InvalidFilter,
    log::log,
    replay::replay,
    report::report,
    verify::{seal, verification_text, verify},
};
pub(super) use self::{
    filter::RowFilter,
    log::listing_of_run,
    replay::{replay_log, replay_text},
};
use crate::{cli::CommonOptions, error::CliError, output::table, setup};

fn path(common: &CommonOptions) -> Result<PathBuf, CliError> {
    Ok(audit::log_path(&setup::envelope(common)?.state))
}

/// Reads the rows of a log one at a time. A missing log has no rows.
///
/// # Errors
/// [`CliError::Audit`] if a row cannot be read.
pub(super) fn each_row(log: &Path, mut use_row: impl FnMut(Row)) -> Result<(), CliError> {
    for row in audit::rows(log) {
        match row {
            Ok(row) => use_row(row),
            Err(error) if error.is_missing() => break,
            Err(source) => return Err(CliError::Audit { source }),
        }
    }
    Ok(())
}

/// Returns the calls of a short log as a table, with each call's mounts and posture.
pub(super) fn demonstration_table(path: &Path) -> Result<String, CliError> {
    let rows: Vec<Row> =
        audit::rows(path).collect::<Result<_, _>>().map_err(|source| CliError::Audit { source })?;
    let rows = rows.iter().filter(|row| !row.call_id.is_empty()).map(|row| {
        let mounts: Vec<String> =
            row.mounts.iter().map(|mount| format!("{} {}", mount.name, mount.access)).collect();
        let subjects: Vec<&str> = row.subjects.iter().map(|subject| &*subject.value).collect();
        let posture = row.posture.as_deref().map_or_else(|| "–".to_owned(), posture_layers);
        [
            row.seq.to_string(),
            row.tool.to_string(),
            outcome_cell(row),
            row.code.as_deref().unwrap_or("–").to_owned(),
            subjects.join(", "),
            mounts.join(", "),
            posture,
            row.duration_us.map_or_else(|| "–".to_owned(), milliseconds),
        ]
    });
    let head = ["SEQ", "TOOL", "OUTCOME", "CODE", "NAMES", "COULD TOUCH", "HELD BY", "TIME TAKEN"];
    Ok(table::render(head, rows))
}

/// Shortens a posture to a session's level, or to the names of a thread's layers. The text in parentheses and
/// after `=` is left out.
fn posture_layers(posture: &str) -> String {
    let mut parenthesis_depth = 0_usize;
    let outside_parentheses = posture.chars().filter(|character| {
        match character {
            '(' => parenthesis_depth += 1,
            ')' => parenthesis_depth = parenthesis_depth.saturating_sub(1),
            _ => {}
        }
        parenthesis_depth == 0 && *character != ')'
    });
    let layers: String = outside_parentheses.collect();
    let names = layers.split(',').map(|layer| layer.split('=').next().unwrap_or(layer));
    names.collect::<Vec<_>>().join(", ")
}

/// Returns the outcome column of a row.
fn outcome_cell(row: &Row) -> String {
    match (row.event, row.outcome) {
        (RowEvent::Begin, _) => "begins".to_owned(),
        (RowEvent::End | RowEvent::Result | RowEvent::Model, Some(outcome)) => outcome.to_string(),
        (RowEvent::End | RowEvent::Result | RowEvent::Model, None) => "–".to_owned(),
        (RowEvent::Approve, _) => "approves".to_owned(),
        (RowEvent::Revoke, _) => "revokes".to_owned(),
        (RowEvent::Start, _) => "starts".to_owned(),
        (RowEvent::Policy, _) => "policy".to_owned(),
        (RowEvent::Checkpoint, _) => "checkpoint".to_owned(),
        (RowEvent::Stop, _) => "stops".to_owned(),
        (RowEvent::Other, _) => "–".to_owned(),
    }
}

fn milliseconds(microseconds: u64) -> String {
    format!("{}.{} ms", microseconds / 1000, microseconds % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_tenths_of_a_millisecond() {
        for (microseconds, expected_text) in
            [(0, "0.0 ms"), (99, "0.0 ms"), (1234, "1.2 ms"), (10_050_000, "10050.0 ms")]
        {
            assert_eq!(milliseconds(microseconds), expected_text);
        }
    }
}
