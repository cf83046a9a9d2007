//! Tests of the client against a witness in memory, both honest and dishonest.

use std::{fs, path::Path};

use proptest::prelude::*;

use super::*;
use crate::{
    CallEnd, CheckpointFinding, NewRow, Outcome, RowFields, SealingOptions, SyncMode, VerifyRequest,
    cosignature::tests::WitnessSigner, is_consistent, log_path, verify_against,
};

/// A witness that follows the specification.
struct Witness {
    signer: WitnessSigner,
    seen: Option<(u64, TreeHash)>,
    time: u64,
}

impl Witness {
    fn new() -> Self {
        Self { signer: WitnessSigner::new("witness.example/w1", 7), seen: None, time: 1_800_000_000 }
    }

    fn answer(&mut self, body: &str) -> (u16, String) {
        let (head, note) = body.split_once("\n\n").expect("an empty line");
        let mut lines = head.lines();
        let old: u64 =
            lines.next().and_then(|line| line.strip_prefix("old ")).expect("old").parse().expect("a size");
        let proof: Vec<TreeHash> =
            lines.map(|line| BASE64.decode(line).expect("base64").try_into().expect("a hash")).collect();
        assert!(proof.len() <= 63);
        let checkpoint = SignedCheckpoint::parse(note).expect("a note").checkpoint;
        let (seen, seen_root) = self.seen.unwrap_or_default();
        if old > checkpoint.size {
            return (400, String::new());
        }
        if old != seen || (old == checkpoint.size && checkpoint.root != seen_root) {
            return (409, format!("{seen}\n"));
        }
        let grew = (old, &seen_root);
        let is_proven = match old {
            0 => proof.is_empty(),
            _ => is_consistent(grew, (checkpoint.size, &checkpoint.root), &proof),
        };
        if !is_proven {
            return (422, String::new());
        }
        self.seen = Some((checkpoint.size, checkpoint.root));
        self.time += 1;
        let (text, _) = note.split_once("\n\n").expect("a note");
        (200, self.signer.line(&format!("{text}\n"), self.time))
    }
}

/// Submits a checkpoint to a witness, as the thread with the connection does.
fn submit(
    client: &mut WitnessClient,
    witness: &mut Witness,
    newest: &SignedCheckpoint,
) -> Result<Option<Timestamp>, WitnessError> {
    let mut last = None;
    while let Some(request) = client.request(newest)? {
        let (status, body) = witness.answer(&request.body);
        if let WitnessOutcome::Cosigned(time) = client.read_answer(&request, status, body.as_bytes())? {
            last = Some(time);
        }
    }
    Ok(last)
}

fn open(state: &Path) -> AuditLog {
    let (log, _) = AuditLog::open(state, SyncMode::Interval).expect("opens");
    log.set_sealing_options(SealingOptions::default());
    log
}

fn append(log: &AuditLog, rows: usize) {
    for row in 0..rows {
        let call = RowFields { call_id: format!("c{row}").into(), tool: "t".into(), ..RowFields::default() };
        log.append(&NewRow::end(&call.into(), CallEnd::new(Outcome::Ok))).expect("appends");
    }
}

#[test]
fn checkpoints_are_cosigned_over_segments_and_restarts() {
    let state = tempfile::tempdir().expect("a folder");
    let mut witness = Witness::new();
    let key = witness.signer.key.clone();
    for (rows, must_seal) in [(1, false), (3, true), (0, false), (5, true), (2, false)] {
        let log = open(state.path());
        let mut client = WitnessClient::new(&log, key.clone());
        append(&log, rows);
        let newest = if must_seal { log.seal() } else { log.checkpoint() };
        let newest = newest.expect("a checkpoint");
        let time = submit(&mut client, &mut witness, &newest).expect("submits");
        assert!(time.is_some());
        assert_eq!(submit(&mut client, &mut witness, &newest).expect("nothing to do"), None);
    }
    let request = VerifyRequest { witnesses: vec![key], ..VerifyRequest::default() };
    let report = verify_against(&log_path(state.path()), &request).expect("verifies");
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(report.witnesses[0].name, "witness.example/w1");
    let (size, time) = report.witnesses[0].newest.expect("signed");
    assert_eq!((size, time.as_second()), (report.last_seq - 1, 1_800_000_005));
    // A requested witness without a signature makes the log count as not intact.
    let other =
        VerifyRequest { witnesses: vec![WitnessSigner::new("other", 9).key], ..VerifyRequest::default() };
    let report = verify_against(&log_path(state.path()), &other).expect("verifies");
    assert!(!report.is_intact() && report.witnesses[0].newest.is_none());
}

#[test]
fn a_lost_answer_and_a_lost_note_are_made_good() {
    let state = tempfile::tempdir().expect("a folder");
    let (log, mut witness) = (open(state.path()), Witness::new());
    let mut client = WitnessClient::new(&log, witness.signer.key.clone());
    append(&log, 4);
    let first = log.checkpoint().expect("a checkpoint");
    let request = client.request(&first).expect("reads").expect("a request");
    let _lost = witness.answer(&request.body);
    assert!(submit(&mut client, &mut witness, &first).expect("submits").is_some());
    append(&log, 2);
    fs::remove_dir_all(state.path().join(WITNESSES_DIR)).expect("removed");
    let mut client = WitnessClient::new(&log, witness.signer.key.clone());
    let second = log.checkpoint().expect("a checkpoint");
    assert!(submit(&mut client, &mut witness, &second).expect("submits").is_some());
    // A process that submits an older checkpoint late has nothing to do.
    assert_eq!(submit(&mut client, &mut witness, &first).expect("nothing to do"), None);
}

/// Returns why a witness does not sign the checkpoint of a changed log.
fn refusal_after(change: impl FnOnce(&Path)) -> String {
    let state = tempfile::tempdir().expect("a folder");
    let mut witness = Witness::new();
    {
        let log = open(state.path());
        append(&log, 6);
        let mut client = WitnessClient::new(&log, witness.signer.key.clone());
        submit(&mut client, &mut witness, &log.checkpoint().expect("a checkpoint")).expect("submits");
        append(&log, 3);
    }
    change(state.path());
    let log = open(state.path());
    append(&log, 1);
    let mut client = WitnessClient::new(&log, witness.signer.key.clone());
    let newest = log.checkpoint().expect("a checkpoint");
    submit(&mut client, &mut witness, &newest).expect_err("refused").to_string()
}

#[test]
fn the_witness_notices_a_log_rewritten_with_its_own_key() {
    let cut = refusal_after(|state| {
        for name in ["audit.jsonl", "audit.checkpoint"] {
            fs::remove_file(state.join(name)).expect("removed");
        }
        fs::remove_dir_all(state.join(WITNESSES_DIR)).expect("removed");
    });
    assert_eq!(cut, "the witness has seen 6 rows of this log, which has 2: rows were cut off its end");
    // The attacker writes the same number of rows again, and signs them with the folder's key.
    let rewritten = refusal_after(|state| {
        for name in ["audit.jsonl", "audit.checkpoint"] {
            fs::remove_file(state.join(name)).expect("removed");
        }
        fs::remove_dir_all(state.join(WITNESSES_DIR)).expect("removed");
        append(&open(state), 12);
    });
    assert!(rewritten.starts_with("the witness has seen different rows of this log"), "{rewritten}");
}

#[test]
fn answers_of_a_witness_that_lies_are_not_believed() {
    let state = tempfile::tempdir().expect("a folder");
    let (log, witness) = (open(state.path()), WitnessSigner::new("w", 1));
    append(&log, 3);
    let newest = log.checkpoint().expect("a checkpoint");
    let mut client = WitnessClient::new(&log, witness.key.clone());
    let request = client.request(&newest).expect("reads").expect("a request");
    let other = WitnessSigner::new("w", 2).line("x\n", 1);
    for (status, body, expected) in [
        (200, "", "no valid signature"),
        (200, "\u{1b}[31m", "no valid signature"),
        (200, &*other, "no valid signature"),
        (409, "", "it does not say how many rows"),
        (409, "7", "it does not say how many rows"),
        (409, "007\n", "it does not say how many rows"),
        (409, "-1\n", "it does not say how many rows"),
        (409, "99999999999999999999\n", "it does not say how many rows"),
        (409, "1000\n", "the witness has seen 1000 rows of this log, which has 4"),
        (409, "0\n", "the witness has seen different rows"),
        (403, "", "`audit.key.pub`"),
        (404, "", "does not know this log"),
        (302, "", "no answer of the protocol"),
        (500, "<html>", "no answer of the protocol"),
    ] {
        let error = client.read_answer(&request, status, body.as_bytes()).expect_err("refused").to_string();
        assert!(error.contains(expected), "{status} {body:?}: {error}");
        assert_eq!(client.request(&newest).expect("reads"), Some(request.clone()));
    }
    assert!(!state.path().join(WITNESSES_DIR).exists());
    // A forged note in the folder is ignored.
    fs::create_dir(state.path().join(WITNESSES_DIR)).expect("the folder can be made");
    let path = note_path(state.path(), &witness.key);
    fs::write(&path, newest.note()).expect("written");
    assert_eq!(WitnessClient::new(&log, witness.key.clone()).request(&newest).expect("reads"), Some(request));
    fs::write(&path, "x").expect("written");
    let report = verify_against(&log_path(state.path()), &VerifyRequest::default()).expect("verifies");
    assert!(report.anchors.iter().any(|anchor| anchor.finding == CheckpointFinding::Malformed), "{report:?}");
}

#[test]
fn rows_removed_by_retention_are_reported() {
    let state = tempfile::tempdir().expect("a folder");
    let (log, mut witness) = (open(state.path()), Witness::new());
    let mut client = WitnessClient::new(&log, witness.signer.key.clone());
    append(&log, 2);
    submit(&mut client, &mut witness, &log.checkpoint().expect("a checkpoint")).expect("submits");
    for _ in 0..2 {
        append(&log, 2);
        log.seal().expect("seals");
    }
    for name in segments::listed(state.path(), segments::SEGMENT_EXTENSION).expect("listed") {
        fs::remove_file(segments::path_of(state.path(), &name, segments::SEGMENT_EXTENSION))
            .expect("removed");
    }
    let newest = log.checkpoint().expect("a checkpoint");
    let error = submit(&mut client, &mut witness, &newest).expect_err("refused");
    assert!(matches!(error, WitnessError::RowsRemoved { seen: 2 }), "{error:?}");
}

proptest! {
    #[test]
    fn any_growth_in_any_segments_is_proven(steps in prop::collection::vec((1_usize..9, any::<bool>(), any::<bool>()), 1..9)) {
        let state = tempfile::tempdir().expect("a folder");
        let (log, mut witness) = (open(state.path()), Witness::new());
        let mut client = WitnessClient::new(&log, witness.signer.key.clone());
        for (rows, must_seal, is_submitted) in steps {
            append(&log, rows);
            let newest = if must_seal { log.seal() } else { log.checkpoint() }.expect("a checkpoint");
            if is_submitted {
                prop_assert!(submit(&mut client, &mut witness, &newest).expect("submits").is_some());
            }
        }
    }
}
