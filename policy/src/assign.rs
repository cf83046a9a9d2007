//! What a tool gets before any argument is looked at: profile, approval, limits.

use portcullis_types::{Access, DEFAULT_TIMEOUT, SafetyTier, ToolPolicy};

use crate::{
    Approval, Denial, DenialCode, ProfileName, Standing, ToolAssignment, ToolFacts, ToolOrigin,
    WorkspaceSecurityPolicy,
    effective::{Effective, ToolRule},
};

impl WorkspaceSecurityPolicy {
    /// Assigns tier, profile, approval and limits to a tool. The answer depends on the policy and these
    /// facts alone; asked at registration and again for every call.
    ///
    /// # Errors
    /// [`Denial`] for a tool with `enabled = false`, for a quarantined one, and for a native one that is not
    /// enabled by name. A tool whose approval is `deny` is assigned all the same: [`Self::authorize`] refuses
    /// its calls.
    pub fn assign(&self, tool: &ToolFacts) -> Result<ToolAssignment, Denial> {
        let assignment = self.describe(tool);
        if assignment.enabled { Ok(assignment) } else { Err(not_enabled(self.effective(), tool)) }
    }

    /// As [`Self::assign`], for listings: a tool that may not be called is described as well, with
    /// `enabled` false.
    #[must_use]
    pub fn describe(&self, tool: &ToolFacts) -> ToolAssignment {
        let policy = self.effective();
        let rule = policy.tools.get(&tool.name);
        let declared = tool.declared_tier.unwrap_or(SafetyTier::SideEffecting);
        let limits = &policy.limits;
        let stated = rule.and_then(|rule| rule.timeout);
        let timeout_cap = rule.map_or(limits.max_timeout, |rule| rule.timeout_cap);
        let max_output = rule.map_or(limits.max_output_bytes, |rule| rule.max_output_bytes);
        let memory = rule.and_then(|rule| rule.memory);
        let profile = profile(policy, rule, tool, declared);
        let tier = self.tier(tool, declared, &profile);
        let (timeout, memory) = match &policy.shell {
            // What the operator says of the shell stands in for what the tool says of itself.
            Ok(shell) if profile.is_shell() => (
                stated.map_or(shell.timeout, |stated| stated.min(shell.timeout)),
                memory.map_or(shell.memory, |memory| memory.min(shell.memory)),
            ),
            Ok(_) | Err(_) => (
                stated.or(tool.declared_timeout).unwrap_or(DEFAULT_TIMEOUT),
                memory.unwrap_or(limits.wasm_memory),
            ),
        };
        ToolAssignment {
            tier,
            profile,
            // By the tier that counts: by the declared one, a module that calls itself harmless would be asked about
            // less than an honest one with the same grant.
            approval: approval(policy, rule, tool, tier),
            timeout: timeout.min(timeout_cap),
            memory,
            max_output: tool.declared_max_output.map_or(max_output, |less| less.min(max_output)),
            enabled: tool.standing != Standing::Quarantined && is_enabled(rule, tool.origin),
        }
    }

    /// The tier that a tool counts as: the declared one; a stranger's that may write is not taken at its word that it
    /// only reads. It decides what runs beside others, which calls have a row before they run, and what clients are
    /// told.
    fn tier(&self, tool: &ToolFacts, declared: SafetyTier, profile: &ProfileName) -> SafetyTier {
        let is_strange = tool.origin == ToolOrigin::ForeignModule;
        let may_write = self.mounts_of(profile).iter().any(|mount| mount.access == Access::Write);
        if is_strange && may_write { declared.max(SafetyTier::SideEffecting) } else { declared }
    }

    /// What gave a tool its approval: a key of the policy file, or the tool's own declaration.
    #[must_use]
    pub fn approval_rule(&self, tool: &ToolFacts, assignment: &ToolAssignment) -> String {
        let (name, wanted) = (&tool.name, assignment.approval);
        let entry = self.effective().tools.get(name);
        if entry.is_some_and(|rule| rule.approval == Some(wanted) || rule.approval_floor == wanted) {
            return format!("tools.{name}.approval");
        }
        let by_tier = self.effective().tiers.rule(assignment.tier);
        if by_tier.approval.max(by_tier.approval_floor) >= wanted {
            return format!("tiers.{}.approval", assignment.tier);
        }
        match tool.declared_policy {
            ToolPolicy::RequiresApproval => "the tool's own declaration".to_owned(),
            // A tool that the policy does not know by name.
            ToolPolicy::Auto => format!("tools.{name}"),
        }
    }
}

/// The profile of the tool's entry; without one, the tier's for modules of ours and for natives that the
/// operator enabled, the shell's for tools of ours that run commands, and none for all others, steps of
/// operations among them.
fn profile(policy: &Effective, rule: Option<&ToolRule>, tool: &ToolFacts, tier: SafetyTier) -> ProfileName {
    if let Some(stated) = rule.and_then(|rule| rule.profile.as_ref()) {
        return stated.clone();
    }
    match tool.origin {
        ToolOrigin::ShippedShell if policy.shell.is_ok() && tool.may_run_commands() => ProfileName::shell(),
        ToolOrigin::ShippedModule | ToolOrigin::Native => policy.tiers.rule(tier).profile.clone(),
        ToolOrigin::ShippedNative
        | ToolOrigin::ShippedShell
        | ToolOrigin::ShippedOperation
        | ToolOrigin::ForeignModule => ProfileName::nothing(),
    }
}

/// The strictest of what is assigned, what the tool asks for, and what reductions demand. The tier is the one that
/// counts.
fn approval(policy: &Effective, rule: Option<&ToolRule>, tool: &ToolFacts, tier: SafetyTier) -> Approval {
    let by_tier = policy.tiers.rule(tier);
    let stated = rule.and_then(|rule| rule.approval);
    let assigned = match (tool.origin, stated) {
        // We vouch for the tier of our own tools, so the operator's word on one stands alone.
        (
            ToolOrigin::ShippedNative
            | ToolOrigin::ShippedShell
            | ToolOrigin::ShippedModule
            | ToolOrigin::ShippedOperation,
            Some(stated),
        ) => stated,
        (
            ToolOrigin::ShippedNative
            | ToolOrigin::ShippedShell
            | ToolOrigin::ShippedModule
            | ToolOrigin::ShippedOperation
            | ToolOrigin::Native,
            None,
        ) => by_tier.approval,
        // A stranger's tier can raise what the operator said.
        (ToolOrigin::Native | ToolOrigin::ForeignModule, Some(stated)) => stated.max(by_tier.approval),
        // It cannot lower what a tool without a tier would get, nor make an unknown module a known one.
        (ToolOrigin::ForeignModule, None) if rule.is_some_and(|rule| rule.by_operator) => {
            by_tier.approval.max(policy.tiers.rule(SafetyTier::SideEffecting).approval)
        }
        (ToolOrigin::ForeignModule, None) => by_tier.approval.max(Approval::Ask),
    };
    let declared = match tool.declared_policy {
        ToolPolicy::Auto => Approval::Allow,
        ToolPolicy::RequiresApproval => Approval::Ask,
    };
    let floor = rule.map_or(Approval::Allow, |rule| rule.approval_floor);
    assigned.max(declared).max(floor).max(by_tier.approval_floor)
}

fn is_enabled(rule: Option<&ToolRule>, origin: ToolOrigin) -> bool {
    let stated = rule.and_then(|rule| rule.enabled);
    match origin {
        ToolOrigin::Native => stated == Some(true),
        ToolOrigin::ShippedNative
        | ToolOrigin::ShippedShell
        | ToolOrigin::ShippedModule
        | ToolOrigin::ShippedOperation
        | ToolOrigin::ForeignModule => stated != Some(false),
    }
}

fn not_enabled(policy: &Effective, tool: &ToolFacts) -> Denial {
    let name = &tool.name;
    let disabled = policy.tools.get(name).is_some_and(|rule| rule.enabled == Some(false));
    if tool.standing == Standing::Quarantined && !disabled {
        let hint = format!("an operator approves it anew with `portcullis tool approve {name}`");
        let rule = format!("portcullis.lock: tools.{name}");
        return Denial { code: DenialCode::ModuleChanged, rule, subject: name.to_string(), hint };
    }
    let (code, hint) = if disabled {
        (DenialCode::ToolDisabled, String::new())
    } else {
        let hint =
            format!("an operator allows it with `enabled = true` under `[tools.{name}]` in the policy");
        (DenialCode::NativeNotEnabled, hint)
    };
    Denial { code, rule: format!("tools.{name}.enabled"), subject: name.to_string(), hint }
}
