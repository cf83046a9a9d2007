//! Shows and undoes the changes of calls in mounts with `undo`, through the program.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use portcullis_testing::{CallOutcome, Fixture, binary};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

/// Creates a fixture whose mount `shared` has undo.
fn fixture() -> Fixture {
    Fixture::new().with_policy_edit("shared = \"shared\"\n", "shared = { path = \"shared\", undo = true }\n")
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn run(fixture: &Fixture, words: &[&str]) -> Output {
    Command::new(binary()).args(words).args(fixture.options()).output().expect("starts")
}

#[track_caller]
fn answer(fixture: &Fixture, words: &[&str]) -> String {
    let output = run(fixture, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

fn call(fixture: &Fixture, run: &str, tool: &str, arguments: &Value) -> String {
    answer(fixture, &["call", "--approve", "--run", run, tool, &arguments.to_string()])
}

/// Returns the content and mode of everything below a folder.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut tree = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = path.symlink_metadata().expect("the file has metadata");
        let content = if metadata.is_dir() {
            pending
                .extend(fs::read_dir(&path).expect("readable").map(|entry| entry.expect("readable").path()));
            Vec::new()
        } else if metadata.is_symlink() {
            fs::read_link(&path).expect("readable").into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).expect("readable")
        };
        tree.insert(path, (metadata.permissions().mode(), content));
    }
    tree
}

#[test]
fn a_run_of_file_tools_is_shown_and_taken_back() {
    let fixture = fixture();
    fixture.put("src/main.rs", "fn main() {\n    one();\n}\n");
    fixture.put("old.txt", "old\n");
    fs::set_permissions(fixture.shared("old.txt"), fs::Permissions::from_mode(0o640))
        .expect("the permissions can be set");
    let before = tree(&fixture.shared(""));
    call(&fixture, "r1", "file_edit", &json!({"path": "src/main.rs", "old_text": "one", "new_text": "two"}));
    call(&fixture, "r1", "file_write", &json!({"path": "new/deep/file.txt", "content": "new\n"}));
    call(&fixture, "r1", "file_delete", &json!({"path": "old.txt"}));
    call(&fixture, "r2", "file_write", &json!({"path": "other.txt", "content": "of another run\n"}));
    call(&fixture, "r1", "file_read", &json!({"path": "src/main.rs"}));
    let after = tree(&fixture.shared(""));

    let list = answer(&fixture, &["changes"]);
    assert_eq!(list.matches(" r1 ").count(), 3, "a reading call is not listed: {list}");
    let difference = answer(&fixture, &["changes", "--run", "r1"]);
    assert!(difference.contains("--- a/shared/src/main.rs\n+++ b/shared/src/main.rs\n@@"), "{difference}");
    assert!(difference.contains("\n-    one();\n+    two();\n"), "{difference}");
    assert!(difference.contains("\n-old\n") && difference.contains("\n+new\n"), "{difference}");
    assert!(!difference.contains("another run"), "{difference}");

    let undone = answer(&fixture, &["undo", "--run", "r1"]);
    assert!(undone.contains("restored: /shared/src/main.rs\n"), "{undone}");
    fs::remove_file(fixture.shared("other.txt")).expect("the file can be removed");
    assert_eq!(tree(&fixture.shared("")), before);
    // The answer has the command that redoes the changes.
    fs::write(fixture.shared("other.txt"), "of another run\n").expect("writable");
    let record = undone.trim_end().rsplit(' ').next().expect("a word");
    answer(&fixture, &["undo", record]);
    assert_eq!(tree(&fixture.shared("")), after);
}

#[test]
fn the_newest_change_is_taken_back_first() {
    let fixture = fixture();
    for content in ["1\n", "2\n", "3\n"] {
        call(&fixture, "r", "file_write", &json!({"path": "a.txt", "content": content}));
    }
    for content in ["2\n", "1\n"] {
        answer(&fixture, &["undo"]);
        assert_eq!(fs::read_to_string(fixture.shared("a.txt")).expect("the file is readable"), content);
    }
    answer(&fixture, &["undo"]);
    assert!(!fixture.shared("a.txt").exists());
    assert_eq!(answer(&fixture, &["undo"]), "nothing to undo\n");
}

#[test]
fn a_file_changed_since_stops_the_whole_undo() {
    let fixture = fixture();
    fixture.put("a.txt", "a\n");
    fixture.put("b.txt", "b\n");
    call(&fixture, "r", "file_write", &json!({"path": "a.txt", "content": "agent\n"}));
    call(&fixture, "r", "file_write", &json!({"path": "b.txt", "content": "agent\n"}));
    fixture.put("b.txt", "the person's own work\n");
    let before = tree(&fixture.shared(""));
    let output = run(&fixture, &["undo", "--run", "r"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.contains("/shared/b.txt: it was changed since") && said.contains("--force"), "{said}");
    assert_eq!(tree(&fixture.shared("")), before);
    answer(&fixture, &["undo", "--run", "r", "--force"]);
    assert_eq!(fs::read_to_string(fixture.shared("b.txt")).expect("the file is readable"), "b\n");
}

#[tokio::test]
async fn a_change_that_cannot_be_kept_is_not_made() {
    let fixture = fixture();
    fixture.put("a.txt", "a\n");
    let registry = fixture.registry().await;
    fs::write(fixture.state().join("undo"), "in the way").expect("writable");
    for (tool, arguments) in [
        ("file_write", json!({"path": "a.txt", "content": "b\n"})),
        ("file_write", json!({"path": "new.txt", "content": "b\n"})),
        ("file_delete", json!({"path": "a.txt"})),
    ] {
        let outcome = CallOutcome::run(&registry, tool, arguments).await;
        outcome.assert_refused(ToolErrorKind::Unavailable, "undo_unavailable");
    }
    assert_eq!(fs::read_to_string(fixture.shared("a.txt")).expect("the file is readable"), "a\n");
    assert!(!fixture.shared("new.txt").exists());
    // Calls in a mount without undo need no store.
    CallOutcome::run(&registry, "file_write", json!({"path": "/tmp/x", "content": "b\n"}))
        .await
        .text()
        .clear();
}

#[test]
fn without_undo_nothing_is_kept() {
    let fixture = Fixture::new();
    call(&fixture, "r", "file_write", &json!({"path": "a.txt", "content": "1\n"}));
    assert!(!fixture.state().join("undo").exists());
    assert!(answer(&fixture, &["changes"]).contains("undo = true"));
    let output = run(&fixture, &["undo", "no-such-call"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-call"), "{output:?}");
}

/// Commands that change files in many ways.
const COMMANDS: &str = r#"
set -e
echo changed > edited
echo more >> appended
: > truncated
rm removed
rm -r folder
mkdir made made/deep
echo new > made/deep/file
mv moved elsewhere
mv tree/one tree/two
ln -s edited link
ln -sfn other old-link
chmod 755 script
cp source copied
sed -i s/old/new/ replaced
cd sub && echo x > ../from-sub && cd ..
echo through > alias
echo y > /dev/null
(cd tree && echo z > two/z)
"#;

#[test]
fn changes_of_commands_are_shown_and_taken_back() {
    let fixture = fixture();
    for name in ["edited", "appended", "truncated", "removed", "moved", "script", "source", "target"] {
        fixture.put(name, format!("old {name}\n"));
    }
    fixture.put("replaced", "old\n");
    for name in ["folder/a", "folder/deep/b", "tree/one/c", "sub/d"] {
        fixture.put(name, "old\n");
    }
    std::os::unix::fs::symlink("target", fixture.shared("alias")).expect("linked");
    std::os::unix::fs::symlink("nothing", fixture.shared("old-link")).expect("linked");
    let before = tree(&fixture.shared(""));
    call(&fixture, "r", "shell_exec", &json!({"command": COMMANDS}));
    let after = tree(&fixture.shared(""));
    assert_eq!(fs::read_to_string(fixture.shared("target")).expect("the file is readable"), "through\n");
    assert!(fixture.shared("made/deep/file").exists() && !fixture.shared("folder").exists());

    let difference = answer(&fixture, &["changes", "--run", "r"]);
    assert!(difference.contains("-old edited\n+changed\n"), "{difference}");
    let undone = answer(&fixture, &["undo", "--run", "r"]);
    assert_eq!(tree(&fixture.shared("")), before, "{undone}");
    let record = undone.trim_end().rsplit(' ').next().expect("a word");
    answer(&fixture, &["undo", record]);
    assert_eq!(tree(&fixture.shared("")), after);
}

#[test]
fn a_command_in_each_posture_is_taken_back() {
    for posture in ["strong", "contained", "minimal"] {
        let fixture = fixture().with_policy_key("shell.posture", &format!("\"{posture}\""));
        fixture.put("a", "old\n");
        let before = tree(&fixture.shared(""));
        let arguments =
            json!({"command": "echo new > a; mkdir b; python3 -c 'open(\"c\", \"w\").write(\"x\")' || true"});
        let output = run(&fixture, &["call", "--approve", "shell_exec", &arguments.to_string()]);
        if output.status.code() == Some(5) {
            println!("skipped {posture}: {output:?}");
            continue;
        }
        assert!(output.status.success(), "{posture}: {output:?}");
        answer(&fixture, &["undo"]);
        assert_eq!(tree(&fixture.shared("")), before, "{posture}");
    }
}

#[test]
fn a_command_whose_changes_cannot_be_kept_changes_nothing() {
    let fixture = fixture();
    fixture.put("a", "old\n");
    call(&fixture, "r", "file_read", &json!({"path": "a"}));
    fs::write(fixture.state().join("undo"), "in the way").expect("writable");
    let arguments =
        json!({"command": "echo new > a; rm a; mkdir b; touch c; echo reads still work: $(cat a)"});
    let output = run(&fixture, &["call", "--approve", "shell_exec", &arguments.to_string()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("reads still work: old"), "{output:?}");
    assert_eq!(tree(&fixture.shared("")).len(), 2, "{text}");
}
