//! Renders a shell as a section of a policy file, and as a line of the summary.

use std::fmt::{self, Write};

use crate::{
    HostPath, Operator, ShellPolicy, Toolchain,
    render::{quote, quoted, quoted_texts, shown_mounts},
};

use super::ShellOrAbsence;

/// Writes `[shell]`.
pub(crate) fn write_shell(out: &mut String, shell: &ShellOrAbsence) -> fmt::Result {
    writeln!(out, "\n[shell]")?;
    let Ok(shell) = shell else { return writeln!(out, "enabled = false") };
    // No `..`, so that a new field cannot be forgotten here.
    let ShellPolicy {
        posture,
        mounts,
        timeout,
        memory,
        processes,
        file_size,
        output,
        environment,
        toolchain,
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
    write_toolchain(out, toolchain)?;
    if !hosts.is_empty() {
        writeln!(
            out,
            "hosts = [{}]",
            quoted_texts(&hosts.iter().map(ToString::to_string).collect::<Vec<_>>())
        )?;
    }
    // The section has room for one list. `write_shell_demands` writes the others.
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
    let unasked: Vec<String> = commands.allowed_commands().collect();
    if !unasked.is_empty() {
        writeln!(out, "unasked = [{}]", quoted_texts(&unasked))?;
    }
    Ok(())
}

fn write_toolchain(out: &mut String, toolchain: &Toolchain) -> fmt::Result {
    let Toolchain { read, caches, path, variables } = toolchain;
    if !read.is_empty() {
        writeln!(out, "read = [{}]", quoted_texts(&texts(read)))?;
    }
    if !caches.is_empty() {
        writeln!(out, "caches = [{}]", quoted_texts(&texts(caches)))?;
    }
    if !path.is_empty() {
        writeln!(out, "path = [{}]", quoted_texts(&texts(path)))?;
    }
    if !variables.is_empty() {
        let variables: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name} = {}", quote(value))).collect();
        writeln!(out, "variables = {{ {} }}", variables.join(", "))?;
    }
    Ok(())
}

fn texts<'a>(paths: impl IntoIterator<Item = &'a HostPath>) -> Vec<String> {
    paths.into_iter().map(ToString::to_string).collect()
}

/// Writes the lists of allowed commands after the first. They come from reductions, and a command needs a covering rule
/// in every list. The second list becomes a section of a sandbox tier; a section has room for only one list, so further
/// lists become comments.
pub(crate) fn write_shell_demands(out: &mut String, sandbox: &str, shell: &ShellOrAbsence) -> fmt::Result {
    let Ok(shell) = shell else { return Ok(()) };
    for (index, list) in shell.commands.allowed().skip(1).enumerate() {
        let line_start =
            if index == 0 { format!("\n[sandbox.{sandbox}.shell]\n") } else { "# and: ".to_owned() };
        writeln!(out, "{line_start}allow = [{}]", quoted_texts(&list))?;
    }
    Ok(())
}

/// Formats the summary of a shell in one line.
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
