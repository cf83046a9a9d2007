//! The section about grants that no call used. It is sorted by rule, because operators remove rules.

use std::collections::BTreeMap;

use maud::{Markup, html};
use portcullis_tools::{ToolGrants, policy::Approval};
use portcullis_types::Access;

use super::{MAX_ROWS, ReportInput};
use crate::{
    command::mounts::matrix::GrantUse,
    output::html::{
        Column::{Number, Text},
        Count, Listing, Untrusted,
    },
};

/// The maximum number of tools that a cell names.
const MAX_TOOLS: usize = 8;

/// The use of one rule by the tools that have it.
#[derive(Default)]
struct RuleUse<'a> {
    mount: &'a str,
    access: Option<Access>,
    used_by: Vec<&'a str>,
    unused_by: Vec<&'a str>,
    unseen_by: Vec<&'a str>,
    written_calls: u64,
    refused_calls: u64,
}

/// The kind of a finding, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Finding {
    NeverUsed,
    OnlyRead,
    UsedByFew,
}

impl RuleUse<'_> {
    fn finding(&self) -> Option<Finding> {
        if !self.unseen_by.is_empty() {
            None
        } else if self.used_by.is_empty() {
            Some(Finding::NeverUsed)
        } else if self.access == Some(Access::Write) && self.written_calls == 0 {
            Some(Finding::OnlyRead)
        } else {
            (!self.unused_by.is_empty()).then_some(Finding::UsedByFew)
        }
    }
}

pub(super) fn unused(input: &ReportInput<'_>) -> Markup {
    let by_rule = by_rule(input);
    // A rule whose use no row can show must not be reported as unused.
    let unseen = by_rule.values().filter(|rule| !rule.unseen_by.is_empty()).count();
    let mut findings: Vec<_> =
        by_rule.iter().filter_map(|(rule, rule_use)| Some((rule_use.finding()?, *rule, rule_use))).collect();
    // Rules that were never used come first, because the page shows only the first ones.
    findings.sort_by_key(|(finding, rule, _)| (*finding, *rule));
    let rows = findings.iter().take(MAX_ROWS).map(|(finding, rule, rule_use)| {
        vec![
            html! { code { (Untrusted(rule)) } },
            html! { (rule_use.access.map_or("–", Access::as_str)) " " code { (Untrusted(&format!("/{}", rule_use.mount))) } },
            html! { @match finding {
                Finding::NeverUsed => span.tag.warn { "never used" },
                Finding::OnlyRead => span.tag.warn { "only read" },
                Finding::UsedByFew => "used by some",
            } },
            tools(&rule_use.unused_by),
            tools(&rule_use.used_by),
            super::number(rule_use.refused_calls),
        ]
    });
    let listing = Listing {
        caption: "Rules that grant a mount, and tools that did not use it",
        columns: &[
            Text("Rule"),
            Text("Grants"),
            Text("In the log"),
            Text("Never used by"),
            Text("Used by"),
            Number("✗ Refused"),
        ],
        rows: rows.collect(),
        omitted: findings.len().saturating_sub(MAX_ROWS) as u64,
    };
    let hosts = unused_hosts(input);
    html! {
        @if input.filters.iter().any(|filter| !filter.starts_with("--since") && !filter.starts_with("--until")) {
            p.warning { "! Filters leave calls out, so a grant that looks unused here may be used by a call that is not \
                         counted." }
        }
        @if findings.is_empty() { p { "Every rule that grants a mount was used by every tool that has it." } }
        @else { (listing) }
        @if !hosts.is_empty() { p.note { "Hosts were granted and never requested by: " (tools(&hosts)) "." } }
        @if unseen > 0 {
            p.note {
                "Rules that are left out: " (Count(unseen as u64)) ", because calls of " code { "shell_exec" } " and of native tools \
                cannot be observed: the kernel does not report what a command touches."
            }
        }
    }
}

fn by_rule<'a>(input: &ReportInput<'a>) -> BTreeMap<&'a str, RuleUse<'a>> {
    let mut rules: BTreeMap<&str, RuleUse<'_>> = BTreeMap::new();
    // A refused tool cannot use its grants.
    for grants in input.grants.iter().filter(|grants| grants.verdict != Approval::Deny) {
        for grant in &grants.mounts {
            let count = input.counts.of(grants, &grant.mount);
            let rule = rules.entry(&grant.rule).or_default();
            (rule.mount, rule.access) = (&grant.mount, Some(grant.access));
            rule.written_calls += count.wrote;
            rule.refused_calls += count.tried;
            let tools = match GrantUse::of(count) {
                GrantUse::Used => &mut rule.used_by,
                GrantUse::Unused => &mut rule.unused_by,
                GrantUse::Unobserved => &mut rule.unseen_by,
            };
            tools.push(name_of(grants));
        }
    }
    rules
}

fn unused_hosts<'a>(input: &ReportInput<'a>) -> Vec<&'a str> {
    let is_unused = |grants: &&ToolGrants| {
        grants.verdict != Approval::Deny
            && !grants.hosts.is_empty()
            && input.counts.of_tool(grants).requests == 0
    };
    input.grants.iter().filter(is_unused).map(name_of).collect()
}

fn name_of(grants: &ToolGrants) -> &str {
    grants.step.as_ref().unwrap_or(&grants.tool)
}

fn tools(names: &[&str]) -> Markup {
    html! {
        @if names.is_empty() { span.none { "–" } }
        @for (index, name) in names.iter().take(MAX_TOOLS).enumerate() {
            @if index > 0 { ", " }
            code { (Untrusted(name)) }
        }
        @if names.len() > MAX_TOOLS { " and " (Count((names.len() - MAX_TOOLS) as u64)) " more" }
    }
}
