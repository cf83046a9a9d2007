//! `portcullis audit log`: shows rows of the audit log.

use std::{path::Path, process::ExitCode, thread, time::Duration};

use portcullis_tools::audit::{self, AuditError, LogFollower, Row, RowEvent, RowLine};

use super::{filter::RowFilter, path};
use crate::{
    cli::{CommonOptions, LogOptions},
    error::CliError,
    output::{stream, table},
};

/// The number of rows of a table after which its columns are measured again: 500. The rows of a long log
/// therefore need little memory.
const TABLE_ROWS: usize = 500;

/// The interval at which `--follow` looks for further rows: 200 ms.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Shows rows. An unreadable line is reported and skipped, and the exit code is then 1.
pub(crate) fn log(common: &CommonOptions, options: LogOptions) -> Result<ExitCode, CliError> {
    let LogOptions { limit, json, follow, filter } = options;
    let path = path(common)?;
    let mut listing =
        Listing { filter: RowFilter::new(filter)?, as_json: json, rows: Vec::new(), has_faults: false };
    if follow {
        return listing.follow(&path, limit);
    }
    let shown_rows = match limit {
        0 => listing.show_all(audit::row_lines(&path)),
        _ => listing.show_newest(&path, limit).map(|_newest| ()),
    };
    match shown_rows {
        Err(CliError::Audit { source }) if source.is_missing() => {
            stream::write_stderr(&format!(
                "no call has been recorded yet: there is no `{}`\n",
                path.display()
            ));
            Ok(ExitCode::SUCCESS)
        }
        shown_rows => shown_rows.map(|()| listing.exit_code()),
    }
}

/// The rows to show.
struct Listing {
    filter: RowFilter,
    as_json: bool,
    /// Rows that are buffered until their table is complete.
    rows: Vec<RowLine>,
    /// Whether a line of the log was not a row.
    has_faults: bool,
}

impl Listing {
    /// Shows the newest rows that match the filter, and returns the number of the newest row of all.
    fn show_newest(&mut self, path: &Path, limit: usize) -> Result<Option<u64>, CliError> {
        let mut newest = None;
        for row in audit::newest_row_lines(path) {
            let Some(row) = self.report_unreadable(row)? else { continue };
            newest = newest.or(Some(row.row.seq));
            if self.filter.matches(&row.row) {
                self.rows.push(row);
                if self.rows.len() == limit {
                    break;
                }
            }
        }
        self.rows.reverse();
        self.print()?;
        Ok(newest)
    }

    /// Shows all rows that match the filter.
    fn show_all(
        &mut self,
        rows: impl IntoIterator<Item = Result<RowLine, AuditError>>,
    ) -> Result<(), CliError> {
        for row in rows {
            let Some(row) = self.report_unreadable(row)? else { continue };
            if self.filter.matches(&row.row) {
                self.rows.push(row);
            }
            if self.rows.len() == TABLE_ROWS {
                self.print()?;
            }
        }
        self.print()
    }

    /// Shows the newest rows, and then new rows as they are written, until this process is interrupted or the
    /// log is replaced.
    fn follow(&mut self, path: &Path, limit: usize) -> Result<ExitCode, CliError> {
        let failed = |source| CliError::Audit { source };
        let mut follower = loop {
            match LogFollower::at_start(path) {
                Ok(follower) => break follower,
                // The log does not exist until the first call.
                Err(error) if error.is_missing() => thread::sleep(FOLLOW_INTERVAL),
                Err(source) => return Err(failed(source)),
            }
        };
        let mut shown_up_to = 0;
        if limit != 0 {
            // Both readers find rows that are written in the meantime. Their numbers identify the duplicates.
            follower = LogFollower::at_end(path).map_err(failed)?;
            shown_up_to = self.show_newest(path, limit)?.unwrap_or(0);
        }
        loop {
            let rows = follower.new_rows().map_err(failed)?;
            if rows.is_empty() {
                thread::sleep(FOLLOW_INTERVAL);
                continue;
            }
            let is_new = |row: &Result<RowLine, AuditError>| {
                row.as_ref().map_or(true, |row| row.row.seq > shown_up_to)
            };
            self.show_all(rows.into_iter().filter(is_new))?;
        }
    }

    /// Returns the row. A line that is not a row is reported.
    fn report_unreadable(&mut self, row: Result<RowLine, AuditError>) -> Result<Option<RowLine>, CliError> {
        match row {
            Ok(row) => Ok(Some(row)),
            Err(source @ (AuditError::Malformed { .. } | AuditError::Overlong { .. })) => {
                stream::write_stderr(&CliError::Audit { source }.report());
                self.has_faults = true;
                Ok(None)
            }
            Err(source) => Err(CliError::Audit { source }),
        }
    }

    fn print(&mut self) -> Result<(), CliError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        if !self.as_json {
            return stream::write_output(&listing(rows.iter().map(|row| &row.row)));
        }
        let mut out = String::new();
        for row in &rows {
            // A row was parsed from the line, so it is UTF-8.
            out.push_str(&String::from_utf8_lossy(&row.line));
            out.push('\n');
        }
        stream::write_output(&out)
    }

    fn exit_code(&self) -> ExitCode {
        if self.has_faults { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

/// Returns the rows of one run as a table.
///
/// # Errors
/// [`CliError::Audit`] if a row cannot be read.
pub(crate) fn listing_of_run(path: &Path, run: &str) -> Result<String, CliError> {
    let mut rows = Vec::new();
    super::each_row(path, |row| {
        if row.run_id.as_deref() == Some(run) {
            rows.push(row);
        }
    })?;
    Ok(listing(&rows))
}

fn listing<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
    let rows = rows.into_iter().map(|row| {
        [
            row.seq.to_string(),
            format!("{:.3}", row.time),
            row.agent.as_deref().unwrap_or("–").to_owned(),
            if row.tool.is_empty() { "–".to_owned() } else { row.tool.to_string() },
            super::outcome_cell(row),
            row.code.as_deref().unwrap_or("–").to_owned(),
            row.duration_us.map_or_else(|| "–".to_owned(), super::milliseconds),
            names_cell(row),
        ]
    });
    table::render(["SEQ", "TIME", "AGENT", "TOOL", "OUTCOME", "CODE", "TIME TAKEN", "NAMES"], rows)
}

/// Formats the last column of a row: the subjects of its arguments, or the facts of a row that is not about a
/// call.
fn names_cell(row: &Row) -> String {
    let short = |digest: &Option<audit::SharedText>| match digest {
        Some(digest) => digest.chars().take(SHORT_DIGEST_CHARS).collect(),
        None => "none".to_owned(),
    };
    match row.event {
        RowEvent::Start => {
            let version = row.version.as_deref().unwrap_or("an unknown version");
            format!("{version}, policy {}", short(&row.policy_digest))
        }
        RowEvent::Policy => match &row.refused {
            // The first line names the first fault; the row itself has more.
            Some(reason) => format!("refused: {}", reason.lines().next().unwrap_or_default()),
            None => format!("{} → {}", short(&row.old_digest), short(&row.new_digest)),
        },
        _ => {
            let subjects: Vec<&str> = row.subjects.iter().map(|subject| &*subject.value).collect();
            subjects.join(", ")
        }
    }
}

/// The length of the part of a digest that a table shows: 12 characters, which are enough for `--policy-digest`.
const SHORT_DIGEST_CHARS: usize = 12;
