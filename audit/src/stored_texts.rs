//! Files beside the log: the policies and questions that rows identify by SHA-256, checkpoints, and verifying
//! keys. Each file is written atomically, and read up to a limit.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat},
    io::Errno,
};

use super::{
    chain::is_sha256,
    error::AuditError,
    files::LogFiles,
    process::{LoadPolicyFn, StoredPolicy},
};

/// The folder of the effective policies in the state folder: `<digest>.toml` and `<digest>.json`.
pub const POLICIES_DIR: &str = "policies";

/// The folder of the questions to approvers in the state folder: `<sha256>.txt`.
pub const QUESTIONS_DIR: &str = "questions";

/// The file in [`POLICIES_DIR`] that names the policy of the newest `start`.
const NEWEST_POLICY: &str = "newest";

fn is_stored(files: &LogFiles, folder: &str, name: &str) -> Result<bool, AuditError> {
    match statat(&files.folder, format!("{folder}/{name}"), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(store_error(files, folder, name, errno.into())),
    }
}

/// Writes a file into a folder beside the log. Only the owner can access the folder and the file.
/// The write is atomic.
pub(super) fn store_text(
    files: &LogFiles,
    folder: &str,
    name: &str,
    content: &[u8],
) -> Result<(), AuditError> {
    match mkdirat(&files.folder, folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(store_error(files, folder, name, errno.into())),
    }
    replace(files, folder, name, content)
}

/// Writes a file into the state folder itself, as [`store_text`] does.
pub(super) fn write_state_file(files: &LogFiles, name: &str, content: &[u8]) -> Result<(), AuditError> {
    replace(files, ".", name, content)
}

/// The maximum size of a file to read: 1 MiB.
const MAX_READ_BYTES: u64 = 1 << 20;

/// Reads a file beside the log. Refuses a longer file.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_READ_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Reads a file beside the log as [`read_bounded`] does. `None` if it does not exist.
pub(super) fn read_if_exists(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match read_bounded(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn replace(files: &LogFiles, folder: &str, name: &str, content: &[u8]) -> Result<(), AuditError> {
    let failed = |errno: Errno| store_error(files, folder, name, errno.into());
    let folder_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(&files.folder, folder, folder_flags, Mode::empty()).map_err(failed)?;
    // Several threads and processes may write the same file concurrently. The process id and a counter make
    // the names of their temporary files unique.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let temporary = format!(".{name}.{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(&directory, temporary.as_str(), flags, Mode::RUSR | Mode::WUSR);
    let file = match open() {
        // A process with the same id died before it could rename its temporary file.
        Err(Errno::EXIST) => {
            unlinkat(&directory, temporary.as_str(), AtFlags::empty()).map_err(failed)?;
            open()
        }
        opened => opened,
    };
    let file = File::from(file.map_err(failed)?);
    let written = file
        .write_all_at(content, 0)
        .and_then(|()| Ok(renameat(&directory, temporary.as_str(), &directory, name)?));
    written.map_err(|source| {
        // The half-written temporary file is useless. Ignore a failure of its removal, because the first
        // error is more helpful.
        let _ = unlinkat(&directory, temporary.as_str(), AtFlags::empty());
        store_error(files, folder, name, source)
    })
}

/// Stores the effective policy with a digest, in both forms.
pub(super) fn store_policy(files: &LogFiles, digest: &str, text: &LoadPolicyFn) -> Result<(), AuditError> {
    // The JSON is stored last, so its existence implies that both files exist.
    let json_name = format!("{digest}.json");
    if is_stored(files, POLICIES_DIR, &json_name)? {
        return Ok(());
    }
    let StoredPolicy { toml, json } = text();
    store_text(files, POLICIES_DIR, &format!("{digest}.toml"), toml.as_bytes())?;
    store_text(files, POLICIES_DIR, &json_name, &json)
}

/// Stores a question.
pub(super) fn store_question(files: &LogFiles, sha256: &str, question: &str) -> Result<(), AuditError> {
    let name = format!("{sha256}.txt");
    if is_stored(files, QUESTIONS_DIR, &name)? {
        return Ok(());
    }
    store_text(files, QUESTIONS_DIR, &name, question.as_bytes())
}

/// Returns the digest of the policy of the newest `start`. `None` before the first `start`.
pub(super) fn newest_policy(files: &LogFiles) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&files.folder, format!("{POLICIES_DIR}/{NEWEST_POLICY}"), flags, Mode::empty()).ok()?;
    let mut digest = [0; DIGEST_BYTES];
    File::from(file).read_exact_at(&mut digest, 0).ok()?;
    String::from_utf8(digest.to_vec()).ok().filter(|digest| is_sha256(digest))
}

/// Stores which policy this `start` has.
pub(super) fn remember_policy(files: &LogFiles, digest: &str) -> Result<(), AuditError> {
    store_text(files, POLICIES_DIR, NEWEST_POLICY, digest.as_bytes())
}

/// The length of a SHA-256 in hexadecimal.
const DIGEST_BYTES: usize = 64;

fn store_error(files: &LogFiles, folder: &str, name: &str, source: io::Error) -> AuditError {
    let path: PathBuf = files.state_folder.join(folder).join(name);
    AuditError::StoreText { path, source }
}
