//! `portcullis policy lint`: mistakes in a policy, with codes, places and hints.

use std::{fmt::Write as _, process::ExitCode};

use portcullis_tools::{
    PolicyFiles,
    policy::{LintFinding, LintReport},
};

use super::sarif;
use crate::{
    cli::{CommonOptions, LintOptions},
    error::CliError,
    output::{json, stream, text},
    setup,
};

/// Lints one file, or the policy in force.
pub(crate) fn lint(common: &CommonOptions, options: LintOptions) -> Result<ExitCode, CliError> {
    let LintOptions { file, sarif: as_sarif, json: as_json, fail_on, no_approver } = options;
    let envelope = setup::envelope(common)?;
    let files = match &file {
        Some(file) => PolicyFiles::read(file)?,
        None => setup::policy_files(&envelope)?,
    };
    let report = portcullis_tools::lint(&envelope, &files, file.is_none(), !no_approver);
    if as_sarif {
        json::write_output(&sarif::log(&report))?;
    } else if as_json {
        json::write_output(&report.findings)?;
    } else {
        stream::write_output(&render(&report))?;
    }
    let is_unusable = report.findings.iter().any(|finding| finding.code.refuses_start());
    Ok(match report.heaviest() {
        _ if is_unusable => ExitCode::from(2),
        Some(heaviest) if heaviest >= fail_on => ExitCode::FAILURE,
        Some(_) | None => ExitCode::SUCCESS,
    })
}

fn render(report: &LintReport) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        let LintFinding { code, level, location, hint, .. } = finding;
        let line = format!("{location}:{}: {level} {code} {}", location.column, finding.keyed_message());
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}\n    hint: {}", text::inline(&line), text::inline(hint));
    }
    let _ = match report.findings.len() {
        0 => writeln!(out, "no findings"),
        1 => writeln!(out, "1 finding"),
        count => writeln!(out, "{count} findings"),
    };
    out
}
