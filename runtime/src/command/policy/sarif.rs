//! Findings as SARIF 2.1.0, the Static Analysis Results Interchange Format (OASIS).

use portcullis_tools::policy::{LintCode, LintFinding, LintLevel, LintReport};
use serde::Serialize;

/// The schema that the log names.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// A log with one run.
#[derive(Debug, Serialize)]
pub(super) struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Debug, Serialize)]
struct Run {
    tool: Tool,
    results: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Debug, Serialize)]
struct Driver {
    name: &'static str,
    version: &'static str,
    rules: Vec<Rule>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    id: &'static str,
    short_description: Message,
    help: Message,
    default_configuration: Configuration,
}

#[derive(Debug, Serialize)]
struct Configuration {
    level: LintLevel,
}

#[derive(Debug, Serialize)]
struct Message {
    text: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    rule_id: &'static str,
    level: LintLevel,
    message: Message,
    locations: [Location; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: PhysicalLocation,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    region: Region,
}

#[derive(Debug, Serialize)]
struct ArtifactLocation {
    uri: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: usize,
    start_column: usize,
}

/// Builds the log of a report. It lists all codes as rules, so that a viewer shows the same rules for each
/// report.
pub(super) fn log(report: &LintReport) -> Log {
    let message = |text: &str| Message { text: text.to_owned() };
    let rules = LintCode::ALL.into_iter().map(|code| Rule {
        id: code.as_str(),
        short_description: message(code.summary()),
        help: message(code.hint()),
        default_configuration: Configuration { level: code.level() },
    });
    let driver = Driver { name: "portcullis", version: env!("CARGO_PKG_VERSION"), rules: rules.collect() };
    let results = report.findings.iter().map(|finding| {
        let LintFinding { code, level, location, hint, .. } = finding;
        Finding {
            rule_id: code.as_str(),
            level: *level,
            message: Message { text: format!("{}. Hint: {hint}", finding.keyed_message()) },
            locations: [Location {
                physical_location: PhysicalLocation {
                    artifact_location: ArtifactLocation { uri: uri(&location.file) },
                    region: Region { start_line: location.line, start_column: location.column },
                },
            }],
        }
    });
    Log {
        schema: SCHEMA,
        version: "2.1.0",
        runs: [Run { tool: Tool { driver }, results: results.collect() }],
    }
}

/// Converts a file's name to a URI reference: every byte that RFC 3986 does not allow in a path is
/// percent-encoded.
fn uri(file: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    file.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
