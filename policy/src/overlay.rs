//! Reductions: applies a `[sandbox.TIER]` section or a workspace's overlay to a policy.
//!
//! A reduction can only make the policy stricter. A value that would widen it is a fault that names both
//! values. It is not ignored, because its author would believe that it holds.

use std::{fmt::Display, time::Duration};

use portcullis_types::Access;

use crate::{
    Approval, Limits,
    effective::{EffectivePolicy, ToolRule, find_mount, find_profile},
    file::{
        Faults, LimitEntries, PlacedValue, ReducedAccess, ReducedProfile, ReducedTier, ReducedTool, Reduction,
    },
    flow::resolve_flow,
    network::{reduce_egress, reduce_network},
    search::reduce_search,
    secrets::reduce_secrets,
    shell::reduce_shell,
};

/// Applies a reduction. The resulting policy is valid only if there are no faults.
pub(crate) fn reduce(policy: &mut EffectivePolicy, reduction: &Reduction, faults: &mut Faults<'_>) {
    for layer in &reduction.require {
        if !policy.require.insert(layer.value) {
            takes_nothing(layer, faults);
        }
    }
    for pattern in &reduction.protect.paths {
        if policy.protect.has(&pattern.value) {
            takes_nothing(pattern, faults);
        }
        policy.protect.extend([pattern.value.clone()]);
    }
    for pattern in &reduction.protect.kinds {
        if policy.kinds.has(&pattern.value) {
            takes_nothing(pattern, faults);
        }
        policy.kinds.insert(pattern.value.clone());
    }
    for profile in &reduction.profiles {
        reduce_profile(policy, profile, faults);
    }
    for tier in &reduction.tiers {
        reduce_tier(policy, tier, faults);
    }
    // Tools before limits: an entry is compared with what the operator gave the tool.
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
            takes_nothing(&rule, faults);
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
        let before = match granted.get(&mount) {
            None => ReducedAccess::None,
            Some(Access::Read) => ReducedAccess::Read,
            Some(Access::Write) => ReducedAccess::Write,
        };
        if access.value > before {
            widens(access, access.value.as_str(), before.as_str(), faults);
            continue;
        }
        if access.value == before {
            takes_nothing(access, faults);
        }
        match access.value {
            ReducedAccess::None => drop(granted.remove(&mount)),
            ReducedAccess::Read => drop(granted.insert(mount, Access::Read)),
            ReducedAccess::Write => {}
        }
    }
}

/// Reduces a tier: the approval holds for every tool of it, even one whose entry sets its approval.
fn reduce_tier(policy: &mut EffectivePolicy, reduced: &ReducedTier, faults: &mut Faults<'_>) {
    let rule = policy.tiers.rule_mut(reduced.tier);
    if reduced.approval.value < rule.approval {
        widens(&reduced.approval, reduced.approval.value, rule.approval, faults);
        return;
    }
    // The floor also holds for tools whose entry sets an approval, so `ask` over `ask` takes something away.
    if reduced.approval.value <= rule.approval_floor {
        takes_nothing(&reduced.approval, faults);
    }
    rule.approval = reduced.approval.value;
    rule.approval_floor = rule.approval_floor.max(reduced.approval.value);
}

fn reduce_tool(policy: &mut EffectivePolicy, reduced: &ReducedTool, faults: &mut Faults<'_>) {
    let limits = &policy.limits;
    let rule = policy.tools.entry(reduced.name.value.clone()).or_insert_with(|| ToolRule::unnamed(limits));
    if let Some(approval) = &reduced.approval {
        reduce_tool_approval(rule, approval, faults);
    }
    if let Some(enabled) = &reduced.enabled {
        match (enabled.value, rule.enabled) {
            (false, Some(false)) => takes_nothing(enabled, faults),
            (false, _) => rule.enabled = Some(false),
            (true, Some(true)) => takes_nothing(enabled, faults),
            (true, Some(false)) => widens(enabled, true, false, faults),
            // For a native tool this would be the permission to run.
            (true, None) => faults.add_at(enabled, "only the operator's policy may enable a tool"),
        }
    }
    if let Some(timeout) = &reduced.timeout {
        let before = rule.timeout.unwrap_or(rule.timeout_cap);
        if timeout.value > before {
            let shown = humantime::format_duration;
            widens(timeout, shown(timeout.value), shown(before), faults);
        } else if timeout.value == before {
            takes_nothing(timeout, faults);
        } else if rule.timeout.is_some() {
            rule.timeout = Some(timeout.value);
        } else {
            // Only the cap: the tool may declare a shorter time, which must stay.
            rule.timeout_cap = timeout.value;
        }
    }
    if let Some(memory) = &reduced.memory {
        let mut before = rule.memory.unwrap_or(limits.wasm_memory);
        lower(&mut before, memory, faults);
        rule.memory = Some(before);
    }
    if let Some(max_output_bytes) = &reduced.max_output_bytes {
        lower(&mut rule.max_output_bytes, max_output_bytes, faults);
    }
}

fn reduce_tool_approval(rule: &mut ToolRule, approval: &PlacedValue<Approval>, faults: &mut Faults<'_>) {
    // An approval of the operator counts first; the floor may come from another reduction.
    let before = rule.approval.unwrap_or(rule.approval_floor);
    if approval.value < before {
        widens(approval, approval.value, before, faults);
    } else if approval.value == before && before > Approval::Allow {
        takes_nothing(approval, faults);
    } else if rule.approval.is_some() {
        rule.approval = Some(approval.value);
    } else if approval.value == Approval::Allow {
        // `allow` would look like a permission and grant nothing.
        faults.add_at(approval, "`allow` takes nothing away: the operator's policy sets no approval here");
    } else {
        rule.approval_floor = approval.value;
    }
}

/// Lowers limits, and every tool's entry that lies above one.
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
        let Limits { max_timeout: before, .. } = limits;
        lower_duration(before, max_timeout, faults);
        if let Ok(shell) = &mut policy.shell {
            shell.timeout = shell.timeout.min(*before);
        }
        for rule in policy.tools.values_mut() {
            rule.timeout = rule.timeout.map(|timeout| timeout.min(*before));
            rule.timeout_cap = rule.timeout_cap.min(*before);
        }
    }
}

pub(crate) fn lower<T: Copy + Ord + Display>(
    before: &mut T,
    reduced: &PlacedValue<T>,
    faults: &mut Faults<'_>,
) {
    if reduced.value > *before {
        widens(reduced, reduced.value, *before, faults);
    } else {
        if reduced.value == *before {
            takes_nothing(reduced, faults);
        }
        *before = reduced.value;
    }
}

pub(crate) fn lower_duration(
    before: &mut Duration,
    reduced: &PlacedValue<Duration>,
    faults: &mut Faults<'_>,
) {
    if reduced.value > *before {
        let shown = humantime::format_duration;
        widens(reduced, shown(reduced.value), shown(*before), faults);
    } else {
        if reduced.value == *before {
            takes_nothing(reduced, faults);
        }
        *before = reduced.value;
    }
}

/// Warns of a value that leaves the policy as it is.
pub(crate) fn takes_nothing<T>(placed: &PlacedValue<T>, faults: &mut Faults<'_>) {
    faults.warn_at(placed, "this takes nothing away: the operator's policy gives no more");
}

pub(crate) fn widens<T>(
    placed: &PlacedValue<T>,
    after: impl Display,
    before: impl Display,
    faults: &mut Faults<'_>,
) {
    faults.add_at(
        placed,
        format!("`{after}` would widen the operator's `{before}`; this section may only take away"),
    );
}
