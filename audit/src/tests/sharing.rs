//! Many threads and many processes on one log. A `flock` belongs to an open file description, so two handles
//! in this process act like two processes.

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
    let report = intact(dir.path());
    assert_eq!((report.rows, report.last_seq, report.open_begins.len()), (1000, 1000, 0));
    all_closed_once(dir.path());
    let switches = read(dir.path()).windows(2).filter(|pair| pair[0].process != pair[1].process).count();
    assert!(switches >= 1);
    assert!(leftovers(dir.path()).is_empty());
}

#[test]
fn two_processes_take_turns_row_by_row() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let (a, b) = (open(dir.path()), open(dir.path()));
    for row in 0..20 {
        assert_eq!(a.append(&end("a")).expect("appends").seq, 2 * row + 1);
        assert_eq!(b.append(&end(&"b".repeat(500))).expect("appends").seq, 2 * row + 2);
    }
    intact(dir.path());
}

#[test]
fn many_threads_share_one_log() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    thread::scope(|scope| {
        for worker in 0..16 {
            let log = &log;
            scope.spawn(move || {
                let mut last = 0;
                for row in 0..50 {
                    let id = format!("{worker}-{row}");
                    log.append(&begin(&id)).expect("appends");
                    let seq = log.append(&end(&id)).expect("appends").seq;
                    assert!(seq > last);
                    last = seq;
                }
            });
        }
    });
    assert_eq!(intact(dir.path()).rows, 1600);
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
        let mut seen = 0;
        while seen < 500 {
            let report = intact(dir.path());
            assert!(report.rows >= seen);
            seen = report.rows;
        }
    });
}

#[test]
fn a_lock_that_is_not_given_back_is_an_error_and_no_hang() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    let other = std::fs::File::open(log.path()).expect("opens");
    assert!(lock::try_keep(&other).expect("locks"));
    let file = std::fs::File::open(log.path()).expect("opens");
    let wait = std::time::Duration::from_millis(5);
    assert!(matches!(lock::exclusive(&file, log.path(), wait), Err(AuditError::Busy { .. })));
    drop(other);
    log.append(&end("a")).expect("appends");
}
