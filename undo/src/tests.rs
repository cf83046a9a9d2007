//! Changes in a real folder are recorded and undone.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis_types::ChangeScope;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::{
    CallIdentity, ChangeRecorder, ConflictReason, Difference, DifferenceKind, MountPath, MountRoot, RecordId,
    UndoError, UndoPlan, UndoStore,
};

/// A mount with a store beside it.
struct UndoFixture {
    _folder: TempDir,
    mount: PathBuf,
    store: UndoStore,
}

impl UndoFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = folder.path().join("mount");
        fs::create_dir(&mount).expect("the folder can be made");
        let store = UndoStore::new(folder.path());
        Self { _folder: folder, mount, store }
    }

    fn root(&self) -> MountRoot {
        MountRoot::new("m", Arc::new(File::open(&self.mount).expect("opens").into()))
    }

    fn recorder(&self, call: &str) -> ChangeRecorder {
        let [call, run, agent, tool] = [call, "run", "agent", "tool"].map(str::to_owned);
        ChangeRecorder::new(self.store.clone(), CallIdentity { call, run, agent, tool }, [self.root()])
    }

    /// Makes changes as a call, after recording the paths.
    fn call(&self, name: &str, paths: &[&str], change: impl FnOnce(&Path)) {
        let recorder = self.recorder(name);
        for path in paths {
            recorder.save_before("m", &path_of(path), ChangeScope::Tree).expect("the state can be saved");
        }
        change(&self.mount);
    }

    fn plan(&self, calls: &[&str]) -> UndoPlan {
        let records = calls.iter().map(|call| self.store.find_call(call).expect("recorded")).collect();
        UndoPlan::new(self.store.clone(), records, [self.root()]).expect("a plan")
    }

    fn undo(&self, calls: &[&str]) -> Result<Option<RecordId>, UndoError> {
        self.plan(calls).restore("person", false)
    }

    fn conflicts(&self, calls: &[&str]) -> Vec<(String, ConflictReason)> {
        match self.undo(calls) {
            Err(UndoError::Conflicts { conflicts }) => {
                conflicts.into_iter().map(|conflict| (conflict.path, conflict.reason)).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

fn path_of(text: &str) -> MountPath {
    MountPath::from_components(text.split('/').map(str::as_bytes)).expect("a path")
}

/// Returns the content and permissions of everything below a folder.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, String)> {
    let mut tree = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = path.symlink_metadata().expect("the file has metadata");
        let content = if metadata.is_dir() {
            pending
                .extend(fs::read_dir(&path).expect("readable").map(|entry| entry.expect("readable").path()));
            "a directory".to_owned()
        } else if metadata.is_symlink() {
            format!("-> {}", fs::read_link(&path).expect("readable").display())
        } else {
            let time = metadata.modified().expect("a time");
            format!("{time:?} {}", String::from_utf8_lossy(&fs::read(&path).expect("readable")))
        };
        let mode = if metadata.is_symlink() { 0 } else { metadata.permissions().mode() };
        tree.insert(path.strip_prefix(folder).expect("below").to_owned(), (mode, content));
    }
    tree
}

#[test]
fn every_kind_of_change_is_taken_back_and_made_again() {
    let fixture = UndoFixture::new();
    let mount = fixture.mount.clone();
    for (path, text) in
        [("edited", "old\n"), ("removed", "gone\n"), ("folder/a", "a\n"), ("folder/deep/b", "b\n")]
    {
        fs::create_dir_all(mount.join(path).parent().expect("a parent")).expect("the folder can be made");
        fs::write(mount.join(path), text).expect("written");
    }
    fs::write(mount.join("script"), "#!/bin/sh\n").expect("written");
    fs::set_permissions(mount.join("script"), fs::Permissions::from_mode(0o750))
        .expect("the permissions can be set");
    symlink("edited", mount.join("link")).expect("linked");
    let before = tree(&mount);
    let paths = [
        "edited",
        "removed",
        "folder",
        "script",
        "link",
        "new",
        "new/file",
        "moved",
        "moved/a",
        "moved/deep",
        "moved/deep/b",
    ];
    fixture.call("change", &paths, |mount| {
        fs::write(mount.join("edited"), "new\n").expect("written");
        fs::remove_file(mount.join("removed")).expect("removed");
        fs::rename(mount.join("folder"), mount.join("moved")).expect("moved");
        fs::write(mount.join("moved/a"), "other\n").expect("written");
        fs::set_permissions(mount.join("script"), fs::Permissions::from_mode(0o600))
            .expect("the permissions can be set");
        fs::remove_file(mount.join("link")).expect("removed");
        fs::create_dir(mount.join("link")).expect("the folder can be made");
        fs::create_dir(mount.join("new")).expect("the folder can be made");
        fs::write(mount.join("new/file"), "x").expect("written");
    });
    let after = tree(&mount);
    let undo = fixture.undo(&["change"]).expect("undone").expect("something");
    assert_eq!(tree(&mount), before);
    assert!(fixture.undo(&["change"]).expect("nothing to do").is_none());
    fixture.undo(&[undo.as_str()]).expect("made again");
    assert_eq!(tree(&mount), after);
    let record = fixture.store.find_call("change").expect("the store has the record");
    assert!(record.undone_by.is_none(), "the change is in force again");
    fixture.undo(&["change"]).expect("undone");
    assert_eq!(tree(&mount), before);
}

#[test]
fn several_calls_are_taken_back_as_one() {
    let fixture = UndoFixture::new();
    let file = fixture.mount.join("file");
    fs::write(&file, "1\n").expect("written");
    let before = tree(&fixture.mount);
    fixture.call("first", &["file"], |_| fs::write(&file, "2\n").expect("written"));
    fixture.call("second", &["file"], |_| fs::write(&file, "3\n").expect("written"));
    fixture.call("nothing", &[], |_| {});
    assert!(matches!(fixture.store.find_call("nothing"), Err(UndoError::Unknown { .. })));
    let conflicts = fixture.conflicts(&["first"]);
    assert_eq!(conflicts, [("/m/file".to_owned(), ConflictReason::ChangedSince)]);
    let records = fixture.store.find_run("run").expect("two");
    assert_eq!(records.iter().map(|record| &*record.call.call).collect::<Vec<_>>(), ["second", "first"]);
    let difference = fixture.plan(&["first", "second"]).differences().expect("a difference");
    let lines = DifferenceKind::Lines("@@ -1 +1 @@\n-1\n+3\n".to_owned());
    assert_eq!(difference, [Difference { path: "/m/file".into(), kind: lines, is_changed_since: false }]);
    fixture.undo(&["first", "second"]).expect("undone");
    assert_eq!(tree(&fixture.mount), before);
}

#[test]
fn changes_of_others_are_not_lost() {
    let fixture = UndoFixture::new();
    let at = |path: &str| fixture.mount.join(path);
    fs::write(at("file"), "1\n").expect("written");
    fs::create_dir(at("folder")).expect("the folder can be made");
    fs::write(at("folder/x"), "1\n").expect("written");
    fixture.call("change", &["file", "folder/x", "made"], |_| {
        fs::write(at("file"), "2\n").expect("written");
        fs::write(at("folder/x"), "2\n").expect("written");
        fs::create_dir(at("made")).expect("the folder can be made");
    });
    fs::write(at("made/other"), "theirs\n").expect("written");
    fs::write(at("file"), "theirs\n").expect("written");
    // The folder is now a symlink to another one.
    let elsewhere = tempfile::tempdir().expect("a folder");
    fs::rename(at("folder"), elsewhere.path().join("folder")).expect("moved");
    symlink(elsewhere.path().join("folder"), at("folder")).expect("linked");
    let current = tree(&fixture.mount);
    let conflicts = fixture.conflicts(&["change"]);
    let expected = [
        ("/m/file", ConflictReason::ChangedSince),
        ("/m/folder/x", ConflictReason::ChangedSince),
        ("/m/made", ConflictReason::HasOtherFiles),
    ];
    assert_eq!(conflicts, expected.map(|(path, reason)| (path.to_owned(), reason)));
    assert_eq!(tree(&fixture.mount), current);
    // Even with `force`, no symlink is followed and no file of others is removed.
    let error = fixture.plan(&["change"]).restore("person", true).expect_err("a link");
    assert!(matches!(error, UndoError::Restore { .. }), "{error:?}");
    assert_eq!(fs::read_to_string(elsewhere.path().join("folder/x")).expect("the file is readable"), "2\n");
    assert!(at("made/other").exists());
}

#[test]
fn a_call_without_an_end_is_taken_back_by_force_only() {
    let fixture = UndoFixture::new();
    fs::write(fixture.mount.join("file"), "1\n").expect("written");
    let recorder = fixture.recorder("killed");
    recorder.save_before("m", &path_of("file"), ChangeScope::Path).expect("the state can be saved");
    // Copy the record before its end is written, as a killed process would leave it.
    let record = fixture
        .mount
        .with_file_name("undo")
        .join(recorder.id().expect("begun").as_str())
        .join("record.jsonl");
    let text = fs::read(&record).expect("readable");
    drop(recorder);
    fs::write(&record, text).expect("written");
    fs::write(fixture.mount.join("file"), "2\n").expect("written");
    assert_eq!(fixture.conflicts(&["killed"]), [("/m/file".to_owned(), ConflictReason::Unfinished)]);
    fixture.plan(&["killed"]).restore("person", true).expect("undone");
    assert_eq!(fs::read_to_string(fixture.mount.join("file")).expect("the file is readable"), "1\n");
}

#[test]
fn damaged_and_foreign_records_are_refused() {
    let fixture = UndoFixture::new();
    fs::write(fixture.mount.join("file"), "1\n").expect("written");
    fixture.call("change", &["file"], |mount| fs::write(mount.join("file"), "2\n").expect("written"));
    let record = fixture.store.find_call("change").expect("the store has the record");
    let path = fixture.mount.with_file_name("undo").join(record.id.as_str()).join("record.jsonl");
    let text = fs::read_to_string(&path).expect("readable");
    for (bad, reason) in [
        (text.replacen("\"v\":1", "\"v\":9", 1), "newer version"),
        (text.replacen("\"path\":\"file\"", "\"path\":\"../file\"", 1), "component"),
        (text.replacen("{\"before\"", "{\"behind\"", 1), "behind"),
        (String::new(), "does not begin"),
    ] {
        fs::write(&path, bad).expect("written");
        let error = fixture.store.record(&record.id).expect_err("damaged").to_string();
        assert!(error.contains(reason), "{error}");
        assert!(fixture.store.records().expect("readable").is_empty());
    }
    fs::write(&path, &text).expect("written");
    let other = UndoFixture::new();
    let error =
        UndoPlan::new(fixture.store.clone(), vec![record], [other.root()]).expect_err("another folder");
    assert!(matches!(error, UndoError::MountChanged { .. }), "{error}");
}

#[test]
fn a_full_disk_changes_nothing() {
    let fixture = UndoFixture::new();
    fs::write(fixture.mount.join("a"), "1\n").expect("written");
    fs::write(fixture.mount.join("b"), "1\n").expect("written");
    fixture.call("change", &["a", "b"], |mount| {
        fs::write(mount.join("a"), "2\n").expect("written");
        fs::write(mount.join("b"), "2\n").expect("written");
    });
    let current = tree(&fixture.mount);
    // The second content file is missing, as if it could not be copied.
    let record = fixture.store.find_call("change").expect("the store has the record");
    fs::remove_file(fixture.mount.with_file_name("undo").join(record.id.as_str()).join("1"))
        .expect("removed");
    let error = fixture.undo(&["change"]).expect_err("no content");
    assert!(matches!(error, UndoError::Stage { .. }), "{error:?}");
    assert_eq!(tree(&fixture.mount), current);
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize, String),
    Remove(usize),
    MakeFolder(usize),
    Rename(usize, usize),
    Link(usize),
}

const NAMES: [&str; 6] = ["a", "b", "a/c", "a/d", "b/c", "b/c/e"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..NAMES.len();
    let step = prop_oneof![
        (name.clone(), "[a-z]{0,8}").prop_map(|(name, text)| Step::Write(name, text)),
        name.clone().prop_map(Step::Remove),
        name.clone().prop_map(Step::MakeFolder),
        (name.clone(), name.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        name.prop_map(Step::Link),
    ];
    prop::collection::vec(step, 0..12)
}

/// Makes a change as a guest would, recording each path before. Errors of the system are the guest's.
fn run(step: &Step, mount: &Path, recorder: Option<&ChangeRecorder>) {
    let keep = |name: &str, change| {
        if let Some(recorder) = recorder {
            recorder.save_before("m", &path_of(name), change).expect("the state can be saved");
        }
    };
    match step {
        Step::Write(name, text) => {
            keep(NAMES[*name], ChangeScope::Path);
            let path = mount.join(NAMES[*name]);
            // Writing through a symlink would change an unrecorded name; the sandbox records
            // the resolved name.
            if !path.is_symlink() {
                let _ = fs::write(path, text);
            }
        }
        Step::Remove(name) => {
            keep(NAMES[*name], ChangeScope::Tree);
            let path = mount.join(NAMES[*name]);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        Step::MakeFolder(name) => {
            keep(NAMES[*name], ChangeScope::Path);
            let _ = fs::create_dir(mount.join(NAMES[*name]));
        }
        Step::Rename(from, to) => {
            keep(NAMES[*from], ChangeScope::Tree);
            keep(NAMES[*to], ChangeScope::MovedHere { mount: "m", from: &path_of(NAMES[*from]) });
            let _ = fs::rename(mount.join(NAMES[*from]), mount.join(NAMES[*to]));
        }
        Step::Link(name) => {
            keep(NAMES[*name], ChangeScope::Path);
            let _ = symlink("target", mount.join(NAMES[*name]));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// After calls of any kind, undoing them restores the tree, and undoing the undo restores the changes.
    #[test]
    fn an_undo_gives_the_tree_back(start in steps(), calls in prop::collection::vec(steps(), 1..4)) {
        let fixture = UndoFixture::new();
        for step in &start {
            run(step, &fixture.mount, None);
        }
        let before = tree(&fixture.mount);
        for (number, steps) in calls.iter().enumerate() {
            let recorder = fixture.recorder(&number.to_string());
            for step in steps {
                run(step, &fixture.mount, Some(&recorder));
            }
        }
        let after = tree(&fixture.mount);
        if let Ok(records) = fixture.store.find_run("run") {
            let plan = UndoPlan::new(fixture.store.clone(), records, [fixture.root()]).expect("a plan");
            let undo = plan.restore("person", false).expect("undone");
            prop_assert_eq!(tree(&fixture.mount), before);
            if let Some(undo) = undo {
                fixture.undo(&[undo.as_str()]).expect("made again");
                prop_assert_eq!(tree(&fixture.mount), after);
            }
        }
    }
}

#[test]
fn a_forced_undo_leaves_alone_what_was_not_kept() {
    let fixture = UndoFixture::new();
    let large = fixture.mount.join("large");
    File::create(&large).expect("the file can be made").set_len(crate::MAX_FILE_BYTES + 1).expect("sparse");
    fs::write(fixture.mount.join("small"), "1\n").expect("written");
    fixture.call("change", &["large", "small", "made"], |mount| {
        fs::write(&large, "now small\n").expect("written");
        fs::write(mount.join("small"), "2\n").expect("written");
        fs::create_dir(mount.join("made")).expect("the folder can be made");
    });
    fs::write(fixture.mount.join("made/theirs"), "x").expect("written");
    let conflicts = fixture.conflicts(&["change"]);
    let not_kept = ConflictReason::ContentOmitted(crate::OmissionReason::LargeFile);
    let expected = [("/m/large", not_kept), ("/m/made", ConflictReason::HasOtherFiles)];
    assert_eq!(conflicts, expected.map(|(path, reason)| (path.to_owned(), reason)));
    fixture.plan(&["change"]).restore("person", true).expect("the rest is restored");
    assert_eq!(fs::read_to_string(fixture.mount.join("small")).expect("the file is readable"), "1\n");
    assert_eq!(fs::read_to_string(&large).expect("the file is readable"), "now small\n");
    assert!(fixture.mount.join("made/theirs").exists());
}
