//! The table of tools and mounts on a page: granted, used, tried. A cell shows its state in words and by its
//! border, not only by its colour.

use maud::{Markup, html};
use portcullis_tools::{
    ToolGrants,
    policy::{Approval, WorkspaceSecurityPolicy},
};
use portcullis_types::Access;

use super::{UseCount, UseCounts};
use crate::output::html::{Count, Untrusted, table_box};

/// The maximum number of rows, columns and hosts that the table shows.
const MAX_TOOLS: usize = 2_000;
const MAX_MOUNTS: usize = 40;
const MAX_HOSTS: usize = 4;

/// The use of a grant, as the log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrantUse {
    /// Calls used the grant.
    Used,
    /// Calls could have used the grant, but their accesses were not observed.
    Unobserved,
    /// No call used the grant.
    Unused,
}

impl GrantUse {
    pub(crate) fn of(count: UseCount) -> Self {
        match count {
            UseCount { used: 0, .. } => Self::Unused,
            UseCount { used, unobserved, .. } if unobserved >= used => Self::Unobserved,
            _ => Self::Used,
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Unobserved => "unseen",
            Self::Unused => "unused",
        }
    }
}

/// Renders the table with its legend. Tools without mounts, hosts and refused attempts are named below the
/// table.
pub(crate) fn matrix(policy: &WorkspaceSecurityPolicy, grants: &[ToolGrants], counts: &UseCounts) -> Markup {
    // A tool that has tried a mount keeps its row, because refused attempts deserve attention.
    let is_empty = |grants: &&ToolGrants| {
        let has_tried = counts.mounts_of(grants).any(|(_, count)| count.tried > 0);
        grants.mounts.is_empty() && grants.hosts.is_empty() && !has_tried
    };
    let (without_grants, shown): (Vec<_>, Vec<_>) = grants.iter().partition(is_empty);
    let mounts: Vec<&str> = policy.mounts().iter().map(|mount| mount.name.as_str()).collect();
    let further_mounts = mounts.len().saturating_sub(MAX_MOUNTS);
    let mounts = &mounts[..mounts.len() - further_mounts];
    let table = html! {
        table.matrix {
            caption { "Tools by mounts: the access that the policy grants, and what the log shows of its use" }
            thead {
                tr {
                    th scope="col" { "Tool" }
                    th scope="col" { "A call" }
                    th.number scope="col" { "Calls" }
                    @for mount in mounts { th scope="col" { code { (Untrusted(&format!("/{mount}"))) } } }
                    th scope="col" { "Hosts" }
                }
            }
            tbody { @for grants in shown.iter().take(MAX_TOOLS) { (row(grants, mounts, counts)) } }
        }
    };
    html! {
        (render_legend())
        (table_box("Tools by mounts", &table))
        @if shown.len() > MAX_TOOLS { p.more { "and " (Count((shown.len() - MAX_TOOLS) as u64)) " more tools" } }
        @if further_mounts > 0 { p.more { "and " (Count(further_mounts as u64)) " more mounts" } }
        @if !without_grants.is_empty() {
            p.note {
                (Count(without_grants.len() as u64)) " tools have no mount and no host: "
                @for (index, grants) in without_grants.iter().take(MAX_TOOLS).enumerate() {
                    @if index > 0 { ", " }
                    code { (Untrusted(grants.step.as_ref().unwrap_or(&grants.tool))) }
                    @if counts.of_tool(grants).calls > 0 { " (" (calls(counts.of_tool(grants).calls)) ")" }
                }
                "."
            }
        }
    }
}

fn row(grants: &ToolGrants, mounts: &[&str], counts: &UseCounts) -> Markup {
    let tool_use = counts.of_tool(grants);
    html! {
        tr {
            th scope="row" {
                @match &grants.step {
                    Some(step) => {
                        code { (Untrusted(step)) }
                        small { "step of " (Untrusted(&grants.tool)) }
                    }
                    None => { code { (Untrusted(&grants.tool)) } },
                }
                small { (Untrusted(&grants.profile)) }
            }
            td { (verdict(grants.verdict)) }
            td.number { @if tool_use.calls > 0 { (Count(tool_use.calls)) } @else { span.none { "0" } } }
            @for mount in mounts {
                @let granted = grants.mounts.iter().find(|grant| grant.mount == *mount);
                td { (cell(granted.map(|grant| grant.access), counts.of(grants, mount))) }
            }
            td { (hosts(&grants.hosts, tool_use.requests)) }
        }
    }
}

/// Renders the answer to a call that names nothing: its sign and its word.
pub(crate) fn verdict(verdict: Approval) -> Markup {
    match verdict {
        Approval::Allow => html! { span.tag.ok { "✓ runs" } },
        Approval::Ask => html! { span.tag.ask { "? asks" } },
        Approval::Deny => html! { span.tag.bad { "✗ refused" } },
    }
}

fn cell(access: Option<Access>, count: UseCount) -> Markup {
    html! {
        @match access {
            Some(access) => {
                @let grant_use = GrantUse::of(count);
                div class=(format_args!("grant {}", grant_use.class())) {
                    strong { (access.as_str()) }
                    span { (use_words(access, grant_use, count)) }
                }
            }
            None if count.used > 0 => {
                div.grant.past { strong { "not granted" } span { "used " (Count(count.used)) " × before" } }
            }
            None if count.tried == 0 => { span.none { "–" } }
            None => {},
        }
        @if count.tried > 0 { div.tried { "✗ " (Count(count.tried)) " refused" } }
    }
}

/// Describes the use of a grant in words.
pub(crate) fn use_words(access: Access, grant_use: GrantUse, count: UseCount) -> String {
    let used = Count(count.used);
    match grant_use {
        GrantUse::Unused => "never used".to_owned(),
        GrantUse::Unobserved => format!("≤ {used} ×, not seen"),
        // An unobserved call may have written.
        GrantUse::Used if access == Access::Write && count.wrote == 0 && count.unobserved == 0 => {
            format!("{used} ×, only read")
        }
        GrantUse::Used => format!("used {used} ×"),
    }
}

fn hosts(hosts: &[String], requests: u64) -> Markup {
    if hosts.is_empty() {
        return html! { span.none { "–" } };
    }
    let (class, words) = match requests {
        0 => ("grant unused", "never used".to_owned()),
        requests => ("grant used", format!("used {} ×", Count(requests))),
    };
    html! {
        div class=(class) {
            @for host in hosts.iter().take(MAX_HOSTS) { strong { code { (Untrusted(host)) } } }
            @if hosts.len() > MAX_HOSTS { span { "and " (Count((hosts.len() - MAX_HOSTS) as u64)) " more" } }
            span { (words) }
        }
    }
}

/// Formats a number of calls in words.
pub(crate) fn calls(count: u64) -> String {
    format!("{} {}", Count(count), if count == 1 { "call" } else { "calls" })
}

fn render_legend() -> Markup {
    html! {
        ul.legend aria-label="Legend" {
            li { span.grant.used { strong { "solid" } } " granted and used" }
            li { span.grant.unused { strong { "hatched" } } " granted, never used" }
            li { span.grant.unseen { strong { "dotted" } } " granted; its use cannot be observed" }
            li { span.tried { "✗ 3 refused" } " calls that named a path there and were refused" }
            li { span.none { "–" } " not granted" }
        }
    }
}
