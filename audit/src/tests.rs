//! Tests of the whole log, and shared helpers. Tests of a single file are in that file.

mod bundles;
mod crash;
mod faults;
mod process;
mod reading;
mod rows;
mod sealing;
mod sharing;
mod tampering;

use std::{collections::HashMap, fs, path::Path, sync::Arc};

use super::{
    AuditLog, CallEnd, NewRow, Outcome, Row, RowEvent, RowFields, SyncMode, VerifyReport, log_path, rows,
    verify,
};

/// Opens a log that needs no recovery.
#[track_caller]
fn open(dir: &Path) -> AuditLog {
    let (log, recovery) = AuditLog::open(dir, SyncMode::Interval).expect("opens");
    assert!(recovery.is_clean(), "{recovery:?}");
    log
}

fn call(call_id: &str) -> Arc<RowFields> {
    Arc::new(RowFields { call_id: call_id.into(), tool: "file_write".into(), ..RowFields::default() })
}

fn begin(call_id: &str) -> NewRow {
    NewRow::begin(&call(call_id))
}

fn end(call_id: &str) -> NewRow {
    NewRow::end(&call(call_id), CallEnd::new(Outcome::Ok))
}

/// Returns the bytes of a closed log with this many rows.
fn filled_log(dir: &Path, rows: usize) -> Vec<u8> {
    let log = open(dir);
    for row in 0..rows {
        log.append(&end(&format!("c{row}"))).expect("appends");
    }
    drop(log);
    fs::read(log_path(dir)).expect("reads")
}

fn read(dir: &Path) -> Vec<Row> {
    rows(&log_path(dir)).collect::<Result<_, _>>().expect("reads")
}

#[track_caller]
fn verify_intact(dir: &Path) -> VerifyReport {
    let report = verify(&log_path(dir)).expect("verifies");
    assert!(report.is_intact(), "{report:?}");
    report
}

/// Checks that every `begin` has exactly one `end`.
#[track_caller]
fn all_closed_once(dir: &Path) {
    let mut calls: HashMap<_, (usize, usize)> = HashMap::new();
    for row in read(dir) {
        let counts = calls.entry((row.process, row.call_id)).or_default();
        match row.event {
            RowEvent::Begin => counts.0 += 1,
            RowEvent::End => counts.1 += 1,
            other => unreachable!("{other} is not the row of a call"),
        }
    }
    for (call, counts) in calls {
        assert_eq!(counts, (1, 1), "begins and ends of {call:?}");
    }
}

/// Returns the names in the state folder and in `audit.live`, except the log.
fn leftovers(dir: &Path) -> Vec<String> {
    let names = |dir: &Path| -> Vec<String> {
        let Ok(entries) = fs::read_dir(dir) else {
            return Vec::new();
        };
        entries.map(|entry| entry.expect("lists").file_name().to_string_lossy().into_owned()).collect()
    };
    let mut leftover_names = names(dir);
    leftover_names.retain(|name| name != "audit.live" && name != "audit.jsonl");
    leftover_names.extend(names(&dir.join("audit.live")));
    leftover_names
}
