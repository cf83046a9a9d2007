//! Tests of the rows that are not about calls: the start and the end of a process, and changes of the policy.

use std::{fs, path::Path};

use sha2::{Digest as _, Sha256};

use super::*;
use crate::{POLICIES_DIR, PolicyChange, PolicyChangeCause, ProcessStart, QUESTIONS_DIR, StoredPolicy};

/// A policy whose digest is the SHA-256 of its JSON, as for a real one.
fn digest(policy: &str) -> String {
    hex::encode(Sha256::digest(policy))
}

/// Opens a log for a process under this policy.
fn introduced(dir: &Path, policy: &'static str) -> AuditLog {
    let log = open(dir);
    let start = ProcessStart {
        version: "1.2.3".into(),
        binary_sha256: Some("ab".into()),
        uid: 7,
        host: Some("host".into()),
        instance: None,
        policy_digest: Some(digest(policy).into()),
        lock_sha256: None,
    };
    let text = move || StoredPolicy { toml: format!("# {policy}\n"), json: policy.into() };
    log.set_process_start(Box::new(move || start), Some(Box::new(text)));
    log
}

fn events(dir: &Path) -> Vec<RowEvent> {
    read(dir).iter().map(|row| row.event).collect()
}

#[test]
fn the_first_row_of_a_process_describes_it_the_last_ends_it() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = introduced(dir.path(), "one");
    assert!(events(dir.path()).is_empty(), "a process that records nothing leaves no row");
    log.append(&begin("c")).expect("appends");
    log.append(&end("c")).expect("appends");
    drop(log);
    let rows = read(dir.path());
    assert_eq!(events(dir.path()), [RowEvent::Start, RowEvent::Begin, RowEvent::End, RowEvent::Stop]);
    let start = &rows[0];
    assert_eq!(start.v, 2);
    assert_eq!(start.version.as_deref(), Some("1.2.3"));
    assert_eq!((start.uid, start.host.as_deref()), (Some(7), Some("host")));
    assert_eq!(start.policy_digest.as_deref(), Some(&*digest("one")));
    assert!(rows.iter().all(|row| row.process == start.process));
    verify_intact(dir.path());
    drop(introduced(dir.path(), "one"));
    assert_eq!(read(dir.path()).len(), 4);
}

#[test]
fn a_policy_is_kept_under_the_digest_that_rows_name() {
    let dir = tempfile::tempdir().expect("makes a folder");
    introduced(dir.path(), "one").append(&end("c")).expect("appends");
    let policies = dir.path().join(POLICIES_DIR);
    let json = fs::read(policies.join(format!("{}.json", digest("one")))).expect("the file is readable");
    assert_eq!(hex::encode(Sha256::digest(&json)), digest("one"));
    let toml = policies.join(format!("{}.toml", digest("one")));
    assert_eq!(fs::read_to_string(&toml).expect("the file is readable"), "# one\n");
    assert_private(&toml);
    // A stored policy is not written again.
    fs::write(&toml, "kept").expect("written");
    introduced(dir.path(), "one").append(&end("d")).expect("appends");
    assert_eq!(fs::read_to_string(&toml).expect("the file is readable"), "kept");
}

#[track_caller]
fn assert_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    assert_eq!(mode(path), 0o600);
    assert_eq!(mode(path.parent().expect("a folder")), 0o700);
}

#[test]
fn a_start_under_another_policy_has_a_row_with_both() {
    let dir = tempfile::tempdir().expect("makes a folder");
    for policy in ["one", "two", "two"] {
        introduced(dir.path(), policy).append(&end("c")).expect("appends");
    }
    let rows = read(dir.path());
    let changes: Vec<_> = rows.iter().filter(|row| row.event == RowEvent::Policy).collect();
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].old_digest.as_deref(), Some(&*digest("one")));
    assert_eq!(changes[0].new_digest.as_deref(), Some(&*digest("two")));
    assert_eq!((changes[0].cause.as_deref(), changes[0].refused.as_deref()), (Some("start"), None));
    verify_intact(dir.path());
}

#[test]
fn a_refused_policy_has_a_row_with_the_reason() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = introduced(dir.path(), "one");
    let refused = PolicyChange {
        old_digest: Some(digest("one").into()),
        new_digest: None,
        cause: PolicyChangeCause::Hangup,
        uid: 7,
        refused: Some("line 3\u{1b}: no such profile".into()),
    };
    log.record_policy_change(&refused).expect("recorded");
    drop(log);
    assert_eq!(events(dir.path()), [RowEvent::Start, RowEvent::Policy, RowEvent::Stop]);
    let row = &read(dir.path())[1];
    assert_eq!(row.refused, refused.refused);
    assert_eq!((row.cause.as_deref(), row.new_digest.as_deref()), (Some("hangup"), None));
    let text = fs::read_to_string(log_path(dir.path())).expect("reads");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn a_log_that_cannot_keep_the_policy_records_no_call() {
    let dir = tempfile::tempdir().expect("makes a folder");
    fs::write(dir.path().join(POLICIES_DIR), "not a folder").expect("written");
    let log = introduced(dir.path(), "one");
    for _ in 0..2 {
        let error = log.append(&end("c")).expect_err("the policy is not kept");
        assert!(error.to_string().contains("cannot store"), "{error}");
    }
    assert!(events(dir.path()).is_empty());
    fs::remove_file(dir.path().join(POLICIES_DIR)).expect("removed");
    log.append(&end("c")).expect("appends");
    assert_eq!(events(dir.path()), [RowEvent::Start, RowEvent::End]);
    assert!(dir.path().join(POLICIES_DIR).join(format!("{}.json", digest("one"))).exists());
}

#[test]
fn a_question_is_kept_once_for_its_owner_alone() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    let sha256 = digest("question");
    for _ in 0..2 {
        log.store_question(&sha256, "question").expect("the question can be stored");
    }
    let path = dir.path().join(QUESTIONS_DIR).join(format!("{sha256}.txt"));
    assert_eq!(fs::read_to_string(&path).expect("the file is readable"), "question");
    assert_private(&path);
    assert_eq!(fs::read_dir(dir.path().join(QUESTIONS_DIR)).expect("lists").count(), 1);
}
