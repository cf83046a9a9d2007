//! Tests of the folder with real files.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use portcullis_types::Message;

use super::*;

/// A state folder with this many conversations about `/work`, the oldest first, none of them open.
fn state(conversations: usize) -> (tempfile::TempDir, Vec<ConversationId>) {
    let state = tempfile::tempdir().expect("a folder");
    let write = |_| {
        let id = ConversationId::random().expect("random bytes");
        let folder = ConversationFolder::open(state.path()).expect("opens");
        folder.begin(id.clone()).write(&ConversationRecord::new(id.clone(), "/work")).expect("written");
        id
    };
    let ids = (0..conversations).map(write).collect();
    (state, ids)
}

fn resume(
    state: &tempfile::TempDir,
    id: &ConversationId,
) -> Result<(ConversationFile, ConversationRecord), ConversationError> {
    ConversationFolder::open(state.path())?.resume(id, "/work")
}

#[test]
fn a_conversation_is_private_and_found_again() {
    let (state, ids) = state(2);
    let mode = |name: &str| {
        fs::metadata(state.path().join(FOLDER).join(name)).expect("there").permissions().mode() & 0o7777
    };
    assert_eq!((mode(""), mode(&format!("{}.json", ids[0]))), (0o700, 0o600));
    let (mut file, mut record) = resume(&state, &ids[0]).expect("opens");
    record.messages.push(Message::user("more"));
    file.write(&record).expect("written");
    drop(file);
    let folder = ConversationFolder::open(state.path()).expect("opens");
    let (_, newest) = folder.newest("/work").expect("the last written one");
    assert_eq!((&newest.id, newest.messages.len()), (&ids[0], 1));
}

#[test]
fn a_conversation_is_open_in_one_process() {
    let (state, ids) = state(1);
    let open = resume(&state, &ids[0]).expect("opens");
    assert!(matches!(resume(&state, &ids[0]), Err(ConversationError::InUse { .. })));
    drop(open);
    resume(&state, &ids[0]).expect("opens again");
}

#[test]
fn a_workspace_has_its_own_conversations() {
    let (state, ids) = state(1);
    let folder = ConversationFolder::open(state.path()).expect("opens");
    let error = folder.resume(&ids[0], "/other").expect_err("of another workspace");
    assert!(matches!(error, ConversationError::OtherWorkspace { .. }), "{error}");
    assert!(matches!(folder.newest("/other"), Err(ConversationError::None { .. })));
    let (empty, _) = self::state(0);
    let folder = ConversationFolder::open(empty.path()).expect("opens");
    assert!(matches!(folder.newest("/work"), Err(ConversationError::None { .. })));
    assert!(matches!(folder.resume(&ids[0], "/work"), Err(ConversationError::Unknown { .. })));
    assert!(!empty.path().join(FOLDER).exists(), "nothing is made");
}

#[test]
fn a_file_that_is_no_conversation_is_refused() {
    let (state, ids) = state(1);
    let path = path_of(state.path(), &ids[0]);
    fs::write(&path, "{}").expect("written");
    assert!(matches!(resume(&state, &ids[0]), Err(ConversationError::Malformed { .. })));
    let newest = ConversationFolder::open(state.path()).expect("opens").newest("/work");
    assert!(matches!(newest, Err(ConversationError::Malformed { .. })), "not passed over");
    fs::File::options()
        .write(true)
        .open(&path)
        .expect("opens")
        .set_len(MAX_CONVERSATION_BYTES + 1)
        .expect("set");
    assert!(matches!(resume(&state, &ids[0]), Err(ConversationError::Oversized { .. })));
    let elsewhere = state.path().join("elsewhere");
    fs::rename(&path, &elsewhere).expect("moved");
    assert!(matches!(resume(&state, &ids[0]), Err(ConversationError::Unknown { .. })));
    symlink(&elsewhere, &path).expect("linked");
    assert!(matches!(resume(&state, &ids[0]), Err(ConversationError::NoFile { .. })));
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    assert!(matches!(resume(&state, &ids[0]), Err(ConversationError::NoFile { .. })));
}

#[test]
fn a_file_of_another_user_is_refused() {
    let own = rustix::process::geteuid().as_raw();
    ensure_own(own, Path::new("/x")).expect("this user's");
    let error = ensure_own(own + 1, Path::new("/x")).expect_err("another user's");
    assert!(error.to_string().contains(&format!("belongs to user {}", own + 1)), "{error}");
}

#[test]
fn the_oldest_conversations_are_removed_unless_they_are_open() {
    let (state, ids) = state(4);
    let folder = make_folder(&state.path().join(FOLDER)).expect("opens");
    let _open = resume(&state, &ids[0]).expect("opens");
    remove_oldest(&folder, 2).expect("removed");
    let mut left = newest_first(&folder).expect("listed");
    left.sort();
    let mut expected = vec![ids[0].clone(), ids[2].clone(), ids[3].clone()];
    expected.sort();
    assert_eq!(left, expected);
    assert!(!state.path().join(FOLDER).join(format!("{}.lock", ids[1])).exists());
}

#[test]
fn a_conversation_beyond_the_limit_leaves_the_file_as_it_was() {
    let (state, ids) = state(1);
    let (mut file, mut record) = resume(&state, &ids[0]).expect("opens");
    let limit = usize::try_from(MAX_CONVERSATION_BYTES).expect("fits");
    record.messages.push(Message::user("x".repeat(limit)));
    assert!(matches!(file.write(&record), Err(ConversationError::TooLong { .. })));
    drop(file);
    let (_, record) = resume(&state, &ids[0]).expect("opens");
    assert_eq!(record.messages, []);
}
