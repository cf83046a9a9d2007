//! Compares two policies by their effect: the permissions of each tool, and every other value in force.
//!
//! The grants of tools are the evaluator's answers. The other values are compared in their canonical form,
//! the form that the digest hashes, so a value that a later version adds is never overlooked: without a rule
//! here it counts as [`Direction::Changed`].

use std::collections::{BTreeMap, BTreeSet};

use portcullis_types::{Access, ToolName};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    Approval, CallRequest, RunContext, ToolDescriptor, ToolOrigin, WorkspaceSecurityPolicy, shipped_tools,
};

mod values;

portcullis_types::word_enum! {
    /// Whether a change gives more or fewer permissions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    pub enum Direction {
        /// The new policy allows something that the old one does not.
        Wider = "wider",
        /// The values differ, and neither contains the other, so a reader must check them.
        Changed = "changed",
        /// The new policy allows less.
        Narrower = "narrower",
    }
}

/// One difference between two policies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EffectChange {
    /// Whether the new policy gives more or fewer permissions.
    pub direction: Direction,
    /// The tool, or the key of the value.
    pub subject: String,
    /// The changed aspect, such as `hosts`.
    pub aspect: String,
    /// The old value.
    pub old: String,
    /// The new value.
    pub new: String,
    /// The rule behind the new value, as a path in the policy file.
    pub rule: String,
}

/// The differences between two policies, the widest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PolicyDiff {
    /// The differences that affect the known tools, the widest first.
    pub changes: Vec<EffectChange>,
    /// The sections whose values differ without any effect on the known tools.
    pub without_effect: Vec<String>,
}

impl PolicyDiff {
    /// Compares two policies. `tools` are tools besides the shipped ones. Tools that only an entry of a
    /// policy names count as approved tools of modules.
    #[must_use]
    pub fn between(
        old: &WorkspaceSecurityPolicy,
        new: &WorkspaceSecurityPolicy,
        tools: &[ToolDescriptor],
    ) -> Self {
        let mut diff = Self::default();
        let mut known: BTreeMap<ToolName, ToolDescriptor> = BTreeMap::new();
        let named = [old, new].into_iter().flat_map(WorkspaceSecurityPolicy::tools_with_entries);
        let named = named.map(|name| ToolDescriptor::undeclared(name.clone(), ToolOrigin::ForeignModule));
        // Later descriptors replace earlier ones, so a real declaration replaces the assumption about a name.
        for descriptor in named.chain(tools.iter().cloned()).chain(shipped_tools()) {
            known.insert(descriptor.name.clone(), descriptor);
        }
        for descriptor in known.values() {
            diff.compare_tool(descriptor, &tool_effect(old, descriptor), &tool_effect(new, descriptor));
        }
        let has_tool_changes = !diff.changes.is_empty();
        if let (Value::Object(old), Value::Object(new)) = (canonical(old), canonical(new)) {
            diff.compare_sections(&old, &new, has_tool_changes);
        }
        diff.changes.sort();
        diff
    }

    /// Returns whether the new policy may allow something that the old one does not.
    #[must_use]
    pub fn is_wider(&self) -> bool {
        self.changes.iter().any(|change| change.direction != Direction::Narrower)
    }

    fn compare_tool(&mut self, descriptor: &ToolDescriptor, old: &ToolEffect, new: &ToolEffect) {
        let tool = descriptor.name.as_str();
        let mut add = |direction, aspect: &str, old: String, new: String, rule: &str| {
            self.changes.push(EffectChange {
                direction,
                subject: tool.to_owned(),
                aspect: aspect.to_owned(),
                old,
                new,
                rule: rule.to_owned(),
            });
        };
        if old.approval != new.approval {
            // `allow` sorts before `ask`, and `ask` before `deny`, so a smaller value is wider.
            let direction = if new.approval < old.approval { Direction::Wider } else { Direction::Narrower };
            add(direction, "calls", old.approval.to_string(), new.approval.to_string(), &new.approval_rule);
        }
        let mounts: BTreeSet<&String> = old.mounts.keys().chain(new.mounts.keys()).collect();
        for mount in mounts {
            // `None` sorts before reading, and reading before writing, so a greater value is wider.
            let (before, after) = (old.mounts.get(mount).copied(), new.mounts.get(mount).copied());
            if before != after {
                let direction = if after > before { Direction::Wider } else { Direction::Narrower };
                let word = |access: Option<Access>| access.map_or("none", Access::as_str).to_owned();
                let rule = format!("{}.mounts.{mount}", new.grants_rule);
                add(direction, &format!("/{mount}"), word(before), word(after), &rule);
            }
        }
        // A pattern of hosts can cover another one, so hosts are not compared as mere texts.
        for (direction, host) in values::host_changes(&old.hosts, &new.hosts) {
            let (before, after) = values::presence(direction == Direction::Wider, host);
            add(direction, "hosts", before, after, &new.grants_rule);
        }
        for (aspect, before, after) in [
            ("methods", &old.methods, &new.methods),
            ("paths without a question", &old.unasked, &new.unasked),
        ] {
            for (direction, element) in values::set_changes(before, after, Direction::Wider) {
                let (before, after) = values::presence(direction == Direction::Wider, element);
                add(direction, aspect, before, after, &new.grants_rule);
            }
        }
        for (aspect, before, after) in [
            ("timeout, ms", old.timeout_ms, new.timeout_ms),
            ("memory, bytes", old.memory, new.memory),
            ("output, bytes", old.max_output, new.max_output),
        ] {
            if before != after {
                let direction = if after > before { Direction::Wider } else { Direction::Narrower };
                add(direction, aspect, before.to_string(), after.to_string(), &format!("tools.{tool}"));
            }
        }
    }

    fn compare_sections(
        &mut self,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        has_tool_changes: bool,
    ) {
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let (before, after) = (old.get(key), new.get(key));
            if before == after {
                continue;
            }
            if TOOL_SECTIONS.contains(&key.as_str()) {
                // Their effect was compared tool by tool above.
                if !has_tool_changes {
                    self.without_effect.push(key.clone());
                }
                continue;
            }
            let null = Value::Null;
            values::compare(key, before.unwrap_or(&null), after.unwrap_or(&null), &mut self.changes);
        }
    }
}

/// The sections whose effect is the permissions of tools.
const TOOL_SECTIONS: [&str; 4] = ["networks", "profiles", "tiers", "tools"];

/// The grants of a policy to one tool.
struct ToolEffect {
    /// `Deny` even if the tool is disabled or refused.
    approval: Approval,
    approval_rule: String,
    mounts: BTreeMap<String, Access>,
    hosts: BTreeSet<String>,
    methods: BTreeSet<String>,
    unasked: BTreeSet<String>,
    /// The profile or the shell, as a rule.
    grants_rule: String,
    timeout_ms: u64,
    memory: u64,
    max_output: u64,
}

fn tool_effect(policy: &WorkspaceSecurityPolicy, descriptor: &ToolDescriptor) -> ToolEffect {
    let assignment = policy.describe(descriptor);
    let run = RunContext::default();
    // Without subjects, the answer is about the tool itself.
    let grant = policy.authorize(&CallRequest { tool: descriptor, subjects: &[], run: &run });
    let mounts = policy
        .mounts()
        .iter()
        .filter_map(|mount| Some((mount.name.to_string(), policy.access_to(descriptor, &mount.name)?)));
    let network = grant.as_ref().ok().and_then(|grant| grant.network.clone());
    let unasked = policy.effective().tools.get(&descriptor.name).map(|rule| rule.unasked.patterns());
    ToolEffect {
        approval: grant.as_ref().map_or(Approval::Deny, |grant| grant.approval),
        approval_rule: match &grant {
            Ok(_) => policy.approval_rule(descriptor, &assignment),
            Err(denial) => denial.rule.clone(),
        },
        mounts: mounts.collect(),
        hosts: network.iter().flat_map(|network| network.hosts.iter().map(ToString::to_string)).collect(),
        methods: network.iter().flat_map(|network| network.methods.iter().map(ToString::to_string)).collect(),
        unasked: unasked.unwrap_or_default(),
        grants_rule: if assignment.profile.is_shell() {
            "shell".to_owned()
        } else {
            format!("profiles.{}", assignment.profile)
        },
        timeout_ms: u64::try_from(assignment.timeout.as_millis()).unwrap_or(u64::MAX),
        memory: assignment.memory.0,
        max_output: assignment.max_output.0,
    }
}

fn canonical(policy: &WorkspaceSecurityPolicy) -> Value {
    // The text was written by serde, so it is JSON.
    serde_json::from_slice(&policy.canonical_json()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
