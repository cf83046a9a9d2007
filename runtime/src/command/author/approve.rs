//! `portcullis tool approve`: pins a module's tool in its current state.

use std::{fmt::Write as _, process::ExitCode};

use portcullis_tools::{ToolRegistry, modules::ModuleApproval, policy::Approval};

use crate::{
    cli::{ApproveOptions, CLI_ID, CommonOptions},
    command::tools,
    error::CliError,
    output::{stream, table, text},
    setup, sidecar,
};

/// Shows what an approval pins, then pins it.
pub(crate) fn run(common: &CommonOptions, options: ApproveOptions) -> Result<ExitCode, CliError> {
    let envelope = setup::envelope_with(common, options.modules)?;
    let runtime = setup::runtime()?;
    let registry = runtime.block_on(setup::registry(&envelope, sidecar::shell_source(common)))?;
    let approval = registry.approval_of(&options.tool)?;
    let description = describe_approval(&registry, &approval);
    if options.dry_run {
        stream::write_output(&format!("{description}\nnothing is pinned\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    approval.pin(CLI_ID)?;
    let lock = approval.lock().display().to_string();
    stream::write_output(&format!("{description}\napproved: pinned in {}\n", text::inline(&lock)))?;
    Ok(ExitCode::SUCCESS)
}

/// Describes the tool, its declaration beside the policy's grant, and the changes since the last approval.
fn describe_approval(registry: &ToolRegistry, approval: &ModuleApproval<'_>) -> String {
    let tool = approval.tool();
    let mut out = String::new();
    let mut add_fact = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<8} {}", text::inline(value));
    };
    add_fact("tool", &tool.decl().name);
    add_fact("module", tool.module_name().unwrap_or_default());
    add_fact("sha256", &tool.module().map(|module| module.digest().to_string()).unwrap_or_default());
    out.push('\n');
    out.push_str(&compare_with_policy(registry, approval));
    let changes = approval.changes();
    let _ = match (approval.previous_pin(), changes.is_empty()) {
        (None, _) => writeln!(out, "\nnothing was approved under this name before"),
        (Some(_), true) => writeln!(out, "\nunchanged since it was approved"),
        (Some(_), false) => writeln!(out, "\nchanged since it was approved"),
    };
    for change in changes {
        let [before, now] = [&change.before, &change.now].map(|property| {
            if has_several_lines(property) {
                format!("\n{}", split_into_lines(property, "      | ").trim_end())
            } else {
                text::inline(property)
            }
        });
        let _ = writeln!(out, "  {}\n    was {before}\n    is  {now}", text::inline(&change.what));
    }
    out
}

/// The escaped form of a line end in a property.
const ESCAPED_NEWLINE: &str = "\\u{a}";

/// The maximum length of a property in the table, in characters. A longer property is shown below the table.
const MAX_CELL_CHARS: usize = 80;

fn has_several_lines(property: &str) -> bool {
    property.contains(ESCAPED_NEWLINE)
}

/// Splits a property into several lines, each behind a margin.
fn split_into_lines(property: &str, margin: &str) -> String {
    split_into_lines_of_width(property, margin, stream::stdout_columns())
}

fn split_into_lines_of_width(property: &str, margin: &str, columns: Option<usize>) -> String {
    let mut lines = String::with_capacity(property.len());
    for (index, part) in property.split(ESCAPED_NEWLINE).enumerate() {
        if index > 0 {
            // After a further backslash, this is the author's own text with its backslash escaped, not a line end.
            lines.push_str(if lines.ends_with('\\') { ESCAPED_NEWLINE } else { "\n" });
        }
        lines.push_str(part);
    }
    text::behind_margin(&lines, margin, columns)
}

/// Compares the tool's declaration with the policy's grant.
fn compare_with_policy(registry: &ToolRegistry, approval: &ModuleApproval<'_>) -> String {
    let assigned = registry.policy().describe(approval.tool().descriptor());
    let policy_value = |property: &str| match property {
        "tier" => assigned.tier.to_string(),
        "profile" => format!("{} ({})", assigned.profile, tools::mounts(registry, &assigned.profile)),
        "approval" => match assigned.approval {
            Approval::Allow => "allow: calls run unasked".to_owned(),
            Approval::Ask => "ask: each call needs an approval".to_owned(),
            Approval::Deny => "deny: no call runs".to_owned(),
        },
        "timeout" => format!("{} ms", assigned.timeout.as_millis()),
        "hosts" => match tools::hosts(registry, &assigned.profile) {
            host_list if host_list.is_empty() => "none: its profile has no hosts".to_owned(),
            host_list => host_list,
        },
        _ => String::new(),
    };
    let properties = approval.declared().properties();
    let is_long = |property: &str| has_several_lines(property) || property.chars().count() > MAX_CELL_CHARS;
    let rows = properties.iter().map(|(name, property)| {
        let property = if is_long(property) { "see below".to_owned() } else { text::inline(property) };
        [(*name).to_owned(), property, policy_value(name)]
    });
    let mut out = table::render(["", "IT DECLARES", "THE POLICY GIVES"], rows);
    for (name, property) in properties.iter().filter(|(_, property)| is_long(property)) {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n{name}\n{}", split_into_lines(property, "  | "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_of_several_lines_is_shown_as_lines() {
        let property = "Counts lines.\\u{a}\\u{a}It \\u{1b}[2J clears nothing.";
        assert!(has_several_lines(property) && !has_several_lines("one line"));
        let rendered = split_into_lines_of_width(property, "  | ", None);
        assert_eq!(rendered, "  | Counts lines.\n  |\n  | It \\u{1b}[2J clears nothing.\n");
        // Text by the author that contains these characters is not split.
        assert_eq!(split_into_lines_of_width(r"a\\u{a}b", "| ", None), "| a\\\\u{a}b\n");
    }
}
