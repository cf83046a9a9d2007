//! Reduces networks: applies `hosts`, `methods` and `[egress]` of a reduction.

use std::collections::BTreeMap;

use crate::{
    ProfileName,
    file::{EgressEntries, Faults, NetworkEntries},
    reduce::{lower, warn_of_no_effect},
};

use super::{EgressSettings, ProfileNetwork};

/// Reduces the network of a profile. `hosts` and `methods` list the remaining elements, each of which must be
/// within the operator's list. An empty list of hosts removes the network.
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
                refuse_not_within(rule, faults);
            }
        }
        let remaining_hosts = hosts.value.iter().map(|rule| rule.value.clone()).collect();
        if remaining_hosts == network.hosts {
            warn_of_no_effect(hosts, faults);
        }
        network.hosts = remaining_hosts;
    }
    if let Some(methods) = &reduced.methods {
        // Without hosts, there is no request whose method could be refused.
        let has_hosts = !network.hosts.is_empty();
        for method in methods.value.iter().filter(|_| has_hosts) {
            if !network.methods.contains(&method.value) {
                refuse_not_within(method, faults);
            }
        }
        let remaining_methods = methods.value.iter().map(|method| method.value).collect();
        if !has_hosts || remaining_methods == network.methods {
            warn_of_no_effect(methods, faults);
        }
        network.methods = remaining_methods;
    }
    if !network.hosts.is_empty() {
        networks.insert(profile.clone(), network);
    }
}

/// Lowers the limits of `[egress]`, and makes requests obey `robots.txt`. The reader has refused every other key of a
/// reduction.
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

/// Adds a fault for an element that would grant more than the operator's list.
pub(crate) fn refuse_not_within<T: std::fmt::Display>(
    located: &crate::file::Located<T>,
    faults: &mut Faults<'_>,
) {
    let message = format!(
        "`{}` is not within the operator's list; this section may only remove elements",
        located.value
    );
    faults.add_at(located, message);
}
