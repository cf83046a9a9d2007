//! The output of `policy check`: every rule in force, and warnings about entries that are hardly meant.

use portcullis_testing::{CallOutcome, World};
use portcullis_types::ToolErrorKind::Denied;
use serde_json::json;

use crate::modules::{portcullis, stderr, stdout};

/// The output and the warnings about a world's policy: the policy in force, and the file alone.
fn checks(world: &World) -> [(String, String); 2] {
    let policy = world.policy_file();
    [&["policy", "check"][..], &["policy", "check", policy.to_str().expect("text")]].map(|words| {
        let output = portcullis(world, words);
        assert!(output.status.success(), "{}", stderr(&output));
        (stdout(&output), stderr(&output))
    })
}

#[test]
fn the_whole_policy_is_shown_with_a_warning_about_secrets() {
    let world =
        World::new().with_policy_edit("environment = []", "environment = [\"AWS_SECRET_ACCESS_KEY\"]");
    for (shown, warned) in checks(&world) {
        for line in [
            "environment = [\"AWS_SECRET_ACCESS_KEY\"]",
            "[protect]",
            "\".git/hooks\"",
            "sync = \"interval\"",
            "calls_per_minute = 600",
            "file_size = \"1GiB\"",
            "require = [\"landlock\", \"seccomp\"]",
        ] {
            assert!(shown.contains(line), "{line}\n{shown}");
        }
        assert!(warned.contains("shell.environment[0]: this looks like the name of a secret"), "{warned}");
    }
    assert!(checks(&World::new()).iter().all(|(_, warned)| warned.is_empty()));
}

#[tokio::test]
async fn a_list_of_protected_names_adds_to_the_shipped_ones() {
    let shipped = "paths = [\".git/hooks\", \".git/config\", \".git/config.worktree\", \".git/commondir\", \".bashrc\", \".bash_profile\", \".profile\", \".zshrc\", \".envrc\", \".vscode/tasks.json\", \".mcp.json\"]";
    let world = World::new().with_policy_edit(shipped, "paths = [\"Makefile\"]\nexcept = [\".envrc\"]");
    let registry = world.registry().await;
    for path in [".git/hooks/pre-commit", "Makefile", "a/.mcp.json"] {
        let write = json!({"path": path, "content": "x"});
        CallOutcome::of(&registry, "file_write", write).await.refused(Denied, "protected_path");
    }
    let write = json!({"path": ".envrc", "content": "x"});
    assert!(CallOutcome::of(&registry, "file_write", write).await.0.outcome.is_ok());
    for (shown, warned) in checks(&world) {
        assert!(shown.contains("except = [\".envrc\"]") && shown.contains("\"makefile\""), "{shown}");
        assert!(warned.contains("protect.except[0]: a shipped name is not protected"), "{warned}");
    }
}

#[test]
fn unused_or_shadowed_entry_is_warned_of() {
    let world = World::new()
        .with_policy("[profiles.Spare]\nmounts = { shared = \"read\" }")
        .with_policy_edit("vault  = \"vault\"", "vault  = \"vault\"\nattic = \"attic\"")
        .with_policy_edit("deny        = []", "deny = [\"git\"]\nallow = [\"git push\", \"ls\"]");
    super::overlay(&world, "[limits]\nconcurrency = 10\n");
    let [(_, in_force), (_, alone)] = checks(&world);
    for warned in [&in_force, &alone] {
        for words in [
            "profiles.Spare: no tier and no tool has this profile",
            "mounts.attic: no profile and no shell has this mount",
            "shell.allow: `git push` allows nothing: `git` in `deny` covers it",
        ] {
            assert!(warned.contains(words), "{words}\n{warned}");
        }
    }
    assert!(in_force.contains("limits.concurrency: this takes nothing away"), "{in_force}");
    assert!(!alone.contains("concurrency"), "{alone}");
}

#[test]
fn one_mistake_is_told_once_and_where_it_is() {
    let world = World::new();
    let check = |text: &[u8]| {
        let file = world.root().join("p.toml");
        std::fs::write(&file, text).expect("written");
        let output = portcullis(&world, &["policy", "check", file.to_str().expect("text")]);
        assert_eq!(output.status.code(), Some(2));
        let root = format!("{}/", world.root().display());
        stderr(&output)
            .replace(&root, "")
            .lines()
            .filter(|line| line.starts_with("p.toml:"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let policy = std::fs::read_to_string(world.policy_file()).expect("readable");
    let unclosed = policy.replace(
        "mounts = { shared = \"read\", tmp = \"read\" }",
        "mounts = { shared = \"read\", tmp = \"read\"",
    );
    let line = unclosed.lines().position(|line| line.ends_with("tmp = \"read\"")).expect("there") + 1;
    assert_eq!(
        check(unclosed.as_bytes()),
        format!("p.toml:{line}:10: `{{` is not closed; a `}}` is missing")
    );
    let mount = policy.replace("tmp    = \"tmp\"", "tmp    = \"/tmp\"");
    let line = mount.lines().position(|line| line.contains("\"/tmp\"")).expect("there") + 1;
    assert_eq!(
        check(mount.as_bytes()),
        format!(
            "p.toml:{line}:10: mounts.tmp: a mount lies in the workspace: write the folder relative to it"
        )
    );
    assert_eq!(
        check(b"{\"version\": 1}"),
        "p.toml:1:1: this looks like JSON; a policy is TOML and begins with `version = 1`"
    );
    let twins = format!("{policy}\n[profiles.workspaceread]\n");
    assert!(check(twins.as_bytes()).contains("differ in case only; use another name"));
    let wide: Vec<u8> = "version = 1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let file = world.root().join("p.toml");
    std::fs::write(&file, [&[0xff, 0xfe], wide.as_slice()].concat()).expect("written");
    let output = portcullis(&world, &["policy", "check", file.to_str().expect("text")]);
    assert!(stderr(&output).contains("it is UTF-16; save it as UTF-8"), "{}", stderr(&output));
}
