//! Reduces a shell: applies the section `[shell]` of a reduction.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use portcullis_types::Access;

use crate::{
    MountName, ShellAbsence, ShellPolicy, TunnelRule,
    effective::find_mount,
    file::{Faults, PlacedValue, ReducedAccess, ShellEntries},
    network::not_within,
    overlay::{lower, lower_duration, takes_nothing, widens},
};

use super::ShellOrAbsence;

/// Applies a reduction. Without a shell there is nothing to reduce, and only enabling it is a fault.
pub(crate) fn reduce_shell(
    shell: &mut ShellOrAbsence,
    reduced: &ShellEntries<ReducedAccess>,
    mounts: &BTreeMap<MountName, String>,
    faults: &mut Faults<'_>,
) {
    match (shell.as_mut(), &reduced.enabled) {
        (Ok(policy), enabled) => {
            // Even if the shell goes away: the faults of the section are found.
            reduce_policy(policy, reduced, mounts, faults);
            if enabled.as_ref().is_some_and(|enabled| !enabled.value) {
                *shell = Err(ShellAbsence::TakenAway);
            }
        }
        (Err(ShellAbsence::NotGranted), Some(enabled)) if enabled.value => {
            faults.add_at(enabled, "only the operator's policy may grant a shell");
        }
        (Err(ShellAbsence::DisabledByOperator | ShellAbsence::TakenAway), Some(enabled)) if enabled.value => {
            widens(enabled, true, false, faults);
        }
        (Err(_), Some(_) | None) => takes_nothing(&reduced.place, faults),
    }
}

fn reduce_policy(
    policy: &mut ShellPolicy,
    reduced: &ShellEntries<ReducedAccess>,
    mounts: &BTreeMap<MountName, String>,
    faults: &mut Faults<'_>,
) {
    if let Some(posture) = &reduced.posture {
        if posture.value < policy.posture {
            widens(posture, posture.value, policy.posture, faults);
        } else {
            if posture.value == policy.posture {
                takes_nothing(posture, faults);
            }
            policy.posture = posture.value;
        }
    }
    for (name, access) in &reduced.mounts {
        if let Some(mount) = find_mount(mounts, name, faults) {
            reduce_mount(policy, &mount, access, faults);
        }
    }
    if let Some(timeout) = &reduced.timeout {
        lower_duration(&mut policy.timeout, timeout, faults);
    }
    if let Some(memory) = &reduced.memory {
        lower(&mut policy.memory, memory, faults);
    }
    if let Some(processes) = &reduced.processes {
        lower(&mut policy.processes, processes, faults);
    }
    if let Some(file_size) = &reduced.file_size {
        lower(&mut policy.file_size, file_size, faults);
    }
    if let Some(output) = &reduced.output {
        lower(&mut policy.output, output, faults);
    }
    if let Some(names) = &reduced.environment {
        policy.environment = subset(names, Some(&policy.environment), faults);
    }
    if let Some(hosts) = &reduced.hosts {
        reduce_hosts(&mut policy.hosts, hosts, faults);
    }
    if let Some(allow) = &reduced.allow {
        policy.commands.allow_only(allow.clone());
    }
    policy.commands.deny_also(reduced.deny.iter().cloned());
    if let Some(operators) = &reduced.operators {
        let left = subset(operators, policy.commands.operators(), faults);
        policy.commands.set_operators(left);
    }
}

/// The list that stays; each element must be within the operator's. An empty list takes the network away.
fn reduce_hosts(
    before: &mut BTreeSet<TunnelRule>,
    reduced: &PlacedValue<Vec<PlacedValue<TunnelRule>>>,
    faults: &mut Faults<'_>,
) {
    for rule in &reduced.value {
        if !before.iter().any(|wider| wider.rule().covers_rule(rule.value.rule())) {
            not_within(rule, faults);
        }
    }
    let left = reduced.value.iter().map(|rule| rule.value.clone()).collect();
    if left == *before {
        takes_nothing(reduced, faults);
    }
    *before = left;
}

fn reduce_mount(
    policy: &mut ShellPolicy,
    mount: &MountName,
    access: &PlacedValue<ReducedAccess>,
    faults: &mut Faults<'_>,
) {
    let before = match policy.access_to(mount.as_str()) {
        None => ReducedAccess::None,
        Some(Access::Read) => ReducedAccess::Read,
        Some(Access::Write) => ReducedAccess::Write,
    };
    if access.value > before {
        widens(access, access.value.as_str(), before.as_str(), faults);
        return;
    }
    if access.value == before {
        takes_nothing(access, faults);
    }
    match access.value {
        ReducedAccess::None => policy.mounts.retain(|granted| granted.name != *mount),
        ReducedAccess::Read => {
            policy.mounts.iter_mut().filter(|granted| granted.name == *mount).for_each(|granted| {
                granted.access = Access::Read;
            });
        }
        ReducedAccess::Write => {}
    }
}

/// The elements of a list, each of which must be in `before`; `None` there means everything. Others are
/// faults.
fn subset<T: Clone + Ord + Display>(
    listed: &[PlacedValue<T>],
    before: Option<&BTreeSet<T>>,
    faults: &mut Faults<'_>,
) -> BTreeSet<T> {
    for placed in listed {
        if before.is_some_and(|before| !before.contains(&placed.value)) {
            faults.add_at(
                placed,
                format!("`{}` is not in the operator's list; this section may only take away", placed.value),
            );
        }
    }
    listed.iter().map(|placed| placed.value.clone()).collect()
}
