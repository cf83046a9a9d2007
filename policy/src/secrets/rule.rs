//! One secret of a policy, with its audience.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_types::ToolName;
use serde::Serialize;

use crate::{
    HostRule, Operation, PrivateEndpoint, ProfileName, Scheme, SecretHeader, SecretName, SecretSource,
    file::{Faults, Located, PolicyFile, SecretEntry},
    network::ProfileNetwork,
};

/// `[secrets.NAME]`: the source of the value, and the requests and tools that carry it. The value itself is
/// stored elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SecretRule {
    /// The source of the value.
    #[serde(rename = "from")]
    pub source: SecretSource,
    /// The hosts that may receive the secret. Never empty. The tool's profile must grant the request as well.
    pub hosts: BTreeSet<HostRule>,
    /// The header that carries the secret.
    pub header: SecretHeader,
    /// The tools whose requests carry the secret. Never empty. An operation covers its steps.
    pub tools: BTreeSet<ToolName>,
    /// Whether the secret is used. Default: yes.
    pub enabled: bool,
}

impl SecretRule {
    /// Returns whether requests of this tool carry the secret to the secret's hosts.
    pub(crate) fn applies_to_tool(&self, tool: &str) -> bool {
        let names = |name: &str| self.tools.contains(name);
        let as_step = || {
            Operation::ALL.iter().any(|operation| operation.steps.contains(&tool) && names(operation.name))
        };
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
        file.egress.allow_private.iter().map(|located| &located.value).collect();
    let mut secrets = BTreeMap::new();
    for entry in &file.secrets {
        for host in &entry.hosts {
            check_host(host, &private, file.egress.proxy.is_some(), networks, faults);
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
    host: &Located<HostRule>,
    private: &BTreeSet<&PrivateEndpoint>,
    has_proxy: bool,
    networks: &BTreeMap<ProfileName, ProfileNetwork>,
    faults: &mut Faults<'_>,
) {
    let rule = &host.value;
    if rule.is_any_host() {
        faults.add_at(host, "a secret goes only to named hosts; this rule would give it to every host");
        return;
    }
    // Plain HTTP only to addresses in `allow_private`: elsewhere everyone on the route could read the secret,
    // and a name may resolve to any address.
    let is_local = rule.endpoint().is_some_and(|endpoint| private.contains(&endpoint));
    if rule.scheme() == Scheme::Http && !is_local {
        faults.add_at(
            host,
            "a secret is sent by `https` only, or to an address that is listed in `[egress] allow_private`",
        );
        return;
    }
    if rule.scheme() == Scheme::Http && has_proxy {
        faults.add_at(
            host,
            "a secret is sent by `https` only where `[egress] proxy` is set, which would read it",
        );
        return;
    }
    let mut reached = networks.values().flat_map(|network| &network.hosts);
    // Either rule may be the wider one: a profile may grant a part of the secret's hosts, or more than them.
    if !reached.any(|granted| granted.covers_rule(rule) || rule.covers_rule(granted)) {
        faults.add_at(
            host,
            "no profile reaches this host, so the secret would never be sent; see `hosts` of `[profiles]`",
        );
    }
}

/// Refuses the name of a step, and the second name of an operation. Both names of an operation share one
/// request step, so an entry for one of them would suggest a difference that does not exist.
fn refuse_step(tool: &Located<ToolName>, faults: &mut Faults<'_>) {
    let name = tool.value.as_str();
    if let Some(operation) = Operation::ALL.iter().find(|operation| operation.steps.contains(&name)) {
        let name = operation.name;
        faults.add_at(tool, format!("this is a step of `{name}`; write `{name}`"));
    }
    if let Some(first_operation) =
        Operation::first_with_steps_of(name).filter(|operation| operation.name != name)
    {
        let first_name = first_operation.name;
        faults.add_at(
            tool,
            format!("`{name}` uses the requests of `{first_name}`; write `{first_name}`, which covers both"),
        );
    }
}
