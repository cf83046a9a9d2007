//! Shares compiled modules between worlds: compiling the core tools in every test would take most of the
//! tests' time. The cache still makes all its checks.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

/// Copy of the cache that the first world filled.
static KEPT: Mutex<Option<TempDir>> = Mutex::new(None);

/// The part of a state folder with the compiled modules and their key.
const FOLDER: &str = "modules";

/// Copies the compiled modules into a state folder that does not exist yet; returns whether it did.
pub(crate) fn lend(state: &Path) -> bool {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    match &*kept {
        Some(kept) if !state.exists() => {
            copy(kept.path(), &state.join(FOLDER));
            true
        }
        _ => false,
    }
}

/// Keeps a copy of a state folder's compiled modules for later worlds.
pub(crate) fn keep(state: &Path) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.is_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        copy(&state.join(FOLDER), folder.path());
        *kept = Some(folder);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).expect("a folder");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}
