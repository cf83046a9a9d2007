//! Reduces a shell: applies the section `[shell]` of a reduction.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use portcullis_types::Access;

use crate::{
    MountName, ShellAbsence, ShellPolicy, Toolchain, TunnelRule,
    effective::find_mount,
    file::{Faults, Located, ReducedAccess, ShellEntries},
    network::refuse_not_within,
    reduce::{lower, lower_duration, may_reduce_access, refuse_widening, warn_of_no_effect},
};

use super::ShellOrAbsence;

/// Applies a reduction. Without a shell, a reduction that enables one is the only fault.
pub(crate) fn reduce_shell(
    shell: &mut ShellOrAbsence,
    reduced: &ShellEntries<ReducedAccess>,
    mounts: &BTreeMap<MountName, String>,
    faults: &mut Faults<'_>,
) {
    match (shell.as_mut(), &reduced.enabled) {
        (Ok(policy), enabled) => {
            // Apply the section even if it disables the shell, so that its faults are found.
            reduce_policy(policy, reduced, mounts, faults);
            if enabled.as_ref().is_some_and(|enabled| !enabled.value) {
                *shell = Err(ShellAbsence::TakenAway);
            }
        }
        (Err(ShellAbsence::NotGranted), Some(enabled)) if enabled.value => {
            faults.add_at(enabled, "only the operator's policy may grant a shell");
        }
        (Err(ShellAbsence::DisabledByOperator | ShellAbsence::TakenAway), Some(enabled)) if enabled.value => {
            refuse_widening(enabled, true, false, faults);
        }
        (Err(_), Some(_) | None) => warn_of_no_effect(&reduced.location, faults),
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
            refuse_widening(posture, posture.value, policy.posture, faults);
        } else {
            if posture.value == policy.posture {
                warn_of_no_effect(posture, faults);
            }
            policy.posture = posture.value;
        }
    }
    for (name, access) in &reduced.mounts {
        if let Some(mount) = find_mount(mounts, name, faults) {
            reduce_mount(policy, &mount, access, faults);
        }
    }
    if let Some(unasked) = &reduced.unasked {
        let remaining = smaller_set(unasked, policy.commands.unasked_patterns(), faults);
        policy.commands.set_unasked(remaining);
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
    if let Some(read) = &reduced.read {
        policy.toolchain.read = smaller_set(read, &policy.toolchain.read, faults);
        let Toolchain { read, path, .. } = &mut policy.toolchain;
        // Each element of `path` must stay within an element of `read`.
        path.retain(|path| read.iter().any(|read| read.covers(path)));
    }
    if let Some(caches) = &reduced.caches {
        policy.toolchain.caches = smaller_set(caches, &policy.toolchain.caches, faults);
    }
    let operators_alone = "only the operator's policy may set this key; this section may only remove elements of `read` and `caches`";
    if let Some(path) = &reduced.path {
        faults.add_at(path, operators_alone);
    }
    if let Some(variables) = &reduced.variables {
        faults.add_at(variables, operators_alone);
    }
    if let Some(hosts) = &reduced.hosts {
        reduce_hosts(&mut policy.hosts, hosts, faults);
    }
    if let Some(allow) = &reduced.allow {
        // This adds a second list. A program then needs a rule in both lists, so the section cannot widen the
        // policy.
        policy.commands.allow_only(allow.clone());
    }
    policy.commands.deny_also(reduced.deny.iter().cloned());
    if let Some(operators) = &reduced.operators {
        let remaining_operators = subset(operators, policy.commands.operators(), faults);
        policy.commands.set_operators(remaining_operators);
    }
}

/// Replaces the hosts by the remaining list. Each element must be within the operator's list. An empty list
/// removes the network.
fn reduce_hosts(
    granted_rules: &mut BTreeSet<TunnelRule>,
    reduced: &Located<Vec<Located<TunnelRule>>>,
    faults: &mut Faults<'_>,
) {
    for rule in &reduced.value {
        if !granted_rules.iter().any(|wider| wider.rule().covers_rule(rule.value.rule())) {
            refuse_not_within(rule, faults);
        }
    }
    let remaining_rules = reduced.value.iter().map(|rule| rule.value.clone()).collect();
    if remaining_rules == *granted_rules {
        warn_of_no_effect(reduced, faults);
    }
    *granted_rules = remaining_rules;
}

fn reduce_mount(
    policy: &mut ShellPolicy,
    mount: &MountName,
    access: &Located<ReducedAccess>,
    faults: &mut Faults<'_>,
) {
    if !may_reduce_access(access, policy.access_to(mount.as_str()), faults) {
        return;
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

/// Returns the reduced list, whose elements must be in the operator's list. Warns if nothing was taken away.
fn smaller_set<T: Clone + Ord + Display>(
    reduced: &Located<Vec<Located<T>>>,
    granted_set: &BTreeSet<T>,
    faults: &mut Faults<'_>,
) -> BTreeSet<T> {
    let remaining = subset(&reduced.value, Some(granted_set), faults);
    if remaining == *granted_set {
        warn_of_no_effect(reduced, faults);
    }
    remaining
}

/// Returns the elements of a list. An element outside `granted_set` is a fault. `None` means that everything
/// is granted.
fn subset<T: Clone + Ord + Display>(
    reduced: &[Located<T>],
    granted_set: Option<&BTreeSet<T>>,
    faults: &mut Faults<'_>,
) -> BTreeSet<T> {
    for located in reduced {
        if granted_set.is_some_and(|granted_set| !granted_set.contains(&located.value)) {
            faults.add_at(
                located,
                format!(
                    "`{}` is not in the operator's list; this section may only remove elements",
                    located.value
                ),
            );
        }
    }
    reduced.iter().map(|located| located.value.clone()).collect()
}
