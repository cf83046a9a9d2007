//! Reads `[shell]`, which has the same keys in an operator's policy and in a reduction.

use std::collections::BTreeSet;

use portcullis_types::ShellPosture;

use crate::{
    FileBytes, MemoryBytes, Operator, OutputBytes, TunnelRule, VariableName,
    commands::CommandPattern,
    limits::{SHELL_FILE_SIZE_BOUNDS, SHELL_MEMORY_BOUNDS, SHELL_OUTPUT_BOUNDS, SHELL_PROCESSES_BOUNDS},
};

use super::{
    Faults, PlacedValue, ShellEntries, keys,
    section::{Section, SectionEntry},
    value::{count, elements, one_of, size, timeout},
};

/// Reads `[shell]`; the caller names the accesses that a mount may have.
pub(super) fn shell<A: Copy, const N: usize>(
    section: &Section<'_>,
    accesses: [A; N],
    access_name: fn(A) -> &'static str,
    faults: &mut Faults<'_>,
) -> ShellEntries<A> {
    section.refuse_unknown(keys::SHELL, faults);
    let entry = |name: &str| section.entry(name);
    let access = one_of("access", accesses, access_name);
    let mounts = section.entries_of("mounts", faults);
    ShellEntries {
        enabled: entry("enabled").and_then(|entry| Some(entry.placed(entry.boolean(faults)?))),
        posture: entry("posture").and_then(|entry| Some(entry.placed(entry.parsed(faults, posture)?))),
        mounts: mounts
            .iter()
            .filter_map(|mount| {
                let access = mount.parsed(faults, &access)?;
                Some((mount.placed_at_key(mount.name.to_owned()), mount.placed(access)))
            })
            .collect(),
        timeout: entry("timeout").and_then(|entry| timeout(&entry, faults)),
        memory: entry("memory")
            .and_then(|entry| Some(entry.placed(MemoryBytes(size(&entry, SHELL_MEMORY_BOUNDS, faults)?)))),
        processes: entry("processes").and_then(|entry| {
            let count = count(&entry, SHELL_PROCESSES_BOUNDS, faults)?;
            // Cannot fail: the bounds lie within a `u32`.
            Some(entry.placed(u32::try_from(count).unwrap_or(u32::MAX)))
        }),
        file_size: entry("file_size")
            .and_then(|entry| Some(entry.placed(FileBytes(size(&entry, SHELL_FILE_SIZE_BOUNDS, faults)?)))),
        output: entry("output")
            .and_then(|entry| Some(entry.placed(OutputBytes(size(&entry, SHELL_OUTPUT_BOUNDS, faults)?)))),
        environment: entry("environment").map(|entry| {
            let parse = |text: &str| VariableName::parse(text).map_err(|error| error.to_string());
            elements(&entry, faults, parse)
        }),
        hosts: entry("hosts").map(|entry| {
            let parse = |text: &str| text.parse::<TunnelRule>().map_err(|error| error.to_string());
            entry.placed(elements(&entry, faults, parse))
        }),
        allow: entry("allow").and_then(|entry| allowed(&entry, faults)),
        deny: entry("deny").map(|entry| patterns(&entry, faults)).unwrap_or_default(),
        operators: entry("operators").map(|entry| {
            let parse = |text: &str| text.parse::<Operator>().map_err(|error| error.to_string());
            elements(&entry, faults, parse)
        }),
        place: PlacedValue { value: (), at: section.at, key: section.path().to_owned() },
    }
}

/// Parses a required posture.
fn posture(text: &str) -> Result<ShellPosture, String> {
    const KNOWN: [ShellPosture; 3] = [ShellPosture::Minimal, ShellPosture::Contained, ShellPosture::Strong];
    if text == ShellPosture::None.as_str() {
        return Err(
            "a policy never asks for a shell that nothing confines; write `minimal`, `contained` or `strong`"
                .to_owned(),
        );
    }
    one_of("posture", KNOWN, ShellPosture::as_str)(text)
}

/// Reads `allow`. An empty list is refused: its author may mean that all commands are allowed, and it would
/// allow none.
fn allowed(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> Option<BTreeSet<CommandPattern>> {
    if entry.list(faults)?.is_empty() {
        entry.refuse(
            faults,
            "an empty list allows nothing; write `enabled = false`, or leave `allow` out to allow all",
        );
        return None;
    }
    Some(patterns(entry, faults))
}

fn patterns(entry: &SectionEntry<'_>, faults: &mut Faults<'_>) -> BTreeSet<CommandPattern> {
    let parse = |text: &str| text.parse::<CommandPattern>().map_err(|error| error.to_string());
    elements(entry, faults, parse).into_iter().map(|placed| placed.value).collect()
}
