//! `portcullis audit bundle`, and `audit verify --bundle`.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, BufReader, BufWriter},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::ExitCode,
};

use portcullis_tools::{
    audit::{
        self, AuditLog, BundleError, BundleReport, BundleRequest, Row, SyncMode, VerifierKey, check_bundle,
        last_disclosed, newest_checkpoint, write_bundle,
    },
    modules::LOCK_FILE,
};
use serde::Serialize;

use super::{
    filter::RowFilter,
    verify::{read_anchors, read_key},
};
use crate::{
    cli::{BundleOptions, CommonOptions, VerifyOptions},
    error::CliError,
    output::{json, stream, text},
    setup,
};

/// The lock of approved modules in a bundle.
const LOCK_IN_BUNDLE: &str = "approved.lock";

/// Writes a bundle.
pub(crate) fn bundle(common: &CommonOptions, options: BundleOptions) -> Result<ExitCode, CliError> {
    let state = setup::envelope(common)?.state;
    let log = audit::log_path(&state);
    if !log.exists() {
        return Err(CliError::NoAuditLog { path: log });
    }
    let mut anchors = Vec::new();
    for source in &options.anchor {
        anchors.extend(read_anchors(source)?);
    }
    let filter = RowFilter::new(options.filter)?;
    let is_disclosed = |row: &Row| filter.matches(row);
    let out = options.out;
    let bundle_error = |source: BundleError| CliError::Bundle { path: out.clone(), source };
    let audit_error = |source| CliError::Audit { source };

    let last = last_disclosed(&log, &is_disclosed).map_err(bundle_error)?;
    let last = last.ok_or_else(|| bundle_error(BundleError::NoRow))?;
    let newest = newest_checkpoint(&state).map_err(audit_error)?;
    let checkpoint = match newest.filter(|newest| newest.checkpoint.size >= last) {
        Some(newest) => newest,
        None => {
            let (log, _recovery) = AuditLog::open(&state, SyncMode::Always).map_err(audit_error)?;
            log.checkpoint().map_err(audit_error)?
        }
    };
    let key = VerifierKey::of_state(&state).map_err(|source| CliError::VerifierKey { source })?;
    let key = key.ok_or_else(|| CliError::NoAnchor { path: state.join(audit::VERIFIER_KEY_NAME) })?;
    let request = BundleRequest {
        log: &log,
        checkpoint,
        key,
        anchors,
        is_disclosed: &is_disclosed,
        files: vec![(state.join(LOCK_FILE), LOCK_IN_BUNDLE.to_owned())],
    };
    let file_error = |source: io::Error| bundle_error(BundleError::File(source));
    let file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&out).map_err(file_error)?;
    let written = write_bundle(BufWriter::new(file), &request).map_err(|error| {
        // A half-written bundle proves nothing.
        let _ = fs::remove_file(&out);
        bundle_error(error)
    })?;
    let (first, last) = written.rows;
    stream::write_stderr(&format!(
        "rows {first} to {last}, {} disclosed, in {}; check it with `python3 verify.py {}` after `tar xf`\n",
        written.disclosed,
        text::inline(&out.display().to_string()),
        text::inline(&out.display().to_string()),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Checks a bundle.
pub(super) fn verify_bundle(path: &Path, options: &VerifyOptions) -> Result<ExitCode, CliError> {
    let mut anchors = Vec::new();
    for source in &options.anchor {
        anchors.extend(read_anchors(source)?);
    }
    let key = options.key.as_deref().map(read_key).transpose()?;
    let bundle_error = |source| CliError::Bundle { path: path.to_owned(), source };
    let file = File::open(path).map_err(|source| bundle_error(BundleError::File(source)))?;
    let report = check_bundle(BufReader::new(file), key.as_ref(), &anchors).map_err(bundle_error)?;
    if options.json {
        json::write_output(&BundleJson::from(&report))?;
    } else {
        stream::write_output(&report_text(&report, key.is_some()))?;
    }
    Ok(if report.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report_text(report: &BundleReport, has_own_key: bool) -> String {
    let BundleReport { rows: (first, last), disclosed, key, checkpoints, faults } = report;
    let verdict = if faults.is_empty() { "proven" } else { "not proven" };
    let mut out = format!(
        "{verdict}: rows {first} to {last}, {disclosed} disclosed; checkpoints: {checkpoints} hold\n"
    );
    for fault in faults {
        let _ = writeln!(out, "fault: {}", text::inline(fault));
    }
    let _ = writeln!(out, "key: {}", text::inline(key));
    if !has_own_key {
        out.push_str(
            "the key is that of the bundle: compare it with the one that the operator has published\n",
        );
    }
    out
}

/// The findings of a check, as JSON.
#[derive(Debug, Serialize)]
struct BundleJson<'a> {
    proven: bool,
    first_seq: u64,
    last_seq: u64,
    disclosed: u64,
    checkpoints: usize,
    key: &'a str,
    faults: &'a [String],
}

impl<'a> From<&'a BundleReport> for BundleJson<'a> {
    fn from(report: &'a BundleReport) -> Self {
        let BundleReport { rows: (first_seq, last_seq), disclosed, key, checkpoints, faults } = report;
        Self {
            proven: faults.is_empty(),
            first_seq: *first_seq,
            last_seq: *last_seq,
            disclosed: *disclosed,
            checkpoints: *checkpoints,
            key,
            faults,
        }
    }
}
