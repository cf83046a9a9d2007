//! Reductions: applies a `[sandbox.TIER]` section or a workspace's overlay to a policy.
//!
//! A reduction can only make the policy stricter. A value that would widen the policy is a fault that names
//! both values. If such a value were ignored, its author would believe that it is in force.

use std::{collections::BTreeSet, fmt::Display, time::Duration};

use portcullis_types::{Access, SafetyTier};

use crate::{
    Approval, Limits, LintCode,
    effective::{EffectivePolicy, ToolRule, find_mount, find_profile},
    file::{
        Faults, LimitEntries, Located, ReducedAccess, ReducedProfile, ReducedTier, ReducedTool, Reduction,
    },
    flow::resolve_flow,
    network::{reduce_egress, reduce_network},
    search::reduce_search,
    secrets::reduce_secrets,
    shell::{ShellOrAbsence, reduce_shell},
    shipped::SHELL_EXEC,
};

/// Applies a reduction. The resulting policy is valid only if there are no faults.
pub(crate) fn reduce(policy: &mut EffectivePolicy, reduction: &Reduction, faults: &mut Faults<'_>) {
    for layer in &reduction.require {
        if !policy.require.insert(layer.value) {
            warn_of_no_effect(layer, faults);
        }
    }
    for pattern in &reduction.protect.paths {
        if policy.protect.has(&pattern.value) {
            warn_of_no_effect(pattern, faults);
        }
        policy.protect.extend([pattern.value.clone()]);
    }
    for pattern in &reduction.protect.kinds {
        if policy.kinds.has(&pattern.value) {
            warn_of_no_effect(pattern, faults);
        }
        policy.kinds.insert(pattern.value.clone());
    }
    for name in &reduction.hide {
        if !policy.hide.insert(name.value.clone()) {
            warn_of_no_effect(name, faults);
        }
    }
    for profile in &reduction.profiles {
        reduce_profile(policy, profile, faults);
    }
    for tier in &reduction.tiers {
        reduce_tier(policy, tier, faults);
    }
    // Tools before limits, so that an entry is compared with the limits that the operator set.
    for tool in &reduction.tools {
        reduce_tool(policy, tool, faults);
    }
    if let Some(shell) = &reduction.shell {
        reduce_shell(&mut policy.shell, shell, &policy.mounts, faults);
    }
    reduce_egress(&mut policy.egress, &reduction.egress, faults);
    reduce_secrets(&mut policy.secrets, &reduction.secrets, faults);
    reduce_search(&mut policy.search, reduction.search.as_ref(), faults);
    reduce_limits(policy, &reduction.limits, faults);
    for rule in resolve_flow(&reduction.flow, &policy.mounts, &policy.secrets, faults) {
        if !policy.flow.insert(rule.value.clone()) {
            warn_of_no_effect(&rule, faults);
        }
    }
}

fn reduce_profile(policy: &mut EffectivePolicy, reduced: &ReducedProfile, faults: &mut Faults<'_>) {
    let Some(name) = find_profile(&policy.profiles, &reduced.name, faults) else {
        return;
    };
    reduce_network(&mut policy.networks, &name, &reduced.network, faults);
    let Some(granted) = policy.profiles.get_mut(&name) else {
        return;
    };
    for (mount, access) in &reduced.mounts {
        let Some(mount) = find_mount(&policy.mounts, mount, faults) else {
            continue;
        };
        if !may_reduce_access(access, granted.get(&mount).copied(), faults) {
            continue;
        }
        match access.value {
            ReducedAccess::None => drop(granted.remove(&mount)),
            ReducedAccess::Read => drop(granted.insert(mount, Access::Read)),
            ReducedAccess::Write => {}
        }
    }
}

/// Reduces a tier. The approval applies to every tool of the tier, even if the tool's entry sets another
/// approval.
fn reduce_tier(policy: &mut EffectivePolicy, reduced: &ReducedTier, faults: &mut Faults<'_>) {
    let is_of_shell = reduced.tier == SafetyTier::Privileged;
    let mut took_unasked = is_of_shell && take_unasked(&mut policy.shell, reduced.approval.value);
    if reduced.approval.value != Approval::Allow {
        // The tier of a tool is not known here, so the rules of every file tool are removed.
        for rule in policy.tools.values_mut() {
            took_unasked |= !std::mem::take(&mut rule.unasked).is_empty();
        }
    }
    let rule = policy.tiers.rule_mut(reduced.tier);
    if reduced.approval.value < rule.approval {
        refuse_widening(&reduced.approval, reduced.approval.value, rule.approval, faults);
        return;
    }
    // The floor also applies to tools whose entry sets an approval, so `ask` on top of `ask` can still take
    // permissions away.
    if reduced.approval.value <= rule.approval_floor && !took_unasked {
        warn_of_no_effect(&reduced.approval, faults);
    }
    rule.approval = reduced.approval.value;
    rule.approval_floor = rule.approval_floor.max(reduced.approval.value);
}

fn reduce_tool(policy: &mut EffectivePolicy, reduced: &ReducedTool, faults: &mut Faults<'_>) {
    let limits = &policy.limits;
    let rule = policy.tools.entry(reduced.name.value.clone()).or_insert_with(|| ToolRule::unnamed(limits));
    if let Some(approval) = &reduced.approval {
        let is_shell = reduced.name.value.as_str() == SHELL_EXEC;
        let took_commands = is_shell && take_unasked(&mut policy.shell, approval.value);
        let took_paths = approval.value != Approval::Allow && !std::mem::take(&mut rule.unasked).is_empty();
        let took_unasked = took_commands || took_paths;
        reduce_tool_approval(rule, approval, took_unasked, faults);
    }
    if let Some(enabled) = &reduced.enabled {
        match (enabled.value, rule.enabled) {
            (false, Some(false)) => warn_of_no_effect(enabled, faults),
            (false, _) => rule.enabled = Some(false),
            (true, Some(true)) => warn_of_no_effect(enabled, faults),
            (true, Some(false)) => refuse_widening(enabled, true, false, faults),
            // For a native tool, `enabled = true` would be the permission to run.
            (true, None) => faults.add_at(enabled, "only the operator's policy may enable a tool"),
        }
    }
    if let Some(timeout) = &reduced.timeout {
        let current_timeout = rule.timeout.unwrap_or(rule.timeout_cap);
        if timeout.value > current_timeout {
            let format_duration = humantime::format_duration;
            refuse_widening(
                timeout,
                format_duration(timeout.value),
                format_duration(current_timeout),
                faults,
            );
        } else if timeout.value == current_timeout {
            warn_of_no_effect(timeout, faults);
        } else if rule.timeout.is_some() {
            rule.timeout = Some(timeout.value);
        } else {
            // Lower only the cap: the tool may declare a shorter timeout, which must be kept.
            rule.timeout_cap = timeout.value;
        }
    }
    if let Some(memory) = &reduced.memory {
        let mut current_memory = rule.memory.unwrap_or(limits.wasm_memory);
        lower(&mut current_memory, memory, faults);
        rule.memory = Some(current_memory);
    }
    if let Some(max_output_bytes) = &reduced.max_output_bytes {
        lower(&mut rule.max_output_bytes, max_output_bytes, faults);
    }
}

/// Removes the commands that need no approval, if a reduction demands an approval of commands. Returns
/// whether there were any.
fn take_unasked(shell: &mut ShellOrAbsence, approval: Approval) -> bool {
    let Ok(shell) = shell else { return false };
    if approval == Approval::Allow || shell.commands.unasked_patterns().is_empty() {
        return false;
    }
    shell.commands.set_unasked(BTreeSet::new());
    true
}

fn reduce_tool_approval(
    rule: &mut ToolRule,
    approval: &Located<Approval>,
    took_unasked: bool,
    faults: &mut Faults<'_>,
) {
    // The operator's approval takes precedence. Without one, an earlier reduction may have set the floor.
    let current_approval = rule.approval.unwrap_or(rule.approval_floor);
    if approval.value < current_approval {
        refuse_widening(approval, approval.value, current_approval, faults);
    } else if approval.value == current_approval && current_approval > Approval::Allow {
        if !took_unasked {
            warn_of_no_effect(approval, faults);
        }
    } else if rule.approval.is_some() {
        rule.approval = Some(approval.value);
    } else if approval.value == Approval::Allow {
        // `allow` would look like a permission but grant nothing.
        faults.add_at(approval, "`allow` takes nothing away: the operator's policy sets no approval here");
    } else {
        rule.approval_floor = approval.value;
    }
}

/// Lowers limits, and every entry of a tool that is above a lowered limit.
fn reduce_limits(policy: &mut EffectivePolicy, reduced: &LimitEntries, faults: &mut Faults<'_>) {
    let limits = &mut policy.limits;
    if let Some(concurrency) = &reduced.concurrency {
        lower(&mut limits.concurrency, concurrency, faults);
    }
    if let Some(calls_per_minute) = &reduced.calls_per_minute {
        lower(&mut limits.calls_per_minute, calls_per_minute, faults);
    }
    if let Some(max_output_bytes) = &reduced.max_output_bytes {
        lower(&mut limits.max_output_bytes, max_output_bytes, faults);
        for rule in policy.tools.values_mut() {
            rule.max_output_bytes = rule.max_output_bytes.min(limits.max_output_bytes);
        }
    }
    if let Some(wasm_memory) = &reduced.wasm_memory {
        lower(&mut limits.wasm_memory, wasm_memory, faults);
        for rule in policy.tools.values_mut() {
            rule.memory = rule.memory.map(|memory| memory.min(limits.wasm_memory));
        }
    }
    if let Some(max_timeout) = &reduced.max_timeout {
        let Limits { max_timeout: current_timeout, .. } = limits;
        lower_duration(current_timeout, max_timeout, faults);
        if let Ok(shell) = &mut policy.shell {
            shell.timeout = shell.timeout.min(*current_timeout);
        }
        for rule in policy.tools.values_mut() {
            rule.timeout = rule.timeout.map(|timeout| timeout.min(*current_timeout));
            rule.timeout_cap = rule.timeout_cap.min(*current_timeout);
        }
    }
}

pub(crate) fn lower<T: Copy + Ord + Display>(current: &mut T, reduced: &Located<T>, faults: &mut Faults<'_>) {
    if reduced.value > *current {
        refuse_widening(reduced, reduced.value, *current, faults);
    } else {
        if reduced.value == *current {
            warn_of_no_effect(reduced, faults);
        }
        *current = reduced.value;
    }
}

pub(crate) fn lower_duration(current: &mut Duration, reduced: &Located<Duration>, faults: &mut Faults<'_>) {
    if reduced.value > *current {
        let format_duration = humantime::format_duration;
        refuse_widening(reduced, format_duration(reduced.value), format_duration(*current), faults);
    } else {
        if reduced.value == *current {
            warn_of_no_effect(reduced, faults);
        }
        *current = reduced.value;
    }
}

/// Warns of a value that leaves the policy unchanged.
pub(crate) fn warn_of_no_effect<T>(located: &Located<T>, faults: &mut Faults<'_>) {
    faults.warn_at(
        LintCode::OverlayWithoutEffect,
        located,
        "this takes nothing away: the operator's policy gives no more",
    );
}

/// Returns whether a reduction of the access to a mount may be applied. A wider access is a fault, and an equal one gives
/// a warning.
pub(crate) fn may_reduce_access(
    access: &Located<ReducedAccess>,
    granted: Option<Access>,
    faults: &mut Faults<'_>,
) -> bool {
    let granted_access = match granted {
        None => ReducedAccess::None,
        Some(Access::Read) => ReducedAccess::Read,
        Some(Access::Write) => ReducedAccess::Write,
    };
    if access.value > granted_access {
        refuse_widening(access, access.value.as_str(), granted_access.as_str(), faults);
        return false;
    }
    if access.value == granted_access {
        warn_of_no_effect(access, faults);
    }
    true
}

pub(crate) fn refuse_widening<T>(
    located: &Located<T>,
    after: impl Display,
    before: impl Display,
    faults: &mut Faults<'_>,
) {
    faults.add_at(
        located,
        format!("`{after}` would widen the operator's `{before}`; this section may only reduce"),
    );
}
