//! The report on a task file, for a person or a program.

use std::fmt::Write as _;

use portcullis_tasks::{ReportedStatus, TaskCallReport, TaskReport};
use portcullis_types::{EscapedText, error_chain};
use serde_json::{Value, json};

use crate::{
    error::CliError,
    output::{json as json_output, stream},
};

/// Writes a report to standard output.
pub(super) fn write(report: &TaskReport, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return json_output::write_output(&object(report));
    }
    stream::write_output(&text(report))
}

fn text(report: &TaskReport) -> String {
    let mut text = format!("{}/{}", report.state, EscapedText(&report.name));
    if let Some(to) = &report.moved_to {
        // Writing to a string cannot fail.
        let _ = write!(text, " -> {to}");
    }
    text.push('\n');
    for TaskCallReport { line, tool, status } in &report.calls {
        let tool = if tool.is_empty() { "no call" } else { tool };
        let _ = write!(text, "  line {line}: {}: ", EscapedText(tool));
        let _ = match status {
            ReportedStatus::Succeeded => writeln!(text, "success"),
            ReportedStatus::Failed { code, message } => {
                writeln!(text, "failed ({}): {}", EscapedText(code), EscapedText(message))
            }
            _ => writeln!(text, "needs approval"),
        };
    }
    if let Some(error) = &report.error {
        let _ = writeln!(text, "  not processed: {}", EscapedText(&error_chain(error)));
    }
    text
}

fn object(report: &TaskReport) -> Value {
    let calls: Vec<Value> = report
        .calls
        .iter()
        .map(|TaskCallReport { line, tool, status }| match status {
            ReportedStatus::Succeeded => json!({ "line": line, "tool": tool, "status": "success" }),
            ReportedStatus::Failed { code, message } => {
                json!({ "line": line, "tool": tool, "status": "failed", "code": code, "message": message })
            }
            _ => json!({ "line": line, "tool": tool, "status": "pending" }),
        })
        .collect();
    json!({
        "file": report.name,
        "state": report.state,
        "moved_to": report.moved_to,
        "calls": calls,
        "error": report.error.as_ref().map(|error| error_chain(error)),
    })
}
