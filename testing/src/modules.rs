//! Shares compiled modules between fixtures, because compiling the core tools would take most of the time of
//! every test. The cache still checks the copies.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

/// A copy of the cache that the first fixture filled.
static CORE_MODULES: Mutex<Option<TempDir>> = Mutex::new(None);

/// Modules that later fixtures have compiled under the same key, on the modules' first call. They are large,
/// so only fixtures that ask for them get copies.
static LAZY_MODULES: Mutex<Option<TempDir>> = Mutex::new(None);

/// The part of a state folder that contains the compiled modules and their key.
const MODULES_FOLDER: &str = "modules";

/// Copies the compiled modules into a state folder that does not exist yet. Returns whether it copied any.
pub(crate) fn copy_compiled_modules(state: &Path) -> bool {
    let core_folder = CORE_MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    match &*core_folder {
        Some(core_folder) if !state.exists() => {
            copy_files(core_folder.path(), &state.join(MODULES_FOLDER));
            true
        }
        _ => false,
    }
}

/// Saves a copy of a state folder's compiled modules for later fixtures.
pub(crate) fn save_modules(state: &Path) {
    let mut core_folder = CORE_MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if core_folder.is_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        copy_files(&state.join(MODULES_FOLDER), folder.path());
        *core_folder = Some(folder);
    }
}

/// Adds the modules of [`LATE_MODULES`] to a state folder that has the saved modules.
pub(crate) fn copy_lazy_modules(state: &Path) {
    let late_folder = LAZY_MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(late_folder) = &*late_folder {
        copy_files(late_folder.path(), &state.join(MODULES_FOLDER));
    }
}

/// Saves the modules that a fixture has compiled in addition to the saved ones.
pub(crate) fn save_lazy_modules(state: &Path) {
    let core_folder = CORE_MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(core_folder) = &*core_folder else { return };
    let mut late_folder = LAZY_MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = match &mut *late_folder {
        Some(folder) => folder,
        None => late_folder.insert(tempfile::tempdir().expect("a temporary folder")),
    };
    let entries = fs::read_dir(state.join(MODULES_FOLDER)).into_iter().flatten().flatten();
    let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    // Skip a fixture whose test created another key: modules compiled under that key are invalid elsewhere.
    let has_same_key = names.iter().all(|name| {
        let (core_module, own_module) =
            (core_folder.path().join(name), state.join(MODULES_FOLDER).join(name));
        !core_module.exists() || fs::read(core_module).ok() == fs::read(own_module).ok()
    });
    for name in names.iter().filter(|_| has_same_key) {
        let destination = folder.path().join(name);
        if !core_folder.path().join(name).exists() && !destination.exists() {
            fs::copy(state.join(MODULES_FOLDER).join(name), destination).expect("copied");
        }
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).expect("a folder");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}
