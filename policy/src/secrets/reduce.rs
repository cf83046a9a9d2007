//! Reduces secrets: an overlay or a sandbox section switches one off, or narrows its audience. It adds none.

use std::{collections::BTreeMap, fmt::Display};

use crate::{
    SecretName,
    file::{Faults, PlacedValue, ReducedSecret, did_you_mean},
    overlay::{takes_nothing, widens},
};

use super::SecretRule;

/// Applies `[secrets.NAME]` of a reduction. `hosts` and `tools` are the lists that stay.
pub(crate) fn reduce_secrets(
    secrets: &mut BTreeMap<SecretName, SecretRule>,
    reduced: &[ReducedSecret],
    faults: &mut Faults<'_>,
) {
    for entry in reduced {
        let Some(rule) = secrets.get_mut(entry.name.value.as_str()) else {
            let known: Vec<&str> = secrets.keys().map(SecretName::as_str).collect();
            let right = did_you_mean(&entry.name.value, known.into_iter());
            let message = format!("only the operator's policy adds a secret; {right}");
            faults.add_at(&entry.name, message);
            continue;
        };
        if let Some(enabled) = &entry.enabled {
            match (enabled.value, rule.enabled) {
                (true, false) => widens(enabled, true, false, faults),
                (true, true) | (false, false) => takes_nothing(enabled, faults),
                (false, true) => rule.enabled = false,
            }
        }
        if let Some(hosts) = &entry.hosts {
            let is_within = |host: &_| rule.hosts.iter().any(|wider| wider.covers_rule(host));
            let left = narrowed(&hosts.value, is_within, faults);
            if left == rule.hosts {
                takes_nothing(hosts, faults);
            }
            rule.hosts = left;
        }
        if let Some(tools) = &entry.tools {
            let left = narrowed(&tools.value, |tool| rule.tools.contains(tool), faults);
            if left == rule.tools {
                takes_nothing(tools, faults);
            }
            rule.tools = left;
        }
    }
}

fn narrowed<T: Clone + Ord + Display>(
    stay: &[PlacedValue<T>],
    is_within: impl Fn(&T) -> bool,
    faults: &mut Faults<'_>,
) -> std::collections::BTreeSet<T> {
    for one in stay.iter().filter(|one| !is_within(&one.value)) {
        let message =
            format!("`{}` is not within the operator's list; this section may only take away", one.value);
        faults.add_at(one, message);
    }
    stay.iter().map(|one| one.value.clone()).collect()
}
