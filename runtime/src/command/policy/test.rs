//! `portcullis policy test`: checks whether the policy in force meets its operator's expectations.

use std::{fmt::Write as _, process::ExitCode};

use portcullis_tools::{
    BootstrapError, Coverage, EXPECTATIONS_FILE, ExpectationReport, ExpectationTexts, ExplainedTool,
    Explainer, UncoveredGrant,
    policy::{KnownTools, PolicyProvenance, SourceLocation},
};

use crate::{
    cli::{CommonOptions, PolicyTestOptions},
    error::CliError,
    output::{json, stream, table},
    setup,
};

/// Checks the expectations, and lists the grants that none of them mentions.
pub(crate) fn test(common: &CommonOptions, options: PolicyTestOptions) -> Result<ExitCode, CliError> {
    let PolicyTestOptions { expect, coverage, json: as_json, modules } = options;
    let envelope = setup::envelope_with(common, modules)?;
    let files = setup::policy_files(&envelope)?;
    let policy = files.load(envelope.sandbox_tier)?;
    let texts = match &expect {
        Some(file) => ExpectationTexts::read(file)?,
        None => ExpectationTexts::read_beside(&files)?,
    };
    if texts.is_empty() {
        let file = match files.operator_path() {
            Some(path) => path.with_file_name(EXPECTATIONS_FILE).display().to_string(),
            None => format!("`{EXPECTATIONS_FILE}` beside a policy file"),
        };
        return Err(CliError::NoExpectations { file });
    }
    let has_modules = policy.modules_dir().is_some() || !envelope.modules.is_empty();
    let (known, tools) = match has_modules {
        false => (KnownTools::shipped(), ExplainedTool::all_shipped(&policy).collect()),
        // Only a module knows the declarations of its tools, so load the modules.
        true => {
            let registry = setup::runtime()?.block_on(setup::describing_registry(&envelope, &files))?;
            let tools: Vec<ExplainedTool> =
                registry.tools().iter().map(|tool| ExplainedTool::from(&**tool)).collect();
            (registry.known_tools().clone(), tools)
        }
    };
    let provenance = PolicyProvenance::read(&files.options(envelope.sandbox_tier));
    let explainer = Explainer::by_names(policy, provenance);
    let report = texts.decide(&explainer, &known, &tools).map_err(BootstrapError::ExpectationsFile)?;
    if as_json {
        json::write_output(&report)?;
    } else {
        stream::write_output(&render(&report, coverage))?;
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Formats one line for each expectation, then the counterexamples, and the grants without an expectation.
fn render(report: &ExpectationReport, with_coverage: bool) -> String {
    let mut out = String::new();
    let failed = || report.results.iter().filter(|result| !result.holds);
    for result in &report.results {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", result.line());
    }
    for result in failed() {
        let _ = writeln!(out, "\n{result}");
    }
    let (all, failed) = (report.results.len(), failed().count());
    let noun = if all == 1 { "expectation" } else { "expectations" };
    let _ = writeln!(out, "{}{all} {noun}, {failed} not met", if failed > 0 { "\n" } else { "" });
    if with_coverage {
        out.push_str(&coverage_text(&report.coverage));
    }
    out
}

fn coverage_text(coverage: &Coverage) -> String {
    let Coverage { grants, uncovered } = coverage;
    let head = format!("\n{} of {grants} grants are in no expectation\n", uncovered.len());
    if uncovered.is_empty() {
        return head;
    }
    let rows = uncovered.iter().map(|grant| {
        let UncoveredGrant { tool, step, target, access, rule, location } = grant;
        [
            step.as_ref().map_or_else(|| tool.clone(), |step| format!("{tool} → {step}")),
            target.clone(),
            access.map_or_else(|| "requests".to_owned(), |access| access.to_string()),
            rule.clone(),
            location.as_ref().map_or_else(|| "default".to_owned(), SourceLocation::to_string),
        ]
    });
    head + &table::render(["TOOL", "TARGET", "ACCESS", "RULE", "FROM"], rows)
}
