//! The files of one call, in a temporary folder that is removed when the value is dropped.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use portcullis_types::{GuestPath, ToolError, ToolOutput};

use super::{
    case::{RunMode, error_text},
    grants::GrantedMounts,
};

/// A folder that tools see as `/`.
#[derive(Debug)]
pub(super) struct CaseFolder(PathBuf);

impl CaseFolder {
    /// A folder with the granted mounts and these files.
    #[track_caller]
    pub(super) fn with(files: &[(GuestPath, Vec<u8>)], granted: &GrantedMounts) -> Self {
        let folder = Self(create_unique_folder().expect("a temporary folder"));
        for mount in granted.names() {
            fs::create_dir_all(folder.0.join(mount)).expect("a mount's folder");
        }
        for (path, content) in files {
            let file = folder.host_path(path);
            fs::create_dir_all(file.parent().expect("below the root")).expect("a folder");
            fs::write(file, content).expect("a file");
        }
        folder
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    /// Checks the files that the call left. If they differ and the call failed, the panic shows the call's error.
    #[track_caller]
    pub(super) fn expect_files(
        &self,
        mode: RunMode,
        files: &[(GuestPath, Vec<u8>)],
        outcome: &Result<ToolOutput, ToolError>,
    ) {
        let failure_note =
            outcome.as_ref().err().map(|error| format!("; the call failed: {}", error_text(error)));
        let failure_note = failure_note.unwrap_or_default();
        for (path, expected) in files {
            match fs::read(self.host_path(path)) {
                Ok(content) => assert_eq!(
                    String::from_utf8_lossy(&content),
                    String::from_utf8_lossy(expected),
                    "{mode}: `{path}`{failure_note}"
                ),
                Err(error) => panic!("{mode}: `{path}`: {error}{failure_note}"),
            }
        }
    }

    fn host_path(&self, path: &GuestPath) -> PathBuf {
        self.0.join(&path.as_str()[1..])
    }
}

impl Drop for CaseFolder {
    fn drop(&mut self) {
        // Ignore an error: a leftover folder must not hide the test's own failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes a new folder that no other test uses.
fn create_unique_folder() -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("portcullis-case-{}-{count}", process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            // The folder was left by a killed process with the same id, so the next number is tried.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}
