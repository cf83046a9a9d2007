//! Reads `hosts` and `methods` of a profile, and `[egress]`, in an operator's policy and in a reduction.

use crate::{
    HttpMethod, ResponseBytes, Robots,
    network::{REDIRECT_BOUNDS, RESPONSE_BOUNDS},
};

use super::{
    EgressEntries, Faults, Located, NetworkEntries,
    invalid::InvalidValue,
    keys,
    section::{Section, SectionEntry},
    value::{choice_parser, parse_text, read_count, read_elements, read_size},
};

/// Reads the keys `hosts` and `methods` of a profile.
pub(super) fn read_network(section: &Section<'_>, faults: &mut Faults<'_>) -> NetworkEntries {
    NetworkEntries {
        hosts: section.entry("hosts").map(|entry| entry.located(read_elements(&entry, faults, parse_text))),
        methods: section.entry("methods").and_then(|entry| read_methods(&entry, faults)),
    }
}

/// Reads `methods`. An empty list is refused: it would grant no method, but its author may intend all
/// methods.
fn read_methods(
    entry: &SectionEntry<'_>,
    faults: &mut Faults<'_>,
) -> Option<Located<Vec<Located<HttpMethod>>>> {
    if entry.list(faults)?.is_empty() {
        entry.refuse(
            faults,
            "an empty list grants nothing; write `hosts = []` to grant no host, or leave `methods` out for GET and HEAD",
        );
        return None;
    }
    Some(entry.located(read_elements(entry, faults, parse_text)))
}

/// Reads an operator's `[egress]`.
pub(super) fn read_egress(section: &Section<'_>, faults: &mut Faults<'_>) -> EgressEntries {
    section.refuse_unknown(keys::EGRESS, faults);
    EgressEntries {
        allow_private: section
            .entry("allow_private")
            .map_or_else(Vec::new, |entry| read_elements(&entry, faults, parse_text)),
        ca: section.entry("ca").and_then(|entry| entry.parsed(faults, parse_ca)),
        proxy: section
            .entry("proxy")
            .and_then(|entry| Some(entry.located(entry.parsed(faults, parse_text)?))),
        robots: read_robots(section, Ok, faults),
        ..read_limits(section, faults)
    }
}

fn read_robots(
    section: &Section<'_>,
    accept: fn(Robots) -> Result<Robots, InvalidValue>,
    faults: &mut Faults<'_>,
) -> Option<Located<Robots>> {
    let entry = section.entry("robots")?;
    let parse_word = choice_parser("word", Robots::ALL, Robots::as_str);
    Some(entry.located(entry.parsed(faults, |text| accept(parse_word(text)?))?))
}

/// Checks `robots` in a reduction, where only `obey` is allowed.
fn require_obey(robots: Robots) -> Result<Robots, InvalidValue> {
    match robots {
        Robots::Obey => Ok(robots),
        Robots::Ignore => Err(InvalidValue::IgnoredRobots),
    }
}

/// Reads `[egress]` of a reduction, which can only lower limits and make requests obey `robots.txt`.
pub(super) fn read_reduced_egress(section: &Section<'_>, faults: &mut Faults<'_>) -> EgressEntries {
    section.refuse_unknown(keys::EGRESS, faults);
    for key in keys::EGRESS_OPERATORS_ALONE {
        if let Some(entry) = section.entry(key) {
            let message = "only the operator's policy may set this key; this section may only lower limits";
            faults.add(entry.key_offset, &entry.path, message);
        }
    }
    EgressEntries { robots: read_robots(section, require_obey, faults), ..read_limits(section, faults) }
}

fn read_limits(section: &Section<'_>, faults: &mut Faults<'_>) -> EgressEntries {
    EgressEntries {
        max_response: section.entry("max_response").and_then(|entry| {
            Some(entry.located(ResponseBytes(read_size(&entry, RESPONSE_BOUNDS, faults)?)))
        }),
        max_redirects: section.entry("max_redirects").and_then(|entry| {
            let count = read_count(&entry, REDIRECT_BOUNDS, faults)?;
            // Cannot fail: the bounds lie within a `u32`.
            Some(entry.located(u32::try_from(count).unwrap_or(u32::MAX)))
        }),
        ..EgressEntries::default()
    }
}

/// Checks the path of a file of certificates. The caller resolves the path.
fn parse_ca(text: &str) -> Result<String, InvalidValue> {
    if text.is_empty() {
        return Err(InvalidValue::NoPath);
    }
    if text.len() > MAX_PATH_BYTES {
        return Err(InvalidValue::LongPath);
    }
    if text.contains('\0') {
        return Err(InvalidValue::PathNul);
    }
    Ok(text.to_owned())
}

/// The maximum length of a path in bytes: Linux's `PATH_MAX`.
pub(super) const MAX_PATH_BYTES: usize = 4096;
