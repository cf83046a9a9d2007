//! `portcullis audit verify` and `portcullis audit seal`.

use std::{
    borrow::Cow,
    fmt::Write as _,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use jiff::Timestamp;
use portcullis_tools::{
    audit::{
        self, CheckpointFinding, CheckpointReport, CheckpointSource, SignedCheckpoint, VerifierKey,
        VerifyReport, VerifyRequest, WitnessKey, WitnessReport,
    },
    confine::bounded,
};
use serde::Serialize;

use crate::{
    cli::{CommonOptions, VerifyOptions},
    error::CliError,
    output::{json, stream, text},
    setup,
};

/// The maximum length of a text that is searched for checkpoints: 64 MiB.
const MAX_ANCHOR_BYTES: u64 = 64 << 20;

/// The maximum number of checkpoints of one kind that are listed.
const MAX_LISTED: usize = 20;

/// Verifies the whole log, or a file.
pub(crate) fn verify(common: &CommonOptions, options: &VerifyOptions) -> Result<ExitCode, CliError> {
    if let Some(bundle) = &options.bundle {
        return super::bundle::verify_bundle(bundle, options);
    }
    let path = match &options.file {
        Some(file) => file.clone(),
        None => super::path(common)?,
    };
    let mut anchors = Vec::new();
    for source in &options.anchor {
        anchors.extend(read_anchors(source)?);
    }
    let key = options.key.as_deref().map(read_key).transpose()?;
    let witnesses = options.witness.iter().map(|text| read_witness_key(text)).collect::<Result<_, _>>()?;
    let request = VerifyRequest { anchors, head: options.head.clone(), key, witnesses };
    let report = audit::verify_against(&path, &request).map_err(|source| {
        if source.is_missing() {
            CliError::NoAuditLog { path: path.clone() }
        } else {
            CliError::Audit { source }
        }
    })?;
    if options.json {
        json::write_output(&VerificationJson::from(&report))?;
    } else {
        stream::write_output(&verification_text(&report))?;
    }
    Ok(if report.is_intact() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Seals the open segment, and prints its checkpoint.
pub(crate) fn seal(common: &CommonOptions) -> Result<ExitCode, CliError> {
    let state = setup::envelope(common)?.state;
    let path = audit::log_path(&state);
    // Sealing must not create a log.
    if !path.exists() {
        return Err(CliError::NoAuditLog { path });
    }
    let audit_error = |source| CliError::Audit { source };
    let (log, _recovery) = audit::AuditLog::open(&state, audit::SyncMode::Always).map_err(audit_error)?;
    let signed = log.seal().map_err(audit_error)?;
    stream::write_output(signed.note())?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the checkpoints from a file, or from standard input for `-`.
pub(super) fn read_anchors(source: &Path) -> Result<Vec<SignedCheckpoint>, CliError> {
    let failed = |error| CliError::AnchorFile { path: source.to_owned(), source: error };
    let bytes = if source.as_os_str() == "-" {
        bounded::read_bytes(io::stdin().lock(), MAX_ANCHOR_BYTES)
    } else {
        File::open(source).and_then(|file| bounded::read_bytes(file, MAX_ANCHOR_BYTES))
    };
    // A journal can contain any bytes around the lines.
    let bytes = bytes.map_err(failed)?;
    let found = SignedCheckpoint::find_all(&String::from_utf8_lossy(&bytes));
    if found.is_empty() {
        return Err(CliError::NoAnchor { path: source.to_owned() });
    }
    Ok(found)
}

/// Reads a log's key from its text, or from the file that the text names.
pub(super) fn read_key(text: &str) -> Result<VerifierKey, CliError> {
    VerifierKey::parse(&key_text(text)?).map_err(|source| CliError::VerifierKey { source })
}

/// Reads a witness's key from its text, or from the file that the text names.
fn read_witness_key(text: &str) -> Result<WitnessKey, CliError> {
    WitnessKey::parse(&key_text(text)?).map_err(|source| CliError::VerifierKey { source })
}

/// Returns the text of a key: the argument, or the content of the file that it names.
fn key_text(text: &str) -> Result<Cow<'_, str>, CliError> {
    // A key has two plus signs, which distinguish it from most file names.
    if text.matches('+').count() >= 2 && !Path::new(text).exists() {
        return Ok(text.into());
    }
    let path = PathBuf::from(text);
    let bytes = File::open(&path).and_then(|file| bounded::read_bytes(file, MAX_ANCHOR_BYTES));
    let bytes = bytes.map_err(|source| CliError::AnchorFile { path, source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned().into())
}

/// Formats the findings of a verification as text.
pub(crate) fn verification_text(report: &VerifyReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = match &report.first_break {
        None => {
            let verdict = if report.is_intact() { "intact" } else { "not intact" };
            writeln!(out, "{verdict}: {} rows, head {}", report.rows, report.head)
        }
        Some(broken) => writeln!(
            out,
            "broken: {}line {} (byte {}): {}\n{}, head {}",
            file_of(&broken.path),
            broken.line,
            broken.offset,
            broken.why,
            rows_that_hold(report.last_seq),
            report.head
        ),
    };
    if report.first_seq > 1 {
        let last = report.first_seq - 1;
        let _ = writeln!(
            out,
            "starts at row {}: rows 1 to {last} are in other segments, or were removed",
            report.first_seq
        );
    }
    match report.head_found() {
        Some(true) => out.push_str("head: a row has the given hash, so no row up to it was changed\n"),
        Some(false) => out.push_str("head: no row has the given hash: rows were cut off or rewritten\n"),
        None => {}
    }
    anchors_text(&mut out, &report.anchors);
    for WitnessReport { name, newest } in &report.witnesses {
        let name = text::inline(name);
        let _ = match newest {
            Some((rows, time)) => {
                writeln!(out, "witness {name}: has signed the rows up to row {rows}, at {time}")
            }
            None => writeln!(out, "witness {name}: has signed no checkpoint that holds"),
        };
    }
    for begin in &report.open_begins {
        let _ = writeln!(
            out,
            "open: row {}, {}, call {}, process {} (runs now, or died)",
            begin.seq,
            text::inline(&begin.tool),
            text::inline(&begin.call_id),
            text::inline(&begin.process)
        );
    }
    if report.open_begins_omitted > 0 {
        let _ = writeln!(out, "open: {} more calls, which are not listed", report.open_begins_omitted);
    }
    out
}

/// Names the rows before a break, by number. It is not a count, because retention may have removed rows.
fn rows_that_hold(last_seq: u64) -> String {
    match last_seq {
        0 => "no row holds".to_owned(),
        last => format!("the rows up to {last} hold"),
    }
}

/// Returns the name of the sealed segment to which a line number refers. Empty for the log itself.
fn file_of(path: &Path) -> String {
    match path.file_name().and_then(|name| name.to_str()) {
        Some(name) if name != audit::LOG_NAME => format!("{}, ", text::inline(name)),
        _ => String::new(),
    }
}

fn anchors_text(out: &mut String, anchors: &[CheckpointReport]) {
    let (bad, good): (Vec<_>, Vec<_>) = anchors.iter().partition(|anchor| !anchor.finding.is_good());
    for anchor in bad.iter().take(MAX_LISTED) {
        let CheckpointReport { source, size, finding, .. } = anchor;
        let _ = writeln!(out, "{source} of {size} rows: {}", finding_text(finding));
    }
    if bad.len() > MAX_LISTED {
        let _ = writeln!(out, "… and {} more checkpoints that do not hold", bad.len() - MAX_LISTED);
    }
    for (is_outside, name) in [(true, "anchors"), (false, "checkpoints of the state folder")] {
        let of_kind =
            |anchor: &&&CheckpointReport| (anchor.source == CheckpointSource::Outside) == is_outside;
        let holding = good.iter().filter(of_kind).filter(|anchor| anchor.finding == CheckpointFinding::Holds);
        let (mut count, mut newest, mut is_checked) = (0_usize, 0, true);
        for anchor in holding {
            count += 1;
            newest = newest.max(anchor.size);
            is_checked &= anchor.is_signature_checked;
        }
        if count > 0 {
            let unchecked = if is_checked { "" } else { "; signatures not checked: no key is known" };
            let _ = writeln!(out, "{name}: {count} hold, up to row {newest}{unchecked}");
        }
        let removed = good.iter().filter(of_kind).count() - count;
        if removed > 0 {
            let _ = writeln!(out, "{name}: {removed} cover rows that retention has removed");
        }
    }
    if !anchors.iter().any(|anchor| anchor.source == CheckpointSource::Outside) {
        out.push_str(
            "not anchored: this check cannot detect a log that was rewritten or truncated as a whole\n",
        );
    }
}

fn finding_text(finding: &CheckpointFinding) -> String {
    match finding {
        CheckpointFinding::Holds => "holds".to_owned(),
        CheckpointFinding::MissingAtEnd { first, last } if first == last => {
            format!("row {first} is missing at the end")
        }
        CheckpointFinding::MissingAtEnd { first, last } => {
            format!("rows {first} to {last} are missing at the end")
        }
        CheckpointFinding::OtherRows => {
            "the log has other rows: they were rewritten, or it is another log".to_owned()
        }
        CheckpointFinding::Removed => "retention has removed its rows".to_owned(),
        CheckpointFinding::BehindBreak => "it covers rows after the break".to_owned(),
        CheckpointFinding::Signature(fault) => fault.to_string(),
        CheckpointFinding::Malformed => "the file does not hold a checkpoint".to_owned(),
        // A later version of the library may have further findings.
        _ => "it does not hold".to_owned(),
    }
}

/// The findings of a verification, as JSON.
#[derive(Debug, Serialize)]
struct VerificationJson<'a> {
    intact: bool,
    rows: u64,
    first_seq: u64,
    last_seq: u64,
    head: &'a str,
    root: &'a str,
    segments: u64,
    checkpoint_rows: u64,
    broken: Option<BreakJson>,
    head_found: Option<bool>,
    anchored: bool,
    anchors: Vec<AnchorJson<'a>>,
    witnesses: Vec<WitnessJson<'a>>,
    open_calls: Vec<OpenCallJson<'a>>,
    open_calls_left_out: u64,
}

#[derive(Debug, Serialize)]
struct BreakJson {
    file: String,
    line: u64,
    byte: u64,
    reason: String,
}

#[derive(Debug, Serialize)]
struct AnchorJson<'a> {
    place: String,
    origin: &'a str,
    size: u64,
    signature_checked: bool,
    holds: bool,
    finding: String,
}

#[derive(Debug, Serialize)]
struct WitnessJson<'a> {
    name: &'a str,
    rows: Option<u64>,
    time: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
struct OpenCallJson<'a> {
    seq: u64,
    tool: &'a str,
    call_id: &'a str,
    process: &'a str,
}

impl<'a> From<&'a VerifyReport> for VerificationJson<'a> {
    fn from(report: &'a VerifyReport) -> Self {
        let is_anchor = |anchor: &CheckpointReport| {
            anchor.source == CheckpointSource::Outside && anchor.finding == CheckpointFinding::Holds
        };
        Self {
            intact: report.is_intact(),
            rows: report.rows,
            first_seq: report.first_seq,
            last_seq: report.last_seq,
            head: &report.head,
            root: &report.root,
            segments: report.segments,
            checkpoint_rows: report.checkpoint_rows,
            broken: report.first_break.as_ref().map(|broken| BreakJson {
                file: broken.path.display().to_string(),
                line: broken.line,
                byte: broken.offset,
                reason: broken.why.to_string(),
            }),
            head_found: report.head_found(),
            // Only a checkpoint that was kept outside proves that the end was not cut off.
            anchored: report.anchors.iter().any(is_anchor),
            anchors: report
                .anchors
                .iter()
                .map(|anchor| AnchorJson {
                    place: anchor.source.to_string(),
                    origin: &anchor.origin,
                    size: anchor.size,
                    signature_checked: anchor.is_signature_checked,
                    holds: anchor.finding.is_good(),
                    finding: finding_text(&anchor.finding),
                })
                .collect(),
            witnesses: report
                .witnesses
                .iter()
                .map(|witness| WitnessJson {
                    name: &witness.name,
                    rows: witness.newest.map(|(rows, _)| rows),
                    time: witness.newest.map(|(_, time)| time),
                })
                .collect(),
            open_calls: report
                .open_begins
                .iter()
                .map(|begin| OpenCallJson {
                    seq: begin.seq,
                    tool: &begin.tool,
                    call_id: &begin.call_id,
                    process: &begin.process,
                })
                .collect(),
            open_calls_left_out: report.open_begins_omitted,
        }
    }
}

#[cfg(test)]
mod tests {
    use portcullis_tools::audit::{BreakReason, ChainBreak, OpenBegin};

    use super::*;

    #[test]
    fn a_verdict_says_where_and_why() {
        let mut report = VerifyReport {
            rows: 9,
            first_seq: 1,
            last_seq: 9,
            head: "ab".repeat(32),
            root: "cd".repeat(32),
            segments: 1,
            checkpoint_rows: 0,
            first_break: None,
            anchors: Vec::new(),
            has_head: false,
            head_seq: None,
            witnesses: Vec::new(),
            open_begins: vec![OpenBegin {
                seq: 8,
                call_id: "call_\u{1b}".into(),
                tool: "file_write".into(),
                process: "1-2-3".into(),
            }],
            open_begins_omitted: 0,
        };
        insta::assert_snapshot!("intact", verification_text(&report));
        report.last_seq = 4;
        let why = BreakReason::SequenceGap { expected: 5, found: 6 };
        let path = PathBuf::from("/state/audit.segments/000001-1-9.jsonl");
        report.first_break = Some(ChainBreak { path, line: 5, offset: 4096, why });
        report.open_begins.clear();
        insta::assert_snapshot!("broken", verification_text(&report));
        let anchor = |source, size, finding| CheckpointReport {
            source,
            origin: "portcullis/1".to_owned(),
            size,
            is_signature_checked: true,
            finding,
        };
        report.first_break = None;
        report.first_seq = 3;
        report.has_head = true;
        report.anchors = vec![
            anchor(CheckpointSource::Outside, 2, CheckpointFinding::Removed),
            anchor(CheckpointSource::State("audit.checkpoint".to_owned()), 7, CheckpointFinding::Holds),
            anchor(CheckpointSource::Outside, 8, CheckpointFinding::Holds),
            anchor(CheckpointSource::Outside, 25, CheckpointFinding::MissingAtEnd { first: 10, last: 25 }),
        ];
        insta::assert_snapshot!("anchors", verification_text(&report));
    }
}
