//! One secret of a policy, with its audience.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_types::ToolName;
use serde::Serialize;

use crate::{
    HostRule, Operation, PrivateEndpoint, ProfileName, Scheme, SecretHeader, SecretName, SecretSource,
    file::{Faults, PlacedValue, PolicyFile, SecretEntry},
    network::ProfileNetwork,
};

/// `[secrets.NAME]`: the place of the value, and the requests and tools that carry it. The value is not here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SecretRule {
    /// The place of the value.
    #[serde(rename = "from")]
    pub source: SecretSource,
    /// The hosts that may get it, never empty. A request must also be granted by its tool's profile.
    pub hosts: BTreeSet<HostRule>,
    /// The header that carries it.
    pub header: SecretHeader,
    /// The tools whose requests carry it, never empty. An operation stands for its steps.
    pub tools: BTreeSet<ToolName>,
    /// Whether it is used at all. Default: yes.
    pub enabled: bool,
}

impl SecretRule {
    /// Whether requests of this tool carry the secret where its hosts cover them.
    pub(crate) fn is_for(&self, tool: &str) -> bool {
        let names = |name: &str| self.tools.contains(name);
        let as_step = || Operation::ALL.iter().any(|it| it.steps.contains(&tool) && names(it.name));
        self.enabled && (names(tool) || as_step())
    }
}

/// Resolves all secrets. Hosts that no profile reaches, and hosts without TLS, are faults.
pub(crate) fn resolve_secrets(
    file: &PolicyFile,
    networks: &BTreeMap<ProfileName, ProfileNetwork>,
    faults: &mut Faults<'_>,
) -> BTreeMap<SecretName, SecretRule> {
    let private: BTreeSet<&PrivateEndpoint> =
        file.egress.allow_private.iter().map(|placed| &placed.value).collect();
    let mut secrets = BTreeMap::new();
    for entry in &file.secrets {
        for host in &entry.hosts {
            check_host(host, (&private, file.egress.proxy.is_some()), networks, faults);
        }
        for tool in &entry.tools {
            refuse_step(tool, faults);
        }
        let SecretEntry { name, source, hosts, header, tools, enabled } = entry;
        let rule = SecretRule {
            source: source.clone(),
            hosts: hosts.iter().map(|host| host.value.clone()).collect(),
            header: header.value.clone(),
            tools: tools.iter().map(|tool| tool.value.clone()).collect(),
            enabled: enabled.unwrap_or(true),
        };
        secrets.insert(name.value.clone(), rule);
    }
    secrets
}

fn check_host(
    host: &PlacedValue<HostRule>,
    (private, has_proxy): (&BTreeSet<&PrivateEndpoint>, bool),
    networks: &BTreeMap<ProfileName, ProfileNetwork>,
    faults: &mut Faults<'_>,
) {
    let rule = &host.value;
    if rule.is_any_host() {
        faults.add_at(host, "a secret goes to hosts that are named; this would give it to every one");
        return;
    }
    // Without TLS, everyone on the route reads the secret, and a name may lead anywhere.
    let is_local = rule.endpoint().is_some_and(|endpoint| private.contains(&endpoint));
    if rule.scheme() == Scheme::Http && !is_local {
        faults.add_at(
            host,
            "a secret goes out by `https` only, or to an address that stands in `[egress] allow_private`",
        );
        return;
    }
    if rule.scheme() == Scheme::Http && has_proxy {
        faults.add_at(
            host,
            "a secret goes out by `https` only where `[egress] proxy` is set, which would read it",
        );
        return;
    }
    let mut reached = networks.values().flat_map(|network| &network.hosts);
    if !reached.any(|granted| granted.covers_rule(rule) || rule.covers_rule(granted)) {
        faults.add_at(
            host,
            "no profile reaches this host, so the secret would go nowhere; see `hosts` of `[profiles]`",
        );
    }
}

/// Refuses the name of a step, and the second name of an operation: both names share one request step, so an entry for
/// one of them would promise a difference that does not exist.
fn refuse_step(tool: &PlacedValue<ToolName>, faults: &mut Faults<'_>) {
    let name = tool.value.as_str();
    if let Some(operation) = Operation::ALL.iter().find(|it| it.steps.contains(&name)) {
        let name = operation.name;
        faults.add_at(tool, format!("this is a step of `{name}`; write `{name}`"));
    }
    if let Some(first) = Operation::first_with_steps_of(name).filter(|first| first.name != name) {
        let first = first.name;
        faults.add_at(
            tool,
            format!(
                "the requests of `{name}` are those of `{first}`; write `{first}`, which stands for both"
            ),
        );
    }
}
