//! Tests of `file_write` as native code, on a folder in place of the mounts.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use portcullis_sdk::{
    GuestPath, ToolError, ToolErrorKind,
    fs::replace::{Replacement, regular_file_metadata, replace},
    testing,
};

use super::*;

fn write(root: &Path, arguments: &str) -> Result<String, ToolError> {
    let output = testing::with_root(root, || testing::call(&file_write_tool(), arguments));
    output.map(|output| output.joined_text())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = folder.path().join("shared");
    fs::create_dir_all(shared.join("d")).expect("a directory");
    fs::write(shared.join("old"), "old").expect("a file");
    symlink("old", shared.join("link")).expect("a link");
    folder
}

/// The names in the mount, where no temporary file may remain.
fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(root.join("shared"))
        .expect("a mount")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort_unstable();
    names
}

#[track_caller]
fn check(arguments: &str, expected_answer: &str, file: &str, content: &str) {
    let folder = folder();
    assert_eq!(write(folder.path(), arguments).expect("writes"), expected_answer);
    let path = folder.path().join("shared").join(file);
    assert_eq!(fs::read_to_string(path).expect("the file"), content);
    assert!(names(folder.path()).iter().all(|name| !name.starts_with(".portcullis-tmp-")));
}

#[track_caller]
fn check_refused(arguments: &str, kind: ToolErrorKind, message: &str) {
    let folder = folder();
    let before = names(folder.path());
    let error = write(folder.path(), arguments).expect_err("refused");
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
    assert_eq!(names(folder.path()), before);
    assert_eq!(fs::read_to_string(folder.path().join("shared/old")).expect("the file"), "old");
}

#[test]
fn a_file_is_created_or_replaced_whole() {
    check(r#"{"path":"new","content":"é\n"}"#, "wrote 3 bytes to /shared/new", "new", "é\n");
    check(r#"{"path":"old","content":""}"#, "wrote 0 bytes to /shared/old", "old", "");
    check(r#"{"path":"a/b/c","content":"x"}"#, "wrote 1 bytes to /shared/a/b/c", "a/b/c", "x");
}

#[test]
fn create_never_replaces() {
    check(r#"{"path":"new","content":"x","mode":"create"}"#, "wrote 1 bytes to /shared/new", "new", "x");
    let exists = "already exists";
    check_refused(
        r#"{"path":"old","content":"x","mode":"create"}"#,
        ToolErrorKind::Failed,
        &format!("`/shared/old` {exists}"),
    );
    check_refused(
        r#"{"path":"link","content":"x","mode":"create"}"#,
        ToolErrorKind::Failed,
        &format!("`/shared/link` {exists}"),
    );
}

#[test]
fn append_adds_to_the_end_or_creates() {
    check(
        r#"{"path":"old","content":"er","mode":"append"}"#,
        "appended 2 bytes to /shared/old",
        "old",
        "older",
    );
    check(r#"{"path":"e/f","content":"x","mode":"append"}"#, "appended 1 bytes to /shared/e/f", "e/f", "x");
}

#[test]
fn refused_write_changes_no_file() {
    use ToolErrorKind as Kind;
    check_refused(
        r#"{"path":"link","content":"x"}"#,
        Kind::Failed,
        "cannot write `/shared/link`: it is a symbolic link: write to its target",
    );
    check_refused(
        r#"{"path":"d","content":"x"}"#,
        Kind::Failed,
        "cannot write `/shared/d`: it is a directory",
    );
    check_refused(
        r#"{"path":"/shared","content":"x"}"#,
        Kind::Failed,
        "cannot write `/shared`: it is a directory",
    );
    check_refused(
        r#"{"path":"old/x","content":"x"}"#,
        Kind::Failed,
        "cannot write `/shared/old/x`: a part of it is a file",
    );
    check_refused(
        r#"{"path":"d/..","content":"x"}"#,
        Kind::InvalidArguments,
        "field 'path': `/shared/d/..` names no file",
    );
    check_refused(
        r#"{"path":"old","content":"x","mode":"truncate"}"#,
        Kind::InvalidArguments,
        r#"field 'mode': "truncate" is not one of ["create", "overwrite", "append"]"#,
    );
    check_refused(
        r#"{"path":"../../x","content":"x"}"#,
        Kind::Denied,
        "`/shared/../../x` leads out of its mount",
    );
}

#[test]
fn concurrent_creation_succeeds_once() {
    let folder = folder();
    let won: usize = std::thread::scope(|scope| {
        let create = || write(folder.path(), r#"{"path":"race","content":"x","mode":"create"}"#).is_ok();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        threads.into_iter().map(|thread| usize::from(thread.join().expect("no panic"))).sum()
    });
    assert_eq!(won, 1);
}

#[test]
fn a_reader_never_sees_a_part() {
    let folder = folder();
    let path = folder.path().join("shared/old");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..200 {
                let content = if round % 2 == 0 { "a".repeat(100_000) } else { "b".repeat(50_000) };
                let arguments = format!(r#"{{"path":"old","content":"{content}"}}"#);
                write(folder.path(), &arguments).expect("writes");
            }
        });
        while !writer.is_finished() {
            let text = fs::read(&path).expect("always there");
            assert!(matches!(text.len(), 3 | 100_000 | 50_000), "{} bytes", text.len());
        }
    });
}

#[test]
fn the_mode_stays_and_no_temporary_file_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("run.sh");
    std::fs::write(&target, "old").expect("a file");
    std::fs::set_permissions(&target, Permissions::from_mode(0o754)).expect("a mode");
    let path = GuestPath::parse("run.sh").expect("a path");
    let before = regular_file_metadata(&target, Replacement::Write, &path).expect("a file");
    replace(&target, b"new", before.as_ref()).expect("replaces");
    assert_eq!(std::fs::read(&target).expect("reads"), b"new");
    let mode = std::fs::metadata(&target).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o754);
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 1);
}

#[test]
fn failed_replace_leaves_no_temporary_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("d");
    std::fs::create_dir_all(target.join("full")).expect("directories");
    assert!(replace(&target, b"new", None).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 1);
}
