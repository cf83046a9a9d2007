//! `portcullis audit report`: writes a page about the audit log and the grants of the policy in force.
//!
//! The log is read twice, row by row: once to verify it, and once to count the rows that match the filters.
//! The memory does not grow with the log.

mod figures;
mod page;
mod tally;

use std::{path::Path, process::ExitCode};

use jiff::Timestamp;
use portcullis_tools::audit::{
    self, AuditError, CheckpointFinding, CheckpointSource, VerifyReport, VerifyRequest,
};

use self::figures::Figures;
use super::{filter::RowFilter, verify::read_anchors};
use crate::{
    cli::{CommonOptions, FilterOptions, ReportOptions},
    command::mounts::{ExplainContext, UseCounts},
    error::CliError,
    output::{html, stream, text},
};

/// The external evidence about the end of the log. The chain alone cannot show that rows were cut off at the
/// end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnchorState {
    /// No external evidence was compared.
    NotAnchored,
    /// The log has the row that `source` names, and every row up to it is unchanged.
    Holds {
        /// The evidence, as a noun phrase for the report.
        source: &'static str,
        /// The number of that row.
        up_to: u64,
        /// When that row was written.
        time: Timestamp,
    },
    /// The log does not have that row, or is not intact up to it.
    Missing {
        /// The evidence, as a noun phrase for the report.
        source: &'static str,
    },
}

/// Writes the page. A log that is not intact also gets a page, which reports that first. The exit code is
/// then 1.
pub(crate) fn report(common: &CommonOptions, options: ReportOptions) -> Result<ExitCode, CliError> {
    let ReportOptions { html: file, head, anchor, filter, modules } = options;
    // Check the file first, because reading a long log takes long.
    html::check_new_file(&file)?;
    let mut request = VerifyRequest { head, ..VerifyRequest::default() };
    for source in &anchor {
        request.anchors.extend(read_anchors(source)?);
    }
    let filters = filter_words(&filter);
    let filter = RowFilter::new(filter)?;
    let ExplainContext { envelope, explainer, tools } = ExplainContext::new(common, modules)?;
    let grants = explainer.grants_of(&tools);
    let log = audit::log_path(&envelope.state);
    let verification = verified(&log, &request)?;
    let counts = UseCounts::new(&grants, explainer.policy());
    let counted = LogCounts::read(&log, &verification, &filter, counts)?;
    let anchor = anchor_state(&verification, counted.last_anchored);
    let page = page::render(&page::ReportInput {
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
        created_at: Timestamp::now(),
    });
    html::write_new_file(&file, &page)?;
    // A damaged log also gets a page, and the exit code reports the damage.
    let is_whole = verification.is_intact() && !matches!(anchor, AnchorState::Missing { .. });
    stream::write_output(&format!(
        "wrote {}: {} of {} rows\n{}",
        text::inline(&file.display().to_string()),
        counted.figures.rows,
        verification.rows,
        super::verification_text(&VerifyReport {
            open_begins: Vec::new(),
            open_begins_omitted: 0,
            ..verification
        })
    ))?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verified(log: &Path, request: &VerifyRequest) -> Result<VerifyReport, CliError> {
    audit::verify_against(log, request).map_err(|source| {
        if source.is_missing() {
            CliError::NoAuditLog { path: log.to_owned() }
        } else {
            CliError::Audit { source }
        }
    })
}

/// The rows of a log, counted.
struct LogCounts {
    figures: Figures,
    counts: UseCounts,
    /// The number of lines that are not rows.
    unreadable: u64,
    /// The number and time of the last row that external evidence covers.
    last_anchored: Option<(u64, Timestamp)>,
}

impl LogCounts {
    /// Counts the verified rows, and leaves out rows that were written afterwards.
    fn read(
        log: &Path,
        verification: &VerifyReport,
        filter: &RowFilter,
        counts: UseCounts,
    ) -> Result<Self, CliError> {
        let mut counted = Self { figures: Figures::default(), counts, unreadable: 0, last_anchored: None };
        let anchored_rows = anchored_rows(verification);
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
            if anchored_rows == Some(row.seq) {
                counted.last_anchored = Some((row.seq, row.time));
            }
            if filter.matches(&row) {
                counted.figures.add(&row);
                counted.counts.add(&row);
            }
        }
        Ok(counted)
    }
}

/// Returns the number of the last row that external evidence covers.
fn anchored_rows(verification: &VerifyReport) -> Option<u64> {
    let anchors = verification.anchors.iter().filter(|anchor| {
        anchor.source == CheckpointSource::Outside && anchor.finding == CheckpointFinding::Holds
    });
    anchors.map(|anchor| anchor.size).chain(verification.head_seq).max()
}

fn anchor_state(verification: &VerifyReport, last_anchored: Option<(u64, Timestamp)>) -> AnchorState {
    if verification.head_found() == Some(false) {
        return AnchorState::Missing { source: "a head that was noted elsewhere" };
    }
    if let Some(bad) = verification.anchors.iter().find(|anchor| !anchor.finding.is_good()) {
        return AnchorState::Missing {
            source: match bad.source {
                CheckpointSource::Outside => "a checkpoint that was kept elsewhere",
                CheckpointSource::State(_) => "a checkpoint of the state folder",
            },
        };
    }
    match last_anchored {
        Some((up_to, time)) => AnchorState::Holds { source: "evidence that was kept elsewhere", up_to, time },
        None => AnchorState::NotAnchored,
    }
}

/// Formats the given filters, for the page.
fn filter_words(options: &FilterOptions) -> Vec<String> {
    // No `..`, so that a new filter cannot be left out of the page.
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
