//! Resolves the section `[shell]` of an operator's policy.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use portcullis_types::{Access, ShellPosture};

use crate::{
    CommandRules, FileBytes, GrantedMount, Limits, MemoryBytes, MountName, OutputBytes, ShellAbsence,
    ShellPolicy,
    effective::find_mount,
    file::{Faults, ShellEntries},
    limits::{GIB, MIB},
};

use super::{ShellOrAbsence, model};

/// Fills in defaults. A policy without the section has no shell; a section without mounts grants none.
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
        commands.set_operators(operators.iter().map(|placed| placed.value).collect());
    }
    // Last: the faults of a section that is switched off are found too.
    if entries.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
        return Err(ShellAbsence::DisabledByOperator);
    }
    Ok(ShellPolicy {
        posture: entries.posture.as_ref().map_or(ShellPosture::Contained, |placed| placed.value),
        mounts: granted.into_iter().map(|(name, access)| GrantedMount { name, access }).collect(),
        timeout: entries
            .timeout
            .as_ref()
            .map_or(DEFAULT_TIMEOUT, |placed| placed.value)
            .min(limits.max_timeout),
        memory: entries.memory.as_ref().map_or(DEFAULT_MEMORY, |placed| placed.value),
        processes: entries.processes.as_ref().map_or(DEFAULT_PROCESSES, |placed| placed.value),
        file_size: entries.file_size.as_ref().map_or(DEFAULT_FILE_SIZE, |placed| placed.value),
        output: entries.output.as_ref().map_or(DEFAULT_OUTPUT, |placed| placed.value),
        environment: match &entries.environment {
            Some(names) => names.iter().map(|placed| placed.value.clone()).collect(),
            None => BTreeSet::new(),
        },
        hosts: entries.rules().map(|placed| placed.value.clone()).collect(),
        commands,
    })
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_MEMORY: MemoryBytes = MemoryBytes(GIB);
const DEFAULT_PROCESSES: u32 = 256;
const DEFAULT_FILE_SIZE: FileBytes = FileBytes(GIB);
const DEFAULT_OUTPUT: OutputBytes = OutputBytes(16 * MIB);
