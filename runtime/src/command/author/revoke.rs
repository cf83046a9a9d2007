//! `portcullis tool revoke`: withdraws the approval of a tool's name.

use std::process::ExitCode;

use portcullis_tools::policy::PinStatus;

use crate::{
    cli::{CLI_ID, CommonOptions, RevokeOptions},
    error::CliError,
    output::{stream, text},
    setup, sidecar,
};

/// Withdraws the pin and explains the effect.
pub(crate) fn run(common: &CommonOptions, options: &RevokeOptions) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope(common)?;
    let runtime = setup::runtime()?;
    let registry = runtime.block_on(setup::registry(&envelope, sidecar::shell_source(common)))?;
    let pin_status = registry.get(&options.tool).map(|tool| tool.descriptor().pin_status);
    let pin = registry.revoke(&options.tool, CLI_ID)?;
    let name = text::inline(&options.tool);
    let now = match pin_status {
        None => "no module has a tool of this name now".to_owned(),
        Some(PinStatus::Quarantined) => format!(
            "the quarantine was lifted: from now on only the policy governs its calls. To deny them, write `enabled = false` under `[tools.{name}]` in the policy"
        ),
        Some(PinStatus::Approved | PinStatus::Unpinned) => {
            "only the policy governs its calls, and a change no longer quarantines it".to_owned()
        }
    };
    stream::write_output(&format!(
        "tool     {name}\nmodule   {}\nsha256   {}\n\nrevoked: {now}\n",
        text::inline(&pin.module),
        pin.module_sha256
    ))?;
    Ok(ExitCode::SUCCESS)
}
