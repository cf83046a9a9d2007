//! Reduces networks: applies `hosts`, `methods` and `[egress]` of a reduction.

use std::collections::BTreeMap;

use crate::{
    ProfileName,
    file::{EgressEntries, Faults, NetworkEntries},
    overlay::{lower, takes_nothing},
};

use super::{EgressSettings, ProfileNetwork};

/// Reduces the network of a profile. `hosts` and `methods` are the lists that stay; each element must be
/// within the operator's. An empty list of hosts takes the network away.
pub(crate) fn reduce_network(
    networks: &mut BTreeMap<ProfileName, ProfileNetwork>,
    profile: &ProfileName,
    reduced: &NetworkEntries,
    faults: &mut Faults<'_>,
) {
    let mut network = networks.remove(profile).unwrap_or_default();
    if let Some(hosts) = &reduced.hosts {
        for rule in &hosts.value {
            if !network.hosts.iter().any(|wider| wider.covers_rule(&rule.value)) {
                not_within(rule, faults);
            }
        }
        let left = hosts.value.iter().map(|rule| rule.value.clone()).collect();
        if left == network.hosts {
            takes_nothing(hosts, faults);
        }
        network.hosts = left;
    }
    if let Some(methods) = &reduced.methods {
        // Without hosts there is no request whose method could be refused.
        let has_hosts = !network.hosts.is_empty();
        for method in methods.value.iter().filter(|_| has_hosts) {
            if !network.methods.contains(&method.value) {
                not_within(method, faults);
            }
        }
        let left = methods.value.iter().map(|method| method.value).collect();
        if !has_hosts || left == network.methods {
            takes_nothing(methods, faults);
        }
        network.methods = left;
    }
    if !network.hosts.is_empty() {
        networks.insert(profile.clone(), network);
    }
}

/// Lowers the limits of `[egress]`, and has `robots.txt` obeyed. The reader refuses all else in a reduction.
pub(crate) fn reduce_egress(egress: &mut EgressSettings, reduced: &EgressEntries, faults: &mut Faults<'_>) {
    if let Some(max_response) = &reduced.max_response {
        lower(&mut egress.max_response, max_response, faults);
    }
    if let Some(max_redirects) = &reduced.max_redirects {
        lower(&mut egress.max_redirects, max_redirects, faults);
    }
    if let Some(robots) = &reduced.robots {
        lower(&mut egress.robots, robots, faults);
    }
}

/// Refuses an element that would grant more.
pub(crate) fn not_within<T: std::fmt::Display>(
    placed: &crate::file::PlacedValue<T>,
    faults: &mut Faults<'_>,
) {
    let message =
        format!("`{}` is not within the operator's list; this section may only take away", placed.value);
    faults.add_at(placed, message);
}
