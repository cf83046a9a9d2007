//! `portcullis audit report`: the audit log as a page, beside the grants of the policy in force.
//!
//! The log is read twice, row by row: once to verify it, and once to count the rows that meet the filters. Neither needs
//! more memory for a longer log.

mod figures;
mod page;
mod tally;

use std::{path::Path, process::ExitCode};

use jiff::Timestamp;
use portcullis_tools::audit::{self, AuditError, VerifyReport};

use self::figures::Figures;
use super::filter::RowFilter;
use crate::{
    cli::{CommonOptions, FilterOptions, ReportOptions},
    command::mounts::{Explained, UseCounts},
    error::CliError,
    output::{html, stream, text},
};

/// The evidence, kept elsewhere, about the end of the log. The chain alone cannot show that rows were cut off there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnchorState {
    /// Nothing from elsewhere was compared.
    NotAnchored,
    /// The log has the row that `source` names, and every row before it is unchanged.
    Holds {
        /// The evidence, such as `the head of --head`.
        source: &'static str,
        /// The number of that row.
        up_to: u64,
        /// When that row was written.
        time: Timestamp,
    },
    /// The log does not have that row, or is not intact up to it.
    Missing {
        /// As above.
        source: &'static str,
    },
}

/// Writes the page. A log that is not intact gets one too, which says so first; the exit code is then 1.
pub(crate) fn report(common: &CommonOptions, options: ReportOptions) -> Result<ExitCode, CliError> {
    let ReportOptions { html: file, head, filter, modules } = options;
    html::check_new_file(&file)?;
    let filters = filter_words(&filter);
    let filter = RowFilter::new(filter)?;
    let Explained { envelope, explainer, tools } = Explained::new(common, modules)?;
    let grants = explainer.grants_of(&tools);
    let log = audit::log_path(&envelope.state);
    let verification = verified(&log)?;
    let counts = UseCounts::new(&grants, explainer.policy());
    let counted = Counted::read(&log, &verification, &filter, head.as_deref(), counts)?;
    let anchor = counted.anchor(head.is_some(), &verification);
    let page = page::render(&page::ReportFacts {
        workspace: &envelope.workspace,
        log: &log,
        policy: explainer.policy(),
        grants: &grants,
        counts: &counted.counts,
        figures: &counted.figures,
        unreadable: counted.unreadable,
        verification: &verification,
        anchor: &anchor,
        filters: &filters,
        made: Timestamp::now(),
    });
    html::write_new_file(&file, &page)?;
    let is_whole = verification.is_intact() && !matches!(anchor, AnchorState::Missing { .. });
    stream::write_answer(&format!(
        "wrote {}: {} of {} rows\n{}",
        text::inline(&file.display().to_string()),
        counted.figures.rows,
        verification.rows,
        super::verification_text(&VerifyReport {
            open_begins: Vec::new(),
            open_begins_left_out: 0,
            ..verification
        })
    ))?;
    if matches!(anchor, AnchorState::Missing { .. }) {
        stream::write_stderr("the log does not have the row of --head, or is not intact up to it\n");
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verified(log: &Path) -> Result<VerifyReport, CliError> {
    audit::verify(log).map_err(|source| match source.is_missing() {
        true => CliError::NoAuditLog { path: log.to_owned() },
        false => CliError::Audit { source },
    })
}

/// The rows of a log, counted.
struct Counted {
    figures: Figures,
    counts: UseCounts,
    /// The lines that are not rows.
    unreadable: u64,
    /// The number and time of the row with the given hash.
    head: Option<(u64, Timestamp)>,
}

impl Counted {
    /// Counts the rows that were verified, and not those that were written since.
    fn read(
        log: &Path,
        verification: &VerifyReport,
        filter: &RowFilter,
        head: Option<&str>,
        counts: UseCounts,
    ) -> Result<Self, CliError> {
        let mut counted = Self { figures: Figures::default(), counts, unreadable: 0, head: None };
        let lines = usize::try_from(verification.rows).unwrap_or(usize::MAX);
        for row in audit::rows(log).take(lines) {
            let row = match row {
                Ok(row) => row,
                Err(AuditError::Malformed { .. } | AuditError::Overlong { .. }) => {
                    counted.unreadable += 1;
                    continue;
                }
                Err(source) => return Err(CliError::Audit { source }),
            };
            if head == Some(&*row.hash) {
                counted.head = Some((row.seq, row.time));
            }
            if filter.matches(&row) {
                counted.figures.add(&row);
                counted.counts.add(&row);
            }
        }
        Ok(counted)
    }

    fn anchor(&self, was_given: bool, verification: &VerifyReport) -> AnchorState {
        let source = "a head that was noted elsewhere";
        match self.head {
            // A row after a break only claims its hash.
            Some((up_to, time)) if up_to <= verification.last_seq => {
                AnchorState::Holds { source, up_to, time }
            }
            _ if was_given => AnchorState::Missing { source },
            _ => AnchorState::NotAnchored,
        }
    }
}

/// The filters as they were given, for the page.
fn filter_words(options: &FilterOptions) -> Vec<String> {
    let FilterOptions {
        agent,
        tool,
        run,
        call,
        operation,
        since,
        until,
        in_mount,
        path,
        decision,
        rule,
        code,
        label,
        policy_digest,
        event,
    } = options;
    let texts = |option: &str, values: &[String]| -> Vec<String> {
        values.iter().map(|value| format!("{option} {value}")).collect()
    };
    let mut words = Vec::new();
    words.extend(since.iter().map(|time| format!("--since {time}")));
    words.extend(until.iter().map(|time| format!("--until {time}")));
    for (option, values) in [
        ("--agent", agent),
        ("--tool", tool),
        ("--run", run),
        ("--call", call),
        ("--operation", operation),
        ("--in-mount", in_mount),
        ("--path", path),
        ("--rule", rule),
        ("--code", code),
        ("--label", label),
        ("--policy-digest", policy_digest),
    ] {
        words.extend(texts(option, values));
    }
    words.extend(decision.iter().map(|decision| format!("--decision {decision}")));
    words.extend(event.iter().map(|event| format!("--event {event}")));
    words
}

#[cfg(test)]
mod tests;
