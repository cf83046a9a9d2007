//! The shell of the listed tools, with the posture that the sidecar reports and proves.

use std::fmt::Write as _;

use portcullis_tools::{
    ToolRegistry,
    shell::{SHELL_EXEC, ShellBackend, SidecarError, SidecarHealth},
};

use crate::output::text;

/// The state of a registry's shell.
#[derive(Debug)]
pub(crate) enum ShellState {
    /// No tool runs commands.
    Off(String),
    /// The sidecar's current report.
    On(SidecarHealth),
    /// A shell is configured but unavailable.
    Lost(SidecarError),
}

impl ShellState {
    /// Asks the sidecar for its health. A private sidecar is started first.
    pub(crate) async fn query(registry: &ToolRegistry) -> Self {
        let tool = registry.get(SHELL_EXEC);
        let callable = tool.as_ref().map(|tool| registry.assignment(tool));
        let sidecar = match tool.as_ref().and_then(|tool| tool.shell_backend()) {
            None => return Self::Off("no tool runs commands".to_owned()),
            Some(ShellBackend::Disabled { reason }) => return Self::Off(reason.clone()),
            Some(ShellBackend::Session(sidecar) | ShellBackend::Host(sidecar)) => sidecar,
        };
        if let Some(Err(denial)) = callable {
            return Self::Off(denial.to_string());
        }
        match sidecar.health().await {
            Ok(health) => Self::On(health),
            Err(error) => Self::Lost(error),
        }
    }
}

/// Formats the lines about the shell below the table.
pub(super) async fn describe(registry: &ToolRegistry) -> String {
    let mut out = String::from("\nshell\n");
    // Writing to a string cannot fail.
    let _ = match ShellState::query(registry).await {
        ShellState::Off(reason) => writeln!(out, "  off: {}", text::inline(&reason)),
        ShellState::Lost(error) => {
            writeln!(out, "  unavailable: {}", text::in_one_line(&portcullis_types::error_chain(&error)))
        }
        ShellState::On(health) => write_health(&mut out, registry, &health),
    };
    out
}

fn write_health(out: &mut String, registry: &ToolRegistry, health: &SidecarHealth) -> std::fmt::Result {
    writeln!(out, "  posture  {}", text::inline(&health.summary))?;
    let mounts: Vec<String> =
        health.mounts.iter().map(|(name, access)| format!("/{name} {access}")).collect();
    writeln!(out, "  mounts   {}", text::inline(&mounts.join(", ")))?;
    match &health.network_absence {
        Some(absence) => writeln!(out, "  network  none: {}", text::inline(absence))?,
        None if health.hosts.is_empty() => {}
        None => writeln!(out, "  network  TLS to {}", text::inline(&health.hosts.join(", ")))?,
    }
    if let Some(shell) = registry.policy().shell() {
        writeln!(
            out,
            "  limits   for a command: {}, {} of memory, {} processes, files up to {}, {} of output",
            humantime::format_duration(shell.timeout),
            shell.memory,
            shell.processes,
            shell.file_size,
            shell.output,
        )?;
    }
    Ok(())
}
