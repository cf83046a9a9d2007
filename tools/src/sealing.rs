//! Opens the audit log with the policy's settings: when rows are synced, how segments are sealed, and
//! where checkpoints go.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use portcullis_audit::{
    AuditLog, CHECKPOINT_INTERVAL, CHECKPOINT_ROWS, CheckpointSink, KEY_CREDENTIAL, KeySource,
    SealingOptions, SignedCheckpoint, SyncMode,
};
use portcullis_policy::{
    AuditSettings, AuditSync, CheckpointDestination, KeyLocation, WorkspaceSecurityPolicy,
};
use rustix::fs::OFlags;

use crate::{
    error::BootstrapError,
    web::HttpClientConfig,
    witnesses::{Witness, WitnessThread},
};

/// Opens the log of a state folder, and reports the repairs after a crash. `default_sink` receives the
/// checkpoints if the policy names no destination. `connection` reaches the witnesses.
pub(crate) fn open_log(
    state: &Path,
    policy: &WorkspaceSecurityPolicy,
    default_sink: Option<CheckpointSink>,
    connection: Option<&HttpClientConfig>,
) -> Result<AuditLog, BootstrapError> {
    let settings = policy.audit();
    let sync = match settings.sync {
        AuditSync::Interval => SyncMode::Interval,
        AuditSync::Always => SyncMode::Always,
    };
    let mut options = sealing_options(settings, default_sink)?;
    let witnesses = witnesses(settings)?;
    let (log, recovery) = AuditLog::open(state, sync)?;
    if !recovery.is_clean() {
        tracing::warn!(?recovery, "the audit log was repaired after a crash");
    }
    if !witnesses.is_empty() {
        let connection = connection.cloned().ok_or(BootstrapError::NoWitnessClient)?;
        let thread = WitnessThread::start(&log, &witnesses, connection);
        let thread = thread.map_err(|source| BootstrapError::WitnessThread { source })?;
        let other = options.sink.take();
        options.sink = Some(Arc::new(move |signed: &SignedCheckpoint| {
            if let Some(other) = &other {
                other(signed);
            }
            thread.submit(signed);
        }));
    }
    log.set_sealing_options(options);
    Ok(log)
}

/// Returns the witnesses among the checkpoint destinations.
fn witnesses(settings: &AuditSettings) -> Result<Vec<Witness>, BootstrapError> {
    let destinations = settings.checkpoints.as_deref().unwrap_or_default().iter();
    let witnesses = destinations.filter_map(|destination| match destination {
        CheckpointDestination::Witness(witness) => Some(witness),
        CheckpointDestination::Stderr | CheckpointDestination::File(_) => None,
    });
    witnesses.map(Witness::new).collect()
}

fn sealing_options(
    settings: &AuditSettings,
    default_sink: Option<CheckpointSink>,
) -> Result<SealingOptions, BootstrapError> {
    let sink = match &settings.checkpoints {
        None => default_sink,
        Some(destinations) => all_sinks(destinations)?,
    };
    Ok(SealingOptions {
        segment_bytes: settings.segment_bytes.0,
        segment_age: settings.segment_age,
        retention: settings.retention,
        checkpoint_rows: CHECKPOINT_ROWS,
        checkpoint_interval: CHECKPOINT_INTERVAL,
        key: settings.key.as_ref().map(key_source).or_else(|| credential().map(KeySource::File)),
        sink,
    })
}

fn key_source(location: &KeyLocation) -> KeySource {
    match location {
        KeyLocation::File(path) => KeySource::File(path.into()),
        KeyLocation::SshAgent(fingerprint) => KeySource::SshAgent(fingerprint.clone()),
    }
}

/// Finds the key among the credentials that systemd passes to a service (systemd.exec(5), `LoadCredential=`).
fn credential() -> Option<PathBuf> {
    let path = Path::new(&env::var_os("CREDENTIALS_DIRECTORY")?).join(KEY_CREDENTIAL);
    path.exists().then_some(path)
}

/// Combines several destinations into one sink. `None` for an empty list.
fn all_sinks(destinations: &[CheckpointDestination]) -> Result<Option<CheckpointSink>, BootstrapError> {
    let sinks = destinations.iter().filter_map(sink_of).collect::<Result<Vec<CheckpointSink>, _>>()?;
    Ok((!sinks.is_empty()).then(|| -> CheckpointSink {
        Arc::new(move |signed: &SignedCheckpoint| sinks.iter().for_each(|sink| sink(signed)))
    }))
}

/// Returns the sink of a destination. `None` for a witness, which needs a thread.
fn sink_of(destination: &CheckpointDestination) -> Option<Result<CheckpointSink, BootstrapError>> {
    match destination {
        CheckpointDestination::Stderr => Some(Ok(Arc::new(write_checkpoint_to_stderr))),
        CheckpointDestination::File(path) => Some(file_sink(path.into())),
        CheckpointDestination::Witness(_) => None,
    }
}

fn file_sink(path: PathBuf) -> Result<CheckpointSink, BootstrapError> {
    // Open the file once at startup, so that an unusable destination fails the start and not
    // the first checkpoint.
    let opened = open_for_notes(&path);
    opened.map_err(|source| BootstrapError::Checkpoints { path: path.clone(), source })?;
    Ok(Arc::new(move |signed: &SignedCheckpoint| {
        // Reopen the file for each note, so that it can be rotated and its volume remounted.
        let note = format!("{}\n", signed.note());
        let written = open_for_notes(&path).and_then(|mut file| file.write_all(note.as_bytes()));
        if let Err(error) = written {
            let path = path.display();
            tracing::error!(%error, %path, "a checkpoint of the audit log cannot be written");
        }
    }))
}

/// Writes a checkpoint to standard error, as one line.
pub fn write_checkpoint_to_stderr(signed: &SignedCheckpoint) {
    let line = format!("{}\n", signed.to_line());
    // If standard error is closed, there is nowhere to report it.
    let _ = io::stderr().write_all(line.as_bytes());
}

fn open_for_notes(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    fs::OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}
