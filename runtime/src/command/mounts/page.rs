//! The page of `mounts --html`.

use std::path::Path;

use jiff::Timestamp;
use maud::html;
use portcullis_tools::{
    FlowStep, ReachSource, ToolGrants,
    policy::{SourceLocation, WorkspaceSecurityPolicy},
};

use super::{
    UseCounts, destination_text, gate_text,
    matrix::{GrantUse, matrix, use_words, verdict},
    sorted_by_mount,
};
use crate::output::html::{Column, Listing, Time, Untrusted, page};

/// The maximum number of grants that the list shows.
const MAX_GRANTS: usize = 5_000;

/// The maximum number of steps of one source that the page shows.
const MAX_FLOW_STEPS: usize = 500;

/// Everything that the page shows.
pub(super) struct MapInput<'a> {
    pub(super) workspace: &'a Path,
    pub(super) policy: &'a WorkspaceSecurityPolicy,
    pub(super) grants: &'a [ToolGrants],
    pub(super) use_counts: &'a UseCounts,
    /// The sources of data, each with the steps that its data can take.
    pub(super) flows: &'a [(ReachSource, Vec<FlowStep>)],
    pub(super) created_at: Timestamp,
}

pub(super) fn render(input: &MapInput<'_>) -> String {
    let MapInput { workspace, policy, grants, use_counts, flows, created_at } = input;
    let by_mount = sorted_by_mount(grants);
    let rows = by_mount.iter().take(MAX_GRANTS).map(|(grant, grants)| {
        let count = use_counts.of(grants, &grant.mount);
        vec![
            html! { code { (Untrusted(&format!("/{}", grant.mount))) } },
            html! { code { (Untrusted(grants.step.as_ref().unwrap_or(&grants.tool))) } },
            html! { (grant.access.as_str()) },
            html! { span.whole { (use_words(grant.access, GrantUse::of(count), count)) } },
            verdict(grants.verdict),
            html! { code { (Untrusted(&grant.rule)) } },
            location(grant.location.as_ref()),
        ]
    });
    let rules = Listing {
        caption: "Each grant with the rule that gives it",
        columns: &["Mount", "Tool", "Access", "In the log", "A call", "Rule", "From"].map(Column::Text),
        rows: rows.collect(),
        // The page shows how many grants it leaves out, so that it does not look complete.
        omitted: by_mount.len().saturating_sub(MAX_GRANTS) as u64,
    };
    let body = html! {
        header {
            p.kind { "Portcullis" }
            h1 { "Map of mounts" }
            dl.facts {
                div { dt { "Workspace" } dd { code { (Untrusted(&workspace.display().to_string())) } } }
                div { dt { "Policy in force" } dd { code { (policy.digest().as_str()) } } }
                div { dt { "Made" } dd { (Time(*created_at)) " UTC" } }
            }
        }
        main {
            section aria-labelledby="map" {
                h2 #map { "Granted, used, tried" }
                p { "Each entry is an answer of the function that judges calls. “A call” says whether a call runs, \
                     asks a person, or is refused, in a run that has read nothing. The numbers come from the whole audit \
                     log, which was not verified for this page." }
                (matrix(policy, grants, use_counts))
            }
            section aria-labelledby="rules" {
                h2 #rules { "Grants and their rules" }
                (rules)
            }
            section aria-labelledby="flows" {
                h2 #flows { "Where data can go" }
                p { "The steps that data can take from each source, over chains of calls. Every flow that the grants allow \
                     is listed. A listed flow need not carry data." }
                @for (source, steps) in *flows { (flow_listing(source, steps)) }
            }
        }
    };
    page("Portcullis: map of mounts", &body)
}

/// Lists the steps of the data of one source.
fn flow_listing(source: &ReachSource, steps: &[FlowStep]) -> maud::Markup {
    let source = source.to_string();
    if steps.is_empty() {
        return html! { p { "From " code { (Untrusted(&source)) } ": no tool reads it." } };
    }
    let rows = steps.iter().take(MAX_FLOW_STEPS).map(|step| {
        vec![
            html! { code { (Untrusted(&step.from)) } },
            html! { code { (Untrusted(&step.tool)) } },
            html! { (Untrusted(&gate_text(step))) },
            html! { (Untrusted(&destination_text(step))) },
        ]
    });
    let caption = format!("From {source}");
    let listing = Listing {
        caption: &caption,
        columns: &["Data in", "Tool", "A call", "Goes to"].map(Column::Text),
        rows: rows.collect(),
        omitted: steps.len().saturating_sub(MAX_FLOW_STEPS) as u64,
    };
    html! { (listing) }
}

fn location(location: Option<&SourceLocation>) -> maud::Markup {
    match location {
        Some(location) => html! { code { (Untrusted(&location.to_string())) } },
        None => html! { span.none { "default" } },
    }
}
