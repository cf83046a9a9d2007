//! Checks `docs/limits.md` against the constants that it names: each number must equal the constant's value.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

/// Constants whose value the document gives in other words, each with the reason.
const IN_OTHER_WORDS: [(&str, &str); 5] = [
    ("MAX_ENDS_BEYOND_CAPACITY", "a sum of products of another constant"),
    ("RETRY_PAUSES", "the row names the unit once for both"),
    ("WITHDRAWAL_MARGIN", "the row has what is left of the approval's time"),
    ("MAX_STDIN_BYTES", "the row says \"and one byte\""),
    ("MAX_HTTP_BODY_BYTES", "a difference of two constants"),
];

/// The minimum number of constants that the document must name.
const MIN_CONSTANTS: usize = 150;

/// The constants of the workspace: for each name, the files that define it and the expressions.
type Constants = BTreeMap<String, Vec<(String, String)>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Number(u64),
    Time(Duration),
}

/// Checks the table of core tools in `docs/operating.md`.
#[test]
fn the_times_of_file_tools_are_those_of_their_attributes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("below the root");
    let document = fs::read_to_string(root.join("docs/operating.md")).expect("readable");
    let mut checked_count = 0;
    for entry in fs::read_dir(root.join("guest-tools/src")).expect("readable") {
        let path = entry.expect("readable").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if !path.is_file() || !name.starts_with("file_") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("readable");
        let Some((_, after)) = text.split_once("timeout = \"") else { continue };
        let seconds = after.split_once("s\"").expect("seconds").0;
        let row = document.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/operating.md has no row of `{name}`"));
        assert!(row.contains(&format!(", {seconds} s |")), "{name} has {seconds} s; the document: {row}");
        checked_count += 1;
    }
    assert_eq!(checked_count, 6);
}

/// Checks the rows of the same table for `vault_copyto`, whose steps have its time, and for native tools.
#[test]
fn the_times_of_other_core_tools_are_those_of_the_code() {
    let (root, constants) = workspace();
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("readable");
    let document = read("docs/operating.md");
    let seconds = |name: &str, file: &str| match values_in_file(&constants, name, file).as_deref() {
        Some([Value::Time(time)]) => time.as_secs(),
        other => panic!("{name} in {file}: {other:?}"),
    };
    let check = |tool: &str, seconds: u64| {
        let row = document.lines().find(|line| line.starts_with(&format!("| `{tool}`")));
        let row = row.unwrap_or_else(|| panic!("docs/operating.md has no row of `{tool}`"));
        assert!(row.contains(&format!(", {seconds} s |")), "{tool} has {seconds} s; the document: {row}");
    };
    let copy = seconds("TIMEOUT", "tools/src/vault/tool.rs");
    check("vault_copyto", copy);
    for step in ["read_step", "write_step"] {
        let text = read(&format!("guest-tools/src/vault_copyto/{step}.rs"));
        assert!(
            text.contains(&format!("timeout = \"{copy}s\"")),
            "{step} has not the {copy} s of its operation"
        );
    }
    for web in ["web_fetch", "web_search"] {
        check(web, seconds("TIMEOUT", "tools/src/web/request_step.rs"));
        assert!(read(&format!("guest-tools/src/{web}.rs")).contains("timeout = \"30s\""), "{web}");
    }
    let default = seconds("DEFAULT_TIMEOUT", "types/src/tool.rs");
    for native in ["output_read", "get_current_time", "echo", "add", "failing_tool"] {
        check(native, default);
    }
}

/// The structs of limits, each with its file, and whether docs/limits.md has a table of it.
const STRUCTS: [(&str, &str, bool); 5] = [
    ("RequestLimits", "egress/src/limits.rs", true),
    ("SessionConfig", "shell-daemon/src/server/config.rs", true),
    ("ServiceLimits", "shell-daemon/src/server/config.rs", true),
    ("ProviderLimits", "agent/src/providers/settings.rs", true),
    ("McpLimits", "mcp/src/limits.rs", false),
];

/// Each field's documentation and its row in docs/limits.md must say its default.
#[test]
fn the_defaults_of_structs_are_those_of_the_documents() {
    let (root, constants) = workspace();
    let document = fs::read_to_string(root.join("docs/limits.md")).expect("readable");
    let mut faults = Vec::new();
    for (name, file, has_table) in STRUCTS {
        let text = fs::read_to_string(root.join(file)).expect("readable");
        let fields = defaults(&text, name);
        assert!(fields.len() > 5, "{name}: {fields:?}");
        let table = document.split_once(&format!("(`{name}`,")).map_or("", |(_, rest)| {
            rest.split_once("\n\n")
                .map_or("", |(_, rest)| rest.split_once("\n\n").map_or(rest, |(table, _)| table))
        });
        for (field, expression) in fields {
            let Some(&[value]) = evaluate(&expression, &constants).as_deref() else {
                faults.push(format!("{name}::{field}: {expression} is not read"));
                continue;
            };
            let doc_text = documentation(&text, name, &field);
            let doc_text = doc_text.split_once("Default:").map_or("", |(_, doc_text)| doc_text);
            if !cell_states(doc_text, value) {
                faults.push(format!(
                    "{name}::{field}: its documentation says {doc_text:?}, the code {expression}"
                ));
            }
            let row = table.lines().find(|line| line.contains(&format!("(`{field}`)")));
            let cell =
                row.and_then(|row| row.trim_matches('|').rsplit_once(" | ")).map_or("", |(_, cell)| cell);
            if has_table && !cell_states(cell, value) {
                faults.push(format!("{name}::{field}: docs/limits.md says {cell:?}, the code {expression}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Sentences of the documents. `{}` stands for a constant's value and its unit.
const SENTENCES: [(&str, &str, &str, &str); 42] = [
    ("docs/limits.md", "(`max_output_bytes`) | {} |", "DEFAULT_MAX_OUTPUT_BYTES", "policy/src/limits.rs"),
    (
        "docs/operating.md",
        "`max_output_bytes` ({}) limits",
        "DEFAULT_MAX_OUTPUT_BYTES",
        "policy/src/limits.rs",
    ),
    (
        "docs/operating.md",
        "`offset` = 0, `limit` = {} (bytes,",
        "DEFAULT_PAGE_BYTES",
        "tools/src/output_store.rs",
    ),
    ("docs/operating.md", "No answer within {} is a no", "APPROVAL_TIMEOUT", "tools/src/approval.rs"),
    ("docs/agent.md", "No answer within {} is a no", "APPROVAL_TIMEOUT", "tools/src/approval.rs"),
    ("docs/policy.md", "no answer came within {} |", "APPROVAL_TIMEOUT", "tools/src/approval.rs"),
    ("docs/audit.md", "| `queue_full` | `resource_limit` | {} calls", "MAX_QUEUED", "tools/src/slots.rs"),
    ("docs/audit.md", "more than {} progress and update frames", "MAX_STREAM_FRAMES", "sandbox/src/stdio.rs"),
    ("docs/audit.md", "the guest sent more than {}", "MAX_TRANSFER_BYTES", "types/src/frame.rs"),
    ("docs/operating.md", "any bytes, at most {};", "MAX_TRANSFER_BYTES", "types/src/frame.rs"),
    ("docs/network.md", "| `max_results` | {} | the most", "DEFAULT_RESULTS", "tools/src/web/query.rs"),
    ("docs/network.md", "the most results, 1 to {} |", "MAX_RESULTS", "tools/src/web/query.rs"),
    ("docs/operating.md", "`max_results` = {} (to 20), `site`?", "DEFAULT_RESULTS", "tools/src/web/query.rs"),
    ("docs/mcp.md", "10 run and {} wait", "MAX_QUEUED", "tools/src/slots.rs"),
    ("docs/mcp.md", " KiB, {} headers", "MAX_HEADERS", "http-server/src/connections.rs"),
    (
        "docs/mcp.md",
        "| data that a client leaves unread | {},",
        "MAX_UNACKNOWLEDGED_TIME",
        "http-server/src/connections.rs",
    ),
    ("docs/limits.md", "names none (`command_timeout`) | {} |", "TIMEOUT", "tools/src/shell/tool.rs"),
    (
        "docs/mcp.md",
        "reports nothing for {}, a client",
        "HEARTBEAT_INTERVAL",
        "tools/src/pipeline/heartbeat.rs",
    ),
    ("docs/policy.md", "more than {} private entries", "MAX_PRIVATE_ENTRIES", "sandbox/src/hard_links.rs"),
    ("SECURITY.md", "more than {} private entries", "MAX_PRIVATE_ENTRIES", "sandbox/src/hard_links.rs"),
    ("docs/policy.md", "or not within {} |", "FIRST_SEARCH_TIMEOUT", "sandbox/src/hard_links.rs"),
    ("SECURITY.md", "does not end within {}, or", "FIRST_SEARCH_TIMEOUT", "sandbox/src/hard_links.rs"),
    (
        "docs/audit.md",
        "makes more than {} requests |",
        "MAX_REQUESTS",
        "tools/src/pipeline/backend/guest_requests.rs",
    ),
    (
        "docs/audit.md",
        "has {} unread responses |",
        "MAX_OPEN_RESPONSES",
        "tools/src/pipeline/backend/guest_requests.rs",
    ),
    ("docs/audit.md", "the result has more than {} |", "MAX_FINAL_FRAME_BYTES", "types/src/frame.rs"),
    ("docs/durable.md", "on the same machine, otherwise after {}", "LEASE_TTL", "runs/src/driven.rs"),
    ("docs/durable.md", "in the background expires after {}, one at", "APPROVAL_TTL", "runs/src/approver.rs"),
    ("docs/durable.md", "one at a terminal after {}. A run", "APPROVAL_TIMEOUT", "tools/src/approval.rs"),
    (
        "runtime/src/cli/approvals.rs",
        "a question expires after {}, or after",
        "APPROVAL_TTL",
        "runs/src/approver.rs",
    ),
    ("runtime/src/cli/approvals.rs", "or after {} if a person", "APPROVAL_TIMEOUT", "tools/src/approval.rs"),
    (
        "docs/durable.md",
        "takes one result, within {} of its beginning",
        "EXTERNAL_CALL_TTL",
        "tools/src/external.rs",
    ),
    ("runtime/src/cli/calls.rs", "takes one result, within {}", "EXTERNAL_CALL_TTL", "tools/src/external.rs"),
    ("docs/durable.md", "A run is removed {} after its end", "RETENTION", "runtime/src/run_store.rs"),
    (
        "docs/durable.md",
        "| `steer` | a text of at most {}, which",
        "MAX_TEXT_BYTES",
        "temporal/src/workflow_payloads.rs",
    ),
    (
        "docs/durable.md",
        "the server notices after {} without",
        "HEARTBEAT_TIMEOUT",
        "temporal/src/heartbeat.rs",
    ),
    (
        "docs/durable.md",
        "it is asked up to {} times, after",
        "MAX_MODEL_ATTEMPTS",
        "temporal/src/failures.rs",
    ),
    ("docs/durable.md", "requests with pauses of {} |", "RATE_LIMITED_PAUSE", "temporal/src/failures.rs"),
    ("docs/gateway.md", "An agent's question expires after {}.", "APPROVAL_TTL", "runs/src/approver.rs"),
    ("docs/gateway.md", "once and in order, for {}. After", "EVENT_RETENTION", "gateway/src/serve.rs"),
    (
        "docs/gateway.md",
        "After {} messages from agents only",
        "MAX_AGENT_MESSAGES",
        "gateway/src/builtins/messages.rs",
    ),
    ("docs/gateway.md", "The model reads the last {} messages", "MAX_HISTORY", "gateway/src/cycle/begin.rs"),
    ("docs/gateway.md", "earlier cycles, at most {}.", "MAX_HISTORY_BYTES", "gateway/src/cycle/begin.rs"),
];

#[test]
fn sentences_of_the_documents_have_the_values_of_constants() {
    let (root, constants) = workspace();
    let mut faults = Vec::new();
    for (document, sentence, name, file) in SENTENCES {
        let text = fs::read_to_string(root.join(document)).expect("readable");
        let (before, after) = sentence.split_once("{}").expect("a place for the value");
        let value = values_in_file(&constants, name, file).and_then(|values| values.first().copied());
        let value = value.unwrap_or_else(|| panic!("{name} in {file} is not read"));
        let is_stated = text.split(before).skip(1).any(|rest| {
            let cell = if after.is_empty() {
                rest.lines().next()
            } else {
                rest.split_once(after).map(|(cell, _)| cell)
            };
            cell.is_some_and(|cell| cell.len() < 40 && cell_states(cell, value))
        });
        if !is_stated {
            faults.push(format!("{document} does not say {sentence:?} with {name} ({value:?})"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_agents_manual_has_the_limits_of_a_provider() {
    let (root, constants) = workspace();
    let text = fs::read_to_string(root.join("agent/src/providers/settings.rs")).expect("readable");
    let fields: BTreeMap<String, String> = defaults(&text, "ProviderLimits").into_iter().collect();
    let number = |field: &str| match evaluate(&fields[field], &constants).as_deref() {
        Some([Value::Time(time)]) => time.as_secs(),
        Some([Value::Number(number)]) => *number,
        other => panic!("{field}: {other:?}"),
    };
    assert_eq!(number("retries"), 3, "the manual says \"three times at most\"");
    let manual = fs::read_to_string(root.join("docs/agent.md")).expect("readable");
    for statement in [
        "three times at most".to_owned(),
        format!("`Retry-After` is honoured up to {} s", number("retry_wait_max")),
        format!("after {} s of silence or at {} MiB", number("idle_timeout"), number("response_bytes") >> 20),
    ] {
        assert!(manual.contains(&statement), "docs/agent.md does not say {statement:?}");
    }
}

/// Checks the bounds of the forwarder's dialogue with a program in the manuals.
#[test]
fn the_manuals_have_the_limits_of_a_tunnel() {
    let (root, constants) = workspace();
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("readable");
    let fields: BTreeMap<String, String> =
        defaults(&read("egress/src/tunnel.rs"), "TunnelLimits").into_iter().collect();
    let field = |name: &str| match evaluate(&fields[name], &constants).as_deref() {
        Some([Value::Time(time)]) => time.as_secs(),
        Some([Value::Number(bytes)]) => *bytes >> 10,
        other => panic!("{name}: {other:?}"),
    };
    let (head, hello, greeting) = (field("head_bytes"), field("hello_bytes"), field("greeting_timeout"));
    let minutes = field("idle_timeout") / 60;
    for (document, statement) in [
        ("docs/audit.md", format!("is longer than {head} KiB, has a body")),
        ("docs/audit.md", format!("did not arrive within {greeting} seconds |")),
        ("docs/audit.md", format!("or that is longer than {hello} KiB |")),
        ("docs/network.md", format!("in at most {head} KiB and {greeting} seconds")),
        ("docs/network.md", format!("for {minutes} minutes of silence")),
    ] {
        assert!(read(document).contains(&statement), "{document} does not say {statement:?}");
    }
}

/// A heartbeat of a call is passed to a client unless a report was sent shortly before it. The minimum gap
/// must therefore be shorter than the interval between two heartbeats.
#[test]
fn a_heartbeat_is_not_swallowed_by_the_one_before_it() {
    let (_, constants) = workspace();
    let time = |name: &str, file: &str| match values_in_file(&constants, name, file).as_deref() {
        Some([Value::Time(time)]) => *time,
        other => panic!("{name} in {file}: {other:?}"),
    };
    let interval = time("HEARTBEAT_INTERVAL", "tools/src/pipeline/heartbeat.rs");
    assert!(time("HEARTBEAT_MIN_GAP", "mcp/src/reports.rs") < interval);
}

/// Returns the root, and all constants of the workspace.
fn workspace() -> (&'static Path, Constants) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("below the root");
    let mut constants = Constants::new();
    collect_constants(root, root, &mut constants);
    (root, constants)
}

/// Returns the value of a constant that a file defines.
fn values_in_file(constants: &Constants, name: &str, file: &str) -> Option<Vec<Value>> {
    let (_, expression) = constants.get(name)?.iter().find(|(path, _)| path == file)?;
    evaluate(expression, constants)
}

/// Returns the fields of a struct and their expressions in its `Default`.
fn defaults(text: &str, name: &str) -> Vec<(String, String)> {
    let Some((_, body)) = text.split_once(&format!("impl Default for {name} {{")) else { return Vec::new() };
    let body = body.split_once("Self {\n").expect("a struct").1.split_once("        }\n").expect("its end").0;
    let field = |line: &str| {
        let (field, expression) = line.trim().trim_end_matches(',').split_once(": ")?;
        Some((field.to_owned(), expression.to_owned()))
    };
    body.lines().filter_map(field).collect()
}

/// Returns the documentation of a struct's field, in one line.
fn documentation(text: &str, name: &str, field: &str) -> String {
    let (_, body) = text.split_once(&format!("pub struct {name} {{")).expect("the struct");
    let (before, _) = body.split_once(&format!("pub {field}:")).expect("the field");
    let lines: Vec<&str> = before
        .lines()
        .rev()
        .skip(1)
        .map_while(|line| line.trim().strip_prefix("///"))
        .map(str::trim)
        .collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_number_is_that_of_the_code() {
    let (root, constants) = workspace();
    let text = fs::read_to_string(root.join("docs/limits.md")).expect("readable");
    let (mut checked, mut faults) = (0, Vec::new());
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, value_cell, .., code_cell] = cells[..] else { continue };
        let quoted_names: Vec<&str> = code_cell.split('`').skip(1).step_by(2).collect();
        let files: Vec<&str> = quoted_names.iter().copied().filter(|name| name.ends_with(".rs")).collect();
        for name in quoted_names.into_iter().filter(|name| is_constant(name)) {
            checked += 1;
            if IN_OTHER_WORDS.iter().any(|(other, _)| *other == name) {
                continue;
            }
            let Some(definitions) = constants.get(name) else {
                faults.push(format!("{name}: there is no such constant"));
                continue;
            };
            // Several constants may have the same name. The row then names the file of its constant, or says
            // "as above".
            let named_definitions: Vec<_> = definitions
                .iter()
                .filter(|(path, _)| files.iter().any(|file| path.ends_with(file)))
                .collect();
            let candidates =
                if named_definitions.is_empty() { definitions.iter().collect() } else { named_definitions };
            let values: Vec<Vec<Value>> =
                candidates.iter().filter_map(|(_, expression)| evaluate(expression, &constants)).collect();
            if !values.iter().any(|values| values.iter().all(|value| cell_states(value_cell, *value))) {
                faults.push(format!("{name}: the document says {value_cell:?}, the code {candidates:?}"));
            }
        }
    }
    assert!(checked > MIN_CONSTANTS, "only {checked} constants are named");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_place_defines_its_constants() {
    let (root, constants) = workspace();
    let text = fs::read_to_string(root.join("docs/limits.md")).expect("readable");
    let (mut files, mut faults) = (Vec::new(), Vec::new());
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let place = row.trim_matches('|').rsplit(" | ").next().unwrap_or_default();
        let quoted_names: Vec<&str> = place.split('`').skip(1).step_by(2).collect();
        let named_files: Vec<&str> =
            quoted_names.iter().copied().filter(|name| name.ends_with(".rs")).collect();
        // A row that says "as above" means the files of the last row that names any.
        if !named_files.is_empty() {
            files = named_files;
        }
        for name in quoted_names.into_iter().filter(|name| is_constant(name)) {
            let definitions = constants.get(name).map(Vec::as_slice).unwrap_or_default();
            if !definitions.iter().any(|(path, _)| files.contains(&path.as_str())) {
                faults.push(format!("{name} is not in {files:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Constants whose documentation has another number after a colon.
const DOCUMENTED_IN_OTHER_WORDS: [(&str, &str); 3] = [
    ("MAX_PROVEN_ROWS", "a power of two"),
    ("MIN_BYTES", "the bits that the bytes encode"),
    ("INTERRUPTED", "a sum"),
];

/// The minimum number of constants whose documentation gives their value.
const MIN_DOCUMENTED: usize = 150;

/// A constant whose documentation gives a value after a colon must have this value.
#[test]
fn the_documentation_of_a_constant_has_its_value() {
    let (root, constants) = workspace();
    let files: BTreeSet<&str> = constants.values().flatten().map(|(path, _)| path.as_str()).collect();
    let (mut checked, mut faults) = (0, Vec::new());
    for path in files {
        let text = fs::read_to_string(root.join(path)).expect("readable");
        let mut documented = String::new();
        let mut rest = text.as_str();
        while let Some((line, later)) = rest.split_once('\n') {
            if let Some(line) = line.trim().strip_prefix("///") {
                documented.push_str(line);
            } else if let Some((name, expression)) = declared_constant(rest) {
                let stated = documented.match_indices(": ").map(|(index, _)| &documented[index + 2..]);
                let stated =
                    stated.filter(|text| text.starts_with(|first: char| first.is_ascii_digit())).last();
                let value = evaluate(&expression, &constants);
                if let (Some(stated), Some([value])) = (stated, value.as_deref()) {
                    checked += 1;
                    let is_other = DOCUMENTED_IN_OTHER_WORDS.iter().any(|(other, _)| *other == name);
                    if !is_other && !cell_states(stated, *value) {
                        faults.push(format!(
                            "{path}: {name} is {expression}; its documentation says {stated:?}"
                        ));
                    }
                }
                documented.clear();
            } else if !line.trim().starts_with("#[") {
                documented.clear();
            }
            rest = later;
        }
    }
    assert!(checked > MIN_DOCUMENTED, "only {checked} constants have a value in their documentation");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the name and expression of the constant that a text begins with.
fn declared_constant(text: &str) -> Option<(String, String)> {
    let (line, _) = text.split_once('\n')?;
    let line = line.trim_start();
    let visible = line.strip_prefix("pub").map_or(line, |rest| {
        rest.strip_prefix('(')
            .and_then(|rest| rest.split_once(") "))
            .map_or(rest, |(_, rest)| rest)
            .trim_start()
    });
    (visible.starts_with("const ") && !visible.starts_with("const fn ")).then(|| definitions(text).next())?
}

fn is_constant(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() > 2 && name.starts_with(|first: char| first.is_ascii_uppercase()) && name.bytes().all(is_part)
}

/// Collects all constants below a folder, except those of tests.
fn collect_constants(root: &Path, folder: &Path, constants: &mut Constants) {
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !matches!(name, "target" | ".git" | "node_modules" | "tests") {
            collect_constants(root, &path, constants);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).expect("readable");
            let relative_path =
                path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            for (name, expression) in definitions(&text) {
                constants.entry(name).or_default().push((relative_path.clone(), expression));
            }
        }
    }
}

/// Returns the names and expressions of `const NAME: TYPE = EXPRESSION;`, on one line or several.
fn definitions(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split("const ").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(':')?;
        let (_, expression) = rest.split_once(" = ")?;
        let (expression, _) = expression.split_once(';')?;
        is_constant(name).then(|| (name.to_owned(), expression.trim().to_owned()))
    })
}

/// Evaluates an expression, in the forms that constants of this workspace have.
fn evaluate(expression: &str, constants: &Constants) -> Option<Vec<Value>> {
    let expression = expression.trim();
    if let Some(elements) = expression.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return elements.split(", ").map(|element| Some(evaluate(element, constants)?[0])).collect();
    }
    let argument_of = |prefix: &str| Some(expression.strip_prefix(prefix)?.split_once(')')?.0);
    for (prefix, unit) in [
        ("Duration::from_secs(", Duration::from_secs(1)),
        ("Duration::from_millis(", Duration::from_millis(1)),
        ("Duration::from_mins(", Duration::from_mins(1)),
        ("Duration::from_micros(", Duration::from_micros(1)),
    ] {
        if let Some(count) = argument_of(prefix) {
            return Some(vec![Value::Time(unit * u32::try_from(parse_number(count)?).ok()?)]);
        }
    }
    for prefix in ["NonZeroU32::new(", "NonZeroUsize::new(", "OutputBytes("] {
        if let Some(argument) = argument_of(prefix) {
            return evaluate(argument, constants);
        }
    }
    let name = expression.rsplit("::").next().unwrap_or(expression).trim_end_matches(" as u64");
    if is_constant(name) {
        return evaluate(&constants.get(name)?.first()?.1, constants);
    }
    Some(vec![Value::Number(parse_number(expression)?)])
}

/// Parses a number, a product, or a shifted number.
fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim().trim_matches(['(', ')']);
    if let Some((left, right)) = text.split_once("<<") {
        return parse_number(left)?.checked_shl(u32::try_from(parse_number(right)?).ok()?);
    }
    if let Some((left, right)) = text.split_once('*') {
        return parse_number(left)?.checked_mul(parse_number(right)?);
    }
    let digits: String = text.chars().filter(|character| *character != '_').collect();
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    matches!(suffix, "" | "u8" | "u16" | "u32" | "u64" | "usize" | "i64").then(|| digits.parse().ok())?
}

/// Returns whether a cell states the value, in any unit in which the value is a whole number.
fn cell_states(cell: &str, value: Value) -> bool {
    let (count, units): (u128, &[(&str, u128)]) = match value {
        Value::Number(count) => {
            (count.into(), &[("", 1), (" KiB", 1 << 10), (" MiB", 1 << 20), (" GiB", 1 << 30)])
        }
        Value::Time(time) => (
            time.as_micros(),
            &[
                (" µs", 1),
                (" ms", 1000),
                (" s", 1_000_000),
                (" seconds", 1_000_000),
                (" min", 60_000_000),
                (" minutes", 60_000_000),
                (" h", 3_600_000_000),
                (" hours", 3_600_000_000),
                (" days", 86_400_000_000),
            ],
        ),
    };
    units.iter().filter(|(_, size)| count.is_multiple_of(*size)).any(|(unit, size)| {
        let expected_text = format!("{}{unit}", with_commas(count / size));
        cell.match_indices(&expected_text).any(|(index, _)| {
            // The match must not be the end of a longer number, nor the start of another unit.
            let is_number = |character: char| character.is_ascii_digit() || matches!(character, ',' | '.');
            let previous_char = cell[..index].chars().next_back();
            !previous_char.is_some_and(is_number)
                && !continues_value(unit, &cell[index + expected_text.len()..])
        })
    })
}

/// Returns whether the text after a number, or after its unit, makes it another value.
fn continues_value(unit: &str, rest: &str) -> bool {
    let is_word = |text: &str| text.starts_with(char::is_alphanumeric);
    let units = ["KiB", "MiB", "GiB", "µs", "ms", "min", "s", "h"];
    let has_unit =
        || units.iter().any(|unit| rest.trim_start().strip_prefix(unit).is_some_and(|rest| !is_word(rest)));
    let has_digits = || rest.strip_prefix(',').is_some_and(is_word);
    is_word(rest) || (unit.is_empty() && (has_unit() || has_digits()))
}

fn with_commas(count: u128) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[test]
fn expressions_and_cells_are_read() {
    let constants = Constants::from([("OTHER".to_owned(), vec![("a.rs".to_owned(), "8 << 20".to_owned())])]);
    let time = |seconds| Value::Time(Duration::from_secs(seconds));
    for (expression, value) in [
        ("1 << 20", Value::Number(1 << 20)),
        ("64 * 1024", Value::Number(65_536)),
        ("1_000_000", Value::Number(1_000_000)),
        ("OTHER", Value::Number(8 << 20)),
        ("Duration::from_secs(5 * 60)", time(300)),
        ("NonZeroU32::new(10).expect(\"not 0\")", Value::Number(10)),
    ] {
        assert_eq!(evaluate(expression, &constants), Some(vec![value]), "{expression}");
    }
    assert_eq!(evaluate("anything()", &constants), None);
    assert!(
        cell_states("5 min", time(300))
            && cell_states("10 s; 300 s", time(300))
            && !cell_states("15 min", time(300))
    );
    assert!(
        cell_states("1,048,576", Value::Number(1 << 20))
            && cell_states("1 MiB, 4 MiB", Value::Number(4 << 20))
    );
    assert!(!cell_states("164", Value::Number(64)) && !cell_states("64 KiB", Value::Number(64)));
}
