//! Tests of `file_list` as native code, on a folder in place of the mounts.

use std::{fs, os::unix::fs::symlink, path::Path};

use portcullis_sdk::{ToolError, ToolErrorKind, testing};

use super::*;

fn list(root: &Path, arguments: &str) -> Result<String, ToolError> {
    let output = testing::with_root(root, || testing::call(&file_list_tool(), arguments));
    output.map(|output| output.joined_text())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = folder.path().join("shared");
    fs::create_dir_all(shared.join("src/inner")).expect("directories");
    fs::create_dir(shared.join("empty")).expect("a directory");
    for file in ["a.txt", "B.txt", "src/main.rs", "src/inner/x", "src-2", "new\nline"] {
        fs::write(shared.join(file), "").expect("a file");
    }
    symlink("src", shared.join("link")).expect("a link");
    symlink("nowhere", shared.join("dangling")).expect("a link");
    drop(std::os::unix::net::UnixListener::bind(shared.join("socket")).expect("a socket"));
    folder
}

const TOP: &str = "B.txt\na.txt\ndangling@\nempty/\nlink@\n\"new\\nline\"\nsocket?\nsrc/\nsrc-2";

#[test]
fn entries_are_sorted_and_marked() {
    let folder = folder();
    for arguments in ["{}", "", r#"{"path":"."}"#, r#"{"path":"/shared/","depth":1}"#] {
        assert_eq!(list(folder.path(), arguments).expect("lists"), TOP, "{arguments}");
    }
    assert_eq!(list(folder.path(), r#"{"path":"src"}"#).expect("lists"), "inner/\nmain.rs");
    assert_eq!(list(folder.path(), r#"{"path":"link"}"#).expect("lists"), "inner/\nmain.rs");
    assert_eq!(list(folder.path(), r#"{"path":"empty"}"#).expect("lists"), "(empty)");
}

#[test]
fn deeper_levels_are_listed_and_links_are_not_followed() {
    let folder = folder();
    let two = TOP.replace("src/\n", "src/\nsrc/inner/\nsrc/main.rs\n");
    assert_eq!(list(folder.path(), r#"{"depth":2}"#).expect("lists"), two);
    let all = two.replace("src/inner/\n", "src/inner/\nsrc/inner/x\n");
    assert_eq!(list(folder.path(), r#"{"depth":16}"#).expect("lists"), all);
}

#[track_caller]
fn check_refused(arguments: &str, kind: ToolErrorKind, message: &str) {
    let error = list(folder().path(), arguments).expect_err("refused");
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
}

#[test]
fn list_error_names_the_guest_path() {
    check_refused(r#"{"path":"x"}"#, ToolErrorKind::NotFound, "no such directory `/shared/x`");
    check_refused(
        r#"{"path":"a.txt"}"#,
        ToolErrorKind::Failed,
        "`/shared/a.txt` is not a directory: use file_read",
    );
    let kind = ToolErrorKind::InvalidArguments;
    check_refused(r#"{"depth":0}"#, kind, "field 'depth': 0 is less than the minimum of 1");
    check_refused(r#"{"depth":17}"#, kind, "field 'depth': 17 is greater than the maximum of 16");
}

#[test]
fn a_listing_that_is_too_long_is_cut_at_a_line_and_says_so() {
    let mut listing = Listing { text: String::new(), is_full: false };
    let entries =
        (0..600_000).map(|n| ListedEntry { name: format!("file-{n:06}"), kind: EntryKind::File }).collect();
    listing.add(Path::new("/"), "", entries, 1);
    let text = listing.finish();
    let (entries, note) = text.rsplit_once('\n').expect("lines");
    assert_eq!(note, "[listing cut: list a subdirectory, or fewer levels]");
    assert!(entries.len() <= MAX_TEXT_BYTES && entries.lines().all(|line| line.len() == 11));
}
