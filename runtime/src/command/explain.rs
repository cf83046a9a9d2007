//! `portcullis explain`: shows how the policy would answer a call, without making the call.

use std::{fmt::Write as _, process::ExitCode};

use portcullis_tools::{
    ExplainRequest, ExplainedTool, Explainer, Explanation, LocatedRule, PolicyFiles, RecordedDecision,
    RecordedExplanation, explain_row,
    policy::{Approval, SourceLocation, WorkspaceSecurityPolicy},
};
use portcullis_types::{RunnerBootstrapEnvelope, ToolErrorKind};
use tokio::runtime::Runtime;

use crate::{
    cli::{CommonOptions, ExplainOptions},
    error::CliError,
    output::{json, stream, table, text},
    setup, tool_file,
};

pub(crate) fn run(common: &CommonOptions, options: ExplainOptions) -> Result<ExitCode, CliError> {
    let ExplainOptions {
        tool,
        subject,
        write,
        agent,
        after,
        sandbox,
        row,
        all_tools,
        json: as_json,
        modules,
    } = options;
    let mut envelope = setup::envelope_with(common, modules)?;
    if let Some(tier) = sandbox {
        envelope.sandbox_tier = tier;
    }
    if let Some(row) = row {
        let recorded = explain_row(&envelope, row)?;
        if as_json {
            json::write_output(&recorded)?;
        } else {
            stream::write_output(&shown_recorded(&recorded))?;
        }
        return Ok(exit_code(recorded.explanation.verdict));
    }
    // clap requires the tool unless a row is given.
    let tool = tool.unwrap_or_default();
    let files = setup::policy_files(&envelope)?;
    let runtime = setup::runtime()?;
    let explainer = runtime.block_on(Explainer::new(&envelope, &files))?;
    let subject = if all_tools { Some(tool.as_str()) } else { subject.as_deref() };
    let request = ExplainRequest { subject, writes: write, agent: &agent, after: &after };
    if all_tools {
        let tools = all_tools_of(&runtime, &envelope, &files, explainer.policy())?;
        let explanations = explainer.explain_all(&tools, &request);
        if as_json {
            json::write_output(&explanations)?;
        } else {
            stream::write_output(&listing(&explanations))?;
        }
        let is_reached = explanations.iter().any(|explanation| explanation.verdict != Approval::Deny);
        return Ok(if is_reached { ExitCode::SUCCESS } else { denied() });
    }
    let explained = match ExplainedTool::shipped(&tool) {
        Some(explained) => explained,
        None if has_only_shipped_tools(&envelope, explainer.policy()) => {
            return Err(CliError::NoTool { name: tool });
        }
        // Only a module knows the tool's declarations, so load the modules.
        None => {
            let registry = runtime.block_on(setup::describing_registry(&envelope, &files))?;
            let registered = registry.get(&tool).ok_or_else(|| CliError::NoTool { name: tool.clone() })?;
            ExplainedTool::from(&*registered)
        }
    };
    let explanation =
        explainer.explain(&explained, &request).map_err(|source| CliError::Explain { source })?;
    if as_json {
        json::write_output(&explanation)?;
    } else {
        stream::write_output(&render(&explanation))?;
    }
    Ok(exit_code(explanation.verdict))
}

/// Returns whether there are neither modules nor configured tools.
fn has_only_shipped_tools(envelope: &RunnerBootstrapEnvelope, policy: &WorkspaceSecurityPolicy) -> bool {
    policy.modules_dir().is_none() && envelope.modules.is_empty() && !tool_file::have_any()
}

/// Returns all tools that a call can name.
fn all_tools_of(
    runtime: &Runtime,
    envelope: &RunnerBootstrapEnvelope,
    files: &PolicyFiles,
    policy: &WorkspaceSecurityPolicy,
) -> Result<Vec<ExplainedTool>, CliError> {
    if has_only_shipped_tools(envelope, policy) {
        return Ok(ExplainedTool::all_shipped(policy).collect());
    }
    // Only a module knows the declarations of its tools, so load the modules. The registry also has the
    // configured tools.
    let registry = runtime.block_on(setup::describing_registry(envelope, files))?;
    Ok(registry.tools().iter().map(|tool| ExplainedTool::from(&**tool)).collect())
}

fn exit_code(verdict: Approval) -> ExitCode {
    if verdict == Approval::Deny { denied() } else { ExitCode::SUCCESS }
}

fn denied() -> ExitCode {
    ExitCode::from(ToolErrorKind::Denied.exit_code())
}

/// Formats one explanation for people.
fn render(explanation: &Explanation) -> String {
    let Explanation {
        tool, subject, verdict, code, message, hint, profile, chain, nearest, unchecked, ..
    } = explanation;
    let mut out = verdict.as_str().to_uppercase();
    if let Some(code) = code {
        let _ = write!(out, "  {code}");
    }
    out.push('\n');
    let mut add = |name: &str, value: &str| {
        let _ = writeln!(out, "  {name:<8} {}", text::inline(value));
    };
    add("tool", tool);
    add("profile", profile);
    if let Some(subject) = subject {
        add("subject", subject);
    }
    for rule in chain {
        add("rule", &line(rule));
    }
    for (name, value) in [("message", message), ("hint", hint)] {
        if let Some(value) = value {
            add(name, value);
        }
    }
    for rule in nearest {
        add("nearest", &line(rule));
    }
    for part in unchecked {
        add("not seen", part);
    }
    out
}

/// Formats the explanation of a recorded call, with the content of its row.
fn shown_recorded(recorded: &RecordedExplanation) -> String {
    let RecordedExplanation { explanation, recorded } = recorded;
    let RecordedDecision {
        seq,
        time,
        call_id,
        agent,
        decision,
        code,
        rule,
        approval,
        approver,
        policy_digest,
        verdict,
        agrees,
    } = recorded;
    let mut out = render(explanation);
    let mut add = |value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  recorded {}", text::inline(&value));
    };
    let agent = agent.as_ref().map_or_else(String::new, |agent| format!(" of {agent}"));
    add(format!("row {seq}, {time}, call {call_id}{agent}, policy {}", &policy_digest[..12]));
    let code = code.as_ref().map_or_else(String::new, |code| format!(" {code}"));
    let rule = rule.as_ref().map_or_else(String::new, |rule| format!(" by {rule}"));
    add(format!("{decision}{code}{rule}"));
    if let Some(approval) = approval {
        let by = approver.as_ref().map_or_else(String::new, |approver| {
            let name = approver.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
            let uid = approver.uid.map_or_else(String::new, |uid| format!(", user {uid}"));
            format!(" by {}{name}{uid}", approver.by)
        });
        add(format!("approval {approval}{by}"));
    }
    add(if *agrees {
        format!("the row agrees: {verdict}")
    } else {
        format!(
            "the row differs: {verdict}; symlinks, hooks, callers and approvers can change a decision that is based on names alone"
        )
    });
    out
}

/// Formats a rule of the chain in one line.
fn line(rule: &LocatedRule) -> String {
    let LocatedRule { rule, finding, location } = rule;
    format!("{rule}  {finding}  ({})", origin(location.as_ref()))
}

fn origin(location: Option<&SourceLocation>) -> String {
    location.map_or_else(|| "default".to_owned(), ToString::to_string)
}

/// Formats the answers of all tools as a table.
fn listing(explanations: &[Explanation]) -> String {
    let rows = explanations.iter().map(|explanation| {
        [
            explanation.tool.clone(),
            explanation.verdict.to_string(),
            explanation.code.map_or_else(|| "–".to_owned(), |code| code.to_string()),
            explanation.rule.clone(),
            origin(explanation.location.as_ref()),
        ]
    });
    table::render(["TOOL", "ANSWER", "CODE", "RULE", "FROM"], rows)
}
