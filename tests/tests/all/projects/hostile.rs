//! Repositories that bring more than files: hard links, FIFOs, Git folders of other names, strange file names.

use std::{fs, os::unix::fs::MetadataExt as _};

use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;

use super::Home;

#[test]
fn a_hard_link_of_a_repository_is_not_written() {
    let home = Home::with_project();
    fs::write(home.path("settings"), "theirs\n").expect("written");
    fs::hard_link(home.path("settings"), home.path("code/src/linked")).expect("linked");
    let append = json!({"path": "src/linked", "content": "mine\n", "mode": "append"}).to_string();
    let refusal = home.refusal("code", &["call", "file_write", &append], 3);
    assert!(refusal.contains("linked"), "{refusal}");
    let doctor = home.run("code", &["doctor"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("/project/src/linked"), "{doctor:?}");
    // A write of the whole content creates a new file, so the file outside is unchanged.
    home.call("code", "file_write", &json!({"path": "src/linked", "content": "mine\n"}));
    assert_eq!(fs::metadata(home.path("settings")).expect("the path exists").nlink(), 1);
    assert_eq!(fs::read_to_string(home.path("settings")).expect("read"), "theirs\n");
}

#[test]
fn a_fifo_of_a_repository_holds_nothing_up() {
    let home = Home::with_project();
    rustix::fs::mknodat(CWD, home.path("code/src/pipe"), FileType::Fifo, Mode::from_raw_mode(0o666), 0)
        .expect("the FIFO can be made");
    for (tool, arguments) in [
        ("file_read", json!({"path": "src/pipe"})),
        ("file_write", json!({"path": "src/pipe", "content": "x"})),
    ] {
        let output = home.run("code", &["call", tool, &arguments.to_string()]);
        assert!(!output.status.success(), "{tool}: {output:?}");
    }
    let found = home.call("code", "file_search", &json!({"query": "fn main"}));
    assert!(found.contains("main.rs"), "{found}");
    assert!(home.call("code", "file_list", &json!({"path": "src"})).contains("pipe"));
}

#[test]
fn git_folders_of_any_form_are_protected() {
    let home = Home::with_project();
    // A submodule's `.git` is a file, and its repository is inside the project's repository. A worktree also
    // has such a file.
    for folder in ["code/.git/modules/sub/objects", "code/.git/modules/sub/refs", "code/sub"] {
        fs::create_dir_all(home.path(folder)).expect("the folder can be made");
    }
    for (path, text) in [
        ("code/.git/HEAD", "ref: refs/heads/main\n"),
        ("code/.git/modules/sub/HEAD", "ref: refs/heads/main\n"),
        ("code/sub/.git", "gitdir: ../.git/modules/sub\n"),
        ("code/.gitmodules", "[submodule \"sub\"]\n\tpath = sub\n"),
        ("code/sub/file", "text\n"),
    ] {
        fs::write(home.path(path), text).expect("written");
    }
    for path in [
        ".git/hooks/pre-commit",
        ".git/config",
        ".git/modules/sub/hooks/post-checkout",
        ".git/modules/sub/config",
        "sub/.git",
        "SUB/.GIT",
        "sub/.git/hooks/pre-commit",
    ] {
        let write = json!({"path": path, "content": "#!/bin/sh\n"}).to_string();
        let output = home.run("code", &["call", "file_write", &write]);
        assert_eq!(output.status.code(), Some(3), "{path}: {output:?}");
    }
    assert!(!home.path("code/.git/hooks").exists() && !home.path("code/.git/modules/sub/config").exists());
    let sub = fs::read_to_string(home.path("code/sub/.git")).expect("the file is readable");
    assert_eq!(sub, "gitdir: ../.git/modules/sub\n");
    // All other files of a submodule are ordinary files of the project.
    home.call("code", "file_write", &json!({"path": "sub/file", "content": "new\n"}));
}

#[test]
fn names_with_line_ends_and_escapes_are_escaped_and_undone() {
    let home = Home::with_project();
    let names = ["two\nlines", "esc\u{1b}[2J", "right\u{202e}left", "--option", " blank "];
    for name in names {
        fs::write(home.path("code").join(name), "before\n").expect("written");
    }
    let listed = home.answer("code", &["call", "file_list"]);
    assert!(!listed.contains('\u{1b}') && !listed.contains('\u{202e}'), "{listed:?}");
    for name in names {
        home.call("code", "file_write", &json!({"path": name, "content": "after\n"}));
    }
    let changes = home.answer("code", &["changes", "--run", "cli"]);
    assert!(!changes.contains('\u{1b}') && !changes.contains('\u{202e}'), "{changes:?}");
    assert_eq!(changes.matches("\n+after").count(), names.len(), "{changes}");
    home.answer("code", &["undo", "--run", "cli"]);
    for name in names {
        assert_eq!(
            fs::read_to_string(home.path("code").join(name)).expect("the file is readable"),
            "before\n",
            "{name:?}"
        );
    }
}
