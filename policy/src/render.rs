//! Renders the effective policy for people: as a policy file, and as a summary.

use std::fmt::Write as _;

use portcullis_types::{Access, SafetyTier, SandboxTier};

use crate::{
    Approval, AuditSettings, MountName, ProfileName, RequiredLayer, WorkspaceSecurityPolicy,
    effective::{EffectivePolicy, SHIPPED_PROTECTION, ToolRule},
    flow::{write_flow, write_flow_summary},
    limits::format_in_largest_unit,
    network::{network_summary, write_egress, write_egress_summary, write_network},
    notify::write_notify,
    search::write_search,
    secrets::{write_secrets, write_secrets_summary},
    shell::{shell_summary, write_shell, write_shell_demands},
};

impl WorkspaceSecurityPolicy {
    /// Returns the effective policy as a policy file, with every default written out. Loading the file gives
    /// the same digest.
    ///
    /// Some demands of reductions have no key in an operator's policy. They become sections `[sandbox.…]`, equal ones
    /// for each sandbox tier, so that they apply wherever the file is loaded. Two things become comments: every list of
    /// allowed commands after the second, and the hashes of modules.
    #[must_use]
    pub fn effective_toml(&self) -> String {
        toml_of(self.effective())
    }

    /// Returns a listing of the policy's grants: tiers, tools with an entry, profiles with their mounts.
    #[must_use]
    pub fn summary(&self) -> String {
        let policy = self.effective();
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = write_summary(&mut out, policy);
        out
    }
}

/// Formats an effective policy as a policy file.
pub(crate) fn toml_of(policy: &EffectivePolicy) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_toml(&mut out, policy);
    out
}

fn write_toml(out: &mut String, policy: &EffectivePolicy) -> std::fmt::Result {
    // The keys outside of sections come first: after a header, TOML would read them as keys of that section.
    // The order of the sections has no meaning.
    writeln!(out, "version = {}", policy.version)?;
    writeln!(out, "require = [{}]", quoted(policy.require.iter().map(|layer| layer.as_str())))?;
    // Without a mount of this name, writing the default would be a fault.
    if policy.mounts.contains_key(&policy.home) {
        writeln!(out, "home = \"{}\"", policy.home)?;
    }
    if let Some(project) = &policy.project {
        writeln!(out, "\n[project]\npath = {}", quote(project))?;
    }
    writeln!(out, "\n[mounts]")?;
    for (name, folder) in &policy.mounts {
        if policy.with_undo.contains(name) {
            writeln!(out, "{name} = {{ path = {}, undo = true }}", quote(folder))?;
        } else {
            writeln!(out, "{name} = {}", quote(folder))?;
        }
    }
    for (name, mounts) in &policy.profiles {
        writeln!(out, "\n[profiles.{name}]")?;
        let mounts: Vec<String> =
            mounts.iter().map(|(mount, access)| format!("{mount} = \"{access}\"")).collect();
        if !mounts.is_empty() {
            writeln!(out, "mounts = {{ {} }}", mounts.join(", "))?;
        }
        if let Some(network) = policy.networks.get(name) {
            write_network(out, network)?;
        }
    }
    writeln!(out, "\n[tiers]")?;
    for tier in SafetyTier::ALL {
        let rule = policy.tiers.rule(tier);
        writeln!(out, "{tier} = {{ profile = \"{}\", approval = \"{}\" }}", rule.profile, rule.approval)?;
    }
    // Leave out entries that only reductions have: here they would make a tool count as known to the
    // operator.
    for (name, rule) in policy.tools.iter().filter(|(_, rule)| rule.by_operator) {
        writeln!(out, "\n[tools.{name}]")?;
        write_tool(out, rule)?;
    }
    writeln!(out, "\n[protect]\npaths = [{}]", quoted(policy.protect.patterns()))?;
    let kinds: Vec<String> = policy.kinds.patterns().collect();
    writeln!(out, "kinds = [{}]", quoted_texts(&kinds))?;
    let (shipped, shipped_kinds) = &*SHIPPED_PROTECTION;
    let patterns: Vec<&str> = policy.protect.patterns().collect();
    let removed_defaults = shipped.patterns().filter(|name| !patterns.contains(name)).map(str::to_owned);
    let removed_defaults: Vec<String> =
        removed_defaults.chain(shipped_kinds.patterns().filter(|kind| !kinds.contains(kind))).collect();
    if !removed_defaults.is_empty() {
        writeln!(out, "except = [{}]", quoted_texts(&removed_defaults))?;
    }
    if !policy.hide.is_empty() {
        writeln!(out, "\n[hide]\npaths = [{}]", quoted(policy.hide.patterns()))?;
    }
    write_audit(out, &policy.audit)?;
    if let Some(dir) = &policy.modules_dir {
        writeln!(out, "\n[modules]\ndir = {}", quote(dir))?;
    }
    write_shell(out, &policy.shell)?;
    write_egress(out, &policy.egress)?;
    write_secrets(out, &policy.secrets)?;
    write_search(out, policy.search.as_ref())?;
    write_notify(out, policy.notify.as_ref())?;
    let limits = &policy.limits;
    writeln!(out, "\n[limits]")?;
    writeln!(out, "concurrency = {}", limits.concurrency)?;
    writeln!(out, "calls_per_minute = {}", limits.calls_per_minute)?;
    writeln!(out, "max_output_bytes = \"{}\"", limits.max_output_bytes)?;
    writeln!(out, "wasm_memory = \"{}\"", limits.wasm_memory)?;
    writeln!(out, "max_timeout = \"{}\"", humantime::format_duration(limits.max_timeout))?;
    write_flow(out, &policy.flow)?;
    for tier in SandboxTier::ALL {
        write_demands(out, tier, policy)?;
    }
    for (name, hash) in &policy.modules {
        writeln!(out, "# module {} {hash}", quote(name))?;
    }
    Ok(())
}

fn write_tool(out: &mut String, rule: &ToolRule) -> std::fmt::Result {
    if let Some(profile) = &rule.profile {
        writeln!(out, "profile = \"{profile}\"")?;
    }
    if let Some(approval) = rule.approval {
        writeln!(out, "approval = \"{approval}\"")?;
    }
    if !rule.unasked.is_empty() {
        writeln!(out, "unasked = {}", rule.unasked)?;
    }
    if let Some(timeout) = rule.timeout {
        writeln!(out, "timeout = \"{}\"", humantime::format_duration(timeout))?;
    }
    if let Some(memory) = rule.memory {
        writeln!(out, "memory = \"{memory}\"")?;
    }
    writeln!(out, "max_output_bytes = \"{}\"", format_in_largest_unit(rule.max_output_bytes.0))?;
    if let Some(enabled) = rule.enabled {
        writeln!(out, "enabled = {enabled}")?;
    }
    if rule.optional {
        writeln!(out, "optional = true")?;
    }
    Ok(())
}

/// Writes the demands of reductions as a section of a sandbox tier.
fn write_demands(out: &mut String, sandbox: SandboxTier, policy: &EffectivePolicy) -> std::fmt::Result {
    let sandbox = sandbox.as_str();
    for tier in SafetyTier::ALL {
        let floor = policy.tiers.rule(tier).approval_floor;
        if floor > Approval::Allow {
            writeln!(out, "\n[sandbox.{sandbox}.tiers.{tier}]\napproval = \"{floor}\"")?;
        }
    }
    for (name, rule) in &policy.tools {
        let has_floor = rule.approval.is_none() && rule.approval_floor > Approval::Allow;
        let has_cap = rule.timeout.is_none() && rule.timeout_cap < policy.limits.max_timeout;
        if rule.by_operator && !has_floor && !has_cap {
            continue;
        }
        writeln!(out, "\n[sandbox.{sandbox}.tools.{name}]")?;
        if has_floor {
            writeln!(out, "approval = \"{}\"", rule.approval_floor)?;
        }
        if has_cap {
            writeln!(out, "timeout = \"{}\"", humantime::format_duration(rule.timeout_cap))?;
        }
        if rule.by_operator {
            continue;
        }
        if let Some(memory) = rule.memory {
            writeln!(out, "memory = \"{memory}\"")?;
        }
        writeln!(out, "max_output_bytes = \"{}\"", format_in_largest_unit(rule.max_output_bytes.0))?;
        if let Some(enabled) = rule.enabled {
            writeln!(out, "enabled = {enabled}")?;
        }
        // The effective policy does not know whether the tool is always present.
        writeln!(out, "optional = true")?;
    }
    write_shell_demands(out, sandbox, &policy.shell)
}

fn write_summary(out: &mut String, policy: &EffectivePolicy) -> std::fmt::Result {
    let layers: Vec<&str> = RequiredLayer::ALL
        .into_iter()
        .filter(|layer| policy.require.contains(layer))
        .map(RequiredLayer::as_str)
        .collect();
    let layers = if layers.is_empty() { "none".to_owned() } else { layers.join(", ") };
    writeln!(out, "required layers: {layers}")?;
    writeln!(out, "\nprofiles")?;
    for (name, mounts) in &policy.profiles {
        let network = network_summary(policy.networks.get(name));
        writeln!(out, "  {name:<24} {}{network}", shown_mounts(mounts.iter()))?;
    }
    writeln!(out, "  {:<24} {}", ProfileName::SHELL, shell_summary(&policy.shell))?;
    writeln!(out, "\ntools without an entry, by tier")?;
    for tier in SafetyTier::ALL {
        let rule = policy.tiers.rule(tier);
        writeln!(out, "  {tier:<24} {}, approval {}", rule.profile, rule.approval)?;
    }
    // No section sets this default, so the summary has to name it.
    writeln!(out, "  {:<24} {}, approval {}", "foreign modules", ProfileName::NOTHING, Approval::Ask)?;
    if let Some(dir) = &policy.modules_dir {
        writeln!(out, "  {:<24} {}", "their folder", quote(dir))?;
    }
    writeln!(out, "\nentries for tools, as they are written")?;
    for (name, rule) in &policy.tools {
        let mut parts = vec![match &rule.profile {
            Some(profile) => profile.to_string(),
            None => "profile by tier".to_owned(),
        }];
        let approval =
            // The floor of a reduction applies even if the operator's entry sets less.
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
    write_egress_summary(out, &policy.egress)?;
    write_secrets_summary(out, &policy.secrets)?;
    write_flow_summary(out, &policy.flow)
}

/// Formats mounts in one line.
pub(crate) fn shown_mounts<'a>(mounts: impl Iterator<Item = (&'a MountName, &'a Access)>) -> String {
    let mounts: Vec<String> = mounts.map(|(name, access)| format!("/{name} {access}")).collect();
    if mounts.is_empty() { "no mounts".to_owned() } else { mounts.join(", ") }
}

/// Formats texts as TOML strings, separated by commas.
pub(crate) fn quoted_texts(texts: &[String]) -> String {
    quoted(texts.iter().map(String::as_str))
}

/// Like [`quoted_texts`], for borrowed texts.
pub(crate) fn quoted<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.map(quote).collect::<Vec<_>>().join(", ")
}

fn write_audit(out: &mut String, audit: &AuditSettings) -> std::fmt::Result {
    let AuditSettings { sync, segment_bytes, segment_age, retention, checkpoints, key } = audit;
    writeln!(out, "\n[audit]\nsync = \"{sync}\"")?;
    let age = humantime::format_duration(*segment_age);
    writeln!(out, "segment = \"{segment_bytes}\"\nsegment_age = \"{age}\"")?;
    if let Some(retention) = retention {
        writeln!(out, "keep = \"{}\"", humantime::format_duration(*retention))?;
    }
    if let Some(locations) = checkpoints {
        let locations: Vec<String> = locations.iter().map(ToString::to_string).collect();
        writeln!(out, "checkpoints = [{}]", quoted_texts(&locations))?;
    }
    match key {
        Some(key) => writeln!(out, "key = {}", quote(&key.to_string())),
        None => Ok(()),
    }
}

/// Formats a TOML basic string.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            character if portcullis_types::is_deceptive(character) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\U{:08X}", u32::from(character));
            }
            character => out.push(character),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use portcullis_types::SandboxTier;

    use super::*;
    use crate::{LoadOptions, PolicySource, file::keys};

    // Further lines of `[secrets.s]`, and a profile that reaches its host.
    macro_rules! secret {
        (from) => { "from = \"env:S\"\n" };
        (hosts) => { "hosts = [\"https://a.example\"]\n" };
        (header) => { "header = \"X-Key\"\n" };
        (tools) => { "tools = [\"file_read\"]\n" };
        (net) => { "[profiles.Net]\nhosts = [\"https://*\"]\n" };
        ($first:ident, $($rest:ident),+) => { concat!(secret!($first), $(secret!($rest)),+) };
    }

    /// The mounts and profiles that the samples refer to.
    const BASE: &str = "version = 1\nrequire = [\"landlock\"]\nmounts = { shared = \"s\", tmp = \"t\" }\n[profiles.P]\n\
        mounts = { shared = \"write\" }\n[profiles.Q]\nmounts = { tmp = \"read\" }\n";

    fn effective_toml_of(text: &str) -> String {
        let policy = WorkspaceSecurityPolicy::load(&LoadOptions {
            operator: PolicySource { name: "p", text },
            overlay: None,
            sandbox_tier: SandboxTier::Container,
        });
        policy.unwrap_or_else(|error| panic!("{text}\n{error}")).effective_toml()
    }

    /// A section, its keys, and for each key a value other than its default, with the line that shows the value. A line
    /// that starts with `!` must disappear.
    struct Sample {
        section: &'static str,
        keys: &'static [&'static str],
        values: &'static [(&'static str, &'static str, &'static str)],
    }

    /// The values of `[secrets.s]`. Its keys are required together, so each value brings the other keys.
    const SECRET_FROM: &str = concat!("\"env:S\"\n", secret!(hosts, header, tools, net));
    const SECRET_HOSTS: &str = concat!("[\"https://a.example\"]\n", secret!(from, header, tools, net));
    const SECRET_HEADER: &str = concat!("\"X-Key\"\n", secret!(from, hosts, tools, net));
    const SECRET_TOOLS: &str = concat!("[\"file_read\"]\n", secret!(from, hosts, header, net));
    const SECRET_ENABLED: &str = concat!("false\n", secret!(from, hosts, header, tools, net));

    const REDUCED_SECRET: &str =
        concat!("{ s = { enabled = false } }\n[secrets.s]\n", secret!(from, hosts, header, tools, net));

    const SAMPLES: &[Sample] = &[
        Sample {
            section: "profiles.P2",
            keys: keys::PROFILE,
            values: &[
                ("mounts", "{ tmp = \"write\" }", "mounts = { tmp = \"write\" }"),
                (
                    "hosts",
                    "[\"https://*:8443\"]",
                    "hosts = [\"https://*:8443\"]\nmethods = [\"GET\", \"HEAD\"]",
                ),
                ("methods", "[\"POST\"]\nhosts = [\"https://*\"]", "methods = [\"POST\"]"),
            ],
        },
        Sample {
            section: "tiers.read_only",
            keys: keys::TIER,
            values: &[
                (
                    "profile",
                    "\"Q\"\napproval = \"deny\"",
                    "read_only = { profile = \"Q\", approval = \"deny\" }",
                ),
                (
                    "approval",
                    "\"deny\"\nprofile = \"Q\"",
                    "read_only = { profile = \"Q\", approval = \"deny\" }",
                ),
            ],
        },
        Sample {
            section: "tools.file_read",
            keys: keys::TOOL,
            values: &[
                ("profile", "\"Q\"", "profile = \"Q\""),
                ("approval", "\"ask\"", "approval = \"ask\""),
                ("unasked", "{ path = \"src/**\" }", "unasked = { path = [\"src/**\"] }"),
                ("timeout", "\"7s\"", "timeout = \"7s\""),
                ("memory", "\"7MiB\"", "memory = \"7MiB\""),
                ("max_output_bytes", "\"7KiB\"", "max_output_bytes = \"7KiB\""),
                ("enabled", "false", "max_output_bytes = \"16KiB\"\nenabled = false"),
                ("optional", "true", "optional = true"),
            ],
        },
        Sample {
            section: "sandbox.container.tools.file_read",
            keys: keys::REDUCED_TOOL,
            values: &[
                ("approval", "\"ask\"", "approval = \"ask\""),
                ("timeout", "\"7s\"", "timeout = \"7s\""),
                ("memory", "\"7MiB\"", "memory = \"7MiB\""),
                ("max_output_bytes", "\"7KiB\"", "max_output_bytes = \"7KiB\""),
                ("enabled", "false", "max_output_bytes = \"16KiB\"\nenabled = false"),
                ("optional", "true", "optional = true"),
            ],
        },
        Sample {
            section: "sandbox.container.tiers.read_only",
            keys: keys::REDUCED_TIER,
            values: &[("approval", "\"deny\"", "[sandbox.container.tiers.read_only]\napproval = \"deny\"")],
        },
        Sample {
            section: "protect",
            keys: keys::PROTECT,
            values: &[
                ("paths", "[\"Notes\"]", "\"notes\""),
                ("kinds", "[\"*.Tex\"]", "\"*.tex\""),
                ("except", "[\".envrc\"]", "except = [\".envrc\"]"),
            ],
        },
        Sample {
            section: "audit",
            keys: keys::AUDIT,
            values: &[
                ("sync", "\"always\"", "sync = \"always\""),
                ("segment", "\"7MiB\"", "segment = \"7MiB\""),
                ("segment_age", "\"7h\"", "segment_age = \"7h\""),
                ("keep", "\"7h\"", "keep = \"7h\""),
                (
                    "checkpoints",
                    "[\"stderr\", \"/c\", \"https://w.example w+00112233+BAAA\"]",
                    "checkpoints = [\"stderr\", \"/c\", \"https://w.example/ w+00112233+BAAA\"]",
                ),
                ("key", "\"/k\"", "key = \"/k\""),
            ],
        },
        Sample {
            section: "hide",
            keys: keys::HIDE,
            values: &[("paths", "[\"*.Pem\"]", "[hide]\npaths = [\"*.pem\"]")],
        },
        Sample {
            section: "project",
            keys: keys::PROJECT,
            values: &[("path", "\"/p\"", "[project]\npath = \"/p\"")],
        },
        Sample { section: "modules", keys: keys::MODULES, values: &[("dir", "\"/m\"", "dir = \"/m\"")] },
        Sample {
            section: "shell",
            keys: keys::SHELL,
            values: &[
                ("enabled", "true", "[shell]\nenabled = true"),
                ("posture", "\"strong\"", "posture = \"strong\""),
                ("mounts", "{ shared = \"read\" }", "mounts = { shared = \"read\" }"),
                ("timeout", "\"7s\"", "timeout = \"7s\""),
                ("memory", "\"70MiB\"", "memory = \"70MiB\""),
                ("processes", "77", "processes = 77"),
                ("file_size", "\"7MiB\"", "file_size = \"7MiB\""),
                ("output", "\"7KiB\"", "output = \"7KiB\""),
                ("environment", "[\"AWS_SECRET_ACCESS_KEY\"]", "environment = [\"AWS_SECRET_ACCESS_KEY\"]"),
                ("hosts", "[\"https://*.crates.io\"]", "hosts = [\"https://*.crates.io\"]"),
                ("allow", "[\"git\"]", "allow = [\"git\"]"),
                ("deny", "[\"sudo\"]", "deny = [\"sudo\"]"),
                ("operators", "[\"|\"]", "operators = [\"|\"]"),
                ("read", "[\"~/.cargo/bin\"]", "read = [\"~/.cargo/bin\"]"),
                ("caches", "[\"~/.npm\"]", "caches = [\"~/.npm\"]"),
                ("path", "[\"/opt/x/bin\"]\nread = [\"/opt/x\"]", "path = [\"/opt/x/bin\"]"),
                ("variables", "{ CARGO_HOME = \"~/.cargo\" }", "variables = { CARGO_HOME = \"~/.cargo\" }"),
                ("unasked", "[\"ls *\"]", "unasked = [\"ls *\"]"),
            ],
        },
        Sample {
            section: "egress",
            keys: keys::EGRESS,
            values: &[
                ("allow_private", "[\"127.0.0.1:8080\"]", "allow_private = [\"127.0.0.1:8080\"]"),
                ("ca", "\"/etc/ca.pem\"", "ca = \"/etc/ca.pem\""),
                ("proxy", "\"http://p.example:3128\"", "proxy = \"http://p.example:3128\""),
                ("max_response", "\"7MiB\"", "max_response = \"7MiB\""),
                ("max_redirects", "7", "max_redirects = 7"),
                ("robots", "\"ignore\"", "robots = \"ignore\""),
            ],
        },
        Sample {
            section: "secrets.s",
            keys: keys::SECRET,
            values: &[
                ("from", SECRET_FROM, "[secrets.s]\nfrom = \"env:S\""),
                ("hosts", SECRET_HOSTS, "hosts = [\"https://a.example\"]"),
                ("header", SECRET_HEADER, "header = \"x-key: {secret}\""),
                ("tools", SECRET_TOOLS, "tools = [\"file_read\"]"),
                ("enabled", SECRET_ENABLED, "tools = [\"file_read\"]\nenabled = false"),
            ],
        },
        Sample {
            section: "search",
            keys: keys::SEARCH,
            values: &[
                (
                    "provider",
                    "\"duckduckgo\"",
                    "[search]\nprovider = \"duckduckgo\"\nurl = \"https://html.duckduckgo.com/html/\"",
                ),
                ("url", "\"https://s.example\"\nprovider = \"searxng\"", "url = \"https://s.example/\""),
                ("engine", "\"e:1\"\nprovider = \"google\"", "engine = \"e:1\""),
            ],
        },
        Sample {
            section: "notify",
            keys: keys::NOTIFY,
            values: &[
                ("slack", "\"https://slack.example/post\"", "slack = \"https://slack.example/post\""),
                ("discord", "\"https://discord.example/api\"", "discord = \"https://discord.example/api\""),
                (
                    "email",
                    "\"smtps://m.example:465\"\nfrom = \"a@m.example\"",
                    "email = \"smtps://m.example:465\"",
                ),
                ("from", "\"a@m.example\"\nemail = \"smtp://m.example:25\"", "from = \"a@m.example\""),
                ("user", "\"u\"\nemail = \"smtp://m.example:25\"\nfrom = \"a@m.example\"", "user = \"u\""),
            ],
        },
        Sample {
            section: "limits",
            keys: keys::LIMITS,
            values: &[
                ("concurrency", "7", "concurrency = 7"),
                ("calls_per_minute", "77", "calls_per_minute = 77"),
                ("max_output_bytes", "\"7KiB\"", "max_output_bytes = \"7KiB\""),
                ("wasm_memory", "\"7MiB\"", "wasm_memory = \"7MiB\""),
                ("max_timeout", "\"7s\"", "max_timeout = \"7s\""),
            ],
        },
        Sample {
            section: "[flow]",
            keys: keys::FLOW,
            values: &[
                (
                    "after",
                    "[\"mount:tmp\"]\nthen = [\"shell\"]\napproval = \"ask\"",
                    "[[flow]]\nafter = [\"mount:tmp\"]",
                ),
                (
                    "then",
                    "[\"write:shared\", \"shell\"]\nafter = [\"mount:tmp\"]\napproval = \"ask\"",
                    "then = [\"shell\", \"write:shared\"]",
                ),
                (
                    "approval",
                    "\"deny\"\nafter = [\"mount:tmp\"]\nthen = [\"shell\"]",
                    "then = [\"shell\"]\napproval = \"deny\"",
                ),
            ],
        },
        Sample {
            section: "sandbox.container",
            keys: keys::SANDBOX,
            values: &[
                ("require", "[\"seccomp\"]", "require = [\"landlock\", \"seccomp\"]"),
                (
                    "profiles",
                    "{ P = { mounts = { shared = \"read\" } } }",
                    "[profiles.P]\nmounts = { shared = \"read\" }",
                ),
                (
                    "tiers",
                    "{ read_only = { approval = \"deny\" } }",
                    "[sandbox.container.tiers.read_only]\napproval = \"deny\"",
                ),
                (
                    "tools",
                    "{ file_read = { enabled = false } }",
                    "[sandbox.container.tools.file_read]\nmax_output_bytes = \"16KiB\"\nenabled = false",
                ),
                ("protect", "{ paths = [\"Notes\"] }", "\"notes\""),
                ("hide", "{ paths = [\"Keys\"] }", "[hide]\npaths = [\"keys\"]"),
                ("shell", "{ posture = \"strong\" }\n[shell]\nenabled = true", "posture = \"strong\""),
                ("egress", "{ max_redirects = 3 }", "max_redirects = 3"),
                ("secrets", REDUCED_SECRET, "tools = [\"file_read\"]\nenabled = false"),
                ("search", "{ provider = \"none\" }\n[search]\nprovider = \"brave\"", "!provider ="),
                ("limits", "{ concurrency = 3 }", "concurrency = 3"),
                (
                    "flow",
                    "[{ after = [\"mount:tmp\"], then = [\"shell\"], approval = \"deny\" }]",
                    "[[flow]]\nafter = [\"mount:tmp\"]",
                ),
            ],
        },
    ];

    #[test]
    fn every_key_of_the_grammar_is_shown() {
        for Sample { section, keys, values } in SAMPLES {
            for key in *keys {
                let (_, value, line) = values
                    .iter()
                    .find(|(name, _, _)| name == key)
                    .unwrap_or_else(|| panic!("`{section}.{key}` has no sample: is it shown?"));
                let text = format!("{BASE}[{section}]\n{key} = {value}\n");
                let is_there = |toml: &str| match line.strip_prefix('!') {
                    Some(absent_line) => !toml.contains(&format!("\n{absent_line}")),
                    None if line.starts_with('"') => toml.contains(line),
                    None => toml.contains(&format!("\n{line}")),
                };
                let toml = effective_toml_of(&text);
                assert!(is_there(&toml), "`{section}.{key}`:\n{toml}");
                let toml_without = if line.starts_with('!') {
                    self::effective_toml_of(&text.replace(&format!("{key} = {{ provider = \"none\" }}"), ""))
                } else {
                    self::effective_toml_of(BASE)
                };
                assert!(!is_there(&toml_without), "`{section}.{key}`: {line} is there anyway");
            }
        }
        let sampled: Vec<&str> = SAMPLES
            .iter()
            .map(|sample| sample.section.split('.').next().unwrap_or_default())
            .map(|section| section.trim_matches(['[', ']']))
            .collect();
        for key in keys::POLICY.iter().filter(|key| !["version", "require", "home", "mounts"].contains(key)) {
            assert!(sampled.contains(key), "the section `{key}` has no sample");
        }
        let other_policy =
            BASE.replace("[\"landlock\"]", "[]").replacen("\nmounts", "\nhome = \"tmp\"\nmounts", 1);
        let toml = effective_toml_of(&other_policy);
        for line in ["version = 1", "require = []", "home = \"tmp\"", "[mounts]\nshared = \"s\"\ntmp = \"t\""]
        {
            assert!(toml.contains(line), "{toml}");
        }
    }
}
