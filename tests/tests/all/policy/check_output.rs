//! The output of `policy check`: every rule in force, and warnings about entries that are probably mistakes.

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_types::ToolErrorKind::Denied;
use serde_json::json;

use crate::modules::{portcullis, stderr, stdout};

/// Returns the output and the warnings of `policy check`: for the policy in force, and for only the file.
fn policy_check_outputs(fixture: &Fixture) -> [(String, String); 2] {
    let policy = fixture.policy_file();
    [&["policy", "check"][..], &["policy", "check", policy.to_str().expect("the path is UTF-8")]].map(
        |words| {
            let output = portcullis(fixture, words);
            assert!(output.status.success(), "{}", stderr(&output));
            (stdout(&output), stderr(&output))
        },
    )
}

#[test]
fn the_whole_policy_is_shown_with_a_warning_about_secrets() {
    let fixture =
        Fixture::new().with_policy_edit("environment = []", "environment = [\"AWS_SECRET_ACCESS_KEY\"]");
    for (stdout_text, warnings) in policy_check_outputs(&fixture) {
        for line in [
            "environment = [\"AWS_SECRET_ACCESS_KEY\"]",
            "[protect]",
            "\".git/hooks\"",
            "sync = \"interval\"",
            "calls_per_minute = 600",
            "file_size = \"1GiB\"",
            "require = [\"landlock\", \"seccomp\"]",
        ] {
            assert!(stdout_text.contains(line), "{line}\n{stdout_text}");
        }
        assert!(
            warnings.contains("shell.environment[0]: this looks like the name of a secret"),
            "{warnings}"
        );
    }
    assert!(policy_check_outputs(&Fixture::new()).iter().all(|(_, warnings)| warnings.is_empty()));
}

#[tokio::test]
async fn a_list_of_protected_names_adds_to_the_shipped_ones() {
    let fixture = Fixture::new()
        .with_policy_key("protect.paths", "[\"Makefile\"]")
        .with_policy_key("protect.except", "[\".envrc\"]");
    let registry = fixture.registry().await;
    for path in [".git/hooks/pre-commit", "Makefile", "a/.mcp.json"] {
        let write = json!({"path": path, "content": "x"});
        CallOutcome::run(&registry, "file_write", write).await.assert_refused(Denied, "protected_path");
    }
    let write = json!({"path": ".envrc", "content": "x"});
    assert!(CallOutcome::run(&registry, "file_write", write).await.0.outcome.is_output());
    for (stdout_text, warnings) in policy_check_outputs(&fixture) {
        assert!(
            stdout_text.contains("except = [\".envrc\"]") && stdout_text.contains("\"makefile\""),
            "{stdout_text}"
        );
        assert!(warnings.contains("protect.except[0]: a shipped name is no longer protected"), "{warnings}");
    }
}

#[test]
fn unused_or_shadowed_entry_is_warned_of() {
    let fixture = Fixture::new()
        .with_policy("[profiles.Spare]\nmounts = { shared = \"read\" }")
        .with_policy_key("mounts.attic", "\"attic\"")
        .with_policy_key("shell.deny", "[\"git\"]")
        .with_policy_key("shell.allow", "[\"git push\", \"ls\"]");
    super::write_overlay(&fixture, "[limits]\nconcurrency = 10\n");
    let [(_, in_force), (_, alone)] = policy_check_outputs(&fixture);
    for warnings in [&in_force, &alone] {
        for words in [
            "profiles.Spare: no tier and no tool has this profile",
            "mounts.attic: no profile and no shell has this mount",
            "shell.allow: `git push` allows nothing: `git` in `deny` covers it",
        ] {
            assert!(warnings.contains(words), "{words}\n{warnings}");
        }
    }
    assert!(in_force.contains("limits.concurrency: this takes nothing away"), "{in_force}");
    assert!(!alone.contains("concurrency"), "{alone}");
}

#[test]
fn one_mistake_is_reported_once_with_its_location() {
    let fixture = Fixture::new();
    let check = |text: &[u8]| {
        let file = fixture.root().join("p.toml");
        std::fs::write(&file, text).expect("written");
        let output = portcullis(&fixture, &["policy", "check", file.to_str().expect("the path is UTF-8")]);
        assert_eq!(output.status.code(), Some(2));
        let root = format!("{}/", fixture.root().display());
        stderr(&output)
            .replace(&root, "")
            .lines()
            .filter(|line| line.starts_with("p.toml:"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let policy = std::fs::read_to_string(fixture.policy_file()).expect("readable");
    let unclosed = policy.replace(
        "mounts = { shared = \"read\", tmp = \"read\" }",
        "mounts = { shared = \"read\", tmp = \"read\"",
    );
    let line =
        unclosed.lines().position(|line| line.ends_with("tmp = \"read\"")).expect("the policy has the line")
            + 1;
    assert_eq!(
        check(unclosed.as_bytes()),
        format!("p.toml:{line}:10: `{{` is not closed; a `}}` is missing")
    );
    let mount = policy.replace("tmp    = \"tmp\"", "tmp    = \"../tmp\"");
    let line =
        mount.lines().position(|line| line.contains("\"../tmp\"")).expect("the policy has the line") + 1;
    assert_eq!(
        check(mount.as_bytes()),
        format!(
            "p.toml:{line}:10: mounts.tmp: `..` is not allowed in a mount's folder: write its absolute path"
        )
    );
    assert_eq!(
        check(b"{\"version\": 1}"),
        "p.toml:1:1: this looks like JSON; a policy is TOML and begins with `version = 1`"
    );
    let twins = format!("{policy}\n[profiles.workspaceread]\n");
    assert!(check(twins.as_bytes()).contains("differ in case only; use another name"));
    let wide: Vec<u8> = "version = 1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let file = fixture.root().join("p.toml");
    std::fs::write(&file, [&[0xff, 0xfe], wide.as_slice()].concat()).expect("written");
    let output = portcullis(&fixture, &["policy", "check", file.to_str().expect("the path is UTF-8")]);
    assert!(stderr(&output).contains("it is UTF-16; save it as UTF-8"), "{}", stderr(&output));
}
