//! Tests of `file_delete` as native code, on a folder in place of the mounts.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use portcullis_sdk::{ToolError, ToolErrorKind, testing};

use super::*;

fn delete(root: &Path, arguments: &str) -> Result<String, ToolError> {
    let output = testing::with_root(root, || testing::call(&file_delete_tool(), arguments));
    output.map(|output| output.joined_text())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = folder.path().join("shared");
    for directory in ["tree/a/b", "tree/empty", "kept", "bare"] {
        fs::create_dir_all(shared.join(directory)).expect("directories");
    }
    for file in ["file", "kept/precious", "tree/1", "tree/a/2", "tree/a/b/3"] {
        fs::write(shared.join(file), "x").expect("a file");
    }
    symlink("kept", shared.join("link")).expect("a link");
    symlink("nowhere", shared.join("dangling")).expect("a link");
    symlink("../kept", shared.join("tree/out")).expect("a link");
    symlink("..", shared.join("tree/a/up")).expect("a link");
    folder
}

/// Relative paths of everything below the mount. Links are not followed.
fn names(root: &Path) -> Vec<String> {
    let shared = root.join("shared");
    let mut names = Vec::new();
    let mut directories = vec![shared.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            names.push(path.strip_prefix(&shared).expect("below").to_str().expect("UTF-8").to_owned());
            if path.is_dir() && !path.is_symlink() {
                directories.push(path);
            }
        }
    }
    names.sort_unstable();
    names
}

#[track_caller]
fn check(arguments: &str, expected_answer: &str, gone: &str) {
    let folder = folder();
    let before = names(folder.path());
    assert_eq!(delete(folder.path(), arguments).expect("deletes"), expected_answer);
    let below = format!("{gone}/");
    let expected: Vec<String> =
        before.into_iter().filter(|name| name != gone && !name.starts_with(&below)).collect();
    assert_eq!(names(folder.path()), expected);
}

#[track_caller]
fn check_refused(arguments: &str, kind: ToolErrorKind, message: &str) {
    let folder = folder();
    let before = names(folder.path());
    let error = delete(folder.path(), arguments).expect_err("refused");
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
    assert_eq!(names(folder.path()), before);
}

#[test]
fn a_file_a_link_and_an_empty_directory_go_alone() {
    check(r#"{"path":"file"}"#, "deleted /shared/file: 1 file", "file");
    check(r#"{"path":"link"}"#, "deleted /shared/link: 1 symbolic link", "link");
    check(r#"{"path":"link/","recursive":true}"#, "deleted /shared/link: 1 symbolic link", "link");
    check(r#"{"path":"dangling"}"#, "deleted /shared/dangling: 1 symbolic link", "dangling");
    check(r#"{"path":"bare"}"#, "deleted /shared/bare: 1 empty directory", "bare");
    check(r#"{"path":"link/precious"}"#, "deleted /shared/link/precious: 1 file", "kept/precious");
}

#[test]
fn a_tree_goes_whole_and_links_in_it_are_not_followed() {
    check(
        r#"{"path":"tree","recursive":true}"#,
        "deleted /shared/tree: 3 files, 2 symbolic links, 4 directories",
        "tree",
    );
    check(r#"{"path":"bare","recursive":true}"#, "deleted /shared/bare: 1 directory", "bare");
    check(r#"{"path":"kept","recursive":true}"#, "deleted /shared/kept: 1 file, 1 directory", "kept");
}

#[test]
fn refused_delete_removes_no_file() {
    use ToolErrorKind as Kind;
    check_refused(
        r#"{"path":"tree"}"#,
        Kind::Failed,
        "`/shared/tree` is not empty (4 entries): set 'recursive' to delete it with all of them",
    );
    check_refused(
        r#"{"path":"kept"}"#,
        Kind::Failed,
        "`/shared/kept` is not empty (1 entry): set 'recursive' to delete it with all of them",
    );
    check_refused(r#"{"path":"x"}"#, Kind::NotFound, "no such file `/shared/x`");
    check_refused(
        r#"{"path":"file/x"}"#,
        Kind::Failed,
        "cannot delete `/shared/file/x`: a part of it is a file",
    );
    check_refused(
        r#"{"path":"../../x","recursive":true}"#,
        Kind::Denied,
        "`/shared/../../x` leads out of its mount",
    );
    for path in ["/shared", "/shared/.", ".", "/", "/shared//"] {
        let root = if path == "/" { "/" } else { "/shared" };
        check_refused(
            &format!(r#"{{"path":"{path}","recursive":true}}"#),
            Kind::InvalidArguments,
            &format!("field 'path': `{root}` is the directory of a mount; name something in it"),
        );
    }
    check_refused(
        r#"{"path":"tree/..","recursive":true}"#,
        Kind::InvalidArguments,
        "field 'path': `/shared/tree/..` names nothing to delete",
    );
}

#[test]
fn deep_and_wide_trees_go() {
    let folder = folder();
    let deep = folder.path().join("shared/deep");
    let mut directory = deep.clone();
    for _ in 0..1000 {
        directory.push("d");
    }
    fs::create_dir_all(&directory).expect("directories");
    for number in 0..3000 {
        fs::write(deep.join(number.to_string()), "").expect("a file");
    }
    let answer = delete(folder.path(), r#"{"path":"deep","recursive":true}"#).expect("deletes");
    assert_eq!(answer, "deleted /shared/deep: 3000 files, 1001 directories");
}

#[test]
fn a_directory_that_is_read_in_parts_goes_too() {
    let folder = folder();
    let tree = folder.path().join("shared/tree");
    for number in 0..50 {
        fs::create_dir_all(tree.join(format!("d{number}/e"))).expect("directories");
    }
    // Pretend that so many names are pending that only one name is read at a time.
    let mut deletion = Deletion { deleted: Counts::default(), pending_bytes: MAX_PENDING_BYTES };
    assert!(deletion.delete_tree(&tree).is_ok());
    assert_eq!(deletion.deleted.words(), "3 files, 2 symbolic links, 104 directories");
    assert_eq!(deletion.pending_bytes, MAX_PENDING_BYTES);
    assert!(!tree.exists());
}

#[test]
fn a_partial_deletion_reports_what_was_deleted_and_what_remains() {
    let target = Path::new("/host/shared/tree");
    let path = GuestPath::parse("tree").expect("a path");
    let deleted = Counts { files: 2, links: 0, directories: 1 };
    let stop =
        DeletionStop::Failed { path: target.join("a/b"), error: io::ErrorKind::PermissionDenied.into() };
    let error = stop.error(&deleted, target, &path);
    assert_eq!(error.kind(), ToolErrorKind::Denied);
    assert_eq!(
        error.to_string(),
        "`/shared/tree` was deleted only in part (2 files, 1 directory); then not allowed to delete \
         `/shared/tree/a/b`"
    );
    let stop =
        DeletionStop::Failed { path: target.to_owned(), error: io::ErrorKind::PermissionDenied.into() };
    let error = stop.error(&Counts::default(), target, &path);
    assert_eq!(error.to_string(), "not allowed to delete `/shared/tree`");
    let error = DeletionStop::Limit.error(&deleted, target, &path);
    assert_eq!(
        error.to_string(),
        "`/shared/tree` was deleted only in part (2 files, 1 directory): one call deletes at most 100000 \
         entries; call again for the rest"
    );
}

#[test]
fn an_entry_that_may_not_go_ends_the_deletion() {
    let folder = folder();
    let locked = folder.path().join("shared/tree/a/b");
    fs::set_permissions(&locked, Permissions::from_mode(0o555)).expect("a mode");
    if fs::write(locked.join("probe"), "").is_ok() {
        println!("skipped: this user may write anywhere");
        return;
    }
    let error = delete(folder.path(), r#"{"path":"tree","recursive":true}"#).expect_err("refused");
    fs::set_permissions(&locked, Permissions::from_mode(0o755)).expect("a mode");
    assert_eq!(error.kind(), ToolErrorKind::Denied);
    assert!(error.to_string().ends_with("not allowed to delete `/shared/tree/a/b/3`"), "{error}");
    assert!(locked.join("3").exists());
}
