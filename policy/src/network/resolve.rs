//! Resolves the networks of profiles, and `[egress]`, of an operator's policy.

use std::collections::BTreeMap;

use crate::{
    ProfileName,
    file::{EgressEntries, NetworkEntries, PolicyFile},
};

use super::{EgressSettings, HttpMethod, ProfileNetwork};

/// Returns the networks of all profiles that have hosts.
pub(crate) fn resolve_networks(file: &PolicyFile) -> BTreeMap<ProfileName, ProfileNetwork> {
    let profiles = file.profiles.iter().map(|profile| &profile.value);
    let networks = profiles.map(|profile| (profile.name.clone(), resolve_network(&profile.network)));
    networks.filter(|(_, network)| !network.hosts.is_empty()).collect()
}

fn resolve_network(entries: &NetworkEntries) -> ProfileNetwork {
    let methods = entries.methods.as_ref().map(|methods| methods.value.iter().map(|method| method.value));
    ProfileNetwork {
        hosts: entries.rules().map(|rule| rule.value.clone()).collect(),
        methods: methods.map_or_else(|| HttpMethod::DEFAULT.into(), Iterator::collect),
    }
}

/// Fills in the defaults of `[egress]`.
pub(crate) fn resolve_egress(entries: &EgressEntries) -> EgressSettings {
    let default = EgressSettings::default();
    EgressSettings {
        allow_private: entries.allow_private.iter().map(|located| located.value.clone()).collect(),
        ca: entries.ca.clone(),
        proxy: entries.proxy.as_ref().map(|located| located.value.clone()),
        max_response: entries.max_response.as_ref().map_or(default.max_response, |located| located.value),
        max_redirects: entries.max_redirects.as_ref().map_or(default.max_redirects, |located| located.value),
        robots: entries.robots.as_ref().map_or(default.robots, |located| located.value),
    }
}
