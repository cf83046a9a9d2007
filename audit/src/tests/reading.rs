//! Tests of reading: logs of other versions, from the end, and while rows are written.

use std::{fs, io::Write as _, path::Path};

use super::*;
use crate::{AuditError, LogFollower, newest_row_lines, row_lines};

/// A log in version 1 of the format, with calls of every kind. It is never regenerated.
const FORMAT_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-1.jsonl");

#[test]
fn a_log_of_the_first_format_is_read_verified_and_continued() {
    let dir = tempfile::tempdir().expect("makes a folder");
    fs::copy(FORMAT_1, log_path(dir.path())).expect("copied");
    let report = verify_intact(dir.path());
    assert_eq!((report.rows, report.last_seq, report.open_begins.len()), (13, 13, 0));
    let old_rows = read(dir.path());
    assert!(old_rows.iter().all(|row| row.v == 1 && row.approver.is_none() && row.touched.is_none()));
    let write = old_rows.iter().find(|row| &*row.tool == "file_write").expect("a write");
    assert_eq!(&*write.subjects[0].value, "/shared/hello.txt");
    open(dir.path()).append(&end("new")).expect("appends");
    let rows = read(dir.path());
    assert_eq!((rows.len(), rows[13].v, &rows[13].prev), (14, 2, &old_rows[12].hash));
    verify_intact(dir.path());
}

/// Changes a line of a row before its hash, and returns it with the correct hash of the changed line.
fn changed(line: &str, change: impl Fn(&str) -> String) -> String {
    use sha2::{Digest as _, Sha256};
    let (body, _) = line.split_once(",\"hash\":").expect("a row");
    let body = change(body);
    let hash = hex::encode(Sha256::digest(&body));
    format!("{body},\"hash\":\"{hash}\"}}\n")
}

#[test]
fn rows_of_a_later_version_are_rows() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = filled_log(dir.path(), 1);
    let line = std::str::from_utf8(&log).expect("UTF-8");
    for (from, to, event) in [
        ("\"v\":2", "\"v\":3", RowEvent::End),
        (",\"process\"", ",\"later\":{\"a\":[1]},\"process\"", RowEvent::End),
        ("\"event\":\"end\"", "\"event\":\"checkpointed\"", RowEvent::Other),
    ] {
        let text = changed(line, |body| body.replacen(from, to, 1));
        assert_ne!(text, line);
        fs::write(log_path(dir.path()), &text).expect("written");
        verify_intact(dir.path());
        assert_eq!(read(dir.path())[0].event, event, "{to}");
        let lines: Vec<_> = row_lines(&log_path(dir.path())).map(|line| line.expect("a row").line).collect();
        assert_eq!(lines, [text.trim_end().as_bytes()], "the line itself keeps every field");
    }
}

fn newest_ids(dir: &Path) -> Vec<String> {
    newest_row_lines(&log_path(dir)).map(|row| row.expect("a row").row.call_id.to_string()).collect()
}

#[test]
fn the_newest_rows_come_first_and_a_torn_end_is_skipped() {
    let dir = tempfile::tempdir().expect("makes a folder");
    filled_log(dir.path(), 300);
    let expected: Vec<_> = (0..300).rev().map(|row| format!("c{row}")).collect();
    assert_eq!(newest_ids(dir.path()), expected);
    let mut file = fs::OpenOptions::new().append(true).open(log_path(dir.path())).expect("opens");
    file.write_all(b"{\"v\":2,\"seq\":301,\"ti").expect("written");
    assert_eq!(newest_ids(dir.path()), expected);
}

#[test]
fn a_line_that_is_not_a_row_is_an_error_in_its_place() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let mut text = filled_log(dir.path(), 1);
    let offset = text.len() as u64;
    text.extend_from_slice(b"not a row\n");
    text.extend_from_within(..usize::try_from(offset).expect("small"));
    fs::write(log_path(dir.path()), &text).expect("written");
    let check = |rows: Vec<Result<crate::RowLine, AuditError>>| {
        assert!(
            matches!(&rows[..], [Ok(_), Err(AuditError::Malformed { offset: at, .. }), Ok(_)] if *at == offset)
        );
    };
    check(row_lines(&log_path(dir.path())).collect());
    check(newest_row_lines(&log_path(dir.path())).collect());
}

#[test]
fn a_follower_gets_each_row_once_and_notices_another_log() {
    let dir = tempfile::tempdir().expect("makes a folder");
    assert!(LogFollower::at_start(&log_path(dir.path())).is_err_and(|error| error.is_missing()));
    filled_log(dir.path(), 2);
    let ids = |follower: &mut LogFollower| -> Vec<String> {
        let rows = follower.new_rows().expect("reads");
        rows.into_iter().map(|row| row.expect("a row").row.call_id.to_string()).collect()
    };
    let mut from_start = LogFollower::at_start(&log_path(dir.path())).expect("opens");
    let mut from_end = LogFollower::at_end(&log_path(dir.path())).expect("opens");
    assert_eq!(ids(&mut from_start), ["c0", "c1"]);
    assert!(ids(&mut from_start).is_empty() && ids(&mut from_end).is_empty());
    let log = open(dir.path());
    log.append(&end("c2")).expect("appends");
    assert_eq!((ids(&mut from_start), ids(&mut from_end)), (vec!["c2".to_owned()], vec!["c2".to_owned()]));
    let end_offset = fs::metadata(log_path(dir.path())).expect("is there").len();
    let mut file = fs::OpenOptions::new().append(true).open(log_path(dir.path())).expect("opens");
    file.write_all(b"{\"v\":2,\"seq\":4").expect("written");
    assert!(ids(&mut from_end).is_empty(), "a half-written row is not a row yet");
    file.set_len(end_offset).expect("cut");
    log.append(&end("c3")).expect("appends");
    assert_eq!(ids(&mut from_end), ["c3"]);
    fs::rename(log_path(dir.path()), dir.path().join("moved")).expect("moved");
    assert!(matches!(from_end.new_rows(), Err(AuditError::Replaced { .. })));
    file.set_len(10).expect("cut");
    assert!(matches!(from_end.new_rows(), Err(AuditError::Truncated { .. })));
}
