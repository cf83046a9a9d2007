//! The section about the policy, the programs that wrote rows, approved modules, and open calls.

use maud::{Markup, html};

use super::{MAX_ROWS, ReportInput, digest, number, omitted_rows, time};
use crate::{
    command::audit::report::figures::{Figures, Newest},
    output::html::{
        Column::{Number, Text},
        Count, Listing, Time, Untrusted,
    },
};

pub(super) fn history(input: &ReportInput<'_>) -> Markup {
    html! {
        (policies(input))
        (changes(&input.figures.changes))
        (programs(input.figures))
        (pins(&input.figures.pins))
        (open_calls(input))
    }
}

fn policies(input: &ReportInput<'_>) -> Markup {
    let tally = &input.figures.policies;
    let entries = tally.sorted_by_weight(|answers| answers.count);
    let in_force = input.policy.digest().as_str();
    let rows = entries.iter().take(MAX_ROWS).map(|(policy, answers)| {
        vec![
            html! { (digest(policy)) @if *policy == in_force { " in force" } },
            number(answers.count),
            time(answers.first),
            time(answers.last),
        ]
    });
    let rows: Vec<_> = rows.collect();
    html! {
        @if !rows.is_empty() {
            (Listing {
                caption: "Policies that decided the calls",
                columns: &[Text("Policy"), Number("Calls"), Text("First, UTC"), Text("Last, UTC")],
                rows,
                omitted: omitted_rows(tally, entries.len()),
            })
        }
    }
}

fn changes(changes: &Newest) -> Markup {
    if changes.count == 0 {
        return html! { p { "The policy did not change." } };
    }
    let rows = changes.newest_changes.iter().rev().map(|change| {
        vec![
            html! { (Time(change.time)) },
            html! { code { (Untrusted(&change.subject)) } },
            html! { (Untrusted(&change.cause)) },
            html! { (Untrusted(&change.by)) },
            html! { @match &change.refused {
                Some(reason) => { span.tag.bad { "✗ refused" } " " (Untrusted(reason)) },
                None => span.tag.ok { "✓ in force" },
            } },
            html! { (Count(change.seq)) },
        ]
    });
    let listing = Listing {
        caption: "Changes of the policy, the newest first",
        columns: &[
            Text("Time, UTC"),
            Text("Old → new"),
            Text("Read at a"),
            Text("By"),
            Text("Outcome"),
            Number("Row"),
        ],
        rows: rows.collect(),
        omitted: changes.count - changes.newest_changes.len() as u64,
    };
    html! { (listing) }
}

fn programs(figures: &Figures) -> Markup {
    if figures.programs.is_empty() {
        return html! { p { "No row reports a start." } };
    }
    let entries = figures.programs.sorted_by_weight(|answers| answers.count);
    let starts: u64 = entries.iter().map(|(_, answers)| answers.count).sum::<u64>()
        // Count the programs that did not fit too, so that the sum covers the whole log.
        + figures.programs.other_values().map_or(0, |others| others.count);
    let rows = entries.iter().take(MAX_ROWS).map(|(program, answers)| {
        vec![
            html! { (Untrusted(&program.version)) },
            digest(&program.binary),
            html! { (Untrusted(&program.host)) },
            html! { @match &program.instance { Some(instance) => (Untrusted(instance)), None => span.none { "–" } } },
            html! { @match program.uid { Some(uid) => (uid), None => span.none { "–" } } },
            number(answers.count),
            time(answers.first),
            time(answers.last),
        ]
    });
    let listing = Listing {
        caption: "Programs that wrote rows",
        columns: &[
            Text("Version"),
            Text("Binary"),
            Text("Host"),
            Text("Instance"),
            Number("User"),
            Number("Starts"),
            Text("First, UTC"),
            Text("Last, UTC"),
        ],
        rows: rows.collect(),
        omitted: omitted_rows(&figures.programs, entries.len()),
    };
    html! {
        (listing)
        p.note {
            "Starts: " (Count(starts)) ". Stops: " (Count(figures.stops)) ". A process that was killed, or still runs, has no \
            stop."
        }
    }
}

fn pins(pins: &Newest) -> Markup {
    if pins.count == 0 {
        return html! {};
    }
    let rows = pins.newest_changes.iter().rev().map(|change| {
        vec![
            html! { code { (Untrusted(&change.subject)) } },
            html! { (Untrusted(&change.cause)) },
            html! { (Untrusted(&change.by)) },
            html! { (Count(change.seq)) },
            html! { (Time(change.time)) },
        ]
    });
    let listing = Listing {
        caption: "Approvals of modules' tools, the newest first",
        columns: &[Text("Tool"), Text("Change"), Text("By"), Number("Row"), Text("Time, UTC")],
        rows: rows.collect(),
        omitted: pins.count - pins.newest_changes.len() as u64,
    };
    html! { (listing) }
}

/// Lists the calls of the whole log that have a beginning but no end.
fn open_calls(input: &ReportInput<'_>) -> Markup {
    let open = &input.verification.open_begins;
    if open.is_empty() {
        return html! { p { "No call is open: each beginning has its end." } };
    }
    let rows = open.iter().take(MAX_ROWS).map(|begin| {
        vec![
            html! { code { (Untrusted(&begin.tool)) } },
            html! { code { (Untrusted(&begin.call_id)) } },
            html! { code { (Untrusted(&begin.process)) } },
            html! { (Count(begin.seq)) },
        ]
    });
    let listing = Listing {
        caption: "Open calls: they run now, or their process died",
        columns: &[Text("Tool"), Text("Call"), Text("Process"), Number("Row")],
        rows: rows.collect(),
        omitted: open.len().saturating_sub(MAX_ROWS) as u64 + input.verification.open_begins_omitted,
    };
    html! { (listing) }
}
