//! Reduces secrets: an overlay or a sandbox section can disable a secret or narrow its audience, but add none.

use std::{collections::BTreeMap, fmt::Display};

use crate::{
    SecretName,
    file::{Faults, Located, ReducedSecret, did_you_mean},
    reduce::{refuse_widening, warn_of_no_effect},
};

use super::SecretRule;

/// Applies `[secrets.NAME]` of a reduction. `hosts` and `tools` list the remaining elements.
pub(crate) fn reduce_secrets(
    secrets: &mut BTreeMap<SecretName, SecretRule>,
    reduced: &[ReducedSecret],
    faults: &mut Faults<'_>,
) {
    for entry in reduced {
        let Some(rule) = secrets.get_mut(entry.name.value.as_str()) else {
            let known_names: Vec<&str> = secrets.keys().map(SecretName::as_str).collect();
            let suggestion = did_you_mean(&entry.name.value, known_names.into_iter());
            let message = format!("only the operator's policy adds a secret; {suggestion}");
            faults.add_at(&entry.name, message);
            continue;
        };
        if let Some(enabled) = &entry.enabled {
            match (enabled.value, rule.enabled) {
                (true, false) => refuse_widening(enabled, true, false, faults),
                (true, true) | (false, false) => warn_of_no_effect(enabled, faults),
                (false, true) => rule.enabled = false,
            }
        }
        if let Some(hosts) = &entry.hosts {
            let is_within = |host: &_| rule.hosts.iter().any(|wider| wider.covers_rule(host));
            let remaining_hosts = narrow_list(&hosts.value, is_within, faults);
            if remaining_hosts == rule.hosts {
                warn_of_no_effect(hosts, faults);
            }
            rule.hosts = remaining_hosts;
        }
        if let Some(tools) = &entry.tools {
            let remaining_tools = narrow_list(&tools.value, |tool| rule.tools.contains(tool), faults);
            if remaining_tools == rule.tools {
                warn_of_no_effect(tools, faults);
            }
            rule.tools = remaining_tools;
        }
    }
}

fn narrow_list<T: Clone + Ord + Display>(
    kept_elements: &[Located<T>],
    is_within: impl Fn(&T) -> bool,
    faults: &mut Faults<'_>,
) -> std::collections::BTreeSet<T> {
    for element in kept_elements.iter().filter(|element| !is_within(&element.value)) {
        let message = format!(
            "`{}` is not within the operator's list; this section may only remove elements",
            element.value
        );
        faults.add_at(element, message);
    }
    kept_elements.iter().map(|element| element.value.clone()).collect()
}
