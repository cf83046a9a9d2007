//! `portcullis mounts`: shows the access of each tool to each mount, and where data can flow.

pub(super) mod matrix;
mod page;
mod use_counts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    process::ExitCode,
};

use jiff::Timestamp;
use portcullis_tools::{
    ExplainedTool, Explainer, FlowStep, MountGrant, ReachSource, ToolGrants, audit,
    policy::{Approval, SourceLocation, WorkspaceSecurityPolicy},
};
use portcullis_types::{Access, RunnerBootstrapEnvelope};
use serde::Serialize;

pub(super) use self::use_counts::{UseCount, UseCounts};
use crate::{
    cli::{CommonOptions, ModuleOptions, MountsOptions, MountsView},
    error::CliError,
    output::{html, json, stream, table, text},
    setup,
};

pub(crate) fn run(common: &CommonOptions, options: MountsOptions) -> Result<ExitCode, CliError> {
    let MountsOptions { by, reach, json: as_json, html: page_file, modules } = options;
    if let Some(file) = &page_file {
        html::check_new_file(file)?;
    }
    let ExplainContext { envelope, explainer, tools } = ExplainContext::new(common, modules)?;
    let policy = explainer.policy();
    // The flows follow from the policy alone, so skip reading the log.
    if let Some(source) = reach {
        check_source(policy, &source)?;
        let steps = explainer.reach(&source, &tools);
        if as_json {
            json::write_output(&steps)?;
        } else {
            stream::write_output(&reach_text(&steps))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let grants = explainer.grants_of(&tools);
    let use_counts = UseCounts::read(&audit::log_path(&envelope.state), &grants, policy)?;
    if let Some(file) = page_file {
        let flows = sources(policy).into_iter().map(|source| {
            let steps = explainer.reach(&source, &tools);
            (source, steps)
        });
        let page = page::render(&page::MapInput {
            workspace: &envelope.workspace,
            policy,
            grants: &grants,
            use_counts: &use_counts,
            flows: &flows.collect::<Vec<_>>(),
            created_at: Timestamp::now(),
        });
        html::write_new_file(&file, &page)?;
        stream::write_output(&format!("wrote {}\n", text::inline(&file.display().to_string())))?;
        return Ok(ExitCode::SUCCESS);
    }
    let answer = match (as_json, by) {
        (true, _) => return json::write_output(&entries(&grants, &use_counts)).map(|()| ExitCode::SUCCESS),
        (false, MountsView::Tool) => by_tool(policy, &grants, &use_counts),
        (false, MountsView::Mount) => by_mount(&grants, &use_counts),
        (false, MountsView::Profile) => by_profile(policy, &grants),
    };
    stream::write_output(&answer)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns every source that the policy knows.
fn sources(policy: &WorkspaceSecurityPolicy) -> Vec<ReachSource> {
    let mounts = policy.mounts().iter().map(|mount| ReachSource::Mount(mount.name.clone()));
    let secrets = policy.secrets().map(|(name, _)| ReachSource::Secret(name.clone()));
    let variables = policy.shell().into_iter().flat_map(|shell| &shell.environment);
    let variables = variables.map(|name| ReachSource::Variable(name.as_str().to_owned()));
    mounts.chain([ReachSource::Web]).chain(secrets).chain(variables).collect()
}

/// Refuses a source that the policy does not know. Its empty answer would look as if the source reached nothing.
fn check_source(policy: &WorkspaceSecurityPolicy, source: &ReachSource) -> Result<(), CliError> {
    let (kind, name, is_known) = match source {
        ReachSource::Web => return Ok(()),
        ReachSource::Mount(name) => {
            ("mount", name.as_str(), policy.mounts().iter().any(|mount| mount.name == *name))
        }
        ReachSource::Secret(name) => {
            ("secret", name.as_str(), policy.secrets().any(|(known, _)| known == name))
        }
        ReachSource::Variable(name) => {
            let names = policy.shell().into_iter().flat_map(|shell| &shell.environment);
            ("variable", name.as_str(), names.into_iter().any(|known| known.as_str() == name))
        }
    };
    if is_known { Ok(()) } else { Err(CliError::NoSource { kind, name: name.to_owned() }) }
}

/// The tools of a workspace, and the function that judges their calls.
pub(super) struct ExplainContext {
    pub(super) envelope: RunnerBootstrapEnvelope,
    pub(super) explainer: Explainer,
    pub(super) tools: Vec<ExplainedTool>,
}

impl ExplainContext {
    /// Reads the policy in force, and loads its modules.
    pub(super) fn new(common: &CommonOptions, modules: ModuleOptions) -> Result<Self, CliError> {
        let envelope = setup::envelope_with(common, modules)?;
        let files = setup::policy_files(&envelope)?;
        let runtime = setup::runtime()?;
        let explainer = runtime.block_on(Explainer::new(&envelope, &files))?;
        let policy = explainer.policy();
        let tools = match policy.modules_dir().is_none() && envelope.modules.is_empty() {
            true => ExplainedTool::all_shipped(policy).collect(),
            // Only a module knows the declarations of its tools, so load the modules.
            false => {
                let registry = runtime.block_on(setup::describing_registry(&envelope, &files))?;
                registry.tools().iter().map(|tool| ExplainedTool::from(&**tool)).collect()
            }
        };
        Ok(Self { envelope, explainer, tools })
    }
}

/// The grants of a tool with the use counts of its mounts, as JSON.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    grants: &'a ToolGrants,
    /// The counts by mount, including mounts that are not granted if a call tried to use them.
    calls: BTreeMap<&'a str, UseCount>,
}

fn entries<'a>(grants: &'a [ToolGrants], use_counts: &'a UseCounts) -> Vec<Entry<'a>> {
    let calls = |grants: &'a ToolGrants| use_counts.mounts_of(grants).collect();
    grants.iter().map(|grants| Entry { grants, calls: calls(grants) }).collect()
}

fn mount_names(policy: &WorkspaceSecurityPolicy) -> Vec<String> {
    policy.mounts().iter().map(|mount| mount.name.to_string()).collect()
}

fn name_cell(grants: &ToolGrants) -> String {
    match &grants.step {
        Some(step) => format!("{} → {step}", grants.tool),
        None => grants.tool.clone(),
    }
}

/// Formats the access to a mount and its use counts: `write, 12 used`, `–, 3 tried`.
fn access_cell(access: Option<Access>, UseCount { used, tried, .. }: UseCount) -> String {
    let mut cell = access.map_or("–", Access::as_str).to_owned();
    // Writing to a string cannot fail.
    if used > 0 {
        let _ = write!(cell, ", {used} used");
    }
    if tried > 0 {
        let _ = write!(cell, ", {tried} tried");
    }
    cell
}

fn hosts_cell(hosts: &[String]) -> String {
    if hosts.is_empty() { "–".to_owned() } else { hosts.join(", ") }
}

fn by_tool(policy: &WorkspaceSecurityPolicy, grants: &[ToolGrants], use_counts: &UseCounts) -> String {
    let mounts = mount_names(policy);
    let head = ["TOOL", "PROFILE", "CALLS"].map(str::to_owned).into_iter();
    let head = head.chain(mounts.iter().map(|mount| format!("/{mount}"))).chain(["HOSTS".to_owned()]);
    let rows = grants.iter().map(|grants| {
        let mut row = vec![name_cell(grants), grants.profile.clone(), grants.verdict.to_string()];
        for mount in &mounts {
            let granted = grants.mounts.iter().find(|grant| grant.mount == *mount);
            row.push(access_cell(granted.map(|grant| grant.access), use_counts.of(grants, mount)));
        }
        row.push(hosts_cell(&grants.hosts));
        row
    });
    table::render_columns(head.collect(), rows)
}

/// Returns the grants, sorted by mount.
fn sorted_by_mount(grants: &[ToolGrants]) -> Vec<(&MountGrant, &ToolGrants)> {
    let mut rows: Vec<(&MountGrant, &ToolGrants)> =
        grants.iter().flat_map(|grants| grants.mounts.iter().map(move |grant| (grant, grants))).collect();
    rows.sort_by(|(left, left_tool), (right, right_tool)| {
        let left = (&left.mount, &left_tool.tool, &left_tool.step);
        left.cmp(&(&right.mount, &right_tool.tool, &right_tool.step))
    });
    rows
}

fn by_mount(grants: &[ToolGrants], use_counts: &UseCounts) -> String {
    let rows = sorted_by_mount(grants).into_iter().map(|(grant, grants)| {
        [
            format!("/{}", grant.mount),
            name_cell(grants),
            access_cell(Some(grant.access), use_counts.of(grants, &grant.mount)),
            grants.verdict.to_string(),
            grant.rule.clone(),
            grant.location.as_ref().map_or_else(|| "default".to_owned(), SourceLocation::to_string),
        ]
    });
    table::render(["MOUNT", "TOOL", "ACCESS", "CALLS", "RULE", "FROM"], rows)
}

fn by_profile(policy: &WorkspaceSecurityPolicy, grants: &[ToolGrants]) -> String {
    let mounts = mount_names(policy);
    let head = std::iter::once("PROFILE".to_owned()).chain(mounts.iter().map(|mount| format!("/{mount}")));
    let head = head.chain(["HOSTS", "TOOLS"].map(str::to_owned));
    let mut profiles: BTreeMap<&str, Vec<&ToolGrants>> = BTreeMap::new();
    // Also list profiles that no tool has.
    for (profile, _) in policy.profiles() {
        profiles.entry(profile.as_str()).or_default();
    }
    for grants in grants {
        profiles.entry(&grants.profile).or_default().push(grants);
    }
    let rows = profiles.into_iter().map(|(profile, tools)| {
        let profile_mounts = policy.profiles().find(|(known, _)| known.as_str() == profile);
        let shell_mounts = policy.shell().filter(|_| profile_mounts.is_none());
        let granted = profile_mounts.map(|(_, mounts)| mounts).or(shell_mounts.map(|shell| &*shell.mounts));
        let mut row = vec![profile.to_owned()];
        for mount in &mounts {
            let access = granted.into_iter().flatten().find(|grant| grant.name.as_str() == mount);
            row.push(access.map_or("–", |grant| grant.access.as_str()).to_owned());
        }
        let hosts: BTreeSet<&String> = tools.iter().flat_map(|grants| &grants.hosts).collect();
        row.push(hosts_cell(&hosts.into_iter().cloned().collect::<Vec<_>>()));
        let names: Vec<String> = tools.iter().map(|grants| name_cell(grants)).collect();
        row.push(if names.is_empty() { "–".to_owned() } else { names.join(", ") });
        row
    });
    table::render_columns(head.collect(), rows)
}

/// Formats the flows of data, one per line, grouped by their start.
fn reach_text(steps: &[FlowStep]) -> String {
    if steps.is_empty() {
        return "no tool reads it\n".to_owned();
    }
    let mut out = String::new();
    let mut from = "";
    for step in steps {
        if step.from != from {
            from = &step.from;
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{}", text::inline(from));
        }
        let (gate, to) = (gate_text(step), destination_text(step));
        let _ =
            writeln!(out, "  {} ({}) → {}", text::inline(&step.tool), text::inline(&gate), text::inline(&to));
    }
    out
}

/// Describes whether the call of a step runs, and otherwise the rule that prevents it.
fn gate_text(step: &FlowStep) -> String {
    match (step.verdict, &step.unasked) {
        (Approval::Allow, _) => "runs".to_owned(),
        (Approval::Ask, Some(unasked)) => format!("needs approval: {}, unless {unasked} applies", step.rule),
        (Approval::Ask, None) => format!("needs approval: {}", step.rule),
        (Approval::Deny, _) => format!("refused by {}", step.rule),
    }
}

fn destination_text(step: &FlowStep) -> String {
    if step.to.is_empty() { "ends".to_owned() } else { step.to.join(", ") }
}
