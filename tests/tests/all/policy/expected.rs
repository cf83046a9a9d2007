//! `policy test` through the program, and starts under a policy that fails its expectations.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::PathBuf,
};

use portcullis_testing::Fixture;
use portcullis_tools::{BootstrapError, EXPECTATIONS_FILE, audit::RowEvent};
use serde_json::{Value, json};

use crate::modules::{portcullis, stderr, stdout};

/// Creates a fixture with expectations beside its policy.
fn fixture(text: &str) -> Fixture {
    let fixture = Fixture::new();
    fs::write(expectations(&fixture), text).expect("written");
    fixture
}

fn expectations(fixture: &Fixture) -> PathBuf {
    fixture.root().join(EXPECTATIONS_FILE)
}

const HOLDS: &str = "\
[[expect]]
name = \"nothing writes the vault\"
tools = \"*\"
paths = [\"/vault/**\"]
access = \"write\"
verdict = \"deny\"

[[never]]
reads = \"vault\"
reaches = \"web\"
unasked = true
";

const FAILS: &str = "\
[[expect]]
name = \"readers stay out of the vault\"
profile = \"FileReadOnly\"
paths = [\"/vault/**\"]
verdict = \"deny\"
";

#[test]
fn expectations_hold_or_have_a_counterexample() {
    let fixture = fixture(HOLDS);
    let output = portcullis(&fixture, &["policy", "test"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("ok     expect  nothing writes the vault  ("), "{text}");
    assert!(text.ends_with("\n2 expectations, 0 not met\n"), "{text}");
    assert!(!fixture.state().join("audit.jsonl").exists(), "nothing runs");

    fs::write(expectations(&fixture), format!("{HOLDS}\n{FAILS}")).expect("written");
    let output = portcullis(&fixture, &["policy", "test"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("\nFAILS  expect  readers stay out of the vault  ("), "{text}");
    assert!(
        text.contains("_read reads /vault: ALLOW by profiles.FileReadOnly (")
            || text.contains("reads /vault: ALLOW"),
        "{text}"
    );
    assert!(text.ends_with("\n3 expectations, 1 not met\n"), "{text}");
    let output = portcullis(&fixture, &["policy", "test", "--json"]);
    let answer: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let failed = &answer["expectations"][2];
    assert_eq!(
        (&failed["holds"], &failed["counterexample"]["verdict"]),
        (&json!(false), &json!("allow")),
        "{answer}"
    );
    assert!(failed["counterexample"]["place"]["line"].is_number(), "{failed}");
    assert!(answer["coverage"]["grants"].as_u64() > Some(10), "{answer}");

    let other = fixture.root().join("other.toml");
    fs::write(&other, HOLDS).expect("written");
    let words = ["policy", "test", "--coverage", "--expect", other.to_str().expect("the path is UTF-8")];
    let output = portcullis(&fixture, &words);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains(" grants are in no expectation\n") && text.contains("/shared"), "{text}");
}

#[test]
fn a_policy_that_is_not_as_expected_does_not_start() {
    let fixture = fixture(HOLDS);
    assert!(portcullis(&fixture, &["call", "file_list"]).status.success());
    fs::write(expectations(&fixture), FAILS).expect("written");
    for words in [&["call", "file_list"][..], &["shell", "--", "true"], &["tools"], &["policy", "check"]] {
        let output = portcullis(&fixture, words);
        assert_eq!(output.status.code(), Some(2), "{words:?} {}", stderr(&output));
        let text = stderr(&output);
        assert!(
            text.contains(
                "error: the policy does not meet its expectations\nFAILS  expect  readers stay out"
            ),
            "{text}"
        );
        assert!(text.contains("reads /vault: ALLOW by "), "{text}");
    }
    // Commands that only show still work, because they help to find the mistake.
    assert!(portcullis(&fixture, &["explain", "file_read", "/vault/key"]).status.success());
    let refused = fixture.all_rows().into_iter().find(|row| row.event == RowEvent::Policy).expect("a row");
    assert!(refused.refused.is_some_and(|reason| reason.contains("readers stay out")), "it is on record");
    fs::write(expectations(&fixture), "[[expect]]\ntool = \"file_raed\"\nverdict = \"deny\"\n")
        .expect("written");
    let output = portcullis(&fixture, &["call", "file_list"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains(&format!("\n{}:2:8: expect[0].tool: ", expectations(&fixture).display())),
        "{text}"
    );
    assert!(text.contains("did you mean `file_read`?"), "{text}");
    fs::remove_file(expectations(&fixture)).expect("removed");
    assert!(portcullis(&fixture, &["call", "file_list"]).status.success());
}

#[tokio::test]
async fn an_embedding_program_is_refused_too_and_modules_count() {
    let fixture = fixture(
        "[[expect]]\ntools = \"*\"\npaths = \"/shared/**\"\naccess = \"write\"\nverdict = \"deny\"\n",
    );
    let error = fixture.builder().await.expect("a builder").build().expect_err("refused");
    assert!(matches!(error, BootstrapError::Expectations(_)), "{error}");
}

#[test]
fn the_file_of_one_policy_counts_beside_that_of_its_folder() {
    let fixture = fixture(HOLDS);
    fs::write(fixture.root().join("policy.expect.toml"), FAILS).expect("written");
    fs::write(fixture.root().join("another.expect.toml"), "mistake").expect("written");
    let output = portcullis(&fixture, &["policy", "test"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).ends_with("\n3 expectations, 1 not met\n"), "{}", stdout(&output));
}

#[test]
fn a_file_that_cannot_be_used_is_refused() {
    let fixture = fixture(HOLDS);
    let file = expectations(&fixture);
    let refused = |expected: &str| {
        for words in [&["policy", "test"][..], &["call", "file_list"]] {
            let output = portcullis(&fixture, words);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(expected), "{expected}: {}", stderr(&output));
        }
    };
    fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("opened");
    refused("can be written by everybody (mode 0666)");
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("closed");
    fs::write(&file, b"[[expect]]\nname = \"\xff\"\n").expect("written");
    refused("it is not UTF-8");
    fs::write(&file, "#".repeat((1 << 20) + 1)).expect("written");
    refused("it has more than 1 MiB");
    fs::write(&file, "[[expect]]\nnmae = \"x\"\n").expect("written");
    refused("unknown key; did you mean `name`?");
    fs::remove_file(&file).expect("removed");
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .expect("a FIFO");
    refused("it is not a regular file");
    fs::remove_file(&file).expect("removed");
    let output = portcullis(&fixture, &["policy", "test"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("there are no expectations: write "), "{}", stderr(&output));
    // A link is followed like a policy file's link: its folders and its target are checked.
    fs::write(fixture.root().join("elsewhere.toml"), FAILS).expect("written");
    symlink("elsewhere.toml", &file).expect("linked");
    assert_eq!(portcullis(&fixture, &["call", "file_list"]).status.code(), Some(2));
    fs::set_permissions(fixture.root().join("elsewhere.toml"), Permissions::from_mode(0o666))
        .expect("opened");
    refused("can be written by everybody (mode 0666)");
    fs::remove_file(&file).expect("removed");
    symlink("nowhere.toml", &file).expect("linked");
    assert!(portcullis(&fixture, &["call", "file_list"]).status.success(), "a link to nothing is not a file");
}

#[test]
fn names_from_the_file_are_escaped() {
    let fixture = fixture(
        "[[expect]]\nname = \"a\\u001b[2J\\u202eb\\nok     expect\"\ntool = \"echo\"\nurl = \"http://\\u001b\"\nverdict = \"ask\"\n",
    );
    let tested = portcullis(&fixture, &["policy", "test"]);
    let called = portcullis(&fixture, &["call", "echo", "{\"text\":\"x\"}"]);
    for text in [stdout(&tested), stderr(&called)] {
        assert!(text.contains("FAILS  expect  a\\u{1b}[2J"), "{text}");
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}') && !text.contains("\nok "),
            "{text:?}"
        );
    }
}

#[test]
fn a_digest_is_signed_off_until_its_day() {
    let fixture = Fixture::new();
    let shown = portcullis(&fixture, &["policy", "show", "--json"]);
    let shown: Value = serde_json::from_str(&stdout(&shown)).expect("JSON");
    let digest = shown["digest"].as_str().expect("a digest").to_owned();
    let check = |text: &str, code: i32, expected: &str| {
        fs::write(expectations(&fixture), text).expect("written");
        let output = portcullis(&fixture, &["policy", "test"]);
        assert_eq!(output.status.code(), Some(code), "{}{}", stdout(&output), stderr(&output));
        assert!(stdout(&output).contains(expected), "{}", stdout(&output));
    };
    check(
        &format!("[[unchanged]]\ndigest = \"{}\"\nuntil = \"9999-12-31\"\n", &digest[..12]),
        0,
        "ok     unchanged",
    );
    check(
        &format!("[[unchanged]]\ndigest = \"{digest}\"\nuntil = \"2020-01-01\"\nby = \"j\"\n"),
        1,
        "expired",
    );
    check(
        "[[unchanged]]\ndigest = \"000000000000\"\nby = \"j.doe\"\n",
        1,
        "signed off by j.doe: its digest is",
    );
    // An overlay changes the policy in force, and so the digest.
    super::write_overlay(&fixture, "[limits]\nconcurrency = 3\n");
    check(
        &format!("[[unchanged]]\ndigest = \"{digest}\"\n"),
        1,
        "the policy was changed after it was signed off",
    );
}

/// The file with a project's expectations is beside its policy, under the project's name, and is not a
/// project.
#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test, in a project")]
fn a_project_has_expectations_of_its_own() {
    let root = tempfile::tempdir().expect("a folder");
    let (home, folder) = (root.path().join("home"), root.path().join("code"));
    fs::create_dir_all(&home).expect("the folder can be made");
    fs::create_dir_all(&folder).expect("the folder can be made");
    let run = |words: &[&str]| {
        std::process::Command::new(portcullis_testing::binary())
            .args(words)
            .env_clear()
            .env("HOME", &home)
            .env("PATH", "/usr/bin:/bin")
            .current_dir(&folder)
            .output()
            .expect("starts")
    };
    let output = run(&["init"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let projects = home.join(".config/portcullis/projects");
    assert!(projects.join("code.toml").is_file());
    fs::write(
        projects.join("code.expect.toml"),
        "[[expect]]\ntools = \"*\"\npaths = \"/project/**/.env\"\nverdict = \"deny\"\n",
    )
    .expect("written");
    let output = run(&["policy", "test"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).contains("every tool /project/**/.env: deny"), "{}", stdout(&output));
}
