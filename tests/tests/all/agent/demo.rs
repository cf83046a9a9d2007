//! `portcullis demo`: what a stranger sees first.

use std::fs;

use portcullis_tests::World;

use crate::modules::{portcullis, stderr, stdout};

#[test]
fn the_demonstration_shows_each_kind_of_call_and_what_held_it() {
    let world = World::new();
    let shown = portcullis(&world, &["demo"]);
    let text = stdout(&shown);
    assert_eq!(shown.status.code(), Some(0), "{text}{}", stderr(&shown));
    let said = [
        "→ file_list",
        "→ file_search",
        "│ /shared/notes/todo.md:5:- [ ] TODO: pay the gas",
        "│ +- [ ] pay the gas",
        "`/etc/passwd` is not below any mount",
        "missing required field 'path' in arguments",
        "│ [output truncated — original size: 142,857 bytes]",
        "│ copied 39 bytes from /vault/letter.md to /shared/letter.md",
        "This call needs your approval.",
        "Approve? y (the demonstration answers)",
        "total",
        "│ cat: /vault/letter.md: No such file or directory",
        "│ [exit code: 1]",
        "Done: the notes are in order",
        "vault_copyto_write",
        "intact: 14 rows",
        "All that the policy requires is enforced and proven.",
    ];
    let mut rest = text.as_str();
    for words in said {
        let found = rest.find(words).unwrap_or_else(|| panic!("no `{words}` in the rest of\n{text}"));
        rest = &rest[found + words.len()..];
    }
}

#[test]
fn the_demonstration_leaves_the_callers_workspace_alone() {
    let world = World::new();
    let shown = portcullis(&world, &["demo"]);
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    assert_eq!(fs::read_dir(world.workspace().join("shared")).expect("readable").count(), 0);
    let text = stdout(&shown);
    let folder = text.split_whitespace().find(|word| word.contains("portcullis-demo-")).expect("a folder");
    assert!(!fs::exists(folder.trim_end_matches('.')).expect("can be told"), "{folder} is left");
}

#[test]
fn the_demonstration_can_be_kept_and_its_log_read() {
    let world = World::new();
    let shown = portcullis(&world, &["demo", "--keep"]);
    let text = stdout(&shown);
    let kept = text.lines().find_map(|line| line.strip_prefix("kept: ")).expect("says where");
    let notes = fs::read_to_string(format!("{kept}/workspace/shared/notes/todo.md")).expect("kept");
    let log = fs::read_to_string(format!("{kept}/state/audit.jsonl")).expect("kept");
    fs::remove_dir_all(kept).expect("removed");
    assert!(notes.ends_with("- [ ] pay the gas\n"), "{notes}");
    assert_eq!(log.lines().count(), 14);
}
