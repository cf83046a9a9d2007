//! The section about hosts and secrets.

use maud::{Markup, html};
use portcullis_types::display::text::bytes;

use super::{MAX_ROWS, number, omitted_rows, time};
use crate::{
    command::audit::report::figures::{Figures, Traffic},
    output::html::{
        Column::{Number, Text},
        Count, Listing, Untrusted,
    },
};

pub(super) fn traffic(figures: &Figures) -> Markup {
    html! { (hosts(figures)) (secrets(figures)) }
}

fn hosts(figures: &Figures) -> Markup {
    if figures.hosts.is_empty() {
        return html! { p { "No call named or reached a host." } };
    }
    let entries = figures.hosts.sorted_by_weight(Traffic::total);
    let size = |count: u64| html! { @if count == 0 { span.none { "–" } } @else { (bytes(count)) } };
    let rows = entries.iter().take(MAX_ROWS).map(|(host, traffic)| {
        vec![
            html! { code { (Untrusted(host)) } },
            number(traffic.requests),
            number(traffic.connections),
            number(traffic.refused),
            size(traffic.sent),
            size(traffic.received),
            time(traffic.last),
        ]
    });
    let listing = Listing {
        caption: "Requests of tools and connections of commands, by host",
        columns: &[
            Text("Host"),
            Number("Requests"),
            Number("Connections"),
            Number("✗ Refused"),
            Number("Sent"),
            Number("Received"),
            Text("Last, UTC"),
        ],
        rows: rows.collect(),
        omitted: omitted_rows(&figures.hosts, entries.len()),
    };
    html! {
        p { "Bytes are counted for the connections of commands only. Rows of requests do not have them." }
        (listing)
        @if let Some(others) = figures.hosts.other_values() {
            p.more { (Count(others.total())) " further requests and connections went to hosts that did not fit" }
        }
    }
}

fn secrets(figures: &Figures) -> Markup {
    if figures.secrets.is_empty() {
        return html! { p { "No request carried a secret." } };
    }
    let entries = figures.secrets.sorted_by_weight(|answers| answers.count);
    let rows = entries.iter().take(MAX_ROWS).map(|((secret, tool), answers)| {
        vec![
            html! { code { (Untrusted(secret)) } },
            html! { code { (Untrusted(tool)) } },
            number(answers.count),
            time(answers.first),
            time(answers.last),
        ]
    });
    let listing = Listing {
        caption: "Secrets that requests carried, by name; no row has a value",
        columns: &[Text("Secret"), Text("Tool"), Number("Calls"), Text("First, UTC"), Text("Last, UTC")],
        rows: rows.collect(),
        omitted: omitted_rows(&figures.secrets, entries.len()),
    };
    html! {
        (listing)
        @if let Some(others) = figures.secrets.other_values() {
            p.more { (Count(others.count)) " further uses are of secrets and tools that did not fit" }
        }
    }
}
