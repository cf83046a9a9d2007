//! `portcullis policy show`: every value in force, with its origin.

use std::process::ExitCode;

use portcullis_tools::policy::{
    Approval, GrantedMount, PolicyProvenance, PolicyValue, ToolDescriptor, WorkspaceSecurityPolicy,
    shipped_tools,
};
use portcullis_types::SafetyTier;
use serde::Serialize;

use crate::{
    cli::CommonOptions,
    error::CliError,
    output::{json, stream, table},
    setup,
};

/// Shows the policy in force.
pub(crate) fn show(common: &CommonOptions, as_json: bool) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope(common)?;
    let files = setup::policy_files(&envelope)?;
    let policy = files.load(envelope.sandbox_tier)?;
    let provenance = PolicyProvenance::read(&files.options(envelope.sandbox_tier));
    let values = provenance.values();
    if as_json {
        let tools = shipped_tools().map(|descriptor| ToolGrant::new(&policy, &descriptor)).collect();
        json::write_output(&PolicyListing {
            policy: files.operator_name(),
            overlay: files.overlay_name(),
            digest: policy.digest().as_str(),
            sandbox_tier: envelope.sandbox_tier.as_str(),
            values: &values,
            tools,
        })?;
    } else {
        let head = super::summary_head(&files, &policy);
        stream::write_output(&format!(
            "{head}\n{}\ntools\n{}",
            value_table(&values),
            super::shipped_assignments(&policy)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct PolicyListing<'a> {
    policy: &'a str,
    overlay: Option<&'a str>,
    digest: &'a str,
    sandbox_tier: &'static str,
    values: &'a [PolicyValue],
    tools: Vec<ToolGrant>,
}

/// The grant of one shipped tool.
#[derive(Serialize)]
struct ToolGrant {
    name: String,
    tier: SafetyTier,
    profile: String,
    approval: Approval,
    enabled: bool,
    mounts: Vec<GrantedMount>,
    hosts: Vec<String>,
}

impl ToolGrant {
    fn new(policy: &WorkspaceSecurityPolicy, descriptor: &ToolDescriptor) -> Self {
        let assignment = policy.describe(descriptor);
        let network = policy.network_of(&assignment.profile);
        Self {
            name: descriptor.name.to_string(),
            tier: assignment.tier,
            approval: assignment.approval,
            enabled: assignment.enabled,
            mounts: policy.mounts_of(&assignment.profile).to_vec(),
            hosts: network.into_iter().flat_map(|network| &network.hosts).map(ToString::to_string).collect(),
            profile: assignment.profile.to_string(),
        }
    }
}

/// Formats the values as a table. Keys without a value are shown once for each section, not for each tool or
/// profile.
fn value_table(values: &[PolicyValue]) -> String {
    let is_named =
        |key: &str| ["profiles.", "tools.", "secrets."].iter().any(|section| key.starts_with(section));
    let rows = values.iter().filter(|value| value.value.is_some() || !is_named(&value.key)).map(|value| {
        let PolicyValue { key, value, origin } = value;
        let text = value.as_ref().and_then(|value| serde_json::to_string(value).ok());
        [key.clone(), text.unwrap_or_else(|| "–".to_owned()), origin.to_string()]
    });
    table::render(["KEY", "VALUE", "FROM"], rows)
}
