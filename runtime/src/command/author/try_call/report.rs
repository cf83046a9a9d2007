//! The report on a tried call for the tool's author: the answer as `call` shows it, and around it the grant, the
//! outcome and the refusal.

use std::{fmt::Write as _, process::ExitCode};

use portcullis_tools::{RegisteredTool, ToolRegistry, ToolResult, audit::Confinement};
use portcullis_types::{ToolErrorKind, ToolOutcome};
use serde::Serialize;
use serde_json::Value;

use super::{
    allow::AllowLines,
    explain::{RefusalDetails, Remedy},
};
use crate::{
    command::{call, tools},
    error::CliError,
    output::{
        diagnostics,
        json::{self, CallAnswer},
        stream, text,
    },
};

#[derive(Debug)]
pub(super) struct TriedCall {
    pub(super) result: ToolResult,
    /// The policy's grant. `None` for a native call, which nothing confines.
    pub(super) grant: Option<GrantReport>,
    pub(super) refusal: Option<RefusalDetails>,
    /// The tool's standard error. `None` for a native call, whose standard error is shown directly.
    pub(super) stderr: Option<String>,
}

/// The policy's grant to the tool.
#[derive(Debug, Serialize)]
pub(super) struct GrantReport {
    profile: String,
    mounts: String,
    approval: String,
    tier: String,
    timeout_ms: u64,
    memory_bytes: u64,
}

impl GrantReport {
    pub(super) fn new(registry: &ToolRegistry, tool: &RegisteredTool) -> Self {
        let assigned = registry.policy().describe(tool.descriptor());
        Self {
            profile: assigned.profile.to_string(),
            mounts: tools::mounts(registry, &assigned.profile),
            approval: assigned.approval.to_string(),
            tier: assigned.tier.to_string(),
            timeout_ms: u64::try_from(assigned.timeout.as_millis()).unwrap_or(u64::MAX),
            memory_bytes: assigned.memory.0,
        }
    }
}

/// The answer for programs: the answer of `call --json`, with grant and refusal.
#[derive(Serialize)]
struct JsonAnswer<'a> {
    #[serde(flatten)]
    call: CallAnswer<'a>,
    confinement: &'static str,
    grant: Option<&'a GrantReport>,
    refusal: Option<JsonRefusal<'a>>,
}

#[derive(Serialize)]
struct JsonRefusal<'a> {
    code: &'a str,
    rule: Option<&'a str>,
    subject: Option<&'a str>,
    allow: Option<JsonLines<'a>>,
    /// The further sections, if the call needs lines in several sections.
    allow_also: Vec<JsonLines<'a>>,
    advice: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonLines<'a> {
    policy: &'a str,
    section: &'a str,
    section_exists: bool,
    lines: &'a [String],
}

/// Shows the report and returns the exit code.
pub(super) fn show(attempt: &TriedCall, run: &str, as_json: bool) -> Result<ExitCode, CliError> {
    let result = &attempt.result;
    let confinement = match attempt.grant {
        Some(_) => Confinement::Wasm,
        None => Confinement::Native,
    };
    if as_json {
        json::write_output(&JsonAnswer {
            call: CallAnswer::new(result).with_stderr(attempt.stderr.as_deref()),
            confinement: confinement.as_str(),
            grant: attempt.grant.as_ref(),
            refusal: attempt.refusal.as_ref().map(json_refusal),
        })?;
        return Ok(call::exit_code(&result.outcome));
    }
    stream::write_stderr(&before(attempt, confinement));
    call::show(&result.outcome)?;
    stream::write_stderr(&result_lines(attempt));
    if let Some(id) = result.details["output_id"].as_str() {
        stream::write_stderr(&call::rest_of(id, run, result.original_bytes));
    }
    Ok(call::exit_code(&result.outcome))
}

fn json_refusal<'a>(refusal: &'a RefusalDetails) -> JsonRefusal<'a> {
    let (mut allow, advice): (Vec<_>, _) = match &refusal.remedy {
        Remedy::Lines { lines, policy, .. } => {
            let json = |lines: &'a AllowLines| {
                let (section, section_exists) = (lines.section.as_str(), lines.section_exists);
                JsonLines { policy, section, section_exists, lines: &lines.lines }
            };
            (lines.iter().map(json).collect(), None)
        }
        Remedy::Advice(advice) => (Vec::new(), Some(advice.as_str())),
    };
    let allow_also = allow.split_off(allow.len().min(1));
    let allow = allow.pop();
    JsonRefusal {
        code: &refusal.code,
        rule: refusal.rule.as_deref(),
        subject: refusal.subject.as_deref(),
        allow,
        allow_also,
        advice,
    }
}

/// Formats the lines before the answer.
fn before(attempt: &TriedCall, confinement: Confinement) -> String {
    let mut out = String::new();
    line(&mut out, "tool", &format!("{} ({})", attempt.result.tool, confinement.as_str()));
    match &attempt.grant {
        Some(grant) => {
            line(
                &mut out,
                "grant",
                &format!(
                    "profile {} ({}), approval {}, tier {}",
                    grant.profile, grant.mounts, grant.approval, grant.tier
                ),
            );
            line(
                &mut out,
                "limits",
                &format!("{} ms, {}", grant.timeout_ms, text::bytes(grant.memory_bytes)),
            );
        }
        None => line(
            &mut out,
            "grant",
            "UNCONFINED: it may do all that you may. No policy was asked, and the audit log has no row of it",
        ),
    }
    out
}

/// Formats the lines after the answer.
fn result_lines(attempt: &TriedCall) -> String {
    let result = &attempt.result;
    let mut out = String::new();
    let outcome = match &result.outcome {
        ToolOutcome::Output(_) if result.truncated => "ok, cut",
        ToolOutcome::Output(_) => "ok",
        ToolOutcome::Pending { .. } => "pending",
        ToolOutcome::Error(error) => error.kind().as_str(),
    };
    let micros = result.duration.as_micros();
    line(&mut out, "result", &format!("{outcome} in {}.{} ms", micros / 1000, micros % 1000 / 100));
    if let Some(output) = result.outcome.output()
        && let Some(structured) = &output.structured
    {
        line(&mut out, "data", &structured.to_string());
    }
    if !matches!(&result.details, Value::Null) && result.details != Value::Object(serde_json::Map::new()) {
        line(&mut out, "details", &result.details.to_string());
    }
    if let Some(error) = result.outcome.error()
        && error.kind() != ToolErrorKind::Denied
    {
        line(&mut out, "code", error.code());
        // The author is the operator here, and may read the operator's detail.
        if let Some(detail) = error.operator_detail() {
            line(&mut out, "cause", detail);
        }
    }
    if let Some(stderr) = &attempt.stderr {
        out.push_str(&diagnostics::format_stderr(stderr));
    }
    if let Some(refusal) = &attempt.refusal {
        push_refusal(&mut out, refusal);
    }
    out
}

fn push_refusal(out: &mut String, refusal: &RefusalDetails) {
    line(out, "code", &refusal.code);
    if let Some(rule) = &refusal.rule {
        line(out, "rule", rule);
    }
    if let Some(subject) = &refusal.subject {
        line(out, "subject", subject);
    }
    match &refusal.remedy {
        Remedy::Advice(advice) => line(out, "advice", advice),
        Remedy::Lines { lines, policy, is_file } => {
            let policy_name = if *is_file {
                format!("`{}`", text::inline(policy))
            } else {
                "a policy file (start from `portcullis policy default`, name yours with --policy FILE)"
                    .to_owned()
            };
            for lines in lines {
                // Writing to a string cannot fail.
                let _ = if lines.section_exists {
                    writeln!(
                        out,
                        "allow    write into the section {} of {policy_name}:\n\n{}",
                        lines.section,
                        lines.lines.join("\n")
                    )
                } else {
                    writeln!(out, "allow    add to {policy_name}:\n\n{}", lines.text.trim_end())
                };
            }
        }
    }
}

fn line(out: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{name:<8} {}", text::inline(value));
}
