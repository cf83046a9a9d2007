//! `portcullis tools`: lists the registered tools with the policy's grant to each.

mod capabilities;
mod one;
mod shell;

use std::{collections::BTreeSet, fmt::Write as _, process::ExitCode, sync::Arc};

use portcullis_mcp::tool_catalog::ToolListFormat;
use portcullis_tools::{
    RegisteredTool, ToolRegistry,
    policy::{Approval, PinStatus, ProfileName, ToolOrigin},
};
use portcullis_types::{ArgumentRole, JsonSchema, SafetyTier, ToolMeta, ToolName, ToolPolicy};
use serde::Serialize;

use crate::{
    cli::{CommonOptions, ToolsFormat, ToolsOptions},
    error::CliError,
    output::{json, stream, table, text},
    setup, sidecar,
};

pub(crate) use shell::ShellState;

pub(crate) fn run(common: &CommonOptions, options: ToolsOptions) -> Result<ExitCode, CliError> {
    let ToolsOptions { name, format, capabilities, modules } = options;
    if capabilities {
        capabilities::show(format.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let envelope = setup::envelope_with(common, modules)?;
    let runtime = setup::runtime()?;
    let registry = runtime.block_on(setup::registry(&envelope, sidecar::shell_source(common)))?;
    if let Some(name) = name {
        let tool = registry.get(&name).ok_or(CliError::NoTool { name })?;
        if format.json {
            json::write_output(&ListedTool::new(&registry, &tool))?;
        } else {
            stream::write_output(&one::describe(&registry, &tool))?;
        }
    } else if format.json {
        let tools = registry.tools();
        json::write_output(&tools.iter().map(|tool| ListedTool::new(&registry, tool)).collect::<Vec<_>>())?;
    } else if let Some(client) = client_format(&format) {
        let offered = client.tools(&registry);
        for remark in &offered.remarks {
            stream::write_stderr(&format!("portcullis: {remark}\n"));
        }
        json::write_output(&client.request(offered.tools))?;
    } else {
        let shell = runtime.block_on(shell::describe(&registry));
        let project = setup::project(common)?.map_or_else(String::new, |project| format!("{project}\n\n"));
        stream::write_output(&format!(
            "{project}{}{}{}",
            listing(&registry, None),
            shell,
            refused_modules(&registry)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the client format that the options ask for.
fn client_format(format: &ToolsFormat) -> Option<ToolListFormat> {
    [
        (format.openai, ToolListFormat::OpenAi),
        (format.openai_strict, ToolListFormat::OpenAiStrict),
        (format.anthropic, ToolListFormat::Anthropic),
        (format.gemini, ToolListFormat::Gemini),
        (format.mcp, ToolListFormat::Mcp),
    ]
    .into_iter()
    .find_map(|(is_wanted, client)| is_wanted.then_some(client))
}

/// Formats the tools as a table. If `given` is set, shows only the tools that it lists.
pub(crate) fn listing(registry: &ToolRegistry, shown: Option<&BTreeSet<ToolName>>) -> String {
    let mut tools = registry.tools();
    tools.retain(|tool| shown.is_none_or(|shown| shown.contains(&tool.descriptor().name)));
    let rows = tools.iter().map(|tool| {
        let assigned = registry.policy().describe(tool.descriptor());
        let approval = match (tool.descriptor().pin_status, registry.assignment(tool)) {
            (PinStatus::Quarantined, _) => PinStatus::Quarantined.as_str().to_owned(),
            // The reason is shown below the table.
            (_, Ok(_)) if registry.unavailable_reason(tool).is_some() => "unavailable".to_owned(),
            (_, Ok(assigned)) => assigned.approval.to_string(),
            (_, Err(_)) => "disabled".to_owned(),
        };
        [
            tool.decl().name.clone(),
            assigned.tier.to_string(),
            match tool.steps() {
                [] => describe_profile(registry, &assigned.profile),
                steps => describe_step_profiles(registry, steps),
            },
            approval,
            tool.confinement().as_str().to_owned(),
            humantime::format_duration(assigned.timeout).to_string(),
        ]
    });
    table::render(["TOOL", "TIER", "PROFILE", "APPROVAL", "CONFINEMENT", "TIMEOUT"], rows)
}

/// Formats the refused foreign modules with the reasons. Empty if there are none.
pub(crate) fn refused_modules(registry: &ToolRegistry) -> String {
    let mut out = String::new();
    for module in registry.refused_modules() {
        let reason = portcullis_types::error_chain(module.error());
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {}: {}", text::inline(module.name()), text::in_one_line(&reason));
    }
    if out.is_empty() { out } else { format!("\nmodules that are refused\n{out}") }
}

/// Describes a profile with its folders and hosts, for people.
fn describe_profile(registry: &ToolRegistry, profile: &ProfileName) -> String {
    let hosts = hosts(registry, profile);
    let hosts = if hosts.is_empty() { hosts } else { format!("; {hosts}") };
    format!("{profile} ({}{hosts})", mounts(registry, profile))
}

/// Describes the profiles of an operation's steps, in order. No step has another step's profile.
fn describe_step_profiles(registry: &ToolRegistry, steps: &[Arc<RegisteredTool>]) -> String {
    let profiles = steps
        .iter()
        .map(|step| describe_profile(registry, &registry.policy().describe(step.descriptor()).profile));
    profiles.collect::<Vec<_>>().join(" → ")
}

/// Formats the folders of a profile, for people.
pub(crate) fn mounts(registry: &ToolRegistry, profile: &ProfileName) -> String {
    let mounts = registry.policy().mounts_of(profile);
    if mounts.is_empty() {
        return "no folder".to_owned();
    }
    let mount_texts = mounts.iter().map(|mount| format!("/{} {}", mount.name, mount.access));
    mount_texts.collect::<Vec<_>>().join(", ")
}

/// Formats the hosts of a profile, for people. Empty if the profile has none.
pub(crate) fn hosts(registry: &ToolRegistry, profile: &ProfileName) -> String {
    host_texts(registry, profile).join(", ")
}

fn host_texts(registry: &ToolRegistry, profile: &ProfileName) -> Vec<String> {
    let network = registry.policy().network_of(profile);
    network.into_iter().flat_map(|network| &network.hosts).map(ToString::to_string).collect()
}

#[derive(Debug, Serialize)]
struct ListedTool<'a> {
    name: &'a str,
    description: Option<&'a str>,
    label: Option<&'a str>,
    origin: &'static str,
    #[serde(rename = "standing")]
    pin_status: &'static str,
    confinement: &'static str,
    module_sha256: Option<String>,
    tier: SafetyTier,
    declared_tier: Option<SafetyTier>,
    declared_policy: ToolPolicy,
    enabled: bool,
    /// The reason why no call of the tool can run although the policy enables it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<&'a str>,
    approval: Approval,
    profile: String,
    mounts: Vec<ListedMount<'a>>,
    /// The request of an HTTP tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    /// The hosts of the tool's profile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
    /// The HTTP methods that the tool's profile grants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    methods: Vec<&'static str>,
    timeout_ms: u64,
    memory_bytes: Option<u64>,
    max_output_bytes: u64,
    roles: &'a [ArgumentRole],
    #[serde(flatten)]
    meta: &'a ToolMeta,
    parameters: &'a JsonSchema,
    output_schema: Option<&'a JsonSchema>,
    /// The steps of an operation, which cannot be called directly.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<ListedTool<'a>>,
}

#[derive(Debug, Serialize)]
struct ListedMount<'a> {
    name: &'a str,
    access: portcullis_types::Access,
}

impl<'a> ListedTool<'a> {
    fn new(registry: &'a ToolRegistry, tool: &'a RegisteredTool) -> Self {
        let descriptor = tool.descriptor();
        let assigned = registry.policy().describe(descriptor);
        let module = tool.module();
        let callable = registry.assignment(tool);
        let network = registry.policy().network_of(&assigned.profile);
        Self {
            name: &tool.decl().name,
            description: tool.decl().description.as_deref(),
            label: tool.label(),
            origin: origin(descriptor.origin),
            pin_status: descriptor.pin_status.as_str(),
            confinement: tool.confinement().as_str(),
            module_sha256: module.map(|module| module.digest().to_string()),
            tier: assigned.tier,
            declared_tier: descriptor.declared_tier,
            declared_policy: descriptor.declared_policy,
            enabled: callable.is_ok(),
            unavailable: registry.unavailable_reason(tool),
            profile: assigned.profile.to_string(),
            approval: callable.map_or(assigned.approval, |assigned| assigned.approval),
            mounts: registry
                .policy()
                .mounts_of(&assigned.profile)
                .iter()
                .map(|mount| ListedMount { name: mount.name.as_str(), access: mount.access })
                .collect(),
            request: request_of(tool),
            hosts: host_texts(registry, &assigned.profile),
            methods: network
                .into_iter()
                .flat_map(|network| &network.methods)
                .map(|method| method.as_str())
                .collect(),
            timeout_ms: u64::try_from(assigned.timeout.as_millis()).unwrap_or(u64::MAX),
            // A native tool has no memory limit.
            memory_bytes: module.map(|_| assigned.memory.0),
            max_output_bytes: assigned.max_output.0,
            roles: &descriptor.roles,
            meta: tool.meta(),
            parameters: &tool.decl().parameters,
            output_schema: tool.output_schema(),
            steps: tool.steps().iter().map(|step| Self::new(registry, step)).collect(),
        }
    }
}

/// Formats the request of an HTTP tool: method and address.
fn request_of(tool: &RegisteredTool) -> Option<String> {
    tool.http_target().map(|target| format!("{} {}", target.method(), target.url()))
}

fn origin(origin: ToolOrigin) -> &'static str {
    match origin {
        ToolOrigin::ShippedNative => "shipped_native",
        ToolOrigin::ShippedShell => "shipped_shell",
        ToolOrigin::Native => "native",
        ToolOrigin::External => "external",
        ToolOrigin::ShippedGateway => "shipped_space",
        ToolOrigin::Http => "http",
        ToolOrigin::Mcp => "mcp",
        ToolOrigin::Internal => "internal",
        ToolOrigin::ShippedModule => "shipped_module",
        ToolOrigin::ShippedOperation => "shipped_operation",
        ToolOrigin::ForeignModule => "foreign_module",
    }
}

#[cfg(test)]
mod tests {
    use portcullis_testing::registries::registry;

    use super::*;

    #[test]
    fn the_table_shows_what_the_policy_gives_to_each_tool() {
        let (_state, registry) = registry("[tools.add]\nenabled = false\n[tools.echo]\napproval = \"ask\"\n");
        insta::assert_snapshot!(listing(&registry, None));
    }

    #[test]
    fn tool_listing_is_one_json_object() {
        let (_state, registry) = registry("");
        let tool = &registry.get("echo").expect("shipped");
        let listed = serde_json::to_string_pretty(&ListedTool::new(&registry, tool)).expect("encodes");
        insta::assert_snapshot!("listed_tool", listed);
    }
}
