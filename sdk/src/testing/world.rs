//! The files of one call, in a temporary folder that is removed with this value.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

use portcullis_types::{GuestPath, ToolError, ToolOutput};

use super::{
    case::{RunMode, error_text},
    lent::LentMounts,
};

/// A folder that tools see as `/`.
#[derive(Debug)]
pub(super) struct World(PathBuf);

impl World {
    /// A folder with the granted mounts and these files.
    #[track_caller]
    pub(super) fn with(files: &[(GuestPath, Vec<u8>)], lent: &LentMounts) -> Self {
        let world = Self(fresh().expect("a temporary folder"));
        for mount in lent.names() {
            fs::create_dir_all(world.0.join(mount)).expect("a mount's folder");
        }
        for (path, content) in files {
            let file = world.host_path(path);
            fs::create_dir_all(file.parent().expect("below the root")).expect("a folder");
            fs::write(file, content).expect("a file");
        }
        world
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    /// Asserts the files that the call left. If they differ and the call failed, shows its error.
    #[track_caller]
    pub(super) fn expect_left(
        &self,
        mode: RunMode,
        files: &[(GuestPath, Vec<u8>)],
        outcome: &Result<ToolOutput, ToolError>,
    ) {
        let failed = outcome.as_ref().err().map(|error| format!("; the call failed: {}", error_text(error)));
        let failed = failed.unwrap_or_default();
        for (path, expected) in files {
            match fs::read(self.host_path(path)) {
                Ok(content) => assert_eq!(
                    String::from_utf8_lossy(&content),
                    String::from_utf8_lossy(expected),
                    "{mode}: `{path}`{failed}"
                ),
                Err(error) => panic!("{mode}: `{path}`: {error}{failed}"),
            }
        }
    }

    fn host_path(&self, path: &GuestPath) -> PathBuf {
        self.0.join(&path.as_str()[1..])
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A leftover folder must not hide the test's own failure.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes a new folder that no other test uses.
fn fresh() -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("portcullis-case-{}-{count}", process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            // A leftover of a killed process with the same id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}
