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

/// Modules that later worlds have compiled, under the same key: modules that are compiled at their first
/// call. They are large, so only worlds that ask for them get copies.
static COMPILED_LATER: Mutex<Option<TempDir>> = Mutex::new(None);

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

/// Adds what other worlds have compiled later to a state folder that has the kept modules.
pub(crate) fn lend_later(state: &Path) {
    let later = COMPILED_LATER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(later) = &*later {
        copy(later.path(), &state.join(FOLDER));
    }
}

/// Keeps what a world has compiled beyond the kept modules.
pub(crate) fn keep_later(state: &Path) {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kept) = &*kept else { return };
    let mut later = COMPILED_LATER.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = match &mut *later {
        Some(folder) => folder,
        None => later.insert(tempfile::tempdir().expect("a temporary folder")),
    };
    let found = fs::read_dir(state.join(FOLDER)).into_iter().flatten().flatten();
    let names: Vec<_> = found.map(|entry| entry.file_name()).collect();
    // Another key: nothing that its holder compiled is valid elsewhere. A test of its own made it.
    let is_ours = names.iter().all(|name| {
        let (one, other) = (kept.path().join(name), state.join(FOLDER).join(name));
        !one.exists() || fs::read(one).ok() == fs::read(other).ok()
    });
    for name in names.iter().filter(|_| is_ours) {
        let place = folder.path().join(name);
        if !kept.path().join(name).exists() && !place.exists() {
            fs::copy(state.join(FOLDER).join(name), place).expect("copied");
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).expect("a folder");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}
