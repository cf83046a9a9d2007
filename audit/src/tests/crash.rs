//! Tests that kill processes, and tests of the recovery at the next start.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

use super::*;
use crate::{AuditError, Recovery};

/// The environment variable that tells the [`child`] process which log to write.
const DIR_VARIABLE: &str = "PORTCULLIS_AUDIT_TEST_DIR";

/// Not a real test: a child process runs it until the parent kills it.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(dir) = env::var_os(DIR_VARIABLE).map(PathBuf::from) else {
        return;
    };
    let (log, _) = AuditLog::open(&dir, SyncMode::Interval).expect("opens");
    for row in 0_u64.. {
        let id = format!("c{row}");
        let begun = log.append(&begin(&id)).expect("appends");
        println!("begun {}", begun.seq);
        if row % 3 != 0 {
            log.append(&end(&id)).expect("appends");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a process that is killed must be a real one: this binary again"
)]
fn child(dir: &Path) -> Child {
    let (_, module) = module_path!().split_once("::").expect("is in a crate");
    Command::new(env::current_exe().expect("is a program"))
        .args(["--exact", &format!("{module}::child_writes_until_it_is_killed"), "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts")
}

/// Lets a child write some rows, kills it, and returns the last row that the child reported as written.
fn killed_after(dir: &Path, rows: usize) -> u64 {
    let mut child = child(dir);
    let output = BufReader::new(child.stdout.take().expect("is a pipe"));
    let mut seqs = output.lines().filter_map(|line| {
        let line = line.expect("reads");
        line.split("begun ").nth(1).map(|seq| seq.trim().parse().expect("is a number"))
    });
    let mut last_seq = seqs.nth(rows).expect("writes");
    child.kill().expect("kills");
    // Include the rows that the child reported through the pipe before the kill.
    last_seq = seqs.last().unwrap_or(last_seq);
    child.wait().expect("ends");
    last_seq
}

#[test]
fn two_starts_at_once_close_each_call_of_a_killed_process_once() {
    let dir = tempfile::tempdir().expect("makes a folder");
    for round in 0..6 {
        let last = killed_after(dir.path(), 1 + round * 7);
        assert!(
            verify(&log_path(dir.path())).expect("verifies").rows >= last,
            "a row that was told is there"
        );
        let recoveries: Vec<Recovery> = thread::scope(|scope| {
            let recovery_threads = [0; 2]
                .map(|_| scope.spawn(|| AuditLog::open(dir.path(), SyncMode::Interval).expect("opens").1));
            recovery_threads.map(|start| start.join().expect("opens")).into()
        });
        let closed: Vec<_> = recoveries.iter().map(|recovery| recovery.closed_begins.len()).collect();
        assert!(closed.contains(&0) && closed.iter().sum::<usize>() > 0, "one of them did it: {closed:?}");
        assert!(verify_intact(dir.path()).open_begins.is_empty());
        all_closed_once(dir.path());
    }
    let unknown_outcomes =
        read(dir.path()).iter().filter(|row| row.outcome == Some(Outcome::Unknown)).count();
    assert!(unknown_outcomes >= 6);
    assert!(leftovers(dir.path()).iter().all(|name| name.starts_with("audit.torn-")));
}

#[test]
fn the_calls_of_a_living_process_are_left_alone() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let living_log = open(dir.path());
    living_log.append(&begin("mine")).expect("appends");
    for _ in 0..3 {
        drop(open(dir.path()));
    }
    assert_eq!(verify_intact(dir.path()).open_begins.len(), 1);
    living_log.append(&end("mine")).expect("appends");
    assert_eq!(read(dir.path())[1].outcome, Some(Outcome::Ok));
    all_closed_once(dir.path());
}

#[test]
fn a_dropped_log_leaves_open_calls_to_the_next_start() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    for id in ["a", "b", "b", "c"] {
        log.append(&begin(id)).expect("appends");
    }
    for id in ["b", "c", "never begun"] {
        log.append(&end(id)).expect("appends");
    }
    drop(log);
    let (_log, recovery) = AuditLog::open(dir.path(), SyncMode::Interval).expect("opens");
    assert_eq!(recovery.closed_begins, ["a", "b"]);
    let rows = read(dir.path());
    let (begun, closed) = (&rows[0], &rows[7]);
    assert_eq!((closed.event, closed.outcome), (RowEvent::End, Some(Outcome::Unknown)));
    assert_eq!(
        (&closed.call_id, &closed.tool, &closed.process),
        (&begun.call_id, &begun.tool, &begun.process)
    );
    assert!(verify_intact(dir.path()).open_begins.is_empty());
    drop(open(dir.path()));
    assert_eq!(read(dir.path()).len(), 9);
}

#[test]
fn a_recovery_that_was_killed_halfway_is_completed() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    log.append(&begin("a")).expect("appends");
    log.append(&begin("b")).expect("appends");
    drop(log);
    let live = dir.path().join("audit.live").join(&leftovers(dir.path())[0]);
    let (name, mark) = (live.clone(), fs::read(&live).expect("reads"));
    let (_, recovery) = AuditLog::open(dir.path(), SyncMode::Interval).expect("opens");
    assert_eq!(recovery.closed_begins, ["a", "b"]);

    // The state after a kill right before the live file is removed: all `end`s exist.
    fs::write(&name, &mark).expect("writes");
    drop(open(dir.path()));
    // The state after a kill between the two `end`s, or in the middle of the second one.
    let log_bytes = fs::read(log_path(dir.path())).expect("reads");
    let lines: Vec<_> = log_bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for torn_row in [&b""[..], &lines[3][..50]] {
        fs::write(&name, &mark).expect("writes");
        fs::write(log_path(dir.path()), [lines[..3].concat(), torn_row.to_vec()].concat()).expect("writes");
        let (_, recovery) = AuditLog::open(dir.path(), SyncMode::Interval).expect("opens");
        assert_eq!(recovery.closed_begins, ["b"]);
        assert_eq!(recovery.torn_tail.map_or(0, |torn| torn.bytes), torn_row.len() as u64);
        all_closed_once(dir.path());
        verify_intact(dir.path());
    }
}

#[test]
fn invalid_marks_cost_a_scan_and_lose_no_call() {
    for mark in
        ["", "junk", "00000000000000000003\n", "99999999999999999999\n", "00000000009999999999\n", "\0\0"]
    {
        let dir = tempfile::tempdir().expect("makes a folder");
        let log = open(dir.path());
        log.append(&begin("a")).expect("appends");
        drop(log);
        let live = dir.path().join("audit.live").join(&leftovers(dir.path())[0]);
        fs::write(&live, mark).expect("writes");
        let (_, recovery) = AuditLog::open(dir.path(), SyncMode::Interval).expect("opens");
        assert_eq!(recovery.closed_begins, ["a"], "{mark:?}");
    }
}

#[test]
fn the_mark_follows_the_oldest_open_call() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    log.append(&end("reads only")).expect("appends");
    assert!(leftovers(dir.path()).is_empty(), "a process without effects leaves no file");
    log.append(&begin("a")).expect("appends");
    let live = dir.path().join("audit.live").join(&leftovers(dir.path())[0]);
    let mark = || fs::read_to_string(&live).expect("reads").trim().parse::<u64>().ok();
    let first_row = fs::read_to_string(log.path()).expect("reads").find('\n').expect("a row") as u64 + 1;
    assert_eq!(mark(), Some(first_row));
    for row in 0..200 {
        log.append(&begin(&format!("x{row}"))).expect("appends");
        log.append(&end(&format!("x{row}"))).expect("appends");
    }
    log.flush().expect("synchronizes");
    assert_eq!(mark(), Some(first_row), "the first call is still open");
    let size = fs::metadata(log.path()).expect("is there").len();
    log.append(&begin("b")).expect("appends");
    log.append(&end("a")).expect("appends");
    log.flush().expect("synchronizes");
    assert_eq!(mark(), Some(size));
    log.append(&end("b")).expect("appends");
    log.flush().expect("synchronizes");
    assert_eq!(mark(), None);
    let size = fs::metadata(log.path()).expect("is there").len();
    log.append(&begin("c")).expect("appends");
    assert_eq!(mark(), Some(size));
    drop(log);
    let (_, recovery) = AuditLog::open(dir.path(), SyncMode::Interval).expect("opens");
    assert_eq!(recovery.closed_begins, ["c"]);
}

#[test]
fn a_torn_end_is_saved_cut_off_and_reported() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log_bytes = filled_log(dir.path(), 4);
    let last_row_start =
        log_bytes[..log_bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("four rows") + 1;
    let zeros = [0; 4096];
    for (intact_bytes, tail) in [
        (last_row_start, &log_bytes[last_row_start..last_row_start + 1]),
        (last_row_start, &log_bytes[last_row_start..last_row_start + 200]),
        (last_row_start, &log_bytes[last_row_start..log_bytes.len() - 1]),
        (log_bytes.len(), &b"{\"seq\":5,"[..]),
        (log_bytes.len(), &zeros[..]),
        (0, &log_bytes[..40]),
    ] {
        fs::write(log_path(dir.path()), [&log_bytes[..intact_bytes], tail].concat()).expect("writes");
        let chain_break = verify(&log_path(dir.path())).expect("verifies").first_break;
        assert!(chain_break.is_some());
        let (log, recovery) = AuditLog::open(dir.path(), SyncMode::Interval).expect("opens");
        let torn = recovery.torn_tail.expect("is said");
        assert_eq!(torn.bytes, tail.len() as u64);
        assert_eq!(fs::read(&torn.kept_in).expect("is kept"), tail);
        assert_eq!(fs::read(log_path(dir.path())).expect("reads"), &log_bytes[..intact_bytes]);
        log.append(&end("after")).expect("appends");
        verify_intact(dir.path());
    }
}

#[test]
fn an_invalid_whole_line_at_the_end_is_refused() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log_bytes = filled_log(dir.path(), 4);
    let mut flipped = log_bytes.clone();
    let position = log_bytes.len() - 200;
    flipped[position] ^= 1;
    let appended = [&log_bytes[..], b"{\"seq\":5}\n"].concat();
    let appended_and_torn = [&appended[..], b"{\"se"].concat();
    for tampered in [flipped, appended, appended_and_torn] {
        fs::write(log_path(dir.path()), &tampered).expect("writes");
        let error = AuditLog::open(dir.path(), SyncMode::Interval).expect_err("it was tampered with");
        assert!(matches!(error, AuditError::Altered { .. }), "{error}");
        assert_eq!(fs::read(log_path(dir.path())).expect("reads"), tampered);
    }
}

#[test]
fn rows_before_a_torn_end_are_read() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log_bytes = filled_log(dir.path(), 3);
    let lines: Vec<_> = log_bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let log = [lines[0], b"junk\n", &[b'x'; 100_000][..], b"\n", lines[1], &lines[2][..80]].concat();
    fs::write(log_path(dir.path()), log).expect("writes");
    let read_rows: Vec<_> = rows(&log_path(dir.path())).collect();
    assert_eq!(read_rows.len(), 4);
    assert_eq!(read_rows[0].as_ref().expect("is a row").seq, 1);
    assert!(
        matches!(read_rows[1], Err(AuditError::Malformed { offset, .. }) if offset == lines[0].len() as u64)
    );
    assert!(
        matches!(read_rows[2], Err(AuditError::Overlong { offset, .. }) if offset == lines[0].len() as u64 + 5)
    );
    assert_eq!(read_rows[3].as_ref().expect("is a row").seq, 2);
}

#[test]
fn a_live_process_sets_aside_a_torn_line_of_another() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    log.append(&end("a")).expect("appends");
    let file = OpenOptions::new().append(true).open(log_path(dir.path()));
    file.and_then(|mut file| file.write_all(b"{\"seq\":2,\"time\"")).expect("writes");
    assert_eq!(log.append(&end("b")).expect("appends").seq, 2);
    assert_eq!(verify_intact(dir.path()).rows, 2);
    assert_eq!(leftovers(dir.path()).len(), 1);
}

#[test]
fn damage_beyond_that_of_a_crash_is_not_cut_off() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let junk = vec![b'x'; 6 * 1024 * 1024];
    fs::write(log_path(dir.path()), &junk).expect("writes");
    let error = AuditLog::open(dir.path(), SyncMode::Interval).map(|_| ()).expect_err("is refused");
    assert!(matches!(error, AuditError::Corrupt { .. }), "{error:?}");
    assert!(fs::read(log_path(dir.path())).expect("reads") == junk);
}
