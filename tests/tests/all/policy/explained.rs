//! `explain`, `policy show` and `policy lint` through the program, and explanations against real calls.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{ExplainRequest, ExplainedTool, Explainer, PolicyFiles, policy::Approval};
use serde_json::{Value, json};

use super::write_overlay;
use crate::modules::{portcullis, stderr, stdout};

#[track_caller]
fn explain(fixture: &Fixture, words: &[&str], code: i32) -> Value {
    let output = portcullis(fixture, &[&["explain", "--json"], words].concat());
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}{}", stdout(&output), stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap_or(Value::Null)
}

#[test]
fn an_explanation_has_the_answer_the_chain_and_its_places() {
    let fixture = Fixture::new();
    let denied = explain(&fixture, &["file_write", "/shared/../vault/key"], 3);
    assert_eq!(denied["code"], "path_escapes_mount");
    let denied = explain(&fixture, &["file_write", "/vault/key"], 3);
    assert_eq!((&denied["verdict"], &denied["code"]), (&json!("deny"), &json!("mount_not_granted")));
    assert_eq!(denied["rule"], "profiles.FileReadWrite.mounts.vault");
    let policy = fs::read_to_string(fixture.policy_file()).expect("readable");
    let line =
        policy.lines().position(|line| line == "[profiles.FileReadWrite]").expect("the policy has the line")
            + 2;
    assert_eq!(denied["place"]["line"], line);
    let allowed = explain(&fixture, &["file_read", "/vault/key"], 0);
    assert_eq!(allowed["verdict"], "allow");
    let asked = explain(&fixture, &["shell_exec", "ls"], 0);
    assert_eq!(asked["verdict"], "ask");
    let asked = explain(&fixture, &["web_fetch", "https://example.com/"], 0);
    assert_eq!(asked["verdict"], "ask");
    let private = explain(&fixture, &["web_fetch", "http://127.0.0.1/"], 3);
    assert_eq!(private["code"], "host_not_granted");
    let flow = explain(&fixture, &["web_fetch", "https://example.com/", "--after", "vault"], 3);
    assert_eq!((&flow["code"], &flow["rule"]), (&json!("flow_denied"), &json!("flow[vault -> network]")));
    assert!(flow["place"]["line"].is_number(), "{flow}");
    let copied = explain(&fixture, &["vault_copyto", "/vault/key"], 0);
    assert_eq!(copied["verdict"], "allow");
    let copied = explain(&fixture, &["vault_copyto", "/vault/key", "--write"], 3);
    assert_eq!(copied["code"], "mount_not_granted");
    let readers = explain(&fixture, &["--all-tools", "/vault/key"], 0);
    let names: Vec<&str> =
        readers.as_array().expect("a list").iter().filter_map(|tool| tool["tool"].as_str()).collect();
    assert!(names.contains(&"file_read") && names.contains(&"vault_copyto"), "{names:?}");
    explain(&fixture, &["--all-tools", "/vault/key", "--write"], 3);
    explain(&fixture, &["file_raed", "x"], 2);
    assert!(!fixture.state().join("audit.jsonl").exists());
    let text = stdout(&portcullis(&fixture, &["explain", "file_write", "/vault/key"]));
    assert!(text.starts_with("DENY  mount_not_granted\n"), "{text}");
    assert!(text.contains("nearest") || text.contains("hint"), "{text}");
}

#[test]
fn each_value_is_shown_with_its_text_and_line() {
    let fixture = Fixture::new();
    write_overlay(&fixture, "[limits]\nconcurrency = 3\n");
    let output = portcullis(&fixture, &["policy", "show", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let shown: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let value = |key: &str| {
        let values = shown["values"].as_array().expect("values");
        values.iter().find(|value| value["key"] == key).unwrap_or_else(|| panic!("{key}")).clone()
    };
    assert_eq!(value("limits.concurrency")["value"], 3);
    let origin = value("limits.concurrency")["origin"].clone();
    assert_eq!(origin["line"], 2);
    assert!(origin["file"].as_str().expect("a file").ends_with("portcullis.toml"), "{origin}");
    assert_eq!(value("modules.dir")["origin"], "default");
    assert!(shown["tools"].as_array().expect("tools").len() > 20);
    let text = stdout(&portcullis(&fixture, &["policy", "show"]));
    assert!(text.contains("limits.concurrency") && text.contains("portcullis.toml:2"), "{text}");
}

#[test]
fn findings_have_codes_for_people_and_for_pipelines() {
    let fixture = Fixture::new().with_policy("[tools.file_raed]\nenabled = false\n");
    let policy = fixture.policy_file();
    let file = policy.to_str().expect("the path is UTF-8");
    let output = portcullis(&fixture, &["policy", "lint", file]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("error P01 tools.file_raed: ") && text.contains("    hint: "), "{text}");
    let output = portcullis(&fixture, &["policy", "lint", "--sarif", file]);
    let sarif: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    // Check the fields that the schema of SARIF 2.1.0 requires, and the fields that code hosts read.
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["$schema"], "https://json.schemastore.org/sarif-2.1.0.json");
    let run = &sarif["runs"][0];
    assert_eq!(run["tool"]["driver"]["name"], "portcullis");
    assert!(
        run["tool"]["driver"]["rules"].as_array().expect("rules").iter().all(|rule| rule["id"].is_string())
    );
    let results = run["results"].as_array().expect("results");
    assert!(results.iter().any(|result| result["ruleId"] == "P01" && result["level"] == "error"));
    for result in results {
        assert!(result["message"]["text"].is_string(), "{result}");
        let location = &result["locations"][0]["physicalLocation"];
        assert!(
            location["artifactLocation"]["uri"].is_string() && location["region"]["startLine"].is_number()
        );
    }
    let clean = Fixture::new();
    let output = portcullis(&clean, &["policy", "lint"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let output = portcullis(&clean, &["policy", "lint", "--fail-on", "note"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    fs::remove_dir(clean.workspace().join("tmp")).expect("removed");
    let text = stdout(&portcullis(&clean, &["policy", "lint"]));
    assert!(text.contains("note P09 mounts.tmp: "), "{text}");
    assert!(!clean.workspace().join("tmp").exists());
}

/// Findings that need the file system: the file's permissions, links, and modules without approval.
#[test]
fn findings_come_from_the_file_system_too() {
    let fixture =
        Fixture::new().with_policy("[modules]\ndir = \"modules\"\n[tools.foreign]\nprofile = \"Nothing\"\n");
    let lint = || stdout(&portcullis(&fixture, &["policy", "lint"]));
    let before = lint();
    assert!(before.contains("warning P14 tools.foreign: any module that declares `foreign`"), "{before}");
    assert!(!before.contains("P08") && !before.contains("P10"), "{before}");
    fixture.put("one", "text");
    fs::hard_link(fixture.shared("one"), fixture.workspace().join("outside")).expect("linked");
    let linked = lint();
    assert!(linked.contains("warning P10 mounts: "), "{linked}");
    let policy = fixture.policy_file();
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o666)).expect("set");
    let file = policy.to_str().expect("the path is UTF-8");
    let output = portcullis(&fixture, &["policy", "lint", file]);
    assert!(stdout(&output).contains("error P08 a start would not obey it: "), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(2));
}

#[tokio::test]
async fn an_explanation_says_what_the_call_does() {
    let fixture = Fixture::new().with_policy("[hide]\npaths = [\"*.pem\"]\n");
    fixture.put("a.txt", "text");
    fixture.put("dir/key.pem", "key");
    fixture.put(".git/hooks/x", "x");
    symlink("dir/key.pem", fixture.shared("alias")).expect("linked");
    symlink("/etc/passwd", fixture.shared("out")).expect("linked");
    symlink(".git/hooks", fixture.shared("hooks")).expect("linked");
    symlink("a.txt", fixture.shared("fine")).expect("linked");
    fs::write(fixture.workspace().join("vault/key"), "secret").expect("written");
    let registry = fixture.registry().await;
    let envelope = fixture.envelope();
    let files = PolicyFiles::find(&envelope).expect("policy files");
    let explainer = Explainer::new(&envelope, &files).await.expect("explains");
    let mut allowed = 0;
    let paths = [
        "a.txt",
        "fine",
        "alias",
        "out",
        "hooks/x",
        "dir/key.pem",
        ".git/hooks/x",
        ".git/HOOKS/y",
        "new/b.txt",
        "/vault/key",
        "/tmp/x",
        "/tmp/../vault/key",
        "../vault/key",
        "/nope/x",
        "dir/../a.txt",
        "/",
        ".bashrc",
    ];
    let tools = ["file_read", "file_list", "file_write", "file_delete"];
    for path in paths {
        for tool in tools {
            let request = ExplainRequest { subject: Some(path), agent: "agent", ..ExplainRequest::default() };
            let explained = ExplainedTool::shipped(tool).expect("shipped");
            let explanation = explainer.explain(&explained, &request).expect("explained");
            let mut arguments = json!({"path": path});
            if tool == "file_write" {
                arguments["content"] = json!("text");
            }
            // Each call has its own files, because a write or a deletion could change the result of the next
            // call.
            let answer = CallOutcome::run(&registry, tool, arguments).await;
            let denied = answer
                .0
                .outcome
                .error()
                .filter(|error| error.kind() == portcullis_types::ToolErrorKind::Denied);
            let code = explanation.code.map(|code| code.as_str());
            assert_eq!(code, denied.map(|error| error.code()), "{tool} {path}: {explanation:#?}");
            allowed += usize::from(explanation.verdict != Approval::Deny);
        }
    }
    // At least a quarter, so that the comparison covers answers of both kinds.
    let cases = paths.len() * tools.len();
    assert!(allowed >= cases / 4 && allowed < cases, "{allowed} of {cases} are allowed");
}

#[test]
fn the_commands_of_the_document_answer_as_it_says() {
    let home = tempfile::tempdir().expect("a folder");
    // The document's expectations are about the shipped policy.
    let expectations = DOCUMENT.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    fs::write(home.path().join("portcullis.expect.toml"), expectations.expect("an example"))
        .expect("written");
    let commands = run_blocks("console", home.path());
    assert!(commands >= 7, "{commands}");
    assert!(!home.path().join("workspace").exists(), "nothing was made");
}

#[test]
fn the_commands_of_the_documents_reviews_answer_as_it_says() {
    let home = tempfile::tempdir().expect("a folder");
    for (tool, arguments) in [
        ("file_write", r#"{"path": "/shared/notes.txt", "content": "n"}"#),
        ("file_read", r#"{"path": "/shared/notes.txt"}"#),
        ("file_write", r#"{"path": "/vault/x", "content": "n"}"#),
    ] {
        run_at_home(home.path(), &["call", tool, arguments, "--approve"]);
    }
    let policy = portcullis_tools::policy::DEFAULT_POLICY;
    let wider = policy.replace("calls_per_minute = 600", "calls_per_minute = 6000");
    for (name, text) in [("old.toml", policy), ("new.toml", &wider)] {
        fs::write(home.path().join(name), text).expect("writes");
    }
    let commands = run_blocks("console recorded", home.path());
    assert!(commands >= 18, "{commands}");
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn run_at_home(home: &std::path::Path, words: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(portcullis_testing::binary());
    command.args(words).env_clear().env("HOME", home).current_dir(home).output().expect("starts")
}

const DOCUMENT: &str = include_str!("../../../../docs/auditing.md");

/// Runs the commands in the document's blocks of this kind, and compares the answers. Returns the number of commands.
fn run_blocks(kind: &str, home: &std::path::Path) -> usize {
    let start = format!("```{kind}\n");
    let blocks = DOCUMENT.split(&start).skip(1).map(|rest| rest.split("```\n").next().unwrap_or_default());
    let mut commands = 0;
    for block in blocks {
        for part in block.split("$ portcullis ").filter(|part| !part.is_empty()) {
            let (words, expected) = part.split_once('\n').unwrap_or((part, ""));
            let words: Vec<&str> = words.split_whitespace().map(|word| word.trim_matches('\'')).collect();
            let output = run_at_home(home, &words);
            let shown = stdout(&output);
            // The document omits columns, the spaces that align them, and the lines in place of which it has
            // `…`. Therefore search the words of each line in order.
            for line in expected.lines().filter(|line| !matches!(line.trim(), "" | "…")) {
                let found = shown.lines().any(|shown| has_in_order(shown, line));
                assert!(found, "{part}: {line}\n{shown}{}", stderr(&output));
            }
            commands += 1;
        }
    }
    commands
}

/// Returns whether a line has these words in this order, perhaps with others between them.
fn has_in_order(line: &str, wanted: &str) -> bool {
    let mut words = line.split_whitespace();
    let is_word = |word: &str, wanted: &str| {
        word.trim_end_matches(',') == wanted.trim_end_matches(',')
            // A random name follows.
            || (wanted.ends_with('/') && word.starts_with(wanted))
    };
    wanted.split_whitespace().all(|wanted| words.any(|word| is_word(word, wanted)))
}
