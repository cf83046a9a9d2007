//! Paths that no tool may write, at any depth and in any spelling.

use std::{fs, os::unix::fs::symlink};

use portcullis_types::ToolErrorKind::Denied;
use serde_json::json;

use super::{FileSetup, writing};

async fn assert_denied(setup: &FileSetup, path: &str) {
    for mode in ["create", "overwrite", "append"] {
        let message = setup.assert_refused("file_write", writing(path, mode), Denied, "protected_path").await;
        assert!(message.contains("protected"), "{message}");
    }
}

#[tokio::test]
async fn protected_paths_are_refused_at_any_depth_and_in_any_case() {
    let setup = FileSetup::new().await;
    let patterns: Vec<String> = setup.registry.policy().protected().patterns().map(str::to_owned).collect();
    assert_eq!(patterns.len(), 12, "the shipped ones");
    for pattern in &patterns {
        let upper = pattern.to_uppercase();
        for path in [
            format!("/shared/{pattern}"),
            format!("/tmp/{pattern}"),
            format!("/shared/a/b/{pattern}"),
            format!("/shared/{pattern}/below"),
            format!("/shared/{upper}"),
            format!("deep/er/{upper}/x"),
            format!("/shared//./{pattern}/"),
            format!("/shared/d/../{pattern}"),
        ] {
            setup.assert_refused("file_write", writing(&path, "overwrite"), Denied, "protected_path").await;
        }
        assert_denied(&setup, &format!("new/{pattern}")).await;
    }
}

#[tokio::test]
async fn disguises_of_protected_names_are_seen_through() {
    let setup = FileSetup::new().await;
    for path in [
        "/shared/.Git/hOOks/pre-commit",
        "/shared/.g\u{200c}it/hooks/pre-commit",
        "/shared/.ba\u{17f}hrc",
        "/shared/.git/x/../hooks/pre-commit",
        "/shared/.vscode/tas\u{212a}s.json",
    ] {
        assert_denied(&setup, path).await;
    }
}

#[tokio::test]
async fn a_link_does_not_bypass_a_protected_path() {
    let setup = FileSetup::new().await;
    let shared = |name: &str| setup.fixture.shared(name);
    setup.fixture.put("repo/.git/config", "[core]\n");
    setup.fixture.put("repo/.git/index", "index");
    fs::create_dir(shared("repo/.git/hooks")).expect("a folder");
    symlink("repo/.git/config", shared("innocent.txt")).expect("a link");
    symlink("repo/.git", shared("innocent")).expect("a link");
    symlink("innocent/hooks", shared("hooks")).expect("a link");
    symlink("repo", shared("again")).expect("a link");
    for path in [
        "/shared/innocent.txt",
        "/shared/innocent/config",
        "/shared/innocent/hooks/pre-commit",
        "/shared/innocent/hooks/new/er/pre-commit",
        "/shared/hooks/pre-commit",
        "/shared/again/.git/config",
        "/shared/d/../hooks/post-merge",
    ] {
        assert_denied(&setup, path).await;
    }
    // A sibling of a protected file may be written, and a protected file may be read.
    let beside_result = setup.call("file_write", writing("/shared/innocent/index", "overwrite")).await;
    assert!(beside_result.0.outcome.is_output(), "{:?}", beside_result.0.outcome);
    let read = setup.call("file_read", json!({"path": "/shared/innocent.txt"})).await;
    assert_eq!(read.text(), "[core]\n");
}

#[tokio::test]
async fn path_that_only_resembles_a_protected_one_is_written() {
    let setup = FileSetup::new().await;
    for path in ["/shared/.gitignore", "/shared/.git/info/x", "/shared/hooks/pre-commit", "/tmp/.bashrc.bak"]
    {
        let written = setup.call("file_write", writing(path, "create")).await;
        assert!(written.0.outcome.is_output(), "{path}: {:?}", written.0.outcome);
    }
    assert!(setup.fixture.shared("hooks/pre-commit").is_file());
}

#[tokio::test]
async fn write_that_makes_another_repository_is_refused() {
    let setup = FileSetup::new().await;
    for file in ["bare/objects/x", "bare/refs/x", "bare/HEAD", "half/objects/x", "half/refs/x", "tree/HEAD"] {
        setup.fixture.put(file, "x");
    }
    symlink("bare", setup.fixture.shared("again")).expect("a link");
    for path in [
        "/shared/bare/config",
        "/shared/bare/Config",
        "/shared/again/hooks/pre-commit",
        "/shared/bare/x/../config.worktree",
        // The last file that makes a folder a repository.
        "/shared/half/HEAD",
        "/shared/tree/commondir",
        // A `.git` file points to a repository as well.
        "/shared/half/.git",
    ] {
        assert_denied(&setup, path).await;
    }
    assert!(!setup.fixture.shared("half/HEAD").exists() && !setup.fixture.shared("half/.git").exists());
    for path in ["/shared/bare/index", "/shared/half/config", "/shared/half/hooks/x", "/shared/config"] {
        let written = setup.call("file_write", writing(path, "create")).await;
        assert!(written.0.outcome.is_output(), "{path}: {:?}", written.0.outcome);
    }
}
