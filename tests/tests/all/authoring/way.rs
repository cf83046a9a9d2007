//! The whole path of an author whose tool has no mistakes.

use std::fs;

use serde_json::Value;

use super::{Author, sdk};

const ARGUMENTS: &str = r#"{"path": "/shared/README.md"}"#;

#[test]
fn from_nothing_to_a_tool_that_the_policy_allows() {
    let author = Author::new();
    let (stdout_text, _) =
        author.run_successfully(&["tool", "new", "words", "--dir", "crate", "--sdk", &sdk()]);
    assert!(
        stdout_text.starts_with("made crate: ") && stdout_text.contains("portcullis tool build"),
        "{stdout_text}"
    );

    #[expect(clippy::disallowed_methods, reason = "what an author may do without us")]
    let cargo = std::process::Command::new("cargo")
        .args(["build", "--release", "--target", "wasm32-wasip1", "--offline", "--locked", "--quiet"])
        .current_dir(author.path("crate"))
        .env("CARGO_TARGET_DIR", super::target())
        .output()
        .expect("starts");
    assert!(cargo.status.success(), "{}", super::text(&cargo.stderr));

    let (built, _) = author.run_successfully(&["tool", "build", "--dir", "crate"]);
    assert!(built.contains("tool-words.wasm") && built.contains(" of at most 16 MiB"), "{built}");
    assert!(built.contains("imports  nothing but what guests get"), "{built}");
    let row = built.lines().last().expect("a row").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(row, "words read_only 5000 ms path: path to read none");

    // Nothing is granted yet, and the refusal shows the lines that would grant it.
    let (answer, stderr_text) = author.try_tool(3, "words", ARGUMENTS, &[]);
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
        assert!(stderr_text.lines().any(|printed| printed == line), "{line}\n{stderr_text}");
    }
    let (_, lines) = stderr_text.split_once("FILE):\n\n").expect("lines");
    assert_eq!(lines, "[tools.words]\nprofile = \"WorkspaceRead\"\n");
    author.write_policy(lines);
    let (answer, stderr_text) = author.try_tool(0, "words", ARGUMENTS, &[]);
    assert_eq!(answer, "12 lines");
    assert!(
        stderr_text.contains("grant    profile WorkspaceRead (/shared read, /tmp read), approval allow"),
        "{stderr_text}"
    );
    assert!(stderr_text.contains("result   ok in "), "{stderr_text}");

    let (answer, _) = author.try_tool(0, "words", ARGUMENTS, &["--json"]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["content"][0]["text"], &answer["confinement"]), (&"12 lines".into(), &"wasm".into()));
    assert_eq!(answer["grant"]["profile"], "WorkspaceRead");
    assert_eq!(answer["refusal"], Value::Null);

    let (answer, stderr_text) = author.run_successfully(&["tool", "test", "--dir", "crate"]);
    assert_eq!(answer, "passed; 4 calls were made in the sandbox as well\n", "{stderr_text}");
    assert!(!stderr_text.contains("natively only"), "{stderr_text}");

    let rows = author.rows();
    assert!(rows.iter().all(|row| row.run_id.as_deref() == Some("try")), "{rows:?}");
    assert_eq!(rows.len(), 3, "the test's own calls are on another record");
    // The next try builds the edited source.
    let source = author.path("crate/src/main.rs");
    let edited = fs::read_to_string(&source).expect("the file is readable").replace("{} lines", "lines: {}");
    fs::write(&source, edited).expect("written");
    assert_eq!(author.try_tool(0, "words", ARGUMENTS, &[]).0, "lines: 12");
}

#[test]
fn a_grant_for_one_call_is_evaluated_and_recorded_like_others() {
    let author = Author::with_crate("granted", None);
    let (answer, stderr_text) = author.try_tool(0, "granted", ARGUMENTS, &["--grant", "WorkspaceRead"]);
    assert_eq!(answer, "12 lines");
    assert!(stderr_text.contains("grant    profile WorkspaceRead"), "{stderr_text}");
    author.try_tool(3, "granted", ARGUMENTS, &[]);
    let (_, stderr_text) = author.try_tool(2, "granted", ARGUMENTS, &["--grant", "Everything"]);
    assert!(stderr_text.contains("tools.granted.profile: unknown profile"), "{stderr_text}");
    let (_, stderr_text) = author.try_tool(2, "granted", ARGUMENTS, &["--grant", "X\"\nenabled = true"]);
    assert!(stderr_text.contains("the policy cannot be loaded"), "{stderr_text}");
    // A workspace's restriction applies to this grant too.
    fs::write(
        author.path("workspace/portcullis.toml"),
        "[profiles.WorkspaceRead]\nmounts = { shared = \"none\" }\n",
    )
    .expect("written");
    let (_, stderr_text) = author.try_tool(3, "granted", ARGUMENTS, &["--grant", "WorkspaceRead"]);
    assert!(stderr_text.contains("code     mount_not_granted"), "{stderr_text}");
    assert!(
        stderr_text.ends_with("[tools.granted]\nprofile = \"FileReadOnly\"\n"),
        "what is left: {stderr_text}"
    );
    let rows = author.rows();
    let runs: Vec<_> = rows.iter().filter_map(|row| row.run_id.as_deref()).collect();
    assert_eq!(runs, ["try:WorkspaceRead", "try", "try:WorkspaceRead"]);
    assert_eq!(rows[0].profile.as_deref(), Some("WorkspaceRead"));
    assert_ne!(rows[0].policy_digest, rows[1].policy_digest);
}

#[test]
fn natively_it_runs_unconfined_and_says_so() {
    let author = Author::with_crate("native", None);
    let (answer, stderr_text) = author.try_tool(0, "native", ARGUMENTS, &["--native"]);
    assert_eq!(answer, "12 lines");
    assert!(stderr_text.contains("tool     native (native, unconfined)"), "{stderr_text}");
    assert!(stderr_text.contains("UNCONFINED: it may do all that you may"), "{stderr_text}");
    let (answer, stderr_text) = author.try_tool(1, "native", r#"{"path": "none.md"}"#, &["--native"]);
    assert_eq!(answer, "");
    assert!(stderr_text.contains("Tool execution failed: no such file `/shared/none.md`"), "{stderr_text}");
    let (_, stderr_text) = author.try_tool(1, "native", r#"{"path": 3}"#, &["--native"]);
    assert!(stderr_text.contains("field 'path'"), "{stderr_text}");
    let (_, stderr_text) = author.try_tool(1, "native", "{", &["--native"]);
    assert!(stderr_text.contains("arguments are not JSON"), "{stderr_text}");
    let (_, stderr_text) = author.try_tool(1, "other", "{}", &["--native"]);
    assert!(stderr_text.contains("the crate has no tool `other`; it has: native"), "{stderr_text}");
    let (answer, _) = author.try_tool(0, "native", ARGUMENTS, &["--native", "--json"]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["confinement"], &answer["grant"]), (&"native, unconfined".into(), &Value::Null));
    assert!(!author.path("state").exists(), "no policy is asked and no row is written");
}
