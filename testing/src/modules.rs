//! Compiled modules that worlds hand on to each other: compiling the core tools in every test would take
//! most of the tests' time. What the cache checks, it checks all the same.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

/// The cache that the first world filled.
static KEPT: Mutex<Option<TempDir>> = Mutex::new(None);

/// The folder of a state folder that holds compiled modules and their key.
const FOLDER: &str = "modules";

/// Puts the compiled modules into a state folder that is not there yet; whether it did.
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

/// Keeps the compiled modules of a state folder for the worlds to come.
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
