//! The mandatory tests of the JSON-Schema-Test-Suite for draft 2020-12, through the check of every call's
//! arguments, with repairs off.
//!
//! `PORTCULLIS_JSON_SCHEMA_SUITE` names the suite's folder; `.ci/run` fetches it. Without the variable the test prints
//! that it skips. A tool's arguments are an object, so each case's schema becomes the schema of a property, and an
//! `$id` makes it the root of its references.

use std::{collections::BTreeMap, env, fs, path::Path};

use portcullis_tools::arguments::{ArgumentSchema, Repairs, SchemaError};
use portcullis_types::JsonSchema;
use serde_json::{Value, json};

const FOLDER_VARIABLE: &str = "PORTCULLIS_JSON_SCHEMA_SUITE";

/// Excepted cases: files whose cases need a remote document, and single cases, each with the reference to the
/// remote document. The list may only shrink: the test fails if a listed case is missing, is refused for
/// another reason, or passes.
const REMOTE: &[(&str, &[(&str, &str)])] = &[
    (
        "defs.json",
        &[("validate definition against metaschema", "https://json-schema.org/draft/2020-12/schema")],
    ),
    (
        "dynamicRef.json",
        &[
            ("strict-tree schema, guards against misspelled properties", "tree.json"),
            ("tests for implementation dynamic anchor and reference link", "extendible-dynamic-ref.json"),
            ("$ref and $dynamicAnchor are independent of order - $defs first", "extendible-dynamic-ref.json"),
            ("$ref and $dynamicAnchor are independent of order - $ref first", "extendible-dynamic-ref.json"),
            (
                "$ref to $dynamicRef finds detached $dynamicAnchor",
                "http://localhost:1234/draft2020-12/detached-dynamicref.json#/$defs/foo",
            ),
        ],
    ),
    ("ref.json", &[("remote ref, containing refs itself", "https://json-schema.org/draft/2020-12/schema")]),
    (
        "refRemote.json",
        &[
            ("remote ref", "http://localhost:1234/draft2020-12/integer.json"),
            (
                "fragment within remote ref",
                "http://localhost:1234/draft2020-12/subSchemas.json#/$defs/integer",
            ),
            (
                "anchor within remote ref",
                "http://localhost:1234/draft2020-12/locationIndependentIdentifier.json#foo",
            ),
            (
                "ref within remote ref",
                "http://localhost:1234/draft2020-12/subSchemas.json#/$defs/refToInteger",
            ),
            ("base URI change", "folderInteger.json"),
            ("base URI change - change folder", "folderInteger.json"),
            ("base URI change - change folder in subschema", "folderInteger.json"),
            ("root ref in remote ref", "name-defs.json#/$defs/orNull"),
            ("remote ref with ref to defs", "ref-and-defs.json"),
            (
                "Location-independent identifier in remote ref",
                "http://localhost:1234/draft2020-12/locationIndependentIdentifier.json#/$defs/refToInteger",
            ),
            ("retrieved nested refs resolve relative to their URI not $id", "nested/foo-ref-string.json"),
            ("remote HTTP ref with different $id", "http://localhost:1234/different-id-ref-string.json"),
            ("remote HTTP ref with different URN $id", "http://localhost:1234/urn-ref-string.json"),
            (
                "remote HTTP ref with nested absolute ref",
                "http://localhost:1234/nested-absolute-ref-to-string.json",
            ),
            (
                "$ref to $ref finds detached $anchor",
                "http://localhost:1234/draft2020-12/detached-ref.json#/$defs/foo",
            ),
        ],
    ),
    (
        "vocabulary.json",
        &[(
            "schema that uses custom metaschema with with no validation vocabulary",
            "http://localhost:1234/draft2020-12/metaschema-no-validation.json",
        )],
    ),
];

/// The suite has more tests than this. A folder with fewer is not the suite.
const MIN_TESTS: usize = 1_200;

#[derive(Default)]
struct Tally {
    passed: usize,
    exempt: usize,
    wrong: Vec<String>,
}

#[test]
fn the_argument_check_agrees_with_the_json_schema_suite() {
    let Some(folder) = env::var_os(FOLDER_VARIABLE) else {
        println!("skipped: {FOLDER_VARIABLE} does not name the folder of the JSON-Schema-Test-Suite");
        return;
    };
    let listed = REMOTE
        .iter()
        .flat_map(|(file, cases)| cases.iter().map(|(case, reference)| ((*file, *case), *reference)));
    let mut listed: BTreeMap<(&str, &str), &str> = listed.collect();
    let mut tally = Tally::default();
    let files = files(Path::new(&folder));
    for (file, cases) in &files {
        for case in cases.as_array().expect("a list of cases") {
            let name = case["description"].as_str().expect("a description");
            match listed.remove(&(file.as_str(), name)) {
                Some(reference) => tally.check_exempt(file, case, reference),
                None => tally.run(file, case),
            }
        }
    }
    tally.wrong.extend(listed.keys().map(|(file, case)| format!("{file}: there is no case `{case}`")));
    let Tally { passed, exempt, wrong } = tally;
    println!("{passed} tests passed, {exempt} need documents from elsewhere");
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(passed >= MIN_TESTS, "only {passed} tests were found");
}

impl Tally {
    /// Runs a case that is not excepted: each of its tests must have the suite's result.
    fn run(&mut self, file: &str, case: &Value) {
        let name = case["description"].as_str().unwrap_or_default();
        let schema = match compile(&case["schema"]) {
            Ok(schema) => schema,
            Err(error) => return self.wrong.push(format!("{file}: {name}: {error}")),
        };
        for test in case["tests"].as_array().expect("a list of tests") {
            match compare_with_suite(&schema, test) {
                Ok(()) => self.passed += 1,
                Err(wrong) => self.wrong.push(format!("{file}: {name}: {wrong}")),
            }
        }
    }

    /// Runs a listed case: it must be refused for this reference, or have a wrong result because it needs
    /// this dialect.
    fn check_exempt(&mut self, file: &str, case: &Value, remote_reference: &str) {
        let tests = case["tests"].as_array().expect("a list of tests");
        let needs_reference = match compile(&case["schema"]) {
            Err(SchemaError::Reference { reference }) => reference == remote_reference,
            Err(_) => false,
            Ok(schema) => {
                let fails = tests.iter().any(|test| compare_with_suite(&schema, test).is_err());
                fails && case["schema"]["$schema"] == remote_reference
            }
        };
        self.exempt += tests.len();
        if !needs_reference {
            self.wrong.push(format!("{file}: {} does not need `{remote_reference}`", case["description"]));
        }
    }
}

/// Compiles the case's schema as the schema of an argument `v`.
fn compile(schema: &Value) -> Result<ArgumentSchema, SchemaError> {
    let mut schema = schema.clone();
    if let Value::Object(map) = &mut schema {
        // Otherwise `#` would refer to the schema of all arguments.
        map.entry("$id").or_insert_with(|| json!("https://suite.example/case"));
    }
    ArgumentSchema::compile(&JsonSchema::new(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"v": schema},
        "required": ["v"],
        "additionalProperties": false,
    })))
}

/// Compares a test's result with the suite's. The error says what differs.
fn compare_with_suite(schema: &ArgumentSchema, test: &Value) -> Result<(), String> {
    let text = json!({"v": test["data"]}).to_string();
    let checked = schema.check(&text, Repairs::Off);
    let problem = match &checked {
        Ok(checked) if checked.args.text() != text => "it was changed".to_owned(),
        Ok(_) if test["valid"] == true => return Ok(()),
        Err(_) if test["valid"] == false => return Ok(()),
        Ok(_) => "it is taken".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("{}: {problem}", test["description"]))
}

/// Returns the mandatory files: the files directly in the draft's folder.
fn files(suite: &Path) -> BTreeMap<String, Value> {
    let folder = suite.join("tests/draft2020-12");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files = BTreeMap::new();
    for entry in entries {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("readable");
            files.insert(name, serde_json::from_str(&text).expect("JSON"));
        }
    }
    files
}
