//! `tool test`: one test, natively and in the sandbox.

use std::{fs, process::Command};

use super::Author;

/// A crate whose test is this body instead of the template's.
fn author_with_test(name: &str, body: &str) -> Author {
    let author = Author::with_crate(name, None);
    let source = author.path("crate/src/main.rs");
    let text = fs::read_to_string(&source).expect("the file is readable");
    let (head, _) = text.split_once("#[cfg(test)]").expect("a test");
    let test = format!(
        "#[cfg(test)]\nmod tests {{\n    #[test]\n    fn it_is_tested() {{\n        {body}\n    }}\n}}\n"
    );
    fs::write(source, format!("{head}{test}")).expect("written");
    author
}

#[expect(clippy::disallowed_methods, reason = "what an author may do without us")]
fn cargo_test(author: &Author) -> (bool, String) {
    let output = Command::new("cargo")
        .args(["test", "--offline", "--locked", "--quiet"])
        .current_dir(author.path("crate"))
        .env("CARGO_TARGET_DIR", super::target())
        .output()
        .expect("starts");
    (output.status.success(), super::text(&output.stderr))
}

#[test]
fn native_only_assertion_fails_in_the_sandbox() {
    // Natively the program's own folder is readable; the sandbox shows no part of it.
    let body = "let tool = super::halves_tool();
        portcullis_sdk::testing::Case::new(&tool, portcullis_sdk::serde_json::json!({\"path\": \"/shared/x\"}))
            .reads(\"shared\")
            .file(\"/shared/x\", \"1\\n\")
            .check(|mode, outcome| {
                let text = outcome.as_ref().expect(\"counts\").joined_text();
                assert_eq!(text, \"1 lines\");
                assert_eq!(mode, portcullis_sdk::testing::RunMode::Native, \"only natively\");
            });";
    let author = author_with_test("halves", body);
    let (passed, stderr_text) = cargo_test(&author);
    assert!(passed, "{stderr_text}");
    assert!(stderr_text.contains("the cases are tested natively only"), "{stderr_text}");
    let (answer, stderr_text) = author.run_expecting(1, &["tool", "test", "--dir", "crate"]);
    assert_eq!(answer, "");
    assert!(
        stderr_text.contains("only natively") && stderr_text.contains("the crate's tests failed"),
        "{stderr_text}"
    );
}

#[test]
fn a_crate_whose_tests_never_call_the_module_does_not_pass() {
    let author = author_with_test("caseless", "assert_eq!(1 + 1, 2);");
    let (_, stderr_text) = author.run_expecting(1, &["tool", "test", "--dir", "crate"]);
    assert!(
        stderr_text.contains("no test called the module") && stderr_text.contains("testing::Case"),
        "{stderr_text}"
    );
}
