//! The page of a report: the headline, the state of the log, and the sections.

mod calls;
mod history;
mod traffic;
mod unused;

use std::path::Path;

use jiff::Timestamp;
use maud::{Markup, html};
use portcullis_tools::{ToolGrants, audit::VerifyReport, policy::WorkspaceSecurityPolicy};

use super::{AnchorState, figures::Figures, tally::Tally};
use crate::{
    command::mounts::{UseCounts, matrix::matrix},
    output::html::{Count, Time, Untrusted, page, short_digest},
};

/// The maximum number of rows of a listing.
const MAX_ROWS: usize = 40;

/// Everything that the page shows.
pub(super) struct ReportInput<'a> {
    pub(super) workspace: &'a Path,
    pub(super) log: &'a Path,
    pub(super) policy: &'a WorkspaceSecurityPolicy,
    pub(super) grants: &'a [ToolGrants],
    pub(super) counts: &'a UseCounts,
    pub(super) figures: &'a Figures,
    /// The number of lines that are not rows.
    pub(super) unreadable: u64,
    pub(super) verification: &'a VerifyReport,
    pub(super) anchor: &'a AnchorState,
    /// The filters as they were given.
    pub(super) filters: &'a [String],
    pub(super) created_at: Timestamp,
}

/// The sections that the page's navigation names.
const SECTIONS: [(&str, &str); 8] = [
    ("grants", "Granted, used, tried"),
    ("unused", "Unused grants"),
    ("calls", "Calls"),
    ("denials", "Denials"),
    ("approvals", "Approvals"),
    ("network", "Hosts and secrets"),
    ("policy", "Policy and programs"),
    ("limits", "Limits of this report"),
];

pub(super) fn render(input: &ReportInput<'_>) -> String {
    let body = html! {
        (headline(input))
        main {
            (state_of_the_log(input))
            (totals(input))
            nav aria-label="Sections" {
                ul { @for (id, title) in SECTIONS { li { a href=(format_args!("#{id}")) { (title) } } } }
            }
            (section(0, &html! {
                p { "Grants are those of the policy in force now; the numbers are those of the rows that this report counts. \
                     “A call” says whether a call runs, asks a person, or is refused, in a run that has read nothing." }
                (matrix(input.policy, input.grants, input.counts))
            }))
            (section(1, &unused::unused(input)))
            (section(2, &calls::calls(input.figures)))
            (section(3, &calls::denials(input.figures)))
            (section(4, &calls::approvals(input.figures)))
            (section(5, &traffic::traffic(input.figures)))
            (section(6, &history::history(input)))
            (section(7, &limits()))
        }
    };
    page("Portcullis: audit report", &body)
}

fn section(index: usize, content: &Markup) -> Markup {
    let (id, title) = SECTIONS[index];
    html! { section aria-labelledby=(id) { h2 id=(id) { (title) } (content) } }
}

fn headline(input: &ReportInput<'_>) -> Markup {
    html! {
        header {
            p.kind { "Portcullis" }
            h1 { "Audit report" }
            p.period {
                @match input.figures.period {
                    Some((first, last)) => { (Time(first)) " to " (Time(last)) " UTC" }
                    None => { "no row meets the filters" },
                }
            }
            dl.facts {
                div { dt { "Workspace" } dd { code { (Untrusted(&input.workspace.display().to_string())) } } }
                div { dt { "Log" } dd { code { (Untrusted(&input.log.display().to_string())) } } }
                div { dt { "Policy in force" } dd { code { (input.policy.digest().as_str()) } } }
                div {
                    dt { "Rows" }
                    dd {
                        (Count(input.figures.rows)) " of " (Count(input.verification.rows))
                        @if input.filters.is_empty() { ", without a filter" }
                        @for filter in input.filters.iter().take(MAX_ROWS) { ", " code { (Untrusted(filter)) } }
                    }
                }
                div { dt { "Made" } dd { (Time(input.created_at)) " UTC" } }
            }
        }
    }
}

/// Shows whether the log is intact. The chain and the evidence about its end are shown separately.
fn state_of_the_log(input: &ReportInput<'_>) -> Markup {
    let VerifyReport { rows, last_seq, head, first_break: broken, .. } = input.verification;
    html! {
        section.states aria-label="The state of the log" {
            @match broken {
                None => div.state.ok {
                    h2 { "✓ The chain is intact" }
                    p { (Count(*rows)) " rows. None was changed, moved, inserted, or removed between two others." }
                    p { "Head " code.hash { (Untrusted(head)) } }
                },
                Some(broken) => div.state.bad {
                    h2 { "✗ The chain is broken" }
                    p { "Line " (Count(broken.line)) ", byte " (Count(broken.offset)) ": " (broken.why.to_string())
                        ". "
                        @if *last_seq == 0 { "No row holds" } @else { "The rows up to row " (Count(*last_seq)) " hold" }
                        "; this report also counts the rows after it, which prove nothing." }
                    @if input.unreadable > 0 { p { "Lines that are not rows: " (Count(input.unreadable)) "." } }
                    p { "Head of the rows that hold " code.hash { (Untrusted(head)) } }
                },
            }
            // An intact chain does not show whether rows were cut off at its end, so the anchor is a second
            // state.
            @match input.anchor {
                AnchorState::NotAnchored => div.state.warn {
                    h2 { "! Not anchored" }
                    p { "Rows cut off the end would not be noticed, nor a log that was rewritten as a whole." }
                    p { "Keep a checkpoint or the head elsewhere, and give it to a later report with " code.whole { "--anchor" } " \
                         or " code.whole { "--head" } "." }
                },
                AnchorState::Holds { source, up_to, time } => div.state.ok {
                    h2 { "✓ Anchored up to row " (Count(*up_to)) }
                    p { "By " (source) ", the log has that row, written at " (Time(*time)) " UTC, and every row before it \
                         is unchanged." }
                    p { "Rows that follow it: " (Count(last_seq.saturating_sub(*up_to))) ". If further rows were cut off the \
                         end, that would not show." }
                },
                AnchorState::Missing { source } => div.state.bad {
                    h2 { "✗ Rows are missing" }
                    p { "The log contradicts " (source) ": it was cut, rewritten or replaced, is another log, or is not intact \
                         up to there." }
                },
            }
        }
    }
}

fn totals(input: &ReportInput<'_>) -> Markup {
    let total = &input.figures.total;
    let open = input.verification.open_begins.len() as u64 + input.verification.open_begins_omitted;
    let figures = [
        ("Calls", total.calls, ""),
        ("✓ Ran", total.ran, "ok"),
        ("? Asked", total.asked, "ask"),
        ("✗ Denied", total.denied, "bad"),
        ("! Failed", total.failed + total.unknown, ""),
        ("Still open", open, ""),
    ];
    html! {
        dl.totals aria-label="Totals" {
            @for (label, count, class) in figures {
                div class=[(count > 0 && !class.is_empty()).then_some(class)] {
                    dt { (label) }
                    dd { (Count(count)) }
                }
            }
        }
    }
}

fn limits() -> Markup {
    html! {
        ul.prose {
            li { "The kernel does not report which files a command of the shell touches. Its calls count for every mount that \
                  they were granted, as “not seen”." }
            li { "A grant that was not used in this period may be needed tomorrow. A policy that the log was written under \
                  may have granted something else than the policy in force." }
            li { "The names of agents, runs and clients are those that the caller gave. The operating system vouches \
                  only for user numbers." }
            li { "The row of a call says which of the host's files it touched, not which data. Data that a model has read \
                  can leave by every tool that the model may call: " code { "portcullis mounts --reach" } " shows the ways." }
            li { "The chain shows changes within the log. Without an anchor it cannot show that the end is missing." }
        }
    }
}

/// Returns the number of a tally's rows that a listing leaves out.
fn omitted_rows<K: Ord, V: Default>(tally: &Tally<K, V>, names: usize) -> u64 {
    debug_assert!(tally.other_values().is_none() || names > MAX_ROWS, "names are left out only after many");
    names.saturating_sub(MAX_ROWS) as u64
}

/// Formats a digest in short form, with the whole digest as a tooltip.
fn digest(text: &str) -> Markup {
    html! { code title=(portcullis_types::display::EscapedText(text)) { (Untrusted(short_digest(text))) } }
}

/// Formats a time that may be missing.
fn time(time: Option<Timestamp>) -> Markup {
    html! { @match time { Some(time) => (Time(time)), None => span.none { "–" } } }
}

/// Formats a number, in grey if it is 0.
fn number(count: u64) -> Markup {
    html! { @if count == 0 { span.none { "0" } } @else { (Count(count)) } }
}

/// Formats a duration with one decimal, rounded down.
fn duration(microseconds: u64) -> String {
    match microseconds {
        0..1_000_000 => format!("{}.{} ms", microseconds / 1000, microseconds % 1000 / 100),
        _ => format!("{}.{} s", Count(microseconds / 1_000_000), microseconds % 1_000_000 / 100_000),
    }
}
