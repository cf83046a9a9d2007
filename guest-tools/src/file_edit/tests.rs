//! Tests of `file_edit` as native code, on a folder in place of the mounts.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use portcullis_sdk::{ToolError, ToolErrorKind, serde_json::json, testing};
use proptest::prelude::*;

use super::*;

fn edit(root: &Path, old: &str, new: &str, all: bool) -> Result<String, ToolError> {
    edit_path(root, "a", old, new, all)
}

fn edit_path(root: &Path, path: &str, old: &str, new: &str, all: bool) -> Result<String, ToolError> {
    let arguments = json!({"path": path, "old_text": old, "new_text": new, "replace_all": all}).to_string();
    let output = testing::with_root(root, || testing::call(&file_edit_tool(), &arguments));
    output.map(|output| output.joined_text())
}

fn folder(content: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("shared/d")).expect("a mount");
    fs::write(folder.path().join("shared/a"), content).expect("a file");
    folder
}

fn content(root: &Path) -> Vec<u8> {
    fs::read(root.join("shared/a")).expect("the file")
}

/// Edits the only occurrence, and checks the file and the answer after its first line.
#[track_caller]
fn check(text: &str, (old, new): (&str, &str), edited: &str, expected_answer: &str) {
    check_all(text, (old, new), false, edited, expected_answer);
}

#[track_caller]
fn check_all(text: &str, (old, new): (&str, &str), all: bool, edited: &str, expected_answer: &str) {
    let folder = folder(text.as_bytes());
    let answer = edit(folder.path(), old, new, all).expect("edits");
    assert_eq!(answer, format!("edited /shared/a: {expected_answer}"));
    assert_eq!(String::from_utf8(content(folder.path())).expect("UTF-8"), edited);
    let names = fs::read_dir(folder.path().join("shared")).expect("a mount").count();
    assert_eq!(names, 2, "a temporary file was left");
}

#[track_caller]
fn check_refused(text: &str, (old, new): (&str, &str), kind: ToolErrorKind, message: &str) {
    let folder = folder(text.as_bytes());
    let error = edit(folder.path(), old, new, false).expect_err("refused");
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
    assert_eq!(content(folder.path()), text.as_bytes());
}

#[test]
fn the_changed_lines_are_shown_with_those_around_them() {
    check(
        "1\n2\n3\nfour\n5\n6\n7\n",
        ("four", "4"),
        "1\n2\n3\n4\n5\n6\n7\n",
        "1 replacement (line 4)\n@@ -2,5 +2,5 @@\n 2\n 3\n-four\n+4\n 5\n 6",
    );
    check(
        "a\nb\n",
        ("a\n", "a\nnew\n"),
        "a\nnew\nb\n",
        "1 replacement (line 1)\n@@ -1,2 +1,3 @@\n a\n+new\n b",
    );
    check("a\nb\n", ("a\n", ""), "b\n", "1 replacement (line 1)\n@@ -1,2 +1,1 @@\n-a\n b");
    check("a\nb\n", ("a\nb", "a b"), "a b\n", "1 replacement (line 1)\n@@ -1,2 +1,1 @@\n-a\n-b\n+a b");
}

#[test]
fn a_missing_final_line_break_stays_missing_and_is_seen() {
    check(
        "a\nb",
        ("b", "c"),
        "a\nc",
        "1 replacement (line 2)\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file",
    );
    check("a\n", ("a", "b"), "b\n", "1 replacement (line 1)\n@@ -1,1 +1,1 @@\n-a\n+b");
    check("a", ("a", ""), "", "1 replacement (line 1)\n@@ -1,1 +1,0 @@\n-a\n\\ No newline at end of file");
}

#[test]
fn all_occurrences_are_replaced_where_that_is_asked_for() {
    check_all(
        "x y x\nz\nx\n",
        ("x", "long"),
        true,
        "long y long\nz\nlong\n",
        "3 replacements (lines 1, 1, 3)\n@@ -1,3 +1,3 @@\n-x y x\n+long y long\n z\n x\n\
         @@ -1,3 +1,3 @@\n x y x\n z\n-x\n+long",
    );
    let many = "x\n\n".repeat(100);
    let folder = folder(many.as_bytes());
    let answer = edit(folder.path(), "x", "y", true).expect("edits");
    assert!(answer.starts_with("edited /shared/a: 100 replacements (lines 1, 3, 5,"), "{answer}");
    assert!(
        answer.contains(" and 80 more)\n") && answer.ends_with("\n[more changes are not shown]"),
        "{answer}"
    );
    assert_eq!(answer.matches("@@ -").count(), 3);
    assert_eq!(content(folder.path()), many.replace('x', "y").as_bytes());
}

#[test]
fn long_changes_are_cut() {
    let lines = "line\n".repeat(100);
    let folder = folder(format!("{}\n", "é".repeat(1000)).as_bytes());
    let answer = edit(folder.path(), &"é".repeat(1000), &lines, false).expect("edits");
    assert!(answer.contains("\n-éé") && answer.contains(" [1800 more bytes]\n"), "{answer}");
    assert!(answer.contains("\n+[81 more lines]"), "{answer}");
}

#[test]
fn crlf_line_breaks_are_kept() {
    let answer = "1 replacement (line 2)\n@@ -1,3 +1,4 @@\n a\r\n-b\r\n+x\r\n+y\r\n c\r";
    check("a\r\nb\r\nc\r\n", ("b", "x\ny"), "a\r\nx\r\ny\r\nc\r\n", answer);
    check("a\r\nb\r\nc\r\n", ("b\r\n", "x\r\ny\r\n"), "a\r\nx\r\ny\r\nc\r\n", answer);
    // Mixed line breaks stay unchanged.
    check(
        "a\r\nb\nc",
        ("b", "x\ny"),
        "a\r\nx\ny\nc",
        "1 replacement (line 2)\n@@ -1,3 +1,4 @@\n a\r\n-b\n+x\n+y\n c\n\\ No newline at end of file",
    );
    check_refused(
        "a\r\nb\r\n",
        ("a\nb", "x"),
        ToolErrorKind::Failed,
        "'old_text' is not in `/shared/a`: it is there at line 1 with CRLF line breaks; write them as \\r\\n \
         in 'old_text'",
    );
    check_refused(
        "0\na\nb\n",
        ("a\r\nb", "x"),
        ToolErrorKind::Failed,
        "'old_text' is not in `/shared/a`: it is there at line 2 with LF line breaks; write them as \\n in \
         'old_text'",
    );
    check_refused(
        "a\r\nb\r\n",
        ("a\r\nb", "a\nb"),
        ToolErrorKind::Failed,
        "nothing would change: all line breaks of `/shared/a` are CRLF and are kept so",
    );
}

#[test]
fn missing_text_is_searched_ignoring_white_space() {
    #[track_caller]
    fn check(text: &str, old: &str, message: &str) {
        let message = format!("'old_text' is not in `/shared/a`: {message}");
        check_refused(text, (old, "x"), ToolErrorKind::Failed, &message);
    }
    let alone = "would match except for spaces, tabs or trailing blanks; the file has";
    check("fn a() {\n\tb( 1 );\n}\n", "    b(1);", &format!("line 2 {alone}\n\tb( 1 );"));
    check("x\nif a {\n\tb\n}\n", "if a {\n    b\n}", &format!("lines 2 to 4 {alone}\nif a {{\n\tb\n}}"));
    check("call(a,  b) + 1\n", "a, b", &format!("line 1 {alone}\ncall(a,  b) + 1"));
    check(
        "a\nx\na\nb\nc\n",
        "a\nb\nd",
        "it would match from line 3 on, but line 5 is `c` where 'old_text' has `d`",
    );
    check("a\nb", "b\nc", "it would match from line 2 on, but line 3 is its end where 'old_text' has `c`");
    check("a\nb\n", "q\n", "no line of the file resembles its first line; read the file again");
    check("", "q", "no line of the file resembles its first line; read the file again");
    check("a\n", " \t ", "no line of the file resembles its first line; read the file again");
}

#[test]
fn an_ambiguous_passage_is_refused_with_its_lines() {
    check_refused(
        "x\ny\nx x\n",
        ("x", "z"),
        ToolErrorKind::Failed,
        "'old_text' is 3 times in `/shared/a` (lines 1, 3, 3): add lines around it until it is there once, \
         or set 'replace_all'",
    );
}

#[test]
fn places_that_overlap_are_more_than_one() {
    let message = "'old_text' is in `/shared/a` more than once, at places that overlap: add lines around it until it \
                   is there once, or set 'replace_all'";
    for (text, old) in [("aaa", "aa"), ("äää\n", "ää"), ("x\nx\nx\n", "x\nx\n"), ("ababa", "aba")] {
        check_refused(text, (old, "b"), ToolErrorKind::Failed, message);
    }
    check_all("aaa\n", ("aa", "b"), true, "ba\n", "1 replacement (line 1)\n@@ -1,1 +1,1 @@\n-aaa\n+ba");
}

#[test]
fn empty_or_unchanged_text_is_refused() {
    let kind = ToolErrorKind::InvalidArguments;
    check_refused(
        "x",
        ("", "y"),
        kind,
        "field 'old_text': it is empty; give the text to replace, or use file_write for a whole file",
    );
    check_refused("x", ("x", "x"), kind, "field 'new_text': it equals 'old_text', so nothing would change");
}

#[test]
fn edit_of_a_non_text_file_is_refused() {
    #[track_caller]
    fn check(path: &str, kind: ToolErrorKind, message: &str) {
        let folder = folder(b"a\xff");
        let shared = folder.path().join("shared");
        symlink("a", shared.join("link")).expect("a link");
        drop(std::os::unix::net::UnixListener::bind(shared.join("socket")).expect("a socket"));
        let huge = fs::File::create(shared.join("huge")).expect("a file");
        huge.set_len(1 << 40).expect("a sparse file");
        let error = edit_path(folder.path(), path, "a", "b", false).expect_err("refused");
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
        assert_eq!(content(folder.path()), b"a\xff");
        assert!(shared.join("link").is_symlink());
    }
    use ToolErrorKind as Kind;
    check("a", Kind::Failed, "`/shared/a` is not UTF-8 text (2 bytes)");
    check("x", Kind::NotFound, "no such file `/shared/x`");
    check("d", Kind::Failed, "cannot edit `/shared/d`: it is a directory");
    check("socket", Kind::Failed, "cannot edit `/shared/socket`: it is not a regular file");
    check("link", Kind::Failed, "cannot edit `/shared/link`: it is a symbolic link: edit its target");
    check(
        "huge",
        Kind::Failed,
        "`/shared/huge` is too large to edit: at most 8388608 bytes; file_read shows parts of it",
    );
    check("../../x", Kind::Denied, "`/shared/../../x` leads out of its mount");
}

#[test]
fn a_result_that_is_too_large_is_refused() {
    let folder = folder(&[b'a'; 1 << 20]);
    let error = edit(folder.path(), "a", "0123456789", true).expect_err("refused");
    assert_eq!(error.to_string(), "`/shared/a` would have more than 8388608 bytes; nothing was changed");
    assert_eq!(content(folder.path()).len(), 1 << 20);
}

#[test]
fn the_mode_is_kept() {
    let folder = folder(b"old");
    let path = folder.path().join("shared/a");
    fs::set_permissions(&path, Permissions::from_mode(0o750)).expect("a mode");
    edit(folder.path(), "old", "new", false).expect("edits");
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o750);
}

#[test]
fn a_file_changed_during_the_edit_is_not_overwritten() {
    let folder = folder(b"old");
    let target = folder.path().join("shared/a");
    let path = fs::read(&target).map(|_| GuestPath::parse("a").expect("a path")).expect("reads");
    let before = regular_file_metadata(&target, Replacement::Edit, &path).expect("a file").expect("is there");
    refuse_changed(&target, &before, &path).expect("unchanged");
    fs::write(&target, "other").expect("writes");
    let error = refuse_changed(&target, &before, &path).expect_err("changed");
    assert_eq!(error.to_string(), "`/shared/a` was changed concurrently: read it again");
}

proptest! {
    /// The edit equals `str`'s replacement of one or all occurrences. If the answer shows all changes, they rebuild the
    /// new text.
    #[test]
    fn an_edit_is_a_replacement(
        text in "[ab\n]{0,24}",
        old in "[ab\n]{1,4}",
        new in "[abc\n]{0,4}",
        all: bool,
    ) {
        prop_assume!(old != new);
        let folder = folder(text.as_bytes());
        // Occurrences may overlap.
        let offsets = (0..text.len()).filter(|at| text[*at..].starts_with(&old)).count();
        match edit(folder.path(), &old, &new, all) {
            Ok(answer) => {
                prop_assert!(offsets == 1 || (all && offsets > 1));
                let edited = text.replace(&old, &new);
                prop_assert_eq!(content(folder.path()), edited.as_bytes());
                if !answer.contains("[more changes") && !answer.contains(" more lines]") {
                    prop_assert_eq!(patched(&text, &answer), edited);
                }
            }
            Err(error) => {
                prop_assert!(offsets == 0 || (!all && offsets > 1), "{}", error);
                prop_assert_eq!(content(folder.path()), text.as_bytes());
            }
        }
    }

    /// In a file that has only CRLF line breaks, no line break becomes a bare line feed.
    #[test]
    fn no_bare_line_feed_gets_into_a_crlf_file(
        lines in prop::collection::vec("[ab]{0,3}", 2..6),
        old in "[ab]{1,2}",
        new in "[abc\n]{0,4}",
    ) {
        prop_assume!(old != new);
        let text = lines.join("\r\n");
        let folder = folder(text.as_bytes());
        if edit(folder.path(), &old, &new, true).is_ok() {
            let expected = text.replace(&old, &new.replace('\n', "\r\n"));
            prop_assert_eq!(content(folder.path()), expected.as_bytes());
        }
    }
}

/// Applies the changes that an answer shows to the text.
fn patched(text: &str, diff: &str) -> String {
    const NO_BREAK: &str = "\\ No newline at end of file\n";
    let old: Vec<&str> = text.split_inclusive('\n').collect();
    let mut removed = vec![false; old.len()];
    let mut added = vec![String::new(); old.len() + 1];
    let diff = format!("{diff}\n");
    let lines: Vec<&str> = diff.split_inclusive('\n').skip(1).collect();
    let mut at = 0;
    for (index, line) in lines.iter().enumerate() {
        let ended = lines.get(index + 1) != Some(&NO_BREAK);
        let content = if ended { &line[1..] } else { &line[1..line.len() - 1] };
        match line.as_bytes()[0] {
            b'@' => {
                let first = line.trim_start_matches("@@ -").split(',').next();
                at = first.and_then(|first| first.parse::<usize>().ok()).expect("a number") - 1;
            }
            b'+' => added[at].push_str(content),
            mark @ (b' ' | b'-') => {
                assert_eq!(old[at], content);
                removed[at] |= mark == b'-';
                at += 1;
            }
            _ => {}
        }
    }
    let mut new = String::new();
    for (index, added) in added.iter().enumerate() {
        new.push_str(added);
        new.push_str(old.get(index).filter(|_| !removed[index]).unwrap_or(&""));
    }
    new
}
