//! The whole path of a well-written tool.

use std::fs;

use serde_json::Value;

use super::{Author, sdk};

const ARGUMENTS: &str = r#"{"path": "/shared/README.md"}"#;

#[test]
fn from_nothing_to_a_tool_that_the_policy_allows() {
    let author = Author::new();
    let (said, _) = author.succeeds(&["tool", "new", "words", "--dir", "crate", "--sdk", &sdk()]);
    assert!(said.starts_with("made crate: ") && said.contains("portcullis tool build"), "{said}");

    #[expect(clippy::disallowed_methods, reason = "what an author may do without us")]
    let cargo = std::process::Command::new("cargo")
        .args(["build", "--release", "--target", "wasm32-wasip1", "--offline", "--locked", "--quiet"])
        .current_dir(author.path("crate"))
        .env("CARGO_TARGET_DIR", super::target())
        .output()
        .expect("starts");
    assert!(cargo.status.success(), "{}", super::text(&cargo.stderr));

    let (built, _) = author.succeeds(&["tool", "build", "--dir", "crate"]);
    assert!(built.contains("tool-words.wasm") && built.contains(" of at most 16 MiB"), "{built}");
    assert!(built.contains("imports  nothing but what guests get"), "{built}");
    let row = built.lines().last().expect("a row").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(row, "words read_only 5000 ms path: path to read none");

    // Nothing is granted yet, and the refusal shows the lines that would grant it.
    let (answer, said) = author.tries(3, "words", ARGUMENTS, &[]);
    assert_eq!(answer, "");
    for line in [
        "tool     words (wasm)",
        "grant    profile Nothing (no folder), approval ask, tier read_only",
        "limits   5000 ms, 64 MiB",
        "Tool execution failed: `/shared/README.md` is in a mount that this tool does not have (nothing is readable for this tool)",
        "code     mount_not_granted",
        "rule     profiles.Nothing.mounts.shared",
        "subject  /shared/README.md",
        "allow    add to a policy file (start from `portcullis policy default`, name yours with --policy FILE):",
    ] {
        assert!(said.lines().any(|it| it == line), "{line}\n{said}");
    }
    let (_, lines) = said.split_once("FILE):\n\n").expect("lines");
    assert_eq!(lines, "[tools.words]\nprofile = \"WorkspaceRead\"\n");
    author.policy(lines);
    let (answer, said) = author.tries(0, "words", ARGUMENTS, &[]);
    assert_eq!(answer, "12 lines");
    assert!(
        said.contains("grant    profile WorkspaceRead (/shared read, /tmp read), approval allow"),
        "{said}"
    );
    assert!(said.contains("result   ok in "), "{said}");

    let (answer, _) = author.tries(0, "words", ARGUMENTS, &["--json"]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["content"][0]["text"], &answer["confinement"]), (&"12 lines".into(), &"wasm".into()));
    assert_eq!(answer["grant"]["profile"], "WorkspaceRead");
    assert_eq!(answer["refusal"], Value::Null);

    let (answer, said) = author.succeeds(&["tool", "test", "--dir", "crate"]);
    assert_eq!(answer, "passed; 4 calls were made in the sandbox as well\n", "{said}");
    assert!(!said.contains("natively only"), "{said}");

    let rows = author.rows();
    assert!(rows.iter().all(|row| row.run_id.as_deref() == Some("try")), "{rows:?}");
    assert_eq!(rows.len(), 3, "the test's own calls are on another record");
    // The next try builds the edited source.
    let source = author.path("crate/src/main.rs");
    let edited = fs::read_to_string(&source).expect("there").replace("{} lines", "lines: {}");
    fs::write(&source, edited).expect("written");
    assert_eq!(author.tries(0, "words", ARGUMENTS, &[]).0, "lines: 12");
}

#[test]
fn a_grant_for_one_call_is_evaluated_like_any_and_its_row_tells() {
    let author = Author::with_crate("granted", None);
    let (answer, said) = author.tries(0, "granted", ARGUMENTS, &["--grant", "WorkspaceRead"]);
    assert_eq!(answer, "12 lines");
    assert!(said.contains("grant    profile WorkspaceRead"), "{said}");
    author.tries(3, "granted", ARGUMENTS, &[]);
    let (_, said) = author.tries(2, "granted", ARGUMENTS, &["--grant", "Everything"]);
    assert!(said.contains("tools.granted.profile: unknown profile"), "{said}");
    let (_, said) = author.tries(2, "granted", ARGUMENTS, &["--grant", "X\"\nenabled = true"]);
    assert!(said.contains("the policy cannot be used"), "{said}");
    // A workspace's restriction applies to this grant too.
    fs::write(
        author.path("workspace/portcullis.toml"),
        "[profiles.WorkspaceRead]\nmounts = { shared = \"none\" }\n",
    )
    .expect("written");
    let (_, said) = author.tries(3, "granted", ARGUMENTS, &["--grant", "WorkspaceRead"]);
    assert!(said.contains("code     mount_not_granted"), "{said}");
    assert!(said.ends_with("[tools.granted]\nprofile = \"FileReadOnly\"\n"), "what is left: {said}");
    let rows = author.rows();
    let runs: Vec<_> = rows.iter().filter_map(|row| row.run_id.as_deref()).collect();
    assert_eq!(runs, ["try:WorkspaceRead", "try", "try:WorkspaceRead"]);
    assert_eq!(rows[0].profile.as_deref(), Some("WorkspaceRead"));
    assert_ne!(rows[0].policy_digest, rows[1].policy_digest);
}

#[test]
fn natively_it_runs_unconfined_and_says_so() {
    let author = Author::with_crate("native", None);
    let (answer, said) = author.tries(0, "native", ARGUMENTS, &["--native"]);
    assert_eq!(answer, "12 lines");
    assert!(said.contains("tool     native (native, unconfined)"), "{said}");
    assert!(said.contains("UNCONFINED: it may do all that you may"), "{said}");
    let (answer, said) = author.tries(1, "native", r#"{"path": "none.md"}"#, &["--native"]);
    assert_eq!(answer, "");
    assert!(said.contains("Tool execution failed: no such file `/shared/none.md`"), "{said}");
    let (_, said) = author.tries(1, "native", r#"{"path": 3}"#, &["--native"]);
    assert!(said.contains("field 'path'"), "{said}");
    let (_, said) = author.tries(1, "native", "{", &["--native"]);
    assert!(said.contains("arguments are not JSON"), "{said}");
    let (_, said) = author.tries(1, "other", "{}", &["--native"]);
    assert!(said.contains("the crate has no tool `other`; it has: native"), "{said}");
    let (answer, _) = author.tries(0, "native", ARGUMENTS, &["--native", "--json"]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["confinement"], &answer["grant"]), (&"native, unconfined".into(), &Value::Null));
    assert!(!author.path("state").exists(), "no policy is asked and no row is written");
}
