//! Assigns a tool its profile, approval and limits, before any argument is looked at.

use portcullis_types::{Access, DEFAULT_TIMEOUT, SafetyTier, ToolPolicy};

use crate::{
    Approval, Denial, DenialCode, ProfileName, Standing, ToolAssignment, ToolFacts, ToolOrigin,
    WorkspaceSecurityPolicy,
    effective::{EffectivePolicy, ToolRule},
};

impl WorkspaceSecurityPolicy {
    /// Assigns tier, profile, approval and limits to a tool. The result depends on the policy and these facts
    /// alone. Called at registration and again for every call.
    ///
    /// # Errors
    /// [`Denial`] for a tool with `enabled = false`, for a quarantined tool, and for a native tool that is
    /// not enabled by name. A tool whose approval is `deny` gets an assignment: [`Self::authorize`] refuses
    /// its calls.
    pub fn assign(&self, tool: &ToolFacts) -> Result<ToolAssignment, Denial> {
        let assignment = self.describe(tool);
        if assignment.enabled { Ok(assignment) } else { Err(not_enabled(self.effective(), tool)) }
    }

    /// Like [`Self::assign`], for listings: describes a tool that may not be called too, with `enabled`
    /// false.
    #[must_use]
    pub fn describe(&self, tool: &ToolFacts) -> ToolAssignment {
        let policy = self.effective();
        let rule = policy.tools.get(&tool.name);
        // Not `ReadOnly`: a tool without a tier must not pass as harmless.
        let declared = tool.declared_tier.unwrap_or(SafetyTier::SideEffecting);
        let limits = &policy.limits;
        let stated = rule.and_then(|rule| rule.timeout);
        let timeout_cap = rule.map_or(limits.max_timeout, |rule| rule.timeout_cap);
        let max_output = rule.map_or(limits.max_output_bytes, |rule| rule.max_output_bytes);
        let memory = rule.and_then(|rule| rule.memory);
        let profile = profile(policy, rule, tool, declared);
        let tier = self.tier(tool, declared, &profile);
        let (timeout, memory) = match &policy.shell {
            // The operator's settings of the shell replace what the tool declares.
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
            // By the effective tier: with the declared one, a module that calls itself harmless would be
            // asked about less than an honest one with the same grant.
            approval: approval(policy, rule, tool, tier),
            timeout: timeout.min(timeout_cap),
            memory,
            max_output: tool.declared_max_output.map_or(max_output, |less| less.min(max_output)),
            enabled: tool.standing != Standing::Quarantined && is_enabled(rule, tool.origin),
        }
    }

    /// The effective tier of a tool. It is the declared one, but at least side-effecting for a foreign module that may
    /// write a mount or make requests by methods that are not safe (RFC 9110, 9.2.1): its claim to only read is not
    /// trusted. The effective tier decides which calls run concurrently, which have an audit row before they run, and the
    /// hints that clients get.
    fn tier(&self, tool: &ToolFacts, declared: SafetyTier, profile: &ProfileName) -> SafetyTier {
        let is_foreign = tool.origin == ToolOrigin::ForeignModule;
        let may_write = self.mounts_of(profile).iter().any(|mount| mount.access == Access::Write);
        let may_change = self
            .network_of(profile)
            .is_some_and(|network| network.methods.iter().any(|method| !method.is_safe()));
        if is_foreign && (may_write || may_change) {
            declared.max(SafetyTier::SideEffecting)
        } else {
            declared
        }
    }

    /// The source of a tool's approval: a key of the policy file, or the tool's own declaration.
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
            // No entry and no tier asked for it: this tool is unknown to the policy.
            ToolPolicy::Auto => format!("tools.{name}"),
        }
    }
}

/// The profile that the tool's entry states. Without one: the tier's for shipped modules and enabled natives,
/// the shell's for shipped tools that run commands, and `Nothing` for all others, among them steps of
/// operations.
fn profile(
    policy: &EffectivePolicy,
    rule: Option<&ToolRule>,
    tool: &ToolFacts,
    tier: SafetyTier,
) -> ProfileName {
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

/// The strictest of the assigned approval, the tool's own request, and the floors of reductions. The tier is
/// the effective one. The assigned approval:
///
/// | tool | with `approval` in its entry | without |
/// |---|---|---|
/// | shipped | that | the tier's |
/// | an embedder's native tool | the stricter of that and the tier's | the tier's |
/// | of a foreign module, with an entry | the stricter of that and the tier's | the stricter of the tier's and that of `side_effecting` |
/// | of a foreign module, without an entry | | the stricter of the tier's and `ask` |
fn approval(
    policy: &EffectivePolicy,
    rule: Option<&ToolRule>,
    tool: &ToolFacts,
    tier: SafetyTier,
) -> Approval {
    let by_tier = policy.tiers.rule(tier);
    let stated = rule.and_then(|rule| rule.approval);
    let assigned = match (tool.origin, stated) {
        // The operator's approval stands alone: the tier of a shipped tool can be trusted.
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
        // The tier of a foreign tool can raise the operator's approval.
        (ToolOrigin::Native | ToolOrigin::ForeignModule, Some(stated)) => stated.max(by_tier.approval),
        // It cannot lower the approval below that of a tool without a tier, nor make an unknown module a
        // known one.
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

fn not_enabled(policy: &EffectivePolicy, tool: &ToolFacts) -> Denial {
    let name = &tool.name;
    let disabled = policy.tools.get(name).is_some_and(|rule| rule.enabled == Some(false));
    if tool.standing == Standing::Quarantined && !disabled {
        let hint = format!("an operator can approve it again with `portcullis tool approve {name}`");
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
