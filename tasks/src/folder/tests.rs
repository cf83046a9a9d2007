//! Tests of file operations: links, large files, replacements and moves.

use std::{fs, os::unix::fs::symlink};

use super::*;

fn world() -> (tempfile::TempDir, TaskFolder) {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = TaskFolder::open(dir.path(), &TaskStates::default()).expect("opens");
    (dir, folder)
}

fn names(folder: &TaskFolder) -> Vec<String> {
    folder.list("01_Inbox").expect("lists").into_iter().map(|(name, _version)| name).collect()
}

fn inbox(dir: &tempfile::TempDir, name: &str) -> PathBuf {
    dir.path().join("01_Inbox").join(name)
}

#[test]
fn a_second_process_cannot_open_the_folder() {
    let (dir, folder) = world();
    let second = TaskFolder::open(dir.path(), &TaskStates::default());
    assert!(matches!(second, Err(TaskFolderError::Busy { .. })), "{second:?}");
    drop(folder);
    TaskFolder::open(dir.path(), &TaskStates::default()).expect("free again");
}

#[test]
fn links_and_other_things_are_not_read() {
    let (dir, folder) = world();
    fs::write(dir.path().join("outside.md"), "secret").expect("writes");
    symlink(dir.path().join("outside.md"), inbox(&dir, "link.md")).expect("links");
    symlink("nowhere", inbox(&dir, "dangling.md")).expect("links");
    fs::create_dir(inbox(&dir, "folder.md")).expect("makes");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        inbox(&dir, "fifo.md"),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a FIFO");
    for name in ["link.md", "dangling.md"] {
        assert!(matches!(folder.read("01_Inbox", name), Err(FileError::Link)), "{name}");
    }
    for name in ["folder.md", "fifo.md"] {
        assert!(matches!(folder.read("01_Inbox", name), Err(FileError::NotAFile)), "{name}");
    }
    assert!(matches!(folder.read("01_Inbox", "missing.md"), Err(FileError::Gone)));
    assert_eq!(names(&folder), ["dangling.md", "fifo.md", "link.md"]);
}

#[test]
fn a_state_whose_folder_is_a_link_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    symlink("/", dir.path().join("01_Inbox")).expect("links");
    let opened = TaskFolder::open(dir.path(), &TaskStates::default());
    assert!(matches!(opened, Err(TaskFolderError::State { .. })), "{opened:?}");
}

#[test]
fn a_large_or_binary_file_is_refused() {
    let (dir, folder) = world();
    // A sparse file of 100 MB.
    let file = File::create(inbox(&dir, "large.md")).expect("creates");
    file.set_len(100_000_000).expect("grows");
    fs::write(inbox(&dir, "binary.md"), b"ab\xff").expect("writes");
    assert!(matches!(folder.read("01_Inbox", "large.md"), Err(FileError::TooLarge)));
    assert!(matches!(folder.read("01_Inbox", "binary.md"), Err(FileError::NotText { position: 2 })));
}

#[test]
fn only_visible_markdown_files_are_tasks() {
    let (dir, folder) = world();
    for name in ["b.md", "a.markdown", ".hidden.md", "c.txt", "md", ".portcullis-tmp-1"] {
        fs::write(inbox(&dir, name), "").expect("writes");
    }
    assert_eq!(names(&folder), ["a.markdown", "b.md"]);
    assert_eq!(folder.leftover_files("01_Inbox"), [".portcullis-tmp-1"]);
}

#[test]
fn a_replacement_keeps_the_mode_and_leaves_nothing_behind() {
    use std::os::unix::fs::PermissionsExt as _;

    let (dir, folder) = world();
    let path = inbox(&dir, "a.md");
    fs::write(&path, "old").expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("sets");
    assert_eq!(folder.replace("01_Inbox", "a.md", "old", "new").expect("replaces"), Replaced::Done);
    assert_eq!(fs::read_to_string(&path).expect("reads"), "new");
    assert_eq!(fs::metadata(&path).expect("the path exists").permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(dir.path().join("01_Inbox")).expect("lists").count(), 1);
}

#[test]
fn an_edit_of_others_is_never_replaced() {
    let (dir, folder) = world();
    fs::write(inbox(&dir, "a.md"), "edited").expect("writes");
    let replaced = folder.replace("01_Inbox", "a.md", "old", "new").expect("reads");
    assert_eq!(replaced, Replaced::ChangedMeanwhile);
    assert_eq!(fs::read_to_string(inbox(&dir, "a.md")).expect("reads"), "edited");
    assert_eq!(fs::read_dir(dir.path().join("01_Inbox")).expect("lists").count(), 1);
}

#[test]
fn a_move_takes_a_free_name_and_only_the_version_that_was_read() {
    let (dir, folder) = world();
    fs::write(dir.path().join("07_Done/a.md"), "other").expect("writes");
    fs::write(inbox(&dir, "a.md"), "task").expect("writes");
    let (_, version) = folder.read("01_Inbox", "a.md").expect("reads");
    fs::write(inbox(&dir, "a.md"), "task, edited").expect("writes");
    assert_eq!(folder.move_file("a.md", ("01_Inbox", version), "07_Done").expect("compares"), None);
    let (_, version) = folder.read("01_Inbox", "a.md").expect("reads");
    let name = folder.move_file("a.md", ("01_Inbox", version), "07_Done").expect("moves");
    assert_eq!(name.as_deref(), Some("a-2.md"));
    assert_eq!(fs::read_to_string(dir.path().join("07_Done/a.md")).expect("reads"), "other");
    assert_eq!(fs::read_to_string(dir.path().join("07_Done/a-2.md")).expect("reads"), "task, edited");
}

#[test]
fn concurrent_edits_and_replacements_lose_nothing() {
    let (dir, folder) = world();
    let path = inbox(&dir, "a.md");
    fs::write(&path, "").expect("writes");
    // One thread appends lines as an editor does: a new file that takes the name. The other replaces the file
    // through the folder. In the end, the file must have each line of both.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..200 {
                loop {
                    let before = fs::read_to_string(&path).expect("reads");
                    let temporary = inbox(&dir, "editor.tmp");
                    fs::write(&temporary, format!("{before}e{number}\n")).expect("writes");
                    // Good editors check for changes by others before they save.
                    if fs::read_to_string(&path).expect("reads") == before {
                        fs::rename(&temporary, &path).expect("renames");
                        break;
                    }
                }
            }
        });
        for number in 0..50 {
            loop {
                let (before, _) = folder.read("01_Inbox", "a.md").expect("reads");
                let after = format!("{before}p{number}\n");
                match folder.replace("01_Inbox", "a.md", &before, &after) {
                    Ok(Replaced::Done) => break,
                    Ok(Replaced::ChangedMeanwhile) | Err(FileError::EditKept { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    let mut text = fs::read_to_string(&path).expect("reads");
    for kept in folder.leftover_files("01_Inbox") {
        text += &fs::read_to_string(inbox(&dir, &kept)).expect("reads");
    }
    let lines: std::collections::BTreeSet<&str> = text.lines().collect();
    for number in 0..200 {
        assert!(lines.contains(&*format!("e{number}")), "edit {number} is in the file or in a kept version");
    }
}
