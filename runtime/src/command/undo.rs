//! `portcullis changes` and `portcullis undo`: show the changes of calls, and undo them.

use std::{
    fmt::Write as _,
    process::ExitCode,
    time::{Duration, UNIX_EPOCH},
};

use crate::{
    cli::{CLI_ID, ChangesOptions, CommonOptions, Selection, UndoOptions},
    error::CliError,
    output::{stream, table, text},
    setup,
};
use portcullis_tools::{
    ToolRegistry, open_undo_store,
    undo::{ChangeRecord, Conflict, Difference, DifferenceKind, MountRoot, UndoError, UndoPlan, UndoStore},
};

/// Lists the calls with recorded changes, or shows the changes of the selected calls.
pub(crate) fn changes(common: &CommonOptions, options: &ChangesOptions) -> Result<ExitCode, CliError> {
    let (store, roots) = open(common)?;
    let Some(records) = selected_records(&store, &options.selection)? else {
        stream::write_output(&listing(&store.records()?))?;
        return Ok(ExitCode::SUCCESS);
    };
    stream::write_output(&differences_text(store, records, roots)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the changes of a run that are still in force, or a sentence if there are none.
pub(super) fn changes_of_run(registry: &ToolRegistry, run: &str) -> Result<String, CliError> {
    let (store, roots) = registry.undo_store_and_roots();
    let records = records_of_run(&store, run)?;
    let text = differences_text(store, records, roots)?;
    Ok(if text.is_empty() { "no changes are kept\n".to_owned() } else { text })
}

/// Undoes the newest change of a run. Reports what was restored, or why nothing was.
pub(super) fn undo_newest_of_run(registry: &ToolRegistry, run: &str) -> Result<String, CliError> {
    let (store, roots) = registry.undo_store_and_roots();
    let newest = store.newest(|record| record.call.run == run && is_in_force(record))?;
    let newest = newest.into_iter().collect();
    let (UndoOutcome::Done(text) | UndoOutcome::Refused(text)) = restore(store, newest, roots, false)?;
    Ok(text)
}

/// Runs `portcullis undo`.
pub(crate) fn undo(common: &CommonOptions, options: &UndoOptions) -> Result<ExitCode, CliError> {
    let (store, roots) = open(common)?;
    let records = match selected_records(&store, &options.selection)? {
        Some(records) => records,
        None => store.newest(is_in_force)?.into_iter().collect(),
    };
    match restore(store, records, roots, options.force)? {
        UndoOutcome::Done(report) => {
            stream::write_output(&report)?;
            Ok(ExitCode::SUCCESS)
        }
        UndoOutcome::Refused(refusal) => {
            stream::write_stderr(&refusal);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The outcome of an undo, as text.
enum UndoOutcome {
    /// The report of an undo, even if there was nothing to undo.
    Done(String),
    /// Nothing was undone, for these reasons.
    Refused(String),
}

/// Undoes changes.
fn restore(
    store: UndoStore,
    records: Vec<ChangeRecord>,
    roots: Vec<MountRoot>,
    force: bool,
) -> Result<UndoOutcome, CliError> {
    let plan = UndoPlan::new(store, records, roots)?;
    // Read the differences first, because a restored path has none.
    let differences = plan.differences()?;
    match plan.restore(CLI_ID, force) {
        Ok(Some(record)) => {
            let mut report = String::new();
            for difference in &differences {
                // Writing to a string cannot fail.
                let _ = writeln!(report, "restored: {}", text::inline(&difference.path));
            }
            Ok(UndoOutcome::Done(format!("{report}to make the changes again: portcullis undo {record}\n")))
        }
        Ok(None) => Ok(UndoOutcome::Done("nothing to undo\n".to_owned())),
        Err(error) => {
            let mut reasons = String::new();
            if let UndoError::Conflicts { conflicts } = &error {
                for conflict in conflicts {
                    // Writing to a string cannot fail.
                    let _ = writeln!(reasons, "{}: {}", text::inline(&conflict.path), conflict.reason);
                }
                reasons.push_str(if conflicts.iter().any(Conflict::can_be_forced) {
                    "with --force, these paths are restored too where their content was kept\n"
                } else {
                    "with --force, all other paths are restored\n"
                });
            }
            Ok(UndoOutcome::Refused(format!("{}{reasons}", CliError::from(error).report())))
        }
    }
}

fn open(common: &CommonOptions) -> Result<(UndoStore, Vec<MountRoot>), CliError> {
    let envelope = setup::envelope(common)?;
    Ok(open_undo_store(&envelope, &setup::policy_files(&envelope)?)?)
}

/// Returns the records that the options select, or `None` if they select none.
fn selected_records(
    store: &UndoStore,
    selection: &Selection,
) -> Result<Option<Vec<ChangeRecord>>, UndoError> {
    match (&selection.call, &selection.run) {
        (Some(call), _) => Ok(Some(vec![store.find_call(call)?])),
        (None, Some(run)) => {
            let mut records = store.find_run(run)?;
            records.retain(is_in_force);
            Ok(Some(records))
        }
        (None, None) => Ok(None),
    }
}

/// Returns the records of a run whose changes are in force, newest first. Empty if the run has changed
/// nothing.
fn records_of_run(store: &UndoStore, run: &str) -> Result<Vec<ChangeRecord>, UndoError> {
    let mut records = store.records()?;
    records.retain(|record| record.call.run == run && is_in_force(record));
    Ok(records)
}

fn differences_text(
    store: UndoStore,
    records: Vec<ChangeRecord>,
    roots: Vec<MountRoot>,
) -> Result<String, UndoError> {
    Ok(UndoPlan::new(store, records, roots)?.differences()?.iter().map(difference_text).collect())
}

/// Returns whether the changes are in force: neither undone nor made by an undo.
fn is_in_force(record: &ChangeRecord) -> bool {
    record.undone_by.is_none() && record.undoes.is_empty()
}

fn listing(records: &[ChangeRecord]) -> String {
    if records.is_empty() {
        return "no changes are kept; write `undo = true` in a table of `[mounts]` to keep them\n".to_owned();
    }
    let rows = records.iter().map(|record| {
        let state = match (&record.undone_by, record.undoes.as_slice()) {
            (Some(by), _) => format!("undone by {by}"),
            (None, []) if !record.is_ended => "the call's end is missing".to_owned(),
            (None, []) => "in force".to_owned(),
            (None, undone) => format!("undoes {}", undone.join(", ")),
        };
        let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(record.time));
        let cell = |text: &str| if text.is_empty() { "–".to_owned() } else { text.to_owned() };
        [
            record.id.to_string(),
            time.to_string(),
            cell(&record.call.run),
            record.call.tool.clone(),
            cell(&record.call.call),
            record.paths().to_string(),
            state,
        ]
    });
    table::render(["RECORD", "TIME", "RUN", "TOOL", "CALL", "PATHS", "STATE"], rows)
}

/// Formats one path's change in the form of `diff -u`.
fn difference_text(difference: &Difference) -> String {
    let path = text::inline(&difference.path);
    let since = if difference.is_changed_since { " (changed since by someone else)" } else { "" };
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = match &difference.kind {
        DifferenceKind::Lines(lines) => {
            let lines = if stream::stdout_is_terminal() { text::for_terminal(lines) } else { lines.clone() };
            write!(out, "--- a{path}\n+++ b{path}{since}\n{lines}")
        }
        DifferenceKind::File => writeln!(out, "other content: {path}{since}"),
        DifferenceKind::Mode(before, now) => {
            writeln!(out, "permissions {before:04o} -> {now:04o}: {path}{since}")
        }
        DifferenceKind::Created => writeln!(out, "made: {path}{since}"),
        DifferenceKind::Removed => writeln!(out, "removed: {path}{since}"),
        DifferenceKind::Replaced => writeln!(out, "replaced by another kind of file: {path}{since}"),
    };
    out
}
