//! Reads `hosts` and `methods` of a profile, and `[egress]`, of an operator's policy and of a reduction.

use crate::{
    HostRule, HttpMethod, PrivateEndpoint, ProxyAddress, ResponseBytes,
    network::{MAX_REDIRECTS, MAX_RESPONSE},
};

use super::{
    EgressEntries, Faults, NetworkEntries, PlacedValue, keys,
    section::{Section, SectionEntry},
    value::{count, elements, size},
};

/// Reads the keys of a profile.
pub(super) fn network(section: &Section<'_>, faults: &mut Faults<'_>) -> NetworkEntries {
    NetworkEntries {
        hosts: section.entry("hosts").map(|entry| {
            let parse = |text: &str| text.parse::<HostRule>().map_err(|error| error.to_string());
            entry.placed(elements(&entry, faults, parse))
        }),
        methods: section.entry("methods").and_then(|entry| methods(&entry, faults)),
    }
}

/// Reads `methods`. An empty list is refused: its author may mean that all methods are granted, and it would
/// grant none.
fn methods(
    entry: &SectionEntry<'_>,
    faults: &mut Faults<'_>,
) -> Option<PlacedValue<Vec<PlacedValue<HttpMethod>>>> {
    if entry.list(faults)?.is_empty() {
        entry.refuse(
            faults,
            "an empty list grants nothing; write `hosts = []` to grant no host, or leave `methods` out for GET and HEAD",
        );
        return None;
    }
    Some(entry.placed(elements(entry, faults, |text| text.parse())))
}

/// Reads an operator's `[egress]`.
pub(super) fn egress(section: &Section<'_>, faults: &mut Faults<'_>) -> EgressEntries {
    section.refuse_unknown(keys::EGRESS, faults);
    EgressEntries {
        allow_private: section.entry("allow_private").map_or_else(Vec::new, |entry| {
            let parse = |text: &str| text.parse::<PrivateEndpoint>().map_err(|error| error.to_string());
            elements(&entry, faults, parse)
        }),
        ca: section.entry("ca").and_then(|entry| entry.parsed(faults, ca)),
        proxy: section.entry("proxy").and_then(|entry| {
            let parse = |text: &str| text.parse::<ProxyAddress>().map_err(|error| error.to_string());
            Some(entry.placed(entry.parsed(faults, parse)?))
        }),
        ..limits(section, faults)
    }
}

/// Reads `[egress]` of a reduction, which only lowers limits.
pub(super) fn reduced_egress(section: &Section<'_>, faults: &mut Faults<'_>) -> EgressEntries {
    section.refuse_unknown(keys::EGRESS, faults);
    for key in keys::EGRESS_OPERATORS_ALONE {
        if let Some(entry) = section.entry(key) {
            let message = "only the operator's policy may say this; this section only lowers limits";
            faults.add(entry.key_at, &entry.path, message);
        }
    }
    limits(section, faults)
}

fn limits(section: &Section<'_>, faults: &mut Faults<'_>) -> EgressEntries {
    EgressEntries {
        max_response: section
            .entry("max_response")
            .and_then(|entry| Some(entry.placed(ResponseBytes(size(&entry, MAX_RESPONSE, faults)?)))),
        max_redirects: section.entry("max_redirects").and_then(|entry| {
            let count = count(&entry, MAX_REDIRECTS, faults)?;
            // Cannot fail: the bounds lie within a `u32`.
            Some(entry.placed(u32::try_from(count).unwrap_or(u32::MAX)))
        }),
        ..EgressEntries::default()
    }
}

/// Checks the path of a file of certificates. The caller resolves it.
fn ca(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("a file is missing; write its path, absolute or relative to this file".to_owned());
    }
    if text.len() > MAX_PATH_BYTES {
        return Err(format!("the path has more than {MAX_PATH_BYTES} bytes"));
    }
    if text.contains('\0') {
        return Err("a path cannot have a NUL character".to_owned());
    }
    Ok(text.to_owned())
}

/// Linux's `PATH_MAX`.
const MAX_PATH_BYTES: usize = 4096;
