//! Resolves the section `[shell]` of an operator's policy.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use portcullis_types::{Access, ShellPosture};

use crate::{
    CommandRules, FileBytes, GrantedMount, HostPath, Limits, MemoryBytes, MountName, OutputBytes,
    ShellAbsence, ShellPolicy, Toolchain,
    effective::find_mount,
    file::{Faults, Located, ShellEntries},
    limits::{GIB, MIB},
};

use super::{ShellOrAbsence, model};

/// Fills in defaults. A policy without the section has no shell. A section without mounts grants no mounts.
pub(crate) fn resolve_shell(
    entries: Option<&ShellEntries<Access>>,
    mounts: &BTreeMap<MountName, String>,
    limits: &Limits,
    faults: &mut Faults<'_>,
) -> ShellOrAbsence {
    let Some(entries) = entries else { return Err(ShellAbsence::NotGranted) };
    let mut granted = BTreeMap::new();
    for (name, access) in &entries.mounts {
        if !model::may_have(&name.value) {
            faults.add_at(name, model::NO_VAULT);
        } else if let Some(mount) = find_mount(mounts, name, faults) {
            granted.insert(mount, access.value);
        }
    }
    let mut commands = CommandRules::default();
    if let Some(allow) = &entries.allow {
        commands.allow_only(allow.clone());
    }
    commands.deny_also(entries.deny.iter().cloned());
    if let Some(operators) = &entries.operators {
        commands.set_operators(operators.iter().map(|located| located.value).collect());
    }
    commands.set_unasked(
        entries.unasked.iter().flat_map(|rules| &rules.value).map(|rule| rule.value.clone()).collect(),
    );
    let toolchain = resolve_toolchain(entries, faults);
    // Last, so that the faults of a disabled section are found too.
    if entries.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
        return Err(ShellAbsence::DisabledByOperator);
    }
    Ok(ShellPolicy {
        posture: entries.posture.as_ref().map_or(ShellPosture::Contained, |located| located.value),
        mounts: granted.into_iter().map(|(name, access)| GrantedMount { name, access }).collect(),
        timeout: entries
            .timeout
            .as_ref()
            .map_or(DEFAULT_TIMEOUT, |located| located.value)
            .min(limits.max_timeout),
        memory: entries.memory.as_ref().map_or(DEFAULT_MEMORY, |located| located.value),
        processes: entries.processes.as_ref().map_or(DEFAULT_PROCESSES, |located| located.value),
        file_size: entries.file_size.as_ref().map_or(DEFAULT_FILE_SIZE, |located| located.value),
        output: entries.output.as_ref().map_or(DEFAULT_OUTPUT, |located| located.value),
        environment: match &entries.environment {
            Some(names) => names.iter().map(|located| located.value.clone()).collect(),
            None => BTreeSet::new(),
        },
        toolchain,
        hosts: entries.rules().map(|located| located.value.clone()).collect(),
        commands,
    })
}

/// Resolves the parts of the host that commands see. A folder of programs that commands cannot read is a
/// fault.
fn resolve_toolchain(entries: &ShellEntries<Access>, faults: &mut Faults<'_>) -> Toolchain {
    let values = |paths: &Option<Located<Vec<Located<HostPath>>>>| -> Vec<Located<HostPath>> {
        paths.as_ref().map(|paths| paths.value.clone()).unwrap_or_default()
    };
    let mut toolchain = Toolchain {
        read: values(&entries.read).into_iter().map(|path| path.value).collect(),
        caches: BTreeSet::new(),
        path: Vec::new(),
        variables: entries.variables.as_ref().map(|variables| variables.value.clone()).unwrap_or_default(),
    };
    for path in values(&entries.caches) {
        let overlaps = |other: &&HostPath| {
            **other != path.value && (other.covers(&path.value) || path.value.covers(other))
        };
        // An equal path in `caches` is the same element.
        let in_read = toolchain.read.iter().find(|read| **read == path.value || overlaps(read));
        if let Some(other) = in_read.or_else(|| toolchain.caches.iter().find(overlaps)) {
            faults.add_at(
                &path,
                format!(
                    "overlaps `{other}`; list each folder once, in `read` or in `caches`, and no folder inside another"
                ),
            );
        } else if toolchain.caches.len() == MAX_CACHES {
            faults.add_at(&path, format!("a policy has at most {MAX_CACHES} caches"));
        } else {
            toolchain.caches.insert(path.value);
        }
    }
    for path in values(&entries.path) {
        if toolchain.reads(&path.value) {
            toolchain.path.push(path.value);
        } else {
            faults.add_at(
                &path,
                "not inside any folder of `read`, so commands cannot run its programs; add it to `read`",
            );
        }
    }
    toolchain
}

/// The maximum number of paths of `caches`. Each is searched for newer files when a session starts.
const MAX_CACHES: usize = 16;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_MEMORY: MemoryBytes = MemoryBytes(GIB);
const DEFAULT_PROCESSES: u32 = 256;
const DEFAULT_FILE_SIZE: FileBytes = FileBytes(GIB);
const DEFAULT_OUTPUT: OutputBytes = OutputBytes(16 * MIB);
