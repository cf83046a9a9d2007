//! Checks the documents against names in the sources: codes of errors, hints of tools, protocols.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Codes that never reach an audit row or a call's result, each with the reason.
const IN_NO_ROW: [(&str, &str); 8] = [
    ("origin_not_configured", "for the program that dials a provider"),
    ("redirect_not_followed", "for the operation that requests the target itself"),
    ("answer_invalid", "within a guest, from the SDK"),
    ("interrupted", "in the ledger of a task file"),
    ("malformed_call", "in the ledger of a task file"),
    ("malformed_json", "in the ledger of a task file"),
    ("no_call", "of a block of a task file that is data"),
    ("nul_character", "in the ledger of a task file"),
];

/// The minimum number of codes that the sources must have.
const MIN_CODES: usize = 70;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("below the root").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("readable")
}

/// Returns the shipped sources without their tests, by path from the root.
fn shipped_sources() -> BTreeMap<String, String> {
    let (root, mut sources) = (root(), BTreeMap::new());
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("readable") {
            let path = entry.expect("readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            let skipped_folders = [
                "target",
                ".git",
                "node_modules",
                "tests",
                "testing",
                "xtask",
                "fuzz",
                "benches",
                "generated",
            ];
            if path.is_dir() && !skipped_folders.contains(&&*name) {
                folders.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" && !name.starts_with("hostile_") {
                let text = fs::read_to_string(&path).expect("readable");
                let shipped = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
                let relative_path =
                    path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
                sources.insert(relative_path, shipped);
            }
        }
    }
    sources
}

/// Returns the string literals that follow the occurrences of `before`.
fn literals_after<'t>(text: &'t str, before: &str) -> impl Iterator<Item = &'t str> {
    text.split(before)
        .skip(1)
        .filter_map(|rest| Some(rest.trim_start().strip_prefix('"')?.split_once('"')?.0))
}

fn is_code(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Returns the words of `ToolErrorCode`.
fn tool_error_codes() -> Vec<String> {
    let text = read("types/src/error_code.rs");
    let body = text.split_once("pub enum ToolErrorCode {").and_then(|(_, rest)| rest.split_once("\n    }"));
    literals_after(body.expect("the enumeration").0, " = ").map(str::to_owned).collect()
}

/// Returns all stable codes of errors: of `ToolErrorCode`, in fields `code`, and in functions `code`.
fn codes() -> BTreeMap<String, String> {
    let sources = shipped_sources();
    let of_list = tool_error_codes().into_iter().map(|code| (code, "types/src/error_code.rs".to_owned()));
    let mut codes: BTreeMap<String, String> = of_list.collect();
    for (path, text) in &sources {
        let mut insert_code = |code: &str| {
            if is_code(code) {
                codes.insert(code.to_owned(), path.clone());
            }
        };
        for line in text.lines() {
            literals_after(line.trim_start(), "code:")
                .filter(|_| line.trim_start().starts_with("code:"))
                .for_each(&mut insert_code);
        }
        for function in ["fn code(&self) -> &'static str {", "fn code(self) -> &'static str {"] {
            for body in text.split(function).skip(1) {
                literals_after(body.split("\n    }\n").next().unwrap_or_default(), "=>")
                    .for_each(&mut insert_code);
            }
        }
    }
    codes
}

#[test]
fn every_code_of_an_error_is_in_a_document() {
    let codes = codes();
    assert!(codes.len() >= MIN_CODES, "only {} codes were found: {codes:?}", codes.len());
    let documents: String = ["docs/audit.md", "docs/policy.md"].map(read).concat();
    let words: BTreeSet<&str> = documents.split('`').collect();
    let missing: Vec<String> = codes
        .iter()
        .filter(|(code, _)| !words.contains(code.as_str()))
        .filter(|(code, _)| !IN_NO_ROW.iter().any(|(other, _)| other == code))
        .map(|(code, path)| format!("{code}, of {path}"))
        .collect();
    assert!(missing.is_empty(), "codes in no document:\n{}", missing.join("\n"));
    for (code, _) in IN_NO_ROW {
        assert!(codes.contains_key(code), "no source has the code {code}");
    }
}

/// Words such as `unknown` are also used elsewhere, so only the first column of the tables counts.
#[test]
fn the_tables_of_codes_have_every_code_of_the_list() {
    let audit = read("docs/audit.md");
    let section = audit.split_once("\n### Codes\n").and_then(|(_, rest)| rest.split_once("\n### "));
    let rows = section.expect("the section").0.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<&str> =
        rows.filter_map(|row| row.split(" | ").next()).flat_map(|cell| cell.split('`')).collect();
    let codes = tool_error_codes();
    let missing: Vec<&String> = codes
        .iter()
        .filter(|code| !listed.contains(code.as_str()))
        .filter(|code| !IN_NO_ROW.iter().any(|(other, _)| other == code))
        .collect();
    assert!(missing.is_empty(), "codes in no table of docs/audit.md: {missing:?}");
}

#[test]
fn every_code_that_the_runtime_sets_is_of_a_list() {
    for (path, text) in shipped_sources() {
        let literals: Vec<&str> = literals_after(&text, ".with_code(").collect();
        assert!(literals.is_empty(), "{path} sets {literals:?}: add them to `ToolErrorCode`");
    }
}

#[test]
fn the_manual_for_authors_has_every_hint_of_a_tool() {
    let text = read("types/src/meta.rs");
    let body = text.split_once("pub struct ToolMeta {").and_then(|(_, rest)| rest.split_once("\n}"));
    let fields = body.expect("the structure").0.lines().filter_map(|line| line.trim().strip_prefix("pub "));
    let fields: Vec<&str> = fields.filter_map(|field| Some(field.split_once(':')?.0)).collect();
    let manual = read("docs/authoring.md");
    let row = manual.lines().find(|line| line.starts_with("| `meta` |")).expect("its row");
    let listed: Vec<&str> = row.split('`').skip(3).step_by(2).collect();
    assert_eq!(listed, fields);
}

#[test]
fn the_list_of_changes_names_every_protocol() {
    let text = read("agent/src/providers/settings.rs");
    let body = text.split_once("pub enum ProviderKind {").and_then(|(_, rest)| rest.split_once("\n    }"));
    let names: Vec<&str> = literals_after(body.expect("the enumeration").0, " = ").collect();
    assert!(names.len() > 3, "{names:?}");
    let changes = read("CHANGELOG.md").to_lowercase();
    let line =
        changes.lines().find(|line| line.starts_with("- `portcullis agent \"prompt\"`")).expect("a line");
    for name in names {
        assert!(line.contains(name), "CHANGELOG.md does not name {name}: {line}");
    }
}

/// A first reader should need minutes for README.md, and a maintainer half an hour for ARCHITECTURE.md.
#[test]
fn readme_and_architecture_stay_short() {
    let (lines, words) =
        (read("README.md").lines().count(), read("ARCHITECTURE.md").split_whitespace().count());
    assert!(lines <= 120, "README.md has {lines} lines");
    assert!(words <= 3_000, "ARCHITECTURE.md has {words} words");
}
