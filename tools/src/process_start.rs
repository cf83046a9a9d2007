//! The `start` row of this process in the audit log, and the policies that its rows name.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use portcullis_policy::WorkspaceSecurityPolicy;
use portcullis_types::{RunnerBootstrapEnvelope, error_chain};
use sha2::{Digest as _, Sha256};

use crate::{
    audit::{
        AuditError, AuditLog, PolicyChange, PolicyChangeCause, ProcessStart, StoredPolicy, SyncMode,
        is_sha256, log_path,
    },
    error::BootstrapError,
};

/// The variable that names this instance among several that share a policy, such as replicas of a service.
pub const INSTANCE_VARIABLE: &str = "PORTCULLIS_INSTANCE";

/// The file in the cache folder that stores the hash of this program.
const HASH_CACHE_FILE: &str = "program";

/// Registers how the log writes the `start` row of this process. The fields are collected when the first row is
/// written.
pub(crate) fn set_process_start(
    log: &AuditLog,
    policy: &Arc<WorkspaceSecurityPolicy>,
    cache: PathBuf,
    lock_sha256: Option<String>,
) {
    let digest = policy.digest().as_str().to_owned();
    let collect = move || ProcessStart {
        policy_digest: Some(digest.into()),
        lock_sha256: lock_sha256.map(Into::into),
        ..process_start(&cache)
    };
    let policy = Arc::clone(policy);
    let text = move || StoredPolicy { toml: policy.effective_toml(), json: policy.canonical_json() };
    log.set_process_start(Box::new(collect), Some(Box::new(text)));
}

/// Records that a process does not start because its policy is refused. Other errors are not recorded.
/// Nothing is recorded without an existing log: the first process that starts creates the log of a state
/// folder. A failed write is only a warning, because the process exits anyway.
pub fn record_refused_start(envelope: &RunnerBootstrapEnvelope, error: &BootstrapError) {
    let is_of_policy = matches!(
        error,
        BootstrapError::Policy { .. }
            | BootstrapError::PolicyFile { .. }
            | BootstrapError::UntrustedPolicy { .. }
            | BootstrapError::ExpectationsFile(_)
            | BootstrapError::Expectations(_)
    );
    let state = &envelope.state;
    if !is_of_policy || !log_path(state).exists() {
        return;
    }
    let record = || -> Result<(), AuditError> {
        let (log, _recovery) = AuditLog::open(state, SyncMode::Interval)?;
        let cache = envelope.cache.as_ref().unwrap_or(state).clone();
        log.set_process_start(Box::new(move || process_start(&cache)), None);
        let reason = error_chain(error);
        log.record_policy_change(&refusal(PolicyChangeCause::Start, None, &reason)).map(drop)
    };
    if let Err(error) = record() {
        tracing::warn!(cause = &error as &dyn std::error::Error, "cannot record the refused policy");
    }
}

/// Describes a refused policy. The old policy, if there is one, stays in force.
pub(crate) fn refusal(cause: PolicyChangeCause, old_digest: Option<&str>, reason: &str) -> PolicyChange {
    PolicyChange {
        old_digest: old_digest.map(Into::into),
        new_digest: None,
        cause,
        uid: own_uid(),
        refused: Some(reason.into()),
    }
}

/// Returns the user id of this process.
pub(crate) fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// Collects the fields that do not depend on the policy.
fn process_start(cache: &Path) -> ProcessStart {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    ProcessStart {
        version: env!("CARGO_PKG_VERSION").into(),
        binary_sha256: binary_sha256(cache).map(Into::into),
        uid: own_uid(),
        host: (!host.is_empty()).then(|| host.into()),
        instance: std::env::var(INSTANCE_VARIABLE).ok().filter(|name| !name.is_empty()).map(Into::into),
        policy_digest: None,
        lock_sha256: None,
    }
}

/// Returns the SHA-256 of this program's file. It is computed once for each file and cached
/// in the cache folder.
fn binary_sha256(cache: &Path) -> Option<String> {
    static HASH: OnceLock<Option<String>> = OnceLock::new();
    HASH.get_or_init(|| {
        // The link leads to the running file, even if a new version has replaced it at its path.
        let hash = cached_hash(Path::new("/proc/self/exe"), cache);
        if let Err(error) = &hash {
            tracing::warn!(%error, "cannot hash this program's file");
        }
        hash.ok()
    })
    .clone()
}

fn cached_hash(program: &Path, cache: &Path) -> io::Result<String> {
    let mut file = File::open(program)?;
    let metadata = file.metadata()?;
    // The change time (ctime) cannot be set back, so a changed file never matches the line of the old one.
    let key = format!(
        "{} {} {} {}.{:09} ",
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        metadata.ctime(),
        metadata.ctime_nsec()
    );
    let cache_file = cache.join(HASH_CACHE_FILE);
    if let Ok(line) = fs::read_to_string(&cache_file)
        && let Some(hash) = line.trim_end().strip_prefix(&key)
        && is_sha256(hash)
    {
        return Ok(hash.to_owned());
    }
    let hash = hash_of(&mut file)?;
    // If the hash cannot be cached, the next start computes it again.
    if let Err(error) = write_cache(&cache_file, &format!("{key}{hash}\n")) {
        tracing::debug!(%error, "cannot cache the hash of this program");
    }
    Ok(hash)
}

fn hash_of(file: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            length => hasher.update(&chunk[..length]),
        }
    }
}

/// Replaces the file atomically, because another process may be reading it.
fn write_cache(path: &Path, line: &str) -> io::Result<()> {
    // The name contains the process id, so that two processes do not write the same copy.
    let copy = path.with_extension(std::process::id().to_string());
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&copy)?;
    file.write_all(line.as_bytes())?;
    fs::rename(copy, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_program_is_remembered_until_the_file_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("binary");
        fs::write(&program, "one").expect("written");
        let hash = cached_hash(&program, folder.path()).expect("hashed");
        assert_eq!(hash, hex::encode(Sha256::digest("one")));
        let cached = folder.path().join(HASH_CACHE_FILE);
        let line = fs::read_to_string(&cached).expect("cached");
        // A cached hash is used without reading the program.
        fs::write(&cached, line.replace(&hash, &"0".repeat(64))).expect("written");
        assert_eq!(cached_hash(&program, folder.path()).expect("cached"), "0".repeat(64));
        fs::write(&program, "other").expect("written");
        let hash = cached_hash(&program, folder.path()).expect("hashed");
        assert_eq!(hash, hex::encode(Sha256::digest("other")));
        fs::write(&cached, "nonsense").expect("written");
        assert_eq!(cached_hash(&program, folder.path()).expect("hashed"), hash);
    }

    #[test]
    fn a_folder_that_cannot_be_written_does_not_prevent_the_hash() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("binary");
        fs::write(&program, "one").expect("written");
        assert!(cached_hash(&program, &folder.path().join("absent")).is_ok());
        assert!(cached_hash(&folder.path().join("absent"), folder.path()).is_err());
    }
}
