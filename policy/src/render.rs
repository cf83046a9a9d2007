//! The effective policy as text for people: as a policy file, and as a listing of who gets what.

use std::fmt::Write as _;

use portcullis_types::{Access, SafetyTier};

use crate::{
    Approval, Layer, MountName, ProfileName, WorkspaceSecurityPolicy,
    effective::{Effective, ToolRule},
    limits::in_largest_unit,
    shell::{shell_summary, write_shell},
};

impl WorkspaceSecurityPolicy {
    /// The effective policy as a policy file, with every default written out. Loading it gives the same
    /// digest, as long as no reduction made demands on tools that a policy file has no key for; such
    /// demands are shown as comments. Module hashes are comments too.
    #[must_use]
    pub fn effective_toml(&self) -> String {
        let policy = self.effective();
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = write_toml(&mut out, policy);
        out
    }

    /// A listing of what the policy gives to whom: tiers, tools with an entry, profiles with their mounts.
    #[must_use]
    pub fn summary(&self) -> String {
        let policy = self.effective();
        let mut out = String::new();
        // As above.
        let _ = write_summary(&mut out, policy);
        out
    }
}

fn write_toml(out: &mut String, policy: &Effective) -> std::fmt::Result {
    writeln!(out, "version = {}", policy.version)?;
    writeln!(out, "require = [{}]", quoted(policy.require.iter().map(|layer| layer.as_str())))?;
    writeln!(out, "\n[mounts]")?;
    for (name, folder) in &policy.mounts {
        writeln!(out, "{name} = {}", quote(folder))?;
    }
    for (name, mounts) in &policy.profiles {
        writeln!(out, "\n[profiles.{name}]")?;
        let mounts: Vec<String> =
            mounts.iter().map(|(mount, access)| format!("{mount} = \"{access}\"")).collect();
        if !mounts.is_empty() {
            writeln!(out, "mounts = {{ {} }}", mounts.join(", "))?;
        }
    }
    writeln!(out, "\n[tiers]")?;
    for tier in SafetyTier::ALL {
        let rule = policy.tiers.rule(tier);
        writeln!(out, "{tier} = {{ profile = \"{}\", approval = \"{}\" }}", rule.profile, rule.approval)?;
        if rule.approval_floor > Approval::Allow {
            writeln!(out, "# every tool of this tier: at least \"{}\"", rule.approval_floor)?;
        }
    }
    for (name, rule) in &policy.tools {
        writeln!(out, "\n[tools.{name}]")?;
        write_tool(out, rule)?;
    }
    writeln!(out, "\n[protect]\npaths = [{}]", quoted(policy.protect.patterns()))?;
    writeln!(out, "\n[audit]\nsync = \"{}\"", policy.audit_sync)?;
    if let Some(dir) = &policy.modules_dir {
        writeln!(out, "\n[modules]\ndir = {}", quote(dir))?;
    }
    write_shell(out, &policy.shell)?;
    let limits = &policy.limits;
    writeln!(out, "\n[limits]")?;
    writeln!(out, "concurrency = {}", limits.concurrency)?;
    writeln!(out, "calls_per_minute = {}", limits.calls_per_minute)?;
    writeln!(out, "max_output_bytes = \"{}\"", limits.max_output_bytes)?;
    writeln!(out, "wasm_memory = \"{}\"", limits.wasm_memory)?;
    writeln!(out, "max_timeout = \"{}\"", humantime::format_duration(limits.max_timeout))?;
    for (name, hash) in &policy.modules {
        writeln!(out, "# module {} {hash}", quote(name))?;
    }
    Ok(())
}

fn write_tool(out: &mut String, rule: &ToolRule) -> std::fmt::Result {
    if !rule.by_operator {
        writeln!(out, "# not in the operator's policy")?;
    }
    if let Some(profile) = &rule.profile {
        writeln!(out, "profile = \"{profile}\"")?;
    }
    if let Some(approval) = rule.approval {
        writeln!(out, "approval = \"{approval}\"")?;
    }
    if rule.approval_floor > Approval::Allow {
        writeln!(out, "# approval: at least \"{}\"", rule.approval_floor)?;
    }
    match rule.timeout {
        Some(timeout) => writeln!(out, "timeout = \"{}\"", humantime::format_duration(timeout))?,
        None => writeln!(out, "# timeout: at most \"{}\"", humantime::format_duration(rule.timeout_cap))?,
    }
    if let Some(memory) = rule.memory {
        writeln!(out, "memory = \"{memory}\"")?;
    }
    writeln!(out, "max_output_bytes = \"{}\"", in_largest_unit(rule.max_output_bytes.0))?;
    if let Some(enabled) = rule.enabled {
        writeln!(out, "enabled = {enabled}")?;
    }
    Ok(())
}

fn write_summary(out: &mut String, policy: &Effective) -> std::fmt::Result {
    let layers: Vec<&str> =
        Layer::ALL.into_iter().filter(|layer| policy.require.contains(layer)).map(Layer::as_str).collect();
    let layers = if layers.is_empty() { "none".to_owned() } else { layers.join(", ") };
    writeln!(out, "required layers: {layers}")?;
    writeln!(out, "\nprofiles")?;
    for (name, mounts) in &policy.profiles {
        writeln!(out, "  {name:<24} {}", shown_mounts(mounts.iter()))?;
    }
    writeln!(out, "  {:<24} {}", ProfileName::SHELL, shell_summary(&policy.shell))?;
    writeln!(out, "\ntools without an entry, by tier")?;
    for tier in SafetyTier::ALL {
        let rule = policy.tiers.rule(tier);
        writeln!(out, "  {tier:<24} {}, approval {}", rule.profile, rule.approval)?;
    }
    writeln!(out, "  {:<24} {}, approval {}", "modules from outside", ProfileName::NOTHING, Approval::Ask)?;
    if let Some(dir) = &policy.modules_dir {
        writeln!(out, "  {:<24} {}", "their folder", quote(dir))?;
    }
    writeln!(out, "\ntools with an entry")?;
    for (name, rule) in &policy.tools {
        let mut parts = vec![match &rule.profile {
            Some(profile) => profile.to_string(),
            None => "profile by tier".to_owned(),
        }];
        let approval =
            rule.approval.map_or(rule.approval_floor, |approval| approval.max(rule.approval_floor));
        if rule.approval.is_some() || approval > Approval::Allow {
            parts.push(format!("approval {approval}"));
        }
        if let Some(timeout) = rule.timeout {
            parts.push(format!("timeout {}", humantime::format_duration(timeout)));
        }
        match rule.enabled {
            Some(true) => parts.push("enabled by name".to_owned()),
            Some(false) => parts.push("disabled".to_owned()),
            None => {}
        }
        writeln!(out, "  {name:<24} {}", parts.join(", "))?;
    }
    Ok(())
}

/// Mounts in one line.
pub(crate) fn shown_mounts<'a>(mounts: impl Iterator<Item = (&'a MountName, &'a Access)>) -> String {
    let mounts: Vec<String> = mounts.map(|(name, access)| format!("/{name} {access}")).collect();
    if mounts.is_empty() { "no mounts".to_owned() } else { mounts.join(", ") }
}

/// TOML strings of texts, with commas between them.
pub(crate) fn quoted_texts(texts: &[String]) -> String {
    quoted(texts.iter().map(String::as_str))
}

/// As [`quoted_texts`].
pub(crate) fn quoted<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.map(quote).collect::<Vec<_>>().join(", ")
}

/// A TOML basic string.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            character if crate::shown::is_deceptive(character) => {
                let _ = write!(out, "\\U{:08X}", u32::from(character));
            }
            character => out.push(character),
        }
    }
    out.push('"');
    out
}
