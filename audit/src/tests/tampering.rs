//! Tests of tampering: the verifier detects it in a closed log, and the writer in an open log.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
};

use proptest::prelude::*;

use super::*;
use crate::{AuditError, BreakReason, ChainBreak};

/// Writes these lines as a log, and returns the first break.
fn first_break(lines: &[&[u8]]) -> Option<ChainBreak> {
    let dir = tempfile::tempdir().expect("makes a folder");
    fs::write(log_path(dir.path()), lines.concat()).expect("writes");
    verify(&log_path(dir.path())).expect("verifies").first_break
}

#[track_caller]
fn check(lines: &[&[u8]], line: u64, why: BreakReason) {
    let chain_break = first_break(lines).expect("is broken");
    assert_eq!((chain_break.line, chain_break.why), (line, why));
}

fn split(log: &[u8]) -> Vec<&[u8]> {
    log.split_inclusive(|byte| *byte == b'\n').collect()
}

#[test]
fn an_unmodified_log_verifies() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = filled_log(dir.path(), 20);
    let report = verify_intact(dir.path());
    assert_eq!((report.rows, report.last_seq), (20, 20));
    assert!(log.ends_with(format!("{}\"}}\n", report.head).as_bytes()));
    assert_eq!(first_break(&split(&log)), None);
    assert_eq!(first_break(&[]), None);
}

#[test]
fn removed_swapped_doubled_and_inserted_lines_are_found() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = filled_log(dir.path(), 6);
    let lines = split(&log);
    let [a, b, c, d, e, f] = lines[..] else { panic!("six lines") };
    let gap = |expected, found| BreakReason::SequenceGap { expected, found };

    check(&[b, c, d, e, f], 1, gap(1, 2));
    check(&[a, b, d, e, f], 3, gap(3, 4));
    check(&[a, c, b, d, e, f], 2, gap(2, 3));
    check(&[a, b, b, c, d, e, f], 3, gap(3, 2));
    check(&[a, b, c, b"{}\n", d, e, f], 4, BreakReason::Malformed);
    check(&[a, b, b"\n", c, d], 3, BreakReason::Malformed);
    check(&[a, b, c, &d[..d.len() - 1]], 4, BreakReason::TornTail);
    check(&[a, b, c, &d[..10]], 4, BreakReason::TornTail);
    check(&[a, &[b'x'; 200_000], b"\n", b, c], 2, BreakReason::Malformed);

    let other_folder = tempfile::tempdir().expect("makes a folder");
    let other_log = filled_log(other_folder.path(), 6);
    check(&[a, b, split(&other_log)[2], d, e], 3, BreakReason::ChainBroken);

    let edited_row = String::from_utf8(c.to_vec()).expect("is UTF-8").replace("file_write", "file_rite");
    check(&[a, b, edited_row.as_bytes(), d], 3, BreakReason::HashMismatch);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn any_changed_byte_is_found(at in any::<prop::sample::Index>(), change in 1_u8..=255) {
        thread_local! {
            static LOG: Vec<u8> = filled_log(tempfile::tempdir().expect("makes a folder").path(), 5);
        }
        LOG.with(|log| {
            let mut log = log.clone();
            let at = at.index(log.len());
            let line = log[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            log[at] ^= change;
            let chain_break = first_break(&[&log]).expect("is found");
            prop_assert!(chain_break.line == line, "byte {} of line {}: {:?}", at, line, chain_break);
            Ok(())
        })?;
    }
}

#[test]
fn an_open_log_that_was_cut_is_refused() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    log.append(&end("a")).expect("appends");
    let size = fs::metadata(log_path(dir.path())).expect("is there").len();
    log.append(&end("b")).expect("appends");
    OpenOptions::new()
        .write(true)
        .open(log_path(dir.path()))
        .and_then(|file| file.set_len(size))
        .expect("truncates");
    for _ in 0..2 {
        let error = log.append(&end("c")).expect_err("is refused");
        assert!(matches!(error, AuditError::Truncated { found, .. } if found == size), "{error:?}");
    }
    assert_eq!(read(dir.path()).len(), 1);
}

#[test]
fn an_open_log_that_was_filled_up_again_is_refused() {
    for extra in [0, 7] {
        let dir = tempfile::tempdir().expect("makes a folder");
        let log = open(dir.path());
        log.append(&end("a")).expect("appends");
        let size =
            usize::try_from(fs::metadata(log_path(dir.path())).expect("is there").len()).expect("fits");
        let file = OpenOptions::new().write(true).truncate(true).open(log_path(dir.path()));
        file.and_then(|mut file| file.write_all(&vec![b'x'; size + extra])).expect("writes");
        let error = log.append(&end("b")).expect_err("is refused");
        assert!(matches!(error, AuditError::Altered { .. }), "{error:?}");
    }
}

#[test]
fn an_open_log_that_was_deleted_or_replaced_is_refused() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let (path, moved_path) = (log_path(dir.path()), dir.path().join("aside"));
    let log = open(dir.path());
    log.append(&end("a")).expect("appends");
    let refused = || {
        let error = log.append(&end("b")).expect_err("is refused");
        assert!(matches!(error, AuditError::Replaced { .. }), "{error:?}");
    };

    fs::rename(&path, &moved_path).expect("moves away");
    refused();
    assert!(!path.exists());
    fs::copy(&moved_path, &path).expect("puts a copy there");
    refused();
    std::os::unix::fs::symlink(&moved_path, dir.path().join("link")).expect("links");
    fs::rename(dir.path().join("link"), &path).expect("puts a link there");
    refused();
    fs::remove_file(&path).expect("deletes");
    refused();
    fs::rename(&moved_path, &path).expect("puts it back");
    log.append(&end("b")).expect("appends again");
    verify_intact(dir.path());
}

#[test]
fn an_inserted_line_stops_the_writer() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    log.append(&end("a")).expect("appends");
    let file = OpenOptions::new().append(true).open(log_path(dir.path()));
    file.and_then(|mut file| file.write_all(b"{\"seq\":2}\n")).expect("writes");
    let error = log.append(&end("b")).expect_err("is refused");
    assert!(matches!(error, AuditError::Altered { .. }), "{error:?}");
}

#[test]
fn link_or_folder_is_not_opened_as_a_log() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let path = log_path(dir.path());
    let refused = || {
        for error in [
            AuditLog::open(dir.path(), SyncMode::Interval).map(|_| ()).expect_err("is refused"),
            verify(&path).map(|_| ()).expect_err("is refused"),
            rows(&path).next().expect("says so").map(|_| ()).expect_err("is refused"),
        ] {
            assert!(matches!(error, AuditError::NotAFile { .. }), "{error:?}");
        }
    };
    std::os::unix::fs::symlink("/dev/full", &path).expect("links");
    refused();
    fs::remove_file(&path).expect("unlinks");
    fs::create_dir(&path).expect("makes a folder");
    refused();
    fs::remove_dir(&path).expect("removes");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("makes a FIFO");
    refused();
}
