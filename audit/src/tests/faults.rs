//! Tests with faulty disks: full, read-only, or losing data.

use std::{
    collections::VecDeque,
    fs::{self, File, Permissions},
    os::{fd::BorrowedFd, unix::fs::PermissionsExt as _},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use rustix::io::Errno;

use super::*;
use crate::{
    AuditError,
    writer::{KernelDevice, LogDevice},
};

/// Acts like the real device, unless the test's plan says otherwise.
#[derive(Debug)]
struct Faulty {
    writes: Mutex<VecDeque<Result<usize, Errno>>>,
    truncates: AtomicBool,
    syncs: AtomicBool,
    synced: Sender<()>,
}

impl LogDevice for &'static Faulty {
    fn write(&self, file: &File, bytes: &[u8]) -> Result<usize, Errno> {
        match self.writes.lock().expect("is whole").pop_front() {
            None => KernelDevice.write(file, bytes),
            Some(Ok(some)) => KernelDevice.write(file, &bytes[..some]),
            Some(Err(errno)) => Err(errno),
        }
    }
    fn truncate(&self, file: &File, size: u64) -> Result<(), Errno> {
        if self.truncates.load(Ordering::Relaxed) {
            KernelDevice.truncate(file, size)
        } else {
            Err(Errno::IO)
        }
    }
    fn sync(&self, file: &File) -> Result<(), Errno> {
        let _ = self.synced.send(());
        if self.syncs.load(Ordering::Relaxed) { KernelDevice.sync(file) } else { Err(Errno::IO) }
    }
    fn sync_folder(&self, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        KernelDevice.sync_folder(folder)
    }
}

fn open_faulty(dir: &Path, mode: SyncMode) -> (AuditLog, &'static Faulty, Receiver<()>) {
    let (synced, syncs) = channel();
    let faulty = Box::leak(Box::new(Faulty {
        writes: Mutex::default(),
        truncates: AtomicBool::new(true),
        syncs: AtomicBool::new(true),
        synced,
    }));
    let (log, recovery) = AuditLog::open_on(dir, mode, Box::new(&*faulty)).expect("opens");
    assert!(recovery.is_clean());
    (log, faulty, syncs)
}

#[test]
fn a_full_disk_refuses_the_row_and_leaves_nothing_of_it() {
    for fault in [Err(Errno::NOSPC), Err(Errno::DQUOT), Err(Errno::FBIG), Ok(0), Ok(1), Ok(300)] {
        let dir = tempfile::tempdir().expect("makes a folder");
        let (log, faulty, _) = open_faulty(dir.path(), SyncMode::Interval);
        log.append(&begin("a")).expect("appends");
        let log_before = fs::read(log_path(dir.path())).expect("reads");
        faulty.writes.lock().expect("is whole").extend([fault, fault]);
        for _ in 0..2 {
            let error = log.append(&begin("b")).expect_err("is refused");
            assert!(matches!(error, AuditError::Write { .. }), "{error:?}");
            assert_eq!(fs::read(log_path(dir.path())).expect("reads"), log_before);
        }
        assert_eq!(log.append(&end("a")).expect("appends again").seq, 2);
        drop(log);
        assert_eq!(verify_intact(dir.path()).rows, 2);
        assert!(leftovers(dir.path()).is_empty());
    }
}

#[test]
fn the_next_append_puts_aside_a_piece_that_was_not_truncated() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let (log, faulty, _) = open_faulty(dir.path(), SyncMode::Interval);
    log.append(&end("a")).expect("appends");
    faulty.writes.lock().expect("is whole").push_back(Ok(100));
    faulty.truncates.store(false, Ordering::Relaxed);
    assert!(matches!(log.append(&end("b")), Err(AuditError::Write { .. })));
    assert!(matches!(log.append(&end("b")), Err(AuditError::Write { .. })), "still can't be cut off");
    faulty.truncates.store(true, Ordering::Relaxed);
    log.append(&end("c")).expect("appends again");
    assert_eq!(verify_intact(dir.path()).rows, 2);
    let torn = leftovers(dir.path());
    assert!(!torn.is_empty() && torn.iter().all(|name| name.starts_with("audit.torn-")), "{torn:?}");
}

#[test]
fn an_interrupted_write_is_repeated() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let (log, faulty, _) = open_faulty(dir.path(), SyncMode::Interval);
    faulty.writes.lock().expect("is whole").extend([Err(Errno::INTR), Err(Errno::INTR)]);
    log.append(&end("a")).expect("appends");
    assert_eq!(verify_intact(dir.path()).rows, 1);
}

#[test]
fn rows_that_do_not_reach_the_disk_stop_all_further_ones() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let (log, faulty, _) = open_faulty(dir.path(), SyncMode::Interval);
    log.append(&end("a")).expect("appends");
    faulty.syncs.store(false, Ordering::Relaxed);
    assert!(matches!(log.flush(), Err(AuditError::Sync { .. })));
    faulty.syncs.store(true, Ordering::Relaxed);
    assert!(matches!(log.append(&end("b")), Err(AuditError::Sync { .. })), "a failure stays");
    assert!(matches!(log.flush(), Err(AuditError::Sync { .. })));
    assert_eq!(read(dir.path()).len(), 1);

    let dir = tempfile::tempdir().expect("makes a folder");
    let (log, faulty, _) = open_faulty(dir.path(), SyncMode::Always);
    faulty.syncs.store(false, Ordering::Relaxed);
    assert!(matches!(log.append(&begin("a")), Err(AuditError::Sync { .. })));
}

#[test]
fn a_failure_of_the_background_thread_stops_further_rows() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let (log, faulty, syncs) = open_faulty(dir.path(), SyncMode::Interval);
    faulty.syncs.store(false, Ordering::Relaxed);
    log.append(&end("a")).expect("appends");
    syncs.recv_timeout(Duration::from_secs(10)).expect("synchronizes");
    // The thread stores the failure within microseconds.
    for _ in 0..1_000_000 {
        if log.check_synced().is_err() {
            break;
        }
        std::thread::yield_now();
    }
    assert!(matches!(log.append(&end("b")), Err(AuditError::Sync { .. })));
}

#[test]
fn the_thread_syncs_only_requested_work_and_once_at_the_end() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let (log, _, syncs) = open_faulty(dir.path(), SyncMode::Interval);
    assert_eq!(syncs.try_iter().count(), 0);
    log.append(&end("a")).expect("appends");
    syncs.recv_timeout(Duration::from_secs(10)).expect("synchronizes by itself");
    assert!(syncs.recv_timeout(3 * crate::SYNC_INTERVAL).is_err(), "sleeps when idle");
    log.append(&end("b")).expect("appends");
    drop(log);
    assert_eq!(syncs.try_iter().count(), 1);

    let (log, _, syncs) = open_faulty(dir.path(), SyncMode::Always);
    log.append(&end("a")).expect("appends");
    assert!(syncs.try_iter().count() >= 1, "is on the disk before append returns");
}

#[test]
fn rows_that_come_together_are_synchronized_together() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let (log, _, syncs) = open_faulty(dir.path(), SyncMode::Interval);
    let begun = Instant::now();
    for _ in 0..200 {
        log.append(&end("a")).expect("appends");
    }
    drop(log);
    // The limit is independent of the disk's speed: one sync per interval, one for the last interval,
    // and one at the end.
    let intervals = begun.elapsed().as_millis() / crate::SYNC_INTERVAL.as_millis();
    let count = syncs.try_iter().count();
    assert!((1..=intervals + 2).contains(&(count as u128)), "{count} in {intervals} intervals");
}

#[test]
fn a_log_that_cannot_be_written_does_not_open() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let missing_folder = dir.path().join("missing");
    let error = AuditLog::open(&missing_folder, SyncMode::Interval).map(|_| ()).expect_err("is refused");
    assert!(error.is_missing(), "{error:?}");
    assert!(verify(&log_path(dir.path())).expect_err("is refused").is_missing());

    if rustix::process::geteuid().is_root() {
        // Root bypasses permission checks.
        println!("skipped: permissions do not bind root");
        return;
    }
    fs::set_permissions(dir.path(), Permissions::from_mode(0o500)).expect("sets the mode");
    let error = AuditLog::open(dir.path(), SyncMode::Interval).map(|_| ()).expect_err("is refused");
    assert!(matches!(error, AuditError::Open { .. }), "{error:?}");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("sets the mode");
}

#[test]
fn the_files_are_the_owners_alone() {
    let dir = tempfile::tempdir().expect("makes a folder");
    let log = open(dir.path());
    log.append(&begin("a")).expect("appends");
    let mode = |path: &Path| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    assert_eq!(mode(log.path()), 0o600);
    let live = dir.path().join("audit.live");
    assert_eq!(mode(&live), 0o700);
    assert_eq!(mode(&live.join(&leftovers(dir.path())[0])), 0o600);
}
