//! Reads `[shell]`, which has the same keys in an operator's policy and in a reduction.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_types::ShellPosture;

use crate::{
    FileBytes, MemoryBytes, OutputBytes, VariableName,
    commands::CommandPattern,
    limits::{SHELL_FILE_SIZE_BOUNDS, SHELL_MEMORY_BOUNDS, SHELL_OUTPUT_BOUNDS, SHELL_PROCESSES_BOUNDS},
    shell::parse_value,
};

use super::{
    Faults, Located, ShellEntries,
    invalid::InvalidValue,
    keys,
    section::{Section, SectionEntry},
    value::{choice_parser, parse_text, read_count, read_elements, read_size, read_timeout},
};

/// Reads `[shell]`. The caller passes the accesses that a mount may have.
pub(super) fn read_shell<A: Copy, const N: usize>(
    section: &Section<'_>,
    accesses: [A; N],
    access_name: fn(A) -> &'static str,
    faults: &mut Faults<'_>,
) -> ShellEntries<A> {
    section.refuse_unknown(keys::SHELL, faults);
    let entry = |name: &str| section.entry(name);
    let access = choice_parser("access", accesses, access_name);
    let mounts = section.entries_of("mounts", faults);
    ShellEntries {
        enabled: entry("enabled").and_then(|entry| Some(entry.located(entry.boolean(faults)?))),
        posture: entry("posture").and_then(|entry| Some(entry.located(entry.parsed(faults, parse_posture)?))),
        mounts: mounts
            .iter()
            .filter_map(|mount| {
                let access = mount.parsed(faults, &access)?;
                Some((mount.located_at_key(mount.name.to_owned()), mount.located(access)))
            })
            .collect(),
        timeout: entry("timeout").and_then(|entry| read_timeout(&entry, faults)),
        memory: entry("memory").and_then(|entry| {
            Some(entry.located(MemoryBytes(read_size(&entry, SHELL_MEMORY_BOUNDS, faults)?)))
        }),
        processes: entry("processes").and_then(|entry| {
            let count = read_count(&entry, SHELL_PROCESSES_BOUNDS, faults)?;
            // Cannot fail: the bounds lie within a `u32`.
            Some(entry.located(u32::try_from(count).unwrap_or(u32::MAX)))
        }),
        file_size: entry("file_size").and_then(|entry| {
            Some(entry.located(FileBytes(read_size(&entry, SHELL_FILE_SIZE_BOUNDS, faults)?)))
        }),
        output: entry("output").and_then(|entry| {
            Some(entry.located(OutputBytes(read_size(&entry, SHELL_OUTPUT_BOUNDS, faults)?)))
        }),
        environment: entry("environment").map(|entry| read_elements(&entry, faults, VariableName::parse)),
        read: entry("read").map(|entry| entry.located(read_elements(&entry, faults, parse_text))),
        caches: entry("caches").map(|entry| entry.located(read_elements(&entry, faults, parse_text))),
        path: entry("path").map(|entry| entry.located(read_elements(&entry, faults, parse_text))),
        variables: entry("variables").map(|entry| entry.located(read_variables(section, faults))),
        hosts: entry("hosts").map(|entry| entry.located(read_elements(&entry, faults, parse_text))),
        allow: entry("allow").and_then(|entry| read_allowed(&entry, faults)),
        deny: entry("deny").map(|entry| read_patterns(&entry, faults)).unwrap_or_default(),
        operators: entry("operators").map(|entry| read_elements(&entry, faults, parse_text)),
        unasked: entry("unasked").map(|entry| entry.located(read_elements(&entry, faults, parse_text))),
        location: Located { value: (), offset: section.offset, key: section.path().to_owned() },
    }
}

/// Reads the names and values of `variables`.
fn read_variables(section: &Section<'_>, faults: &mut Faults<'_>) -> BTreeMap<VariableName, String> {
    let entries = section.entries_of("variables", faults);
    let entries = entries.iter().filter_map(|entry| {
        let (name, value) =
            (entry.parsed_name(faults, VariableName::parse), entry.parsed(faults, parse_value));
        Some((name?, value?))
    });
    entries.collect()
}

/// Parses a required posture.
fn parse_posture(text: &str) -> Result<ShellPosture, InvalidValue> {
    const KNOWN: [ShellPosture; 3] = [ShellPosture::Minimal, ShellPosture::Contained, ShellPosture::Strong];
    if text == ShellPosture::None.as_str() {
        return Err(InvalidValue::NoPosture);
    }
    choice_parser("posture", KNOWN, ShellPosture::as_str)(text)
}

/// Reads `allow`. An empty list is refused: it would allow no command, but its author may intend all
/// commands.
fn read_allowed(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<BTreeSet<CommandPattern>> {
    if entry.list(faults)?.is_empty() {
        entry.refuse(
            faults,
            "an empty list allows no command; set `enabled = false` to disable the shell, or remove `allow` to allow all commands",
        );
        return None;
    }
    Some(read_patterns(entry, faults))
}

fn read_patterns(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> BTreeSet<CommandPattern> {
    read_elements(entry, faults, parse_text).into_iter().map(|located| located.value).collect()
}
