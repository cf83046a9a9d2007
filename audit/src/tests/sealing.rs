//! Tests of checkpoints and segments: how they are made, and which tampering they show.

use std::{
    fmt,
    fs::{self, File, Permissions},
    os::{fd::BorrowedFd, unix::fs::PermissionsExt as _},
    path::PathBuf,
    process::Command,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use rustix::io::Errno;

use super::*;
use crate::{
    AuditError, BreakReason, CheckpointFinding, CheckpointKey, CheckpointSource, LogFollower,
    NEWEST_CHECKPOINT, SEGMENTS_DIR, SealingOptions, SignatureFault, SignedCheckpoint, VerifyRequest,
    newest_row_lines, verify_against,
    writer::{KernelDevice, LogDevice},
};

/// The checkpoints that a log has delivered.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<SignedCheckpoint>>>);

impl Kept {
    fn options(&self) -> SealingOptions {
        let kept = Arc::clone(&self.0);
        SealingOptions {
            sink: Some(Arc::new(move |signed: &SignedCheckpoint| {
                kept.lock().expect("not poisoned").push(signed.clone());
            })),
            ..SealingOptions::default()
        }
    }

    fn all(&self) -> Vec<SignedCheckpoint> {
        self.0.lock().expect("not poisoned").clone()
    }

    #[track_caller]
    fn newest(&self) -> SignedCheckpoint {
        self.all().pop().expect("a checkpoint")
    }
}

fn open_sealed(dir: &Path, kept: &Kept) -> AuditLog {
    let log = open(dir);
    log.set_sealing_options(kept.options());
    log
}

fn append(log: &AuditLog, rows: usize) {
    for row in 0..rows {
        log.append(&end(&format!("c{row}"))).expect("appends");
    }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir.join(SEGMENTS_DIR))
        .map(|entries| entries.map(|entry| entry.expect("lists").path()).collect())
        .unwrap_or_default();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "jsonl"));
    files.sort();
    files
}

/// Creates a log of three segments with a checkpoint at its end.
fn sealed_log(dir: &Path) -> Kept {
    let kept = Kept::default();
    let log = open_sealed(dir, &kept);
    append(&log, 5);
    log.seal().expect("seals");
    append(&log, 3);
    log.seal().expect("seals");
    append(&log, 2);
    drop(log);
    kept
}

#[track_caller]
fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it does not happen");
        thread::sleep(Duration::from_millis(5));
    }
}

fn against(dir: &Path, anchors: &[SignedCheckpoint]) -> VerifyReport {
    let request = VerifyRequest { anchors: anchors.to_vec(), ..VerifyRequest::default() };
    verify_against(&log_path(dir), &request).expect("verifies")
}

/// Returns the findings about the checkpoints from outside, oldest first.
fn outside(report: &VerifyReport) -> Vec<CheckpointFinding> {
    let outside = report.anchors.iter().filter(|anchor| anchor.source == CheckpointSource::Outside);
    outside.map(|anchor| anchor.finding.clone()).collect()
}

#[test]
fn a_sealed_log_reads_verifies_and_goes_on_as_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = sealed_log(dir.path());
    let names: Vec<_> = segments(dir.path())
        .iter()
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["000001-1-5.jsonl", "000002-6-9.jsonl"]);
    // Rows 6, 10 and 13 are checkpoints.
    let report = verify_intact(dir.path());
    assert_eq!((report.rows, report.last_seq, report.segments, report.checkpoint_rows), (13, 13, 3, 3));
    assert_eq!(report.anchors.len(), 3);
    assert!(report.anchors.iter().all(|anchor| anchor.is_signature_checked));
    let seqs: Vec<u64> = read(dir.path()).iter().map(|row| row.seq).collect();
    assert_eq!(seqs, (1..=13).collect::<Vec<_>>());
    let newest = newest_row_lines(&log_path(dir.path())).map(|line| line.expect("a row").row.seq);
    assert_eq!(newest.collect::<Vec<_>>(), (1..=13).rev().collect::<Vec<_>>());
    let sizes: Vec<u64> = kept.all().iter().map(|signed| signed.checkpoint.size).collect();
    assert_eq!(sizes, [5, 9, 12]);
    assert_eq!(outside(&against(dir.path(), &kept.all())), [const { CheckpointFinding::Holds }; 3]);

    let log = open(dir.path());
    assert_eq!(log.append(&end("more")).expect("appends").seq, 14);
    drop(log);
    verify_intact(dir.path());
    assert!(against(dir.path(), &kept.all()).is_intact());
}

#[test]
fn rows_get_a_checkpoint_after_a_number_or_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = Kept::default();
    let log = open(dir.path());
    log.set_sealing_options(SealingOptions { checkpoint_rows: 10, ..kept.options() });
    append(&log, 9);
    thread::sleep(crate::SYNC_INTERVAL * 3);
    assert_eq!(kept.all(), []);
    append(&log, 1);
    wait_until(|| kept.all().len() == 1);
    log.set_sealing_options(SealingOptions {
        checkpoint_interval: Duration::from_millis(300),
        ..kept.options()
    });
    append(&log, 1);
    wait_until(|| kept.all().len() == 2);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(kept.all().len(), 2, "an idle log makes no row");
    drop(log);
    assert_eq!(kept.all().len(), 2);
    verify_intact(dir.path());
}

#[test]
fn segments_are_sealed_at_their_size_and_age() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = open(dir.path());
    log.set_sealing_options(SealingOptions { segment_bytes: 4000, ..SealingOptions::default() });
    append(&log, 10);
    wait_until(|| segments(dir.path()).len() == 1);
    log.set_sealing_options(SealingOptions {
        segment_age: Duration::from_millis(1),
        ..SealingOptions::default()
    });
    append(&log, 1);
    wait_until(|| segments(dir.path()).len() == 2);
    drop(log);
    let report = verify_intact(dir.path());
    assert!(report.segments == 3 && report.rows >= 13, "{report:?}");
    for segment in segments(dir.path()) {
        assert_eq!(fs::metadata(segment).expect("is there").permissions().mode() & 0o777, 0o400);
    }
}

#[test]
fn two_processes_that_find_a_full_segment_seal_it_once() {
    const SEGMENT_BYTES: u64 = 3000;
    let dir = tempfile::tempdir().expect("a folder");
    let options = SealingOptions { segment_bytes: SEGMENT_BYTES, ..SealingOptions::default() };
    let logs = [open(dir.path()), open(dir.path())];
    logs.iter().for_each(|log| log.set_sealing_options(options.clone()));
    for expected in 1..=5 {
        while segments(dir.path()).len() < expected {
            logs.iter().for_each(|log| append(log, 1));
        }
    }
    drop(logs);
    verify_intact(dir.path());
    for segment in segments(dir.path()) {
        let bytes = fs::metadata(&segment).expect("is there").len();
        assert!(bytes >= SEGMENT_BYTES, "{}: {bytes} bytes", segment.display());
    }
}

#[test]
fn other_processes_go_on_in_the_next_segment() {
    let dir = tempfile::tempdir().expect("a folder");
    let (first, second, third) = (open(dir.path()), open(dir.path()), open(dir.path()));
    first.append(&begin("open-over-the-border")).expect("appends");
    second.append(&end("a")).expect("appends");
    first.seal().expect("seals");
    assert_eq!(second.append(&end("b")).expect("appends").seq, 4);
    second.seal().expect("seals");
    first.append(&end("open-over-the-border")).expect("appends");
    first.seal().expect("seals");
    // After two more sealings.
    assert_eq!(third.append(&end("c")).expect("appends").seq, 8);
    drop((first, second, third));
    let report = verify_intact(dir.path());
    assert_eq!((report.rows, report.open_begins.len()), (8, 0));
}

#[test]
fn many_processes_seal_and_append_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = Kept::default();
    thread::scope(|scope| {
        for process in 0..4 {
            let (dir, kept) = (dir.path(), &kept);
            scope.spawn(move || {
                let log = open_sealed(dir, kept);
                for row in 0..60 {
                    let id = format!("{process}-{row}");
                    log.append(&begin(&id)).expect("appends");
                    if row % 15 == process {
                        log.seal().expect("seals");
                    }
                    log.append(&end(&id)).expect("appends");
                }
            });
        }
    });
    let report = against(dir.path(), &kept.all());
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(report.segments, 17);
    assert!(report.open_begins.is_empty());
    assert!(outside(&report).iter().all(|finding| *finding == CheckpointFinding::Holds));
}

/// Runs a function once, when the folders of a sealing are synced. The new segment already has
/// the log's name then.
struct DuringSealing(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for DuringSealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DuringSealing")
    }
}

impl LogDevice for &'static DuringSealing {
    fn write(&self, file: &File, bytes: &[u8]) -> Result<usize, Errno> {
        KernelDevice.write(file, bytes)
    }
    fn truncate(&self, file: &File, size: u64) -> Result<(), Errno> {
        KernelDevice.truncate(file, size)
    }
    fn sync(&self, file: &File) -> Result<(), Errno> {
        KernelDevice.sync(file)
    }
    fn sync_folder(&self, folder: BorrowedFd<'_>) -> Result<(), Errno> {
        let meanwhile = self.0.lock().expect("not poisoned").take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        KernelDevice.sync_folder(folder)
    }
}

/// A process that opens the log does not wait for a lock of the segment that is being sealed.
#[test]
fn a_process_that_opens_during_a_sealing_may_seal_immediately() {
    let dir = tempfile::tempdir().expect("a folder");
    let device: &'static DuringSealing = Box::leak(Box::new(DuringSealing(Mutex::default())));
    let (log, _) = AuditLog::open_on(dir.path(), SyncMode::Interval, Box::new(device)).expect("opens");
    log.append(&end("a")).expect("appends");
    log.flush().expect("syncs");
    let path = dir.path().to_owned();
    *device.0.lock().expect("not poisoned") = Some(Box::new(move || {
        let other = open(&path);
        other.append(&end("b")).expect("appends");
        other.seal().expect("seals");
    }));
    log.seal().expect("seals");
    assert!(device.0.lock().expect("not poisoned").is_none(), "the other process has sealed");
    log.append(&end("c")).expect("appends");
    log.seal().expect("seals");
    drop(log);
    assert_eq!(verify_intact(dir.path()).segments, 4);
}

#[test]
fn the_call_of_a_dead_process_is_closed_in_a_later_segment() {
    let dir = tempfile::tempdir().expect("a folder");
    let dead = open(dir.path());
    dead.append(&begin("dies")).expect("appends");
    let live = open(dir.path());
    live.seal().expect("seals");
    live.append(&end("x")).expect("appends");
    live.seal().expect("seals");
    drop(live);
    // The live file of the dead process remains, unlocked.
    drop(dead);
    let (log, recovery) = AuditLog::open(dir.path(), SyncMode::Interval).expect("opens");
    assert_eq!(recovery.closed_begins, ["dies"]);
    drop(log);
    assert!(verify_intact(dir.path()).open_begins.is_empty());
}

#[test]
fn a_killed_sealing_is_taken_back() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(open(dir.path()));
    filled_log(dir.path(), 4);
    // The first step gave the open segment its sealed name, and the new segment is half-written.
    fs::create_dir(dir.path().join(SEGMENTS_DIR)).expect("the folder can be made");
    let sealed = dir.path().join(SEGMENTS_DIR).join("000001-1-4.jsonl");
    fs::hard_link(log_path(dir.path()), &sealed).expect("links");
    fs::write(dir.path().join(".audit.next"), "{\"v\":2").expect("writes");
    assert_eq!(verify_intact(dir.path()).rows, 4);
    let log = open(dir.path());
    assert!(!sealed.exists());
    log.append(&end("x")).expect("appends");
    log.seal().expect("seals");
    drop(log);
    assert_eq!(verify_intact(dir.path()).rows, 6);

    // The second step was completed, but the checkpoint is missing: the next sealing adds it.
    let note = dir.path().join(SEGMENTS_DIR).join("000001-1-5.note");
    fs::remove_file(&note).expect("removed");
    let log = open(dir.path());
    log.seal().expect("seals");
    assert!(note.exists());
}

#[test]
fn retention_removes_segments_and_the_rest_stays_proven() {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = sealed_log(dir.path());
    let log = open(dir.path());
    log.set_sealing_options(SealingOptions { retention: Some(Duration::ZERO), ..SealingOptions::default() });
    append(&log, 1);
    log.seal().expect("seals");
    drop(log);
    assert_eq!(segments(dir.path()), Vec::<PathBuf>::new());
    let report = against(dir.path(), &kept.all());
    assert!(report.is_intact(), "{report:?}");
    assert_eq!((report.rows, report.first_seq, report.last_seq), (1, 15, 15));
    assert_eq!(outside(&report), [const { CheckpointFinding::Removed }; 3]);

    // The checkpoints of the removed segments prove the remaining rows.
    let note = dir.path().join(SEGMENTS_DIR).join("000003-10-14.note");
    let text = fs::read_to_string(&note).expect("reads");
    fs::remove_file(&note).expect("removed");
    fs::remove_file(dir.path().join(NEWEST_CHECKPOINT)).expect("removed");
    let broken = verify(&log_path(dir.path())).expect("verifies").first_break.expect("broken");
    assert_eq!(broken.why, BreakReason::UnprovenStart);
    let other = tempfile::tempdir().expect("a folder");
    let other = CheckpointKey::read_or_make(other.path()).expect("makes");
    let root = SignedCheckpoint::parse(&text).expect("a note").checkpoint.root;
    fs::write(&note, SignedCheckpoint::sign(&other, 14, root).expect("signs").note()).expect("writes");
    assert!(!verify(&log_path(dir.path())).expect("verifies").is_intact());
}

#[test]
fn one_kept_line_reveals_each_change_of_the_past() {
    /// Changes a state folder.
    type Tamper = fn(&Path);
    let cases: [(&str, Tamper); 6] = [
        ("cut at the end", |dir| {
            let path = log_path(dir);
            let text = fs::read_to_string(&path).expect("reads");
            let first = text.split_inclusive('\n').next().expect("a row");
            fs::write(&path, first).expect("writes");
        }),
        ("removed as a whole", |dir| {
            fs::remove_file(log_path(dir)).expect("removed");
            fs::remove_dir_all(dir.join(SEGMENTS_DIR)).expect("removed");
        }),
        ("moved aside, with a new log", |dir| {
            fs::rename(log_path(dir), dir.join("elsewhere")).expect("moved");
            fs::remove_dir_all(dir.join(SEGMENTS_DIR)).expect("removed");
            fs::remove_file(dir.join(NEWEST_CHECKPOINT)).expect("removed");
            filled_log(dir, 30);
        }),
        ("rewritten with a valid chain", |dir| {
            fs::remove_dir_all(dir.join(SEGMENTS_DIR)).expect("removed");
            fs::remove_file(dir.join(NEWEST_CHECKPOINT)).expect("removed");
            fs::remove_file(log_path(dir)).expect("removed");
            let log = open(dir);
            append(&log, 40);
            log.seal().expect("seals");
        }),
        ("rolled back to an older state", |dir| {
            // The segments and the checkpoint of an earlier state.
            let old = dir.join(SEGMENTS_DIR).join("000001-1-5.jsonl");
            let text = fs::read(&old).expect("reads");
            fs::remove_dir_all(dir.join(SEGMENTS_DIR)).expect("removed");
            fs::remove_file(dir.join(NEWEST_CHECKPOINT)).expect("removed");
            fs::write(log_path(dir), text).expect("writes");
        }),
        ("a segment removed", |dir| {
            fs::remove_file(dir.join(SEGMENTS_DIR).join("000002-6-9.jsonl")).expect("removed");
        }),
    ];
    for (name, tamper) in cases {
        let dir = tempfile::tempdir().expect("a folder");
        let line = sealed_log(dir.path()).newest().to_line();
        let anchors = SignedCheckpoint::find_all(&line);
        assert!(against(dir.path(), &anchors).is_intact(), "{name}");
        tamper(dir.path());
        let report = against(dir.path(), &anchors);
        assert!(!report.is_intact(), "{name}: {report:?}");
        let finding = outside(&report).pop().expect("one anchor");
        assert!(!finding.is_good(), "{name}: {finding:?}");
    }
}

#[test]
fn missing_rows_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let anchor = sealed_log(dir.path()).newest();
    let path = log_path(dir.path());
    let text = fs::read_to_string(&path).expect("reads");
    // Keep rows 10 and 11 of the rows up to 12.
    let lines: Vec<&str> = text.split_inclusive('\n').take(2).collect();
    fs::write(&path, lines.concat()).expect("writes");
    let finding = outside(&against(dir.path(), std::slice::from_ref(&anchor)));
    assert_eq!(finding, [CheckpointFinding::MissingAtEnd { first: 12, last: 12 }]);
    // A start compares the log with the newest checkpoint of the state folder, and refuses it.
    let refused = AuditLog::open(dir.path(), SyncMode::Interval).map(|_| ());
    assert!(matches!(refused, Err(AuditError::CheckpointMismatch { size: 12, rows: 11, .. })), "{refused:?}");
    fs::remove_file(&path).expect("removed");
    let refused = AuditLog::open(dir.path(), SyncMode::Interval).map(|_| ());
    assert!(matches!(refused, Err(AuditError::CheckpointMismatch { size: 12, rows: 0, .. })), "{refused:?}");
}

#[test]
fn a_start_refuses_a_longer_log_of_other_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    sealed_log(dir.path());
    fs::remove_dir_all(dir.path().join(SEGMENTS_DIR)).expect("removed");
    let other = tempfile::tempdir().expect("a folder");
    fs::write(log_path(dir.path()), filled_log(other.path(), 30)).expect("writes");
    let refused = AuditLog::open(dir.path(), SyncMode::Interval).map(|_| ());
    assert!(matches!(refused, Err(AuditError::CheckpointMismatch { size: 12, rows: 30, .. })), "{refused:?}");
    for forged in ["", "{", "{\"note\":\"x\",\"offset\":1}", "\u{202e}"] {
        fs::write(dir.path().join(NEWEST_CHECKPOINT), forged).expect("writes");
        let refused = AuditLog::open(dir.path(), SyncMode::Interval).map(|_| ());
        assert!(matches!(refused, Err(AuditError::InvalidCheckpoint { .. })), "{refused:?}");
        assert!(!verify(&log_path(dir.path())).expect("verifies").is_intact());
    }
}

#[test]
fn changed_and_foreign_checkpoints_prove_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let anchor = sealed_log(dir.path()).newest();
    let foreign_folder = tempfile::tempdir().expect("a folder");
    let foreign = sealed_log(foreign_folder.path()).newest();
    let changed = SignedCheckpoint::parse(&anchor.note().replace("\n12\n", "\n11\n")).expect("a note");
    let report = against(dir.path(), &[foreign, changed, anchor]);
    assert!(!report.is_intact());
    let findings = outside(&report);
    assert!(findings.contains(&CheckpointFinding::Signature(SignatureFault::OtherKey)), "{findings:?}");
    assert!(findings.contains(&CheckpointFinding::Signature(SignatureFault::Invalid)), "{findings:?}");
    assert!(findings.contains(&CheckpointFinding::Holds), "{findings:?}");
}

#[test]
fn a_checkpoint_row_with_another_tree_breaks_the_chain() {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = Kept::default();
    let log = open_sealed(dir.path(), &kept);
    append(&log, 4);
    drop(log);
    // One row is changed, and the whole chain after it is recomputed: only the tree reveals the change.
    let text = fs::read_to_string(log_path(dir.path())).expect("reads");
    let mut prev = crate::chain::GENESIS;
    let mut forged = Vec::new();
    for line in text.lines() {
        let body = line.split(",\"prev\":").next().expect("a body").replace("\"c1\"", "\"zz\"");
        let mut line = body.into_bytes();
        prev = crate::chain::append_hash(&mut line, &prev);
        forged.extend(line);
    }
    fs::write(log_path(dir.path()), forged).expect("writes");
    let broken = verify(&log_path(dir.path())).expect("verifies").first_break.expect("broken");
    assert_eq!((broken.line, broken.why), (5, BreakReason::OtherTree));
}

#[test]
fn a_hash_that_was_kept_is_found_or_missed() {
    let dir = tempfile::tempdir().expect("a folder");
    filled_log(dir.path(), 5);
    let head = verify_intact(dir.path()).head;
    let log = open(dir.path());
    append(&log, 2);
    drop(log);
    let with_head = |head: &str| {
        let request = VerifyRequest { head: Some(head.to_owned()), ..VerifyRequest::default() };
        verify_against(&log_path(dir.path()), &request).expect("verifies")
    };
    assert!(with_head(&head).is_intact());
    assert!(with_head(&head.to_ascii_uppercase()).is_intact());
    let missed = with_head(&"ab".repeat(32));
    assert!(!missed.is_intact() && missed.first_break.is_none());
}

#[test]
fn a_single_segment_verifies_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    sealed_log(dir.path());
    for (segment, first) in segments(dir.path()).into_iter().zip([1, 6]) {
        let report = verify(&segment).expect("verifies");
        assert!(report.is_intact(), "{report:?}");
        assert_eq!(report.first_seq, first);
    }
    let copy = dir.path().join("copy.jsonl");
    let text = fs::read_to_string(&segments(dir.path())[0]).expect("reads");
    fs::write(&copy, text.split_inclusive('\n').skip(1).collect::<String>()).expect("writes");
    let broken = verify(&copy).expect("verifies").first_break.expect("broken");
    assert_eq!(broken.why, BreakReason::UnprovenStart);
}

#[test]
fn following_goes_on_over_the_border_of_a_segment() {
    let dir = tempfile::tempdir().expect("a folder");
    let log = open(dir.path());
    append(&log, 1);
    let mut follower = LogFollower::at_end(&log_path(dir.path())).expect("opens");
    append(&log, 2);
    log.seal().expect("seals");
    append(&log, 1);
    log.seal().expect("seals");
    append(&log, 1);
    let mut seqs = Vec::new();
    for _ in 0..10 {
        let rows = follower.new_rows().expect("reads");
        seqs.extend(rows.into_iter().map(|row| row.expect("a row").row.seq));
    }
    assert_eq!(seqs, (2..=7).collect::<Vec<_>>());
    fs::remove_file(log_path(dir.path())).expect("removed");
    assert!(matches!(follower.new_rows(), Err(AuditError::Replaced { .. })));
}

#[test]
fn a_segment_that_cannot_be_sealed_stays_open() {
    // A file that already has the name simulates a file system without hard links.
    let dir = tempfile::tempdir().expect("a folder");
    fs::create_dir(dir.path().join(SEGMENTS_DIR)).expect("the folder can be made");
    fs::write(dir.path().join(SEGMENTS_DIR).join("000001-1-3.jsonl"), "").expect("writes");
    let log = open(dir.path());
    append(&log, 3);
    assert!(log.seal().is_err());
    append(&log, 1);
    drop(log);
    assert_eq!(verify_intact(dir.path()).rows, 4);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "another program than ours")]
fn another_program_checks_the_signature_of_a_note() {
    // OpenSSL cannot parse notes: it gets the text, the key and the signature as extracted from them.
    let has_openssl =
        Command::new("openssl").arg("version").output().is_ok_and(|output| output.status.success());
    if !has_openssl {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let anchor = sealed_log(dir.path()).newest();
    let (text, signature) = anchor.note().split_once("\n\n").expect("a note");
    let decode = |text: &str| {
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text.trim()).expect("base64")
    };
    let signature = decode(signature.rsplit(' ').next().expect("a signature"));
    let key = CheckpointKey::read_or_make(dir.path()).expect("reads");
    let public = decode(key.verifier().as_str().splitn(3, '+').nth(2).expect("a key"));
    // SubjectPublicKeyInfo of Ed25519 (RFC 8410).
    let mut spki = hex::decode("302a300506032b6570032100").expect("hexadecimal");
    spki.extend(&public[1..]);
    let path = |name: &str| dir.path().join(name);
    fs::write(path("key"), spki).expect("writes");
    fs::write(path("text"), format!("{text}\n")).expect("writes");
    fs::write(path("signature"), &signature[4..]).expect("writes");
    let status = Command::new("openssl")
        .args(["pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-rawin", "-inkey"])
        .args([path("key").as_os_str(), "-in".as_ref(), path("text").as_os_str()])
        .args(["-sigfile".as_ref(), path("signature").as_os_str()])
        .output()
        .expect("runs");
    assert!(status.status.success(), "{status:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// After any mixture of rows, checkpoints and sealings, every checkpoint holds at the end, and if any
    /// byte is changed, the newest checkpoint or the chain reveals it.
    #[test]
    fn any_changed_byte_is_noticed(
        steps in prop::collection::vec(0_usize..6, 1..14),
        changed in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let kept = Kept::default();
        for process in steps.chunks(4) {
            let log = open_sealed(dir.path(), &kept);
            for step in process {
                append(&log, *step);
                if *step == 0 {
                    log.seal().expect("seals");
                }
            }
            append(&log, 1);
        }
        let report = against(dir.path(), &kept.all());
        prop_assert!(report.is_intact(), "{:?}", report);
        let held = outside(&report).iter().all(|finding| *finding == CheckpointFinding::Holds);
        prop_assert!(held);

        let mut files = segments(dir.path());
        files.push(log_path(dir.path()));
        let file = &files[changed.index(files.len())];
        let mut bytes = fs::read(file).expect("reads");
        let index = changed.index(bytes.len());
        bytes[index] ^= 1 << bit;
        fs::set_permissions(file, Permissions::from_mode(0o600)).expect("set");
        fs::write(file, bytes).expect("writes");
        prop_assert!(!against(dir.path(), &kept.all()).is_intact());
    }
}

#[test]
fn rows_without_a_checkpoint_keep_no_thread_busy() {
    // Long after the interval, with and without a sink, and after a failed checkpoint.
    let interval = Duration::from_millis(20);
    let kept = Kept::default();
    for sink in [None, kept.options().sink] {
        let dir = tempfile::tempdir().expect("a folder");
        let log = open(dir.path());
        let options = SealingOptions { checkpoint_interval: interval, sink, ..SealingOptions::default() };
        log.set_sealing_options(options);
        append(&log, 1);
        for _ in 0..3 {
            thread::sleep(interval);
            // `None` waits for the next row.
            let wait = log.seal_if_due().unwrap_or(Duration::MAX);
            assert!(wait > Duration::ZERO);
        }
        thread::sleep(2 * interval);
        assert_ne!(log.seal_if_due(), Some(Duration::ZERO));
    }
}
