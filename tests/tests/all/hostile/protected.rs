//! Protected paths, from which other programs run code: no name and no operation lets a guest write them.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
};

use portcullis_testing::Fixture;
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use super::{Trial, entry, snapshot::Snapshot};

/// Creates a repository with a hook, links to the repository, and a folder prepared as its replacement.
async fn protected_trial() -> Trial {
    let fixture = Fixture::new()
        .with_policy_edit("calls_per_minute = 600", "calls_per_minute = 100000")
        .with_policy(&entry("raw_path", "FileReadWrite", "15s"));
    for (path, content) in [
        ("repo/.git/hooks/pre-commit", "good"),
        ("repo/.git/config", "good"),
        ("repo/.git/index", "good"),
        ("repo/.bashrc", "good"),
        ("fresh/file", "good"),
        ("file", "evil"),
        ("prepared/hooks/pre-commit", "evil"),
        ("prepared/config", "evil"),
    ] {
        fixture.put(path, content);
    }
    fs::create_dir(fixture.shared("fresh/.GIT")).expect("the folder can be made");
    fs::create_dir(fixture.shared("repo/.vscode")).expect("the folder can be made");
    symlink("repo/.git/hooks", fixture.shared("hooks")).expect("linked");
    symlink("repo/.git", fixture.shared("git")).expect("linked");
    symlink("repo/.git/config", fixture.shared("config")).expect("linked");
    symlink("../.bashrc", fixture.shared("fresh/dangling")).expect("linked");
    symlink("../../file", fixture.shared("repo/.vscode/tasks.json")).expect("linked");
    Trial::in_fixture(fixture, "raw_path").await
}

async fn check(trial: &Trial, arguments: Value) {
    let before = Snapshot::take(&trial.fixture.workspace());
    let answer = trial.call(arguments.clone()).await;
    before.assert_unchanged(&Snapshot::take(&trial.fixture.workspace()), &arguments.to_string());
    let Some(error) = answer.0.outcome.error() else { panic!("{arguments}: {}", answer.text()) };
    assert_eq!(
        (error.kind(), error.code()),
        (ToolErrorKind::Denied, "protected_path"),
        "{arguments}: {error}"
    );
}

#[tokio::test]
async fn a_protected_file_is_not_written_by_any_operation() {
    let trial = protected_trial().await;
    for path in [
        "repo/.git/config",
        "repo/.git/hooks/pre-commit",
        "repo/.bashrc",
        "config",
        "hooks/pre-commit",
        "git/config",
    ] {
        for op in ["write", "truncate", "touch"] {
            check(&trial, json!({"op": op, "path": path})).await;
        }
    }
    for path in [
        "repo/.git/config",
        "repo/.git/hooks/pre-commit",
        "repo/.bashrc",
        "git/config",
        "repo/.vscode/tasks.json",
    ] {
        check(&trial, json!({"op": "remove", "path": path})).await;
        check(&trial, json!({"op": "rename", "path": path, "to": "moved"})).await;
        check(&trial, json!({"op": "rename", "path": "file", "to": path})).await;
        check(&trial, json!({"op": "link", "path": "file", "to": path})).await;
        check(&trial, json!({"op": "symlink", "path": "file", "to": path})).await;
    }
    // The file would lose its protection under a second name.
    check(&trial, json!({"op": "link", "path": "repo/.git/config", "to": "second"})).await;
    check(&trial, json!({"op": "link", "path": "git/config", "to": "second"})).await;
    check(&trial, json!({"op": "write", "path": "repo/.vscode/tasks.json"})).await;
    check(&trial, json!({"op": "rmdir", "path": "repo/.git/hooks"})).await;
    check(&trial, json!({"op": "rename", "path": "repo/.git/hooks", "to": "moved"})).await;
}

#[tokio::test]
async fn an_open_protected_file_keeps_its_times() {
    let trial = protected_trial().await;
    let before = Snapshot::take(&trial.fixture.workspace());
    trial.call(json!({"op": "touch_open", "path": "repo/.git/config"})).await;
    before.assert_unchanged(&Snapshot::take(&trial.fixture.workspace()), "touch_open");
}

#[tokio::test]
async fn no_protected_name_is_made_at_any_depth() {
    let trial = protected_trial().await;
    for path in [
        ".bashrc",
        ".BashRC",
        "fresh/.envrc",
        ".ba\u{17f}hrc",
        ".mcp.json",
        "repo/.git/hooks/post-merge",
        "hooks/post-merge",
        "git/hooks/post-merge",
        "fresh/.GIT/Hooks",
        "fresh/.GIT/config",
        "fresh/./.GIT/../.GIT/config",
    ] {
        check(&trial, json!({"op": "create", "path": path})).await;
        check(&trial, json!({"op": "mkdir", "path": path})).await;
        check(&trial, json!({"op": "rename", "path": "file", "to": path})).await;
        check(&trial, json!({"op": "rename", "path": "prepared", "to": path})).await;
        check(&trial, json!({"op": "link", "path": "file", "to": path})).await;
        check(&trial, json!({"op": "symlink", "path": "file", "to": path})).await;
    }
}

/// The WASI layer removes redundant parts of a path before it asks the kernel, but the check of protected paths sees
/// the path as written. A path that exceeds the kernel's limit as written cannot be checked, and is therefore
/// refused.
#[tokio::test]
async fn an_overlong_spelling_reaches_no_protected_path() {
    let trial = protected_trial().await;
    let before = Snapshot::take(&trial.fixture.workspace());
    let slashes = |parent: &str, name: &str| format!("{parent}{}{name}", "/".repeat(5000));
    let dots = |parent: &str, name: &str| format!("{parent}/{}{name}", "./".repeat(2500));
    let up_and_down = |parent: &str, name: &str| format!("{}{parent}/{name}", "repo/../".repeat(700));
    for spelling in [&slashes as &dyn Fn(&str, &str) -> String, &dots, &up_and_down] {
        let (config, hooks) = (spelling("repo/.git", "config"), spelling("repo/.git", "hooks"));
        let new = spelling("repo/.git/hooks", "post-merge");
        for arguments in [
            json!({"op": "remove", "path": config}),
            json!({"op": "write", "path": config}),
            json!({"op": "truncate", "path": config}),
            json!({"op": "touch", "path": config}),
            json!({"op": "rename", "path": config, "to": "moved"}),
            json!({"op": "rename", "path": "file", "to": config}),
            json!({"op": "rename", "path": hooks, "to": "moved"}),
            json!({"op": "link", "path": config, "to": "second"}),
            json!({"op": "link", "path": "file", "to": new}),
            json!({"op": "symlink", "path": "file", "to": new}),
            json!({"op": "symlink", "path": "../../../outside", "to": spelling("repo", "link")}),
            json!({"op": "mkdir", "path": new}),
            json!({"op": "create", "path": new}),
        ] {
            trial.call(arguments.clone()).await;
            before
                .assert_unchanged(&Snapshot::take(&trial.fixture.workspace()), &arguments["op"].to_string());
        }
    }
}

#[tokio::test]
async fn repository_is_not_replaced_by_a_prepared_folder() {
    let trial = protected_trial().await;
    for path in ["fresh/.git", ".git", ".Git", "repo/.vscode"] {
        check(&trial, json!({"op": "rename", "path": "prepared", "to": path})).await;
        check(&trial, json!({"op": "rename", "path": "git", "to": path})).await;
        check(&trial, json!({"op": "symlink", "path": "prepared", "to": path})).await;
    }
    // `.git` may be a file with the repository's location, which Git then follows like a link.
    check(&trial, json!({"op": "create", "path": "fresh/.git"})).await;
    check(&trial, json!({"op": "link", "path": "file", "to": "fresh/.git"})).await;
    // If the repository could be moved away, its files would become writable, and a second rename could move
    // them back.
    check(&trial, json!({"op": "rename", "path": "repo/.git", "to": "prepared/git"})).await;
}

/// A worktree's `.git` is a file or a link, and decides where the repository is.
#[tokio::test]
async fn a_git_file_or_link_is_neither_removed_linked_nor_renamed() {
    let trial = protected_trial().await;
    trial.fixture.put("tree/.git", "gitdir: ../repo/.git");
    fs::create_dir(trial.fixture.shared("other")).expect("the folder can be made");
    symlink("../repo/.git", trial.fixture.shared("other/.git")).expect("linked");
    for path in ["tree/.git", "other/.git"] {
        check(&trial, json!({"op": "remove", "path": path})).await;
        check(&trial, json!({"op": "link", "path": path, "to": "second"})).await;
        check(&trial, json!({"op": "rename", "path": path, "to": "second"})).await;
    }
    check(&trial, json!({"op": "write", "path": "tree/.git"})).await;
    check(&trial, json!({"op": "create", "path": "repo/.git/commondir"})).await;
    check(&trial, json!({"op": "create", "path": "repo/.git/config.worktree"})).await;
}

/// A file takes over the permissions of the file that it replaces. A failed rename must leave them unchanged.
#[tokio::test]
async fn a_rename_that_fails_changes_no_permissions() {
    for profile in ["WorkspaceRead", "FileReadWrite"] {
        let fixture = Fixture::new().with_policy(&entry("raw_path", profile, "15s"));
        for (name, mode) in [("key", 0o600), ("public", 0o644), ("sub/inner", 0o640)] {
            fixture.put(name, name);
            fs::set_permissions(fixture.shared(name), fs::Permissions::from_mode(mode))
                .expect("the permissions can be set");
        }
        let trial = Trial::in_fixture(fixture, "raw_path").await;
        let before = Snapshot::take(&trial.fixture.workspace());
        let key_change_time = || {
            fs::metadata(trial.fixture.shared("key"))
                .map(|key| (key.ctime(), key.ctime_nsec()))
                .expect("there")
        };
        let original_change_time = key_change_time();
        // A file cannot replace a directory, and a rename cannot replace anything in a read-only mount.
        let to = if profile == "WorkspaceRead" { "public" } else { "public/" };
        let answer = trial.call(json!({"op": "rename", "path": "key", "to": to})).await.text();
        assert!(answer.starts_with("errno "), "{profile}: {answer}");
        before.assert_unchanged(&Snapshot::take(&trial.fixture.workspace()), profile);
        assert_eq!(key_change_time(), original_change_time, "{profile}: not even for a moment");
    }
}

#[tokio::test]
async fn times_of_a_pipe_are_not_waited_for() {
    let trial = protected_trial().await;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, trial.fixture.shared("pipe"), rustix::fs::FileType::Fifo, mode, 0)
        .expect("the FIFO can be made");
    let answer = trial.call(json!({"op": "touch", "path": "pipe"})).await.text();
    assert!(answer.starts_with("errno "), "{answer}");
}

#[tokio::test]
async fn a_dangling_link_to_a_protected_name_makes_nothing() {
    let trial = protected_trial().await;
    let before = Snapshot::take(&trial.fixture.workspace());
    for op in ["write", "create", "truncate"] {
        trial.call(json!({"op": op, "path": "fresh/dangling"})).await;
        before.assert_unchanged(&Snapshot::take(&trial.fixture.workspace()), op);
    }
}

#[tokio::test]
async fn unprotected_path_is_written() {
    let trial = protected_trial().await;
    for (arguments, path) in [
        (json!({"op": "write", "path": "repo/.git/index"}), "repo/.git/index"),
        (json!({"op": "create", "path": "repo/.gitignore"}), "repo/.gitignore"),
        (json!({"op": "mkdir", "path": "new/.git"}), "new/.git"),
        (json!({"op": "rename", "path": "repo", "to": "other"}), "other/.git/config"),
    ] {
        fs::create_dir_all(trial.fixture.shared("new")).expect("the folder can be made");
        assert_eq!(trial.call(arguments.clone()).await.text(), "ok ", "{arguments}");
        assert!(trial.fixture.shared(path).exists(), "{path}");
    }
}
