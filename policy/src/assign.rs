//! Assigns a tool its tier, profile, approval and limits. The arguments of a call have no influence on them.

use portcullis_types::{Access, DEFAULT_TIMEOUT, SafetyTier, ToolPolicy};

use crate::{
    Approval, Denial, DenialCode, NoTrace, PinStatus, ProfileName, ToolAssignment, ToolDescriptor,
    ToolOrigin, TraceSink, TracedRule, WorkspaceSecurityPolicy,
    effective::{EffectivePolicy, ToolRule},
};

impl WorkspaceSecurityPolicy {
    /// Assigns tier, profile, approval and limits to a tool. The result depends only on the policy and these
    /// facts. The registry calls this at registration and again for every call.
    ///
    /// # Errors
    /// [`Denial`] for a tool with `enabled = false`, for a quarantined tool, and for a native tool that is not enabled
    /// by name. A tool with the approval `deny` does get an assignment; [`Self::authorize`] then refuses its calls.
    pub fn assign(&self, tool: &ToolDescriptor) -> Result<ToolAssignment, Denial> {
        self.assign_traced(tool, &mut NoTrace)
    }

    /// Like [`Self::assign`], which is this function without a trace.
    pub(crate) fn assign_traced<T: TraceSink>(
        &self,
        tool: &ToolDescriptor,
        trace: &mut T,
    ) -> Result<ToolAssignment, Denial> {
        let assignment = self.describe_traced(tool, trace);
        if assignment.enabled { Ok(assignment) } else { Err(not_enabled(self.effective(), tool)) }
    }

    /// Like [`Self::assign`], for listings: also describes a tool that may not be called, with `enabled`
    /// false.
    #[must_use]
    pub fn describe(&self, tool: &ToolDescriptor) -> ToolAssignment {
        self.describe_traced(tool, &mut NoTrace)
    }

    fn describe_traced<T: TraceSink>(&self, tool: &ToolDescriptor, trace: &mut T) -> ToolAssignment {
        let policy = self.effective();
        let rule = policy.tools.get(&tool.name);
        // This is not `ReadOnly`, because a tool without a tier must not pass as harmless.
        let declared = tool.declared_tier.unwrap_or(SafetyTier::SideEffecting);
        let limits = &policy.limits;
        let rule_timeout = rule.and_then(|rule| rule.timeout);
        let timeout_cap = rule.map_or(limits.max_timeout, |rule| rule.timeout_cap);
        let max_output = rule.map_or(limits.max_output_bytes, |rule| rule.max_output_bytes);
        let memory = rule.and_then(|rule| rule.memory);
        // The declared tier chooses the profile, because the effective tier depends on the profile.
        let profile = profile(policy, rule, tool, declared, trace);
        let tier = self.tier(tool, declared, &profile);
        let (timeout, memory) = match &policy.shell {
            // The operator's settings of the shell override what the tool declares.
            Ok(shell) if profile.is_shell() => (
                rule_timeout.map_or(shell.timeout, |rule_timeout| rule_timeout.min(shell.timeout)),
                memory.map_or(shell.memory, |memory| memory.min(shell.memory)),
            ),
            Ok(_) | Err(_) => (
                rule_timeout.or(tool.declared_timeout).unwrap_or(DEFAULT_TIMEOUT),
                memory.unwrap_or(limits.wasm_memory),
            ),
        };
        let assignment = ToolAssignment {
            tier,
            profile,
            // The effective tier decides. With the declared tier, a module that claims to be harmless would
            // need fewer approvals than an honest module with the same grant.
            approval: approval(policy, rule, tool, tier),
            timeout: timeout.min(timeout_cap),
            memory,
            max_output: tool
                .declared_max_output
                .map_or(max_output, |declared_max| declared_max.min(max_output)),
            enabled: tool.pin_status != PinStatus::Quarantined && is_enabled(rule, tool.origin),
        };
        trace.record(|| {
            let rule = self.approval_rule(tool, &assignment);
            TracedRule::new(rule, format!("sets the approval `{}`", assignment.approval))
        });
        assignment
    }

    /// Returns the effective tier of a tool. A foreign module's claim to only read is not trusted: its tier
    /// is at least side-effecting if it may write a mount or make requests with methods that are not safe
    /// (RFC 9110, 9.2.1). For all other tools it is the declared tier.
    ///
    /// The effective tier decides which calls run concurrently, which calls get an audit row before they run, and which
    /// hints clients receive.
    fn tier(&self, tool: &ToolDescriptor, declared: SafetyTier, profile: &ProfileName) -> SafetyTier {
        let is_foreign = tool.origin == ToolOrigin::ForeignModule;
        let may_write = self.mounts_of(profile).iter().any(|mount| mount.access == Access::Write);
        let may_send_changes = self
            .network_of(profile)
            .is_some_and(|network| network.methods.iter().any(|method| !method.is_safe()));
        if is_foreign && (may_write || may_send_changes) {
            declared.max(SafetyTier::SideEffecting)
        } else {
            declared
        }
    }

    /// Returns the source of a tool's approval: a key of the policy file, or the tool's own declaration.
    #[must_use]
    pub fn approval_rule(&self, tool: &ToolDescriptor, assignment: &ToolAssignment) -> String {
        let (name, approval) = (&tool.name, assignment.approval);
        let entry = self.effective().tools.get(name);
        if entry.is_some_and(|rule| rule.approval == Some(approval) || rule.approval_floor == approval) {
            return format!("tools.{name}.approval");
        }
        let tier_rule = self.effective().tiers.rule(assignment.tier);
        if tier_rule.approval.max(tier_rule.approval_floor) >= approval {
            return format!("tiers.{}.approval", assignment.tier);
        }
        match tool.declared_policy {
            ToolPolicy::RequiresApproval => "the tool's own declaration".to_owned(),
            // Neither the entry nor the tier sets this approval: the tool has no entry in the policy.
            ToolPolicy::Auto => format!("tools.{name}"),
        }
    }
}

/// Returns the profile that the tool's entry names. Without one, shipped modules and enabled natives get the
/// tier's profile, shipped tools that run commands get the shell's, and all others, including steps of
/// operations, get `Nothing`.
fn profile<T: TraceSink>(
    policy: &EffectivePolicy,
    rule: Option<&ToolRule>,
    tool: &ToolDescriptor,
    tier: SafetyTier,
    trace: &mut T,
) -> ProfileName {
    let name = &tool.name;
    if let Some(profile) = rule.and_then(|rule| rule.profile.as_ref()) {
        trace.record(|| {
            TracedRule::new(format!("tools.{name}.profile"), format!("gives the profile `{profile}`"))
        });
        return profile.clone();
    }
    match tool.origin {
        ToolOrigin::ShippedShell if policy.shell.is_ok() && tool.may_run_commands() => {
            trace.record(|| TracedRule::new("shell", "gives the mounts and limits of commands"));
            ProfileName::shell()
        }
        ToolOrigin::ShippedModule | ToolOrigin::Native => {
            let profile = &policy.tiers.rule(tier).profile;
            trace.record(|| {
                TracedRule::new(format!("tiers.{tier}.profile"), format!("gives the profile `{profile}`"))
            });
            profile.clone()
        }
        ToolOrigin::ShippedNative
        | ToolOrigin::ShippedShell
        | ToolOrigin::ShippedOperation
        | ToolOrigin::ShippedGateway
        | ToolOrigin::External
        | ToolOrigin::Http
        | ToolOrigin::Mcp
        | ToolOrigin::Internal
        | ToolOrigin::ForeignModule => {
            trace.record(|| {
                let finding = "gives no profile, so the tool has `Nothing`";
                TracedRule::new(format!("tools.{name}"), finding)
            });
            // A tool of these origins gets mounts and hosts only by an entry that names it.
            ProfileName::nothing()
        }
    }
}

/// Returns the strictest of the assigned approval, the tool's own request, and the floors that reductions
/// set. `tier` is the effective tier. The assigned approval:
///
/// | tool | with `approval` in its entry | without |
/// |---|---|---|
/// | shipped | the entry's | the tier's |
/// | an embedder's native tool | the stricter of the entry's and the tier's | the tier's |
/// | internal | the stricter of the entry's and the tier's | the tier's |
/// | external, HTTP | the stricter of the entry's and the tier's | the stricter of the tier's and that of `side_effecting` |
/// | of an MCP server | the stricter of the entry's and the tier's | the stricter of the tier's and `ask`; the tier's for a listing |
/// | of a foreign module, with an entry | the stricter of the entry's and the tier's | the stricter of the tier's and that of `side_effecting` |
/// | of a foreign module, without an entry | | the stricter of the tier's and `ask` |
fn approval(
    policy: &EffectivePolicy,
    rule: Option<&ToolRule>,
    tool: &ToolDescriptor,
    tier: SafetyTier,
) -> Approval {
    let tier_rule = policy.tiers.rule(tier);
    let rule_approval = rule.and_then(|rule| rule.approval);
    let assigned = match (tool.origin, rule_approval) {
        // The operator's approval is final, because the tier of a shipped tool can be trusted.
        (
            ToolOrigin::ShippedNative
            | ToolOrigin::ShippedShell
            | ToolOrigin::ShippedModule
            | ToolOrigin::ShippedGateway
            | ToolOrigin::ShippedOperation,
            Some(rule_approval),
        ) => rule_approval,
        (
            ToolOrigin::ShippedNative
            | ToolOrigin::ShippedShell
            | ToolOrigin::ShippedModule
            | ToolOrigin::ShippedGateway
            | ToolOrigin::ShippedOperation
            | ToolOrigin::Native
            | ToolOrigin::Internal,
            None,
        ) => tier_rule.approval,
        // The tier of a foreign tool can raise the operator's approval.
        (
            ToolOrigin::Native
            | ToolOrigin::External
            | ToolOrigin::Http
            | ToolOrigin::Mcp
            | ToolOrigin::Internal
            | ToolOrigin::ForeignModule,
            Some(rule_approval),
        ) => rule_approval.max(tier_rule.approval),
        (ToolOrigin::External | ToolOrigin::Http, None) => {
            tier_rule.approval.max(policy.tiers.rule(SafetyTier::SideEffecting).approval)
        }
        // Only the listing of a server's tools is read-only. The tools themselves ask.
        (ToolOrigin::Mcp, None) if tier == SafetyTier::ReadOnly => tier_rule.approval,
        (ToolOrigin::Mcp, None) => tier_rule.approval.max(Approval::Ask),
        // A foreign tool's tier cannot lower the approval below the approval of a tool without a tier, and
        // cannot make an unknown module count as known.
        (ToolOrigin::ForeignModule, None) if rule.is_some_and(|rule| rule.by_operator) => {
            tier_rule.approval.max(policy.tiers.rule(SafetyTier::SideEffecting).approval)
        }
        (ToolOrigin::ForeignModule, None) => tier_rule.approval.max(Approval::Ask),
    };
    let declared = match tool.declared_policy {
        ToolPolicy::Auto => Approval::Allow,
        ToolPolicy::RequiresApproval => Approval::Ask,
    };
    let floor = rule.map_or(Approval::Allow, |rule| rule.approval_floor);
    assigned.max(declared).max(floor).max(tier_rule.approval_floor)
}

fn is_enabled(rule: Option<&ToolRule>, origin: ToolOrigin) -> bool {
    let rule_enabled = rule.and_then(|rule| rule.enabled);
    match origin {
        // A native tool of an embedder runs outside the sandbox, so the operator must name it.
        ToolOrigin::Native => rule_enabled == Some(true),
        ToolOrigin::ShippedNative
        | ToolOrigin::ShippedShell
        | ToolOrigin::ShippedModule
        | ToolOrigin::ShippedOperation
        | ToolOrigin::ShippedGateway
        | ToolOrigin::External
        | ToolOrigin::Http
        | ToolOrigin::Mcp
        | ToolOrigin::Internal
        | ToolOrigin::ForeignModule => rule_enabled != Some(false),
    }
}

fn not_enabled(policy: &EffectivePolicy, tool: &ToolDescriptor) -> Denial {
    let name = &tool.name;
    let disabled = policy.tools.get(name).is_some_and(|rule| rule.enabled == Some(false));
    // A disabled tool stays refused after an approval, so report that reason first.
    if tool.pin_status == PinStatus::Quarantined && !disabled {
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
