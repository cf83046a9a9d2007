//! Finds the grants that no expectation mentions.

use std::collections::BTreeSet;

use portcullis_policy::{Approval, ExpectedSource, ForbiddenFlow, HostRule, SourceLocation, TunnelRule};
use portcullis_types::Access;
use serde::Serialize;

use super::super::{ExplainedTool, Explainer};

/// The grants that no expectation mentions, and the number of all grants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// All grants: each access of a tool to a mount, and each host of a tool.
    pub grants: u64,
    /// The grants that no expectation mentions.
    pub uncovered: Vec<UncoveredGrant>,
}

/// A grant that no expectation mentions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UncoveredGrant {
    /// The name of the tool that has the grant.
    pub tool: String,
    /// The step of an operation that holds the grant.
    pub step: Option<String>,
    /// `/MOUNT`, or a host.
    pub target: String,
    /// The access to a mount; `None` for a host.
    pub access: Option<Access>,
    /// The rule that grants it.
    pub rule: String,
    /// The source location of the rule; `None` for a default.
    #[serde(rename = "place")]
    pub location: Option<SourceLocation>,
}

/// The grants that expectations mention.
#[derive(Debug, Default)]
pub(super) struct Mentions {
    mounts: BTreeSet<(String, String, Access)>,
    /// Tools, each with the host of a URL.
    urls: BTreeSet<(String, HostRule)>,
    /// Accesses to mounts, by any tool.
    flows: BTreeSet<(String, Access)>,
    hosts: Vec<portcullis_policy::ExpectedHosts>,
}

impl Mentions {
    pub(super) fn mount(&mut self, tool: &str, mount: &str, access: Access) {
        self.mounts.insert((tool.to_owned(), mount.to_owned(), access));
    }

    pub(super) fn url(&mut self, tool: &str, url: &str) {
        let authority = url.split_once("://").map(|(scheme, rest)| {
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            format!("{scheme}://{}", &rest[..end])
        });
        if let Some(rule) = authority.and_then(|authority| authority.parse::<HostRule>().ok()) {
            self.urls.insert((tool.to_owned(), rule));
        }
    }

    pub(super) fn flow(&mut self, flow: &ForbiddenFlow) {
        if let Some(ExpectedSource::Mount(mount)) = &flow.reads {
            self.flows.insert((mount.to_string(), Access::Read));
        }
        if let Some(mount) = &flow.writes {
            self.flows.insert((mount.to_string(), Access::Write));
        }
        self.hosts.extend(flow.reaches.clone());
    }

    fn has_mount(&self, names: &[&str], mount: &str, access: Access) -> bool {
        self.flows.contains(&(mount.to_owned(), access))
            || names.iter().any(|name| self.mounts.contains(&((*name).to_owned(), mount.to_owned(), access)))
    }

    fn has_host(&self, names: &[&str], host: &str) -> bool {
        let rule = host.parse::<HostRule>().ok();
        let Some(rule) = rule.or_else(|| host.parse::<TunnelRule>().ok().map(|rule| rule.rule().clone()))
        else {
            return false;
        };
        self.hosts.iter().any(|hosts| hosts.meets(&rule))
            || self.urls.iter().any(|(tool, url)| names.contains(&tool.as_str()) && rule.covers_rule(url))
    }
}

impl Explainer {
    /// Returns the grants that are not mentioned. A tool that no call can reach has none.
    pub(super) fn coverage(&self, tools: &[ExplainedTool], mentions: &Mentions) -> Coverage {
        let mut coverage = Coverage::default();
        for grants in self.grants_of(tools).into_iter().filter(|grants| grants.verdict != Approval::Deny) {
            let names: Vec<&str> =
                std::iter::once(grants.tool.as_str()).chain(grants.step.as_deref()).collect();
            let mut add = |is_mentioned: bool,
                           target: String,
                           access,
                           rule: &str,
                           location: Option<&SourceLocation>| {
                coverage.grants += 1;
                if !is_mentioned {
                    coverage.uncovered.push(UncoveredGrant {
                        tool: grants.tool.clone(),
                        step: grants.step.clone(),
                        target,
                        access,
                        rule: rule.to_owned(),
                        location: location.cloned(),
                    });
                }
            };
            for grant in &grants.mounts {
                for access in
                    [Access::Read, Access::Write].into_iter().filter(|access| *access <= grant.access)
                {
                    let is_mentioned = mentions.has_mount(&names, &grant.mount, access);
                    let target = format!("/{}", grant.mount);
                    add(is_mentioned, target, Some(access), &grant.rule, grant.location.as_ref());
                }
            }
            for host in &grants.hosts {
                let rule = format!("profiles.{}.hosts", grants.profile);
                let location = self.provenance.location_of(&rule);
                add(mentions.has_host(&names, host), host.clone(), None, &rule, location.as_ref());
            }
        }
        coverage
    }
}
