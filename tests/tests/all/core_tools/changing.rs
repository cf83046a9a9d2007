//! `file_search`, `file_edit` and `file_delete`: they behave equally natively and as modules, and the host adds further
//! checks.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use portcullis_testing::CallOutcome;
use portcullis_types::ToolErrorKind::{Denied, Failed, InvalidArguments};
use serde_json::{Value, json};

use super::{Case, check, ok, populated_fixture};

#[tokio::test]
async fn file_search_finds_lines_with_their_places() {
    let case = |arguments: Value, text: &str| ("file_search", arguments, ok(text));
    check(vec![
        case(json!({"query": "three", "path": "lines.txt"}), "/shared/lines.txt:3:three"),
        case(
            json!({"query": "TWO", "case_sensitive": false, "path": "lines.txt", "context": 1}),
            "/shared/lines.txt-1-one\n/shared/lines.txt:2:two\n/shared/lines.txt-3-three",
        ),
        case(
            json!({"query": "^t(wo|hree)$", "regex": true, "glob": "l*.txt"}),
            "/shared/lines.txt:2:two\n/shared/lines.txt:3:three",
        ),
        case(json!({"query": "nowhere", "path": "tree"}), "no matches in 3 files"),
        case(json!({"query": "k", "path": "/vault"}), "/vault/key:1:k"),
    ])
    .await;
}

#[tokio::test]
async fn file_search_says_what_is_wrong_with_an_expression() {
    let fixture = populated_fixture();
    let registry = fixture.registry().await;
    let arguments = json!({"query": "a(b", "regex": true});
    let answer_text = CallOutcome::run(&registry, "file_search", arguments)
        .await
        .assert_refused(InvalidArguments, "invalid_arguments");
    assert!(answer_text.starts_with("field 'query': "), "{answer_text}");
    assert!(answer_text.contains("unclosed group"), "{answer_text}");
}

fn edit(path: &str, old: &str, new: &str) -> Value {
    json!({"path": path, "old_text": old, "new_text": new})
}

#[tokio::test]
async fn file_edit_replaces_one_place_and_shows_it() {
    let edit_answer = "edited /shared/lines.txt: 1 replacement (line 2)\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\\ No newline at end of file";
    let cases: Vec<Case> = vec![
        ("file_edit", edit("lines.txt", "two", "2"), ok(edit_answer)),
        ("file_read", json!({"path": "lines.txt"}), ok("one\n2\nthree")),
    ];
    check(cases).await;
}

#[tokio::test]
async fn file_edit_refuses_what_it_cannot_place() {
    let fixture = populated_fixture();
    let registry = fixture.registry().await;
    for (arguments, kind, part) in [
        (edit("ended.txt", "o", "0"), Failed, "2"),
        (edit("lines.txt", "", "x"), InvalidArguments, "field 'old_text'"),
        (edit("lines.txt", "one", "one"), InvalidArguments, "field 'new_text'"),
        (edit("lines.txt", "four", "4"), Failed, "/shared/lines.txt"),
        (edit("binary", "x", "y"), Failed, "is not UTF-8 text"),
    ] {
        let answer = CallOutcome::run(&registry, "file_edit", arguments.clone()).await;
        let error = answer.0.into_result().expect_err("refused");
        assert_eq!(error.kind(), kind, "{arguments}: {error}");
        assert!(error.to_string().contains(part), "{arguments}: {error}");
    }
    assert_eq!(fs::read_to_string(fixture.shared("lines.txt")).expect("readable"), "one\ntwo\nthree");
}

#[tokio::test]
async fn replaced_file_keeps_its_mode() {
    let fixture = populated_fixture();
    let registry = fixture.registry().await;
    let script = fixture.shared("lines.txt");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).expect("the permissions can be set");
    let mode = || fs::metadata(&script).expect("the path exists").permissions().mode() & 0o7777;
    let edited = CallOutcome::run(&registry, "file_edit", edit("lines.txt", "two", "2")).await.text();
    assert!(edited.starts_with("edited "), "{edited}");
    assert_eq!(mode(), 0o750);
    let written =
        CallOutcome::run(&registry, "file_write", json!({"path": "lines.txt", "content": "x"})).await;
    assert_eq!(written.text(), "wrote 1 bytes to /shared/lines.txt");
    assert_eq!(mode(), 0o750);
}

#[tokio::test]
async fn file_delete_takes_files_links_and_trees() {
    let delete = |arguments: Value, text: &str| ("file_delete", arguments, ok(text));
    check(vec![
        delete(json!({"path": "lines.txt"}), "deleted /shared/lines.txt: 1 file"),
        delete(json!({"path": "tree/link"}), "deleted /shared/tree/link: 1 symbolic link"),
        delete(json!({"path": "tree/none"}), "deleted /shared/tree/none: 1 empty directory"),
        ("file_read", json!({"path": "tree/a/b/c.txt"}), ok("c")),
    ])
    .await;
    let fixture = populated_fixture();
    let registry = fixture.registry().await;
    let answer = CallOutcome::run(&registry, "file_delete", json!({"path": "tree"})).await;
    assert_eq!(answer.0.into_result().expect_err("not empty").kind(), Failed);
    let all = json!({"path": "tree", "recursive": true});
    let answer_text = CallOutcome::run(&registry, "file_delete", all).await.text();
    assert!(answer_text.starts_with("deleted /shared/tree: "), "{answer_text}");
    assert!(!fixture.shared("tree").exists());
}

#[tokio::test]
async fn a_link_is_deleted_itself_wherever_it_leads() {
    let fixture = populated_fixture();
    let outside = fixture.root().join("outside");
    fs::create_dir(&outside).expect("a folder");
    fs::write(outside.join("kept"), "kept").expect("writable");
    fixture.put("sub/.git/config", "[core]\n");
    fixture.put("sub/tree/file", "x");
    let links = [
        ("out", outside.clone()),
        ("out_file", outside.join("kept")),
        ("absolute_inside", fixture.shared("lines.txt")),
        ("up", "../vault/key".into()),
        ("nowhere", "/nowhere/at/all".into()),
        ("loop", "loop".into()),
        ("protected", "sub/.git/config".into()),
        ("sub/tree/out", outside.clone()),
        ("sub/tree/protected", "../.git/config".into()),
        (".envrc", outside.join("kept")),
    ];
    for (name, target) in &links {
        symlink(target, fixture.shared(name)).expect("a link");
    }
    let registry = fixture.registry().await;
    for name in ["out", "out_file", "absolute_inside", "up", "nowhere", "loop", "protected"] {
        let answer_text =
            CallOutcome::run(&registry, "file_delete", json!({"path": name, "recursive": true})).await.text();
        assert_eq!(answer_text, format!("deleted /shared/{name}: 1 symbolic link"));
        assert!(fs::symlink_metadata(fixture.shared(name)).is_err(), "{name} is gone");
    }
    let tree = json!({"path": "sub/tree", "recursive": true});
    let answer_text = CallOutcome::run(&registry, "file_delete", tree).await.text();
    assert_eq!(answer_text, "deleted /shared/sub/tree: 1 file, 2 symbolic links, 1 directory");
    // Nothing is deleted through an escaping link, and no object with a protected name is deleted, whatever
    // its kind.
    symlink(&outside, fixture.shared("out")).expect("a link");
    let through = json!({"path": "out/kept"});
    CallOutcome::run(&registry, "file_delete", through).await.assert_refused(Denied, "link_escapes_mount");
    CallOutcome::run(&registry, "file_delete", json!({"path": ".envrc"}))
        .await
        .assert_refused(Denied, "protected_path");
    assert_eq!(fs::read_to_string(outside.join("kept")).expect("the file is readable"), "kept");
    assert_eq!(fs::read_to_string(fixture.workspace().join("vault/key")).expect("the file is readable"), "k");
    assert_eq!(
        fs::read_to_string(fixture.shared("lines.txt")).expect("the file is readable"),
        "one\ntwo\nthree"
    );
    assert_eq!(
        fs::read_to_string(fixture.shared("sub/.git/config")).expect("the file is readable"),
        "[core]\n"
    );
}

#[tokio::test]
async fn a_deletion_stopped_at_a_protected_path_says_it_is_partial() {
    let fixture = populated_fixture();
    fixture.put("repository/a.txt", "a");
    fixture.put("repository/sub/.git/config", "[core]\n");
    fixture.put("repository/z.txt", "z");
    let registry = fixture.registry().await;
    let all = json!({"path": "repository", "recursive": true});
    let message =
        CallOutcome::run(&registry, "file_delete", all).await.assert_refused(Denied, "protected_path");
    assert!(message.contains("/shared/repository/sub/.git/config"), "{message}");
    assert!(message.contains("deleted only in part"), "{message}");
    assert_eq!(
        fs::read_to_string(fixture.shared("repository/sub/.git/config")).expect("the file is readable"),
        "[core]\n"
    );
}

#[tokio::test]
async fn edit_or_delete_outside_a_writable_mount_is_refused() {
    let fixture = populated_fixture();
    let registry = fixture.registry().await;
    for (tool, arguments) in [
        ("file_edit", edit("/vault/key", "k", "x")),
        ("file_delete", json!({"path": "/vault/key"})),
        ("file_delete", json!({"path": "/shared/../vault/key"})),
    ] {
        let answer = CallOutcome::run(&registry, tool, arguments.clone()).await;
        assert_eq!(answer.0.into_result().expect_err("denied").kind(), Denied, "{tool} {arguments}");
    }
    assert_eq!(fs::read_to_string(fixture.workspace().join("vault/key")).expect("the file is readable"), "k");
}
