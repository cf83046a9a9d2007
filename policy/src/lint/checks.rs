//! The checks that need the effective policy and the descriptors of the shipped tools.

use std::{collections::BTreeMap, time::Duration};

use portcullis_types::{Access, DEFAULT_TIMEOUT, SafetyTier};

use super::{LintCode, LintFinding};
use crate::{
    Approval, LoadOptions, Operation, PolicyProvenance, RequiredLayer, ToolAssignment, ToolDescriptor,
    WorkspaceSecurityPolicy,
    file::{Faults, PolicyFile, ToolEntry, read_overlay, read_policy},
    shipped::SHELL_EXEC,
};

/// Runs all checks.
pub(super) fn run(
    options: &LoadOptions<'_>,
    policy: &WorkspaceSecurityPolicy,
    provenance: &PolicyProvenance,
    has_approver: bool,
) -> Vec<LintFinding> {
    // The policy has loaded, so its texts have no faults.
    let file = read_policy(&mut Faults::new(options.operator));
    let tools: Vec<(ToolDescriptor, ToolAssignment)> = policy
        .offered_tools()
        .map(|tool| {
            let assignment = policy.describe(&tool);
            (tool, assignment)
        })
        .filter(|(_, assignment)| assignment.enabled)
        .collect();
    let context = Context { policy, provenance, file: &file, tools: &tools };
    let mut findings = Vec::new();
    context.read_tools_that_write(&mut findings);
    context.unasked_vault(&mut findings);
    context.limits_without_effect(&mut findings);
    context.unasked_without_ask(&mut findings);
    context.waived_layers(&mut findings);
    context.changes_everywhere(&mut findings);
    context.missing_home(&mut findings);
    if let Some(overlay) = options.overlay {
        let reduction = read_overlay(&mut Faults::new(overlay));
        let timeouts = reduction
            .tools
            .iter()
            .filter_map(|tool| Some((tool.name.value.as_str(), tool.timeout.as_ref()?.value)));
        context.reductions_above_declared(timeouts, &mut findings);
    }
    if !has_approver {
        context.questions_without_approver(&mut findings);
    }
    findings
}

struct Context<'a> {
    policy: &'a WorkspaceSecurityPolicy,
    provenance: &'a PolicyProvenance,
    file: &'a PolicyFile,
    /// The shipped tools that may be called.
    tools: &'a [(ToolDescriptor, ToolAssignment)],
}

impl Context<'_> {
    fn finding(&self, code: LintCode, rule: impl Into<String>, message: impl Into<String>) -> LintFinding {
        let rule = rule.into();
        LintFinding::new(code, self.provenance.location_or_start(&rule), rule, message)
    }

    /// Returns the operator's entry for a tool.
    fn entry(&self, tool: &str) -> Option<&ToolEntry> {
        self.file.tools.iter().find(|entry| entry.name.value.as_str() == tool)
    }

    /// Returns the key that gives a tool its profile.
    fn profile_rule(&self, tool: &ToolDescriptor, assignment: &ToolAssignment) -> String {
        let name = tool.name.as_str();
        match self.entry(name).and_then(|entry| entry.profile.as_ref()) {
            Some(_) => format!("tools.{name}.profile"),
            None if assignment.profile.is_shell() => "shell.mounts".to_owned(),
            None => format!("tiers.{}.profile", assignment.tier),
        }
    }

    fn read_tools_that_write(&self, findings: &mut Vec<LintFinding>) {
        let mut by_rule: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (tool, assignment) in self.tools {
            let touches_paths = tool.roles.iter().any(|role| role.role.path_access().is_some());
            let mounts = self.policy.mounts_of(&assignment.profile);
            let writes = mounts.iter().any(|mount| mount.access == Access::Write);
            if tool.declared_tier == Some(SafetyTier::ReadOnly) && touches_paths && writes {
                by_rule
                    .entry(self.profile_rule(tool, assignment))
                    .or_default()
                    .push(format!("`{}`", tool.name));
            }
        }
        findings.extend(by_rule.into_iter().map(|(rule, tools)| {
            let verb = if tools.len() == 1 { "declares" } else { "declare" };
            let message = format!("{} {verb} to only read, and this profile may write", tools.join(", "));
            self.finding(LintCode::ReadToolWrites, rule, message)
        }));
    }

    fn unasked_vault(&self, findings: &mut Vec<LintFinding>) {
        for (tool, assignment) in self.tools {
            let has_vault =
                self.policy.mounts_of(&assignment.profile).iter().any(|mount| mount.name.is_vault());
            if has_vault && self.is_unasked(tool.name.as_str(), assignment) {
                let rule = self.profile_rule(tool, assignment);
                let message = format!("`{}` reads the vault, and no call of it is asked about", tool.name);
                findings.push(self.finding(LintCode::VaultUnasked, rule, message));
            }
        }
    }

    /// Returns whether calls run without a question. An operation asks if one of its steps does.
    fn is_unasked(&self, name: &str, assignment: &ToolAssignment) -> bool {
        let operation = Operation::ALL.iter().find(|operation| operation.steps.contains(&name));
        let asks = |tool: &str| {
            let found = self.tools.iter().find(|(descriptor, _)| descriptor.name.as_str() == tool);
            found.is_some_and(|(_, assignment)| assignment.approval > Approval::Allow)
        };
        assignment.approval == Approval::Allow
            && !operation.is_some_and(|operation| {
                asks(operation.name) || operation.steps.iter().any(|step| asks(step))
            })
    }

    fn limits_without_effect(&self, findings: &mut Vec<LintFinding>) {
        let most = self.policy.limits().max_timeout;
        for entry in &self.file.tools {
            if let Some(timeout) = entry.timeout.filter(|timeout| *timeout > most) {
                let key = format!("tools.{}.timeout", entry.name.value);
                let message = format!(
                    "{} has no effect: `limits.max_timeout` is {}",
                    humantime::format_duration(timeout),
                    humantime::format_duration(most)
                );
                findings.push(self.finding(LintCode::LimitWithoutEffect, key, message));
            }
        }
    }

    fn unasked_without_ask(&self, findings: &mut Vec<LintFinding>) {
        for (tool, assignment) in self.tools {
            let name = tool.name.as_str();
            let (has_rules, key) = match self.policy.shell().filter(|_| name == SHELL_EXEC) {
                Some(shell) => {
                    (shell.commands.allowed_commands().next().is_some(), "shell.unasked".to_owned())
                }
                None => (
                    self.entry(name).is_some_and(|entry| !entry.unasked.is_empty()),
                    format!("tools.{name}.unasked"),
                ),
            };
            if has_rules && assignment.approval != Approval::Ask {
                let message = format!(
                    "calls of `{name}` have the approval `{}`, so the rules do nothing",
                    assignment.approval
                );
                findings.push(self.finding(LintCode::UnaskedWithoutAsk, key, message));
            }
        }
    }

    fn waived_layers(&self, findings: &mut Vec<LintFinding>) {
        for layer in RequiredLayer::ALL.into_iter().filter(|layer| !self.policy.requires(*layer)) {
            let message = format!("`{layer}` is waived: it is not applied, even where it would work");
            findings.push(self.finding(LintCode::LayerWaived, "require", message));
        }
    }

    fn changes_everywhere(&self, findings: &mut Vec<LintFinding>) {
        for (profile, _) in self.policy.profiles() {
            let Some(network) = self.policy.network_of(profile) else { continue };
            let is_everywhere = network.hosts.iter().any(|host| host.is_any_host());
            let changing: Vec<String> = network
                .methods
                .iter()
                .filter(|method| !method.is_safe())
                .map(|method| format!("`{method}`"))
                .collect();
            if is_everywhere && !changing.is_empty() {
                let key = format!("profiles.{profile}.methods");
                let message = format!("{} may go to every host", changing.join(", "));
                findings.push(self.finding(LintCode::ChangesEverywhere, key, message));
            }
        }
    }

    fn missing_home(&self, findings: &mut Vec<LintFinding>) {
        let home = self.policy.home();
        let has_mounts = !self.policy.mounts().is_empty();
        if has_mounts && !self.policy.mounts().iter().any(|mount| mount.name == *home) {
            let message = format!("relative paths start at `/{home}`, and no mount has this name");
            findings.push(LintFinding::new(
                LintCode::HomeMissing,
                self.provenance.location_or_start("mounts"),
                "home",
                message,
            ));
        }
    }

    /// Finds timeouts of an overlay that are not below the timeout that the tool declares.
    fn reductions_above_declared<'t>(
        &self,
        timeouts: impl Iterator<Item = (&'t str, Duration)>,
        findings: &mut Vec<LintFinding>,
    ) {
        for (name, timeout) in timeouts {
            let Some((tool, _)) = self.tools.iter().find(|(tool, _)| tool.name.as_str() == name) else {
                continue;
            };
            let declared = tool.declared_timeout.unwrap_or(DEFAULT_TIMEOUT);
            let is_declared =
                self.entry(name).is_none_or(|entry| entry.timeout.is_none()) && name != SHELL_EXEC;
            if is_declared && timeout >= declared {
                let key = format!("tools.{name}.timeout");
                let message = format!(
                    "this takes nothing away: `{name}` declares {}",
                    humantime::format_duration(declared)
                );
                findings.push(self.finding(LintCode::OverlayWithoutEffect, key, message));
            }
        }
    }

    fn questions_without_approver(&self, findings: &mut Vec<LintFinding>) {
        for (tool, assignment) in
            self.tools.iter().filter(|(_, assignment)| assignment.approval == Approval::Ask)
        {
            let key = self.policy.approval_rule(tool, assignment);
            let message =
                format!("each call of `{}` asks, and there is no approver: it is denied", tool.name);
            findings.push(self.finding(LintCode::NoApprover, key, message));
        }
    }
}
