//! Tests with many threads and many processes on one log. A `flock` belongs to an open file description, so
//! two descriptions in this process act like two processes.

use std::{sync::Barrier, thread};

use super::*;
use crate::{AuditError, lock};

#[test]
fn two_processes_interleave_and_the_chain_holds() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let start = Barrier::new(2);
    thread::scope(|scope| {
        for name in ["p", "q"] {
            let (dir, start) = (dir.path(), &start);
            scope.spawn(move || {
                let log = open(dir);
                start.wait();
                for row in 0..250 {
                    let id = format!("{name}{row}");
                    log.append(&begin(&id)).expect("appends");
                    log.append(&end(&id)).expect("appends");
                }
            });
        }
    });
    let report = verify_intact(dir.path());
    assert_eq!((report.rows, report.last_seq, report.open_begins.len()), (1000, 1000, 0));
    all_closed_once(dir.path());
    let switches = read(dir.path()).windows(2).filter(|pair| pair[0].process != pair[1].process).count();
    assert!(switches >= 1);
    assert!(leftovers(dir.path()).is_empty());
}

#[test]
fn two_processes_take_turns_row_by_row() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let (first_log, second_log) = (open(dir.path()), open(dir.path()));
    for row in 0..20 {
        assert_eq!(first_log.append(&end("a")).expect("appends").seq, 2 * row + 1);
        assert_eq!(second_log.append(&end(&"b".repeat(500))).expect("appends").seq, 2 * row + 2);
    }
    verify_intact(dir.path());
}

#[test]
fn many_threads_share_one_log() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    thread::scope(|scope| {
        for thread_number in 0..16 {
            let log = &log;
            scope.spawn(move || {
                let mut last_seq = 0;
                for row in 0..50 {
                    let id = format!("{thread_number}-{row}");
                    log.append(&begin(&id)).expect("appends");
                    let seq = log.append(&end(&id)).expect("appends").seq;
                    assert!(seq > last_seq);
                    last_seq = seq;
                }
            });
        }
    });
    assert_eq!(verify_intact(dir.path()).rows, 1600);
    all_closed_once(dir.path());
}

#[test]
fn a_reader_takes_the_rows_that_are_whole_while_others_write() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                log.append(&end("a")).expect("appends");
            }
        });
        let mut row_count = 0;
        while row_count < 500 {
            let report = verify_intact(dir.path());
            assert!(report.rows >= row_count);
            row_count = report.rows;
        }
    });
}

#[test]
fn a_lock_that_is_not_given_back_is_an_error_and_no_hang() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    let second_handle = std::fs::File::open(log.path()).expect("opens");
    assert!(lock::try_lock_until_close(&second_handle).expect("locks"));
    let file = std::fs::File::open(log.path()).expect("opens");
    let wait = std::time::Duration::from_millis(5);
    assert!(matches!(lock::lock_exclusive(&file, log.path(), wait), Err(AuditError::Busy { .. })));
    drop(second_handle);
    log.append(&end("a")).expect("appends");
}
