//! The sections about calls: by tool and agent, denials, approvals.

use maud::{Markup, html};

use super::{MAX_ROWS, duration, number, omitted_rows, time};
use crate::{
    command::audit::report::{
        figures::{Calls, Figures, ModelRequests},
        tally::Tally,
    },
    output::html::{
        Column::{self, Number, Text},
        Count, Listing, Untrusted,
    },
};

const CALL_COLUMNS: [Column; 9] = [
    Text("Name"),
    Number("Calls"),
    Number("✓ Ran"),
    Number("? Asked"),
    Number("✗ Denied"),
    Number("! Failed"),
    Number("Mean"),
    Number("Longest"),
    Text("Last, UTC"),
];

pub(super) fn calls(figures: &Figures) -> Markup {
    html! {
        p { "A call counts under the name of its tool, and a step of an operation under its own name. Calls that asked also \
             count as run, denied or failed. A call whose process died counts as failed, and a call whose result comes later \
             as run. Times are without waits for a person." }
        (by_name("Calls by tool", &figures.tools))
        (by_name("Calls by agent", &figures.agents))
        (models(figures))
    }
}

fn by_name(caption: &str, tally: &Tally<String, Calls>) -> Markup {
    let entries = tally.sorted_by_weight(|calls| calls.calls);
    let mut rows: Vec<_> = entries
        .iter()
        .take(MAX_ROWS)
        .map(|(name, calls)| row(html! { code { (Untrusted(name)) } }, calls))
        .collect();
    if let Some(others) = tally.other_values() {
        rows.push(row(html! { "names that did not fit" }, others));
    }
    let omitted = omitted_rows(tally, entries.len());
    html! { (Listing { caption, columns: &CALL_COLUMNS, rows, omitted }) }
}

fn models(figures: &Figures) -> Markup {
    let entries = figures.models.sorted_by_weight(|requests| requests.requests);
    if entries.is_empty() {
        return Markup::default();
    }
    let row = |name: Markup, requests: &ModelRequests| {
        vec![
            name,
            number(requests.requests),
            number(requests.failed),
            number(requests.input_tokens),
            number(requests.output_tokens),
            time(requests.last),
        ]
    };
    let mut rows: Vec<_> = entries
        .iter()
        .take(MAX_ROWS)
        .map(|(name, requests)| row(html! { code { (Untrusted(name)) } }, requests))
        .collect();
    if let Some(others) = figures.models.other_values() {
        rows.push(row(html! { "names that did not fit" }, others));
    }
    let columns = &[
        Text("Model"),
        Number("Requests"),
        Number("! Failed"),
        Number("Tokens in"),
        Number("Tokens out"),
        Text("Last, UTC"),
    ];
    let omitted = omitted_rows(&figures.models, entries.len());
    html! { (Listing { caption: "Requests to models", columns, rows, omitted }) }
}

fn row(name: Markup, calls: &Calls) -> Vec<Markup> {
    let duration_cell = |microseconds: Option<u64>| {
        html! {
            @match microseconds { Some(time) => (duration(time)), None => span.none { "–" } }
        }
    };
    vec![
        name,
        number(calls.calls),
        number(calls.ran),
        number(calls.asked),
        number(calls.denied),
        number(calls.failed + calls.unknown),
        duration_cell(calls.mean_us()),
        duration_cell(calls.mean_us().map(|_| calls.longest_us)),
        time(calls.last),
    ]
}

pub(super) fn denials(figures: &Figures) -> Markup {
    if figures.denials.is_empty() {
        return html! { p { "No call was denied." } };
    }
    // The page has room for some rows only, so the most frequent come first.
    let entries = figures.denials.sorted_by_weight(|denials| denials.calls);
    let rows = entries.iter().take(MAX_ROWS).map(|(kind, denials)| {
        vec![
            html! { code { (Untrusted(&kind.code)) } },
            html! { code { (Untrusted(&kind.rule)) } },
            html! { code { (Untrusted(&kind.tool)) } },
            number(denials.calls),
            html! { @match &denials.subject {
                Some(subject) => code { (Untrusted(subject)) },
                None => span.none { "–" },
            } },
            html! { (Count(denials.seq)) },
            time(denials.last),
        ]
    });
    let listing = Listing {
        caption: "Denials by code, rule and tool",
        columns: &[
            Text("Code"),
            Text("Rule"),
            Text("Tool"),
            Number("Calls"),
            Text("The newest named"),
            Number("Row"),
            Text("Last, UTC"),
        ],
        rows: rows.collect(),
        omitted: omitted_rows(&figures.denials, entries.len()),
    };
    html! {
        (listing)
        @if let Some(others) = figures.denials.other_values() {
            p.more { (Count(others.calls)) " further denials have codes, rules or tools that did not fit" }
        }
    }
}

pub(super) fn approvals(figures: &Figures) -> Markup {
    if figures.approvals.is_empty() {
        return html! { p { "No call asked for an approval." } };
    }
    let entries = figures.approvals.sorted_by_weight(|answers| answers.count);
    let rows = entries.iter().take(MAX_ROWS).map(|(kind, answers)| {
        vec![
            html! { code { (Untrusted(&kind.tool)) } },
            answer(&kind.answer),
            // `by` is one of this program's own words, so it is not `Untrusted`.
            html! { (kind.by) },
            html! { (Untrusted(&kind.approver)) },
            html! { @match kind.uid { Some(uid) => (uid), None => span.none { "–" } } },
            html! { code { (Untrusted(&kind.rule)) } },
            number(answers.count),
            time(answers.last),
        ]
    });
    let listing = Listing {
        caption: "Approvals by tool, answer and approver",
        columns: &[
            Text("Tool"),
            Text("Answer"),
            Text("Way"),
            Text("Approver"),
            Number("User"),
            Text("Asked by the rule"),
            Number("Calls"),
            Text("Last, UTC"),
        ],
        rows: rows.collect(),
        omitted: omitted_rows(&figures.approvals, entries.len()),
    };
    html! {
        p { "“terminal” and “elicitation” are answers of a person to a question, which the state folder keeps. “flag” is \
             the operator's answer in advance, “session” an earlier answer that covers the call, and “program” the answer of \
             code." }
        (listing)
        @if let Some(others) = figures.approvals.other_values() {
            p.more { (Count(others.count)) " further calls have approvers or rules that did not fit" }
        }
    }
}

fn answer(answer: &str) -> Markup {
    if answer.starts_with("approved") {
        html! { span.tag.ok { "✓ " (Untrusted(answer)) } }
    } else {
        html! { span.tag.bad { "✗ " (Untrusted(answer)) } }
    }
}
