//! The findings of `doctor`, as text for people.

use std::fmt::Write as _;

use portcullis_tools::confine::LayerStatus;

use super::findings::{Findings, HardLinkFinding, LayerFinding, ProvenAttempt, ShellFinding, ToolCount};
use crate::output::text;

/// Formats all findings.
pub(super) fn render(findings: &Findings) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_findings(&mut out, findings);
    out
}

/// Formats the findings in a few lines, for the end of the demonstration.
pub(super) fn summary(findings: &Findings) -> String {
    let mut out = String::new();
    for layer in &findings.layers {
        let proof = if layer.proven { ", proven" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {:<12} {}{proof}", layer.layer.as_str(), status(&layer.status));
    }
    let shell = findings.shell.as_ref();
    let posture = shell.and_then(|shell| shell.posture.as_deref().or(shell.reason.as_deref()));
    let _ = writeln!(out, "  {:<12} {}", "shell", text::for_terminal(posture.unwrap_or("none")));
    out.push_str(summary_line(findings));
    out
}

fn summary_line(findings: &Findings) -> &'static str {
    if findings.ok {
        "\nAll that the policy requires is enforced and proven.\n"
    } else {
        "\nNot all that the policy requires is enforced and proven.\n"
    }
}

fn write_links(out: &mut String, links: &HardLinkFinding) -> std::fmt::Result {
    if links.found.is_empty() && !links.has_more && !links.is_private_exposed && links.unknown.is_none() {
        return Ok(());
    }
    writeln!(out, "\nhard links out of a mount, or between two")?;
    if links.is_private_exposed {
        writeln!(out, "  private files with a second name elsewhere; no command runs until it is removed:")?;
        for name in &links.private {
            writeln!(out, "    {}", text::inline(name))?;
        }
        if links.private_left_out > 0 {
            writeln!(out, "    and {} more files", links.private_left_out)?;
        }
    }
    if let Some(unknown) = &links.unknown {
        writeln!(out, "  no command runs, since private files could have a name elsewhere: {unknown}")?;
    }
    for link in &links.found {
        writeln!(out, "  {}", text::inline(link))?;
    }
    if links.left_out > 0 {
        writeln!(out, "  and {} more files", links.left_out)?;
    }
    if links.has_more {
        writeln!(out, "  the mounts have more files than were examined")?;
    }
    Ok(())
}

fn write_findings(out: &mut String, findings: &Findings) -> std::fmt::Result {
    let kernel = &findings.kernel;
    writeln!(out, "portcullis {} on Linux {}, {}", findings.version, kernel.release, kernel.arch)?;

    writeln!(out, "\nlayers, as tested by a thread before and after its confinement")?;
    write_layers(out, &findings.layers)?;

    // A part that the policy does not use is not tested, so it has no lines.
    if let Some(egress) = &findings.egress {
        writeln!(
            out,
            "\nrequests, as tested by a thread of the HTTP client before and after its confinement"
        )?;
        if let Some(reason) = &egress.reason {
            writeln!(out, "  {:<12} not possible: {}", "egress", text::for_terminal(reason))?;
        }
        if let Some(proxy) = &egress.proxy {
            writeln!(out, "  {:<12} {proxy}, which resolves the names of all connections", "proxy")?;
        }
        write_layers(out, &egress.layers)?;
    }

    if let Some(shell) = &findings.shell {
        write_shell(out, shell)?;
    }

    writeln!(out, "\nkernel")?;
    let landlock = kernel.landlock_abi.map_or("none".to_owned(), |abi| format!("ABI {abi}"));
    writeln!(out, "  {:<12} {landlock}", "landlock")?;
    let available = |is_available: bool| if is_available { "available" } else { "not available" };
    writeln!(out, "  {:<12} {}", "seccomp", available(kernel.seccomp))?;
    writeln!(out, "  {:<12} {}", "pagemap_scan", available(kernel.pagemap_scan))?;

    if let Some(links) = &findings.hard_links {
        write_links(out, links)?;
    }

    write_locations(out, findings)?;

    if !findings.secrets.is_empty() {
        writeln!(out, "\nsecrets, which the host attaches to requests")?;
    }
    for secret in &findings.secrets {
        writeln!(out, "  {:<12} {}", secret.name, text::inline(&secret.audience))?;
        if let Some(problem) = &secret.problem {
            writeln!(out, "  {:<12} cannot be used: {}", "", text::inline(problem))?;
        }
    }

    if !findings.missing.is_empty() {
        writeln!(out, "\nmissing")?;
        for missing in &findings.missing {
            let required = if missing.required { " (required)" } else { "" };
            writeln!(out, "  {}{required}: {}", missing.what, missing.remedy)?;
        }
    }
    if let Some(error) = &findings.error {
        writeln!(out, "\nthe tools cannot start: {}", text::for_terminal(error))?;
    }
    out.write_str(summary_line(findings))
}

fn write_layers(out: &mut String, layers: &[LayerFinding]) -> std::fmt::Result {
    for layer in layers {
        let required = if layer.required { "required" } else { "not required" };
        writeln!(out, "  {:<12} {} ({required})", layer.layer.as_str(), status(&layer.status))?;
        for evidence in &layer.evidence {
            let (before, after) = (evidence.before.to_string(), evidence.after.to_string());
            writeln!(out, "    {:<48} {}", evidence.probe, outcome_change(&before, &after))?;
        }
    }
    Ok(())
}

fn write_locations(out: &mut String, findings: &Findings) -> std::fmt::Result {
    let policy = &findings.policy;
    writeln!(out, "\nplaces")?;
    let mut write_entry = |name: &str, value: &str| writeln!(out, "  {name:<12} {}", text::inline(value));
    if let Some(project) = &findings.project {
        write_entry("project", &format!("{}, {}", project.name, project.folder.display()))?;
    }
    write_entry("workspace", &findings.workspace.display().to_string())?;
    write_entry("state", &findings.state.display().to_string())?;
    write_entry("policy", &policy.source)?;
    if let Some(overlay) = &policy.overlay {
        write_entry("overlay", overlay)?;
    }
    write_entry("digest", &policy.digest)?;
    if let Some(tools) = &findings.tools {
        let ToolCount { wasm, egress, shell, native_unconfined, .. } = *tools;
        let mut counts =
            format!("{wasm} wasm, {egress} egress, {shell} shell, {native_unconfined} native, unconfined");
        if tools.quarantined + tools.refused_modules > 0 {
            let (quarantined, refused) = (tools.quarantined, tools.refused_modules);
            let _ = write!(counts, "; {quarantined} quarantined, {refused} modules refused");
        }
        write_entry("tools", &counts)?;
    }
    let audit = findings.audit.as_ref().map_or("none yet", |audit| audit.report.as_str());
    for (index, report) in audit.lines().enumerate() {
        write_entry(if index == 0 { "audit log" } else { "" }, report)?;
    }
    Ok(())
}

fn write_shell(out: &mut String, shell: &ShellFinding) -> std::fmt::Result {
    writeln!(out, "\nshell, as tested by a session before and after its confinement")?;
    if let Some(posture) = &shell.posture {
        let least = shell.least.as_deref().unwrap_or("none");
        writeln!(out, "  {:<12} {} (at least {least} is required)", "posture", text::inline(posture))?;
    }
    if let Some(reason) = &shell.reason {
        let word = if shell.wanted { "missing" } else { "off" };
        writeln!(out, "  {:<12} {word}: {}", "posture", text::for_terminal(reason))?;
    }
    if shell.reason.is_none() {
        let network = match &shell.network_absence {
            Some(absence) => format!("missing: {absence}"),
            None if shell.hosts.is_empty() => "none".to_owned(),
            None => format!("TLS to {}", shell.hosts.join(", ")),
        };
        writeln!(out, "  {:<12} {}", "network", text::inline(&network))?;
    }
    for layer in &shell.layers {
        let reason = if layer.reason.is_empty() { String::new() } else { format!(": {}", layer.reason) };
        let line = format!("{}{reason}", layer.status);
        writeln!(out, "  {:<12} {}", text::inline(&layer.layer), text::inline(&line))?;
        for ProvenAttempt { attempt, before, after } in &layer.evidence {
            let line = format!("{attempt:<48} {}", outcome_change(before, after));
            writeln!(out, "    {}", text::inline(&line))?;
        }
    }
    Ok(())
}

/// Formats an attempt's outcome before and after confinement. If the attempt was already refused before
/// confinement, the text says that the refusal proves nothing.
fn outcome_change(before: &str, after: &str) -> String {
    if before == after {
        format!("{before} before as well: already refused by something else")
    } else {
        format!("{before} → {after}")
    }
}

fn status(status: &LayerStatus) -> String {
    match status {
        LayerStatus::Enforced => "enforced".to_owned(),
        LayerStatus::Partial { missing } => format!("partial, without {}", missing.join(", ")),
        LayerStatus::Waived => "waived by the policy".to_owned(),
        LayerStatus::Missing { reason } => format!("missing: {reason}"),
    }
}
