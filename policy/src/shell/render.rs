//! Renders a shell as a section of a policy file, and as a line of the summary.

use std::fmt::{self, Write};

use crate::{
    Operator, ShellPolicy,
    render::{quoted, quoted_texts, shown_mounts},
};

use super::ShellOrAbsence;

/// Writes `[shell]`.
pub(crate) fn write_shell(out: &mut String, shell: &ShellOrAbsence) -> fmt::Result {
    writeln!(out, "\n[shell]")?;
    let Ok(shell) = shell else { return writeln!(out, "enabled = false") };
    let ShellPolicy {
        posture,
        mounts,
        timeout,
        memory,
        processes,
        file_size,
        output,
        environment,
        hosts,
        commands,
    } = shell;
    writeln!(out, "enabled = true\nposture = \"{posture}\"")?;
    let mounts: Vec<String> =
        mounts.iter().map(|mount| format!("{} = \"{}\"", mount.name, mount.access)).collect();
    if !mounts.is_empty() {
        writeln!(out, "mounts = {{ {} }}", mounts.join(", "))?;
    }
    writeln!(out, "timeout = \"{}\"", humantime::format_duration(*timeout))?;
    writeln!(out, "memory = \"{memory}\"\nprocesses = {processes}")?;
    writeln!(out, "file_size = \"{file_size}\"\noutput = \"{output}\"")?;
    writeln!(out, "environment = [{}]", quoted(environment.iter().map(|name| name.as_str())))?;
    if !hosts.is_empty() {
        writeln!(
            out,
            "hosts = [{}]",
            quoted_texts(&hosts.iter().map(ToString::to_string).collect::<Vec<_>>())
        )?;
    }
    if let Some(list) = commands.allowed().next() {
        writeln!(out, "allow = [{}]", quoted_texts(&list))?;
    }
    writeln!(out, "deny = [{}]", quoted_texts(&commands.denied().collect::<Vec<_>>()))?;
    if let Some(operators) = commands.operators() {
        writeln!(
            out,
            "operators = [{}]",
            quoted(operators.iter().map(|operator| Operator::as_str(*operator)))
        )?;
    }
    Ok(())
}

/// Writes the lists of allowed commands after the first, which come from reductions: a command must be
/// covered by every list. The second becomes a reduction of a sandbox tier. A section has only one list, so
/// any further one is a comment.
pub(crate) fn write_shell_demands(out: &mut String, sandbox: &str, shell: &ShellOrAbsence) -> fmt::Result {
    let Ok(shell) = shell else { return Ok(()) };
    for (index, list) in shell.commands.allowed().skip(1).enumerate() {
        let before = if index == 0 { format!("\n[sandbox.{sandbox}.shell]\n") } else { "# and: ".to_owned() };
        writeln!(out, "{before}allow = [{}]", quoted_texts(&list))?;
    }
    Ok(())
}

/// The summary of a shell, one line.
pub(crate) fn shell_summary(shell: &ShellOrAbsence) -> String {
    let Ok(shell) = shell else { return "no shell".to_owned() };
    let timeout = humantime::format_duration(shell.timeout);
    let mounts = shown_mounts(shell.mounts.iter().map(|mount| (&mount.name, &mount.access)));
    let ShellPolicy { posture, hosts, commands, .. } = shell;
    let commands = if commands.is_empty() { "all commands" } else { "commands by rules" };
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let hosts = if hosts.is_empty() { String::new() } else { format!(", {} if strong", hosts.join(", ")) };
    format!("{mounts}, at least {posture}, timeout {timeout}, {commands}{hosts}")
}
