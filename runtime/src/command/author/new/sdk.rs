//! Finds the SDK, and decides how a new crate refers to it.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::error::AuthorError;
use crate::setup;

/// The SDK's folder name, and the line that its manifest must have.
const SDK_FOLDER: &str = "sdk";
const NAME: &str = "name = \"portcullis-sdk\"";

/// Finds the SDK: the requested one, the nearest above the new crate, or the nearest above this program.
pub(crate) fn find(requested: Option<&Path>, folder: &Path) -> Result<PathBuf, AuthorError> {
    let resolve = |path: &Path| {
        setup::real_path(path).map_err(|source| AuthorError::Make { path: path.to_owned(), source })
    };
    if let Some(requested) = requested {
        if !is_sdk(requested) {
            return Err(AuthorError::NotTheSdk { path: requested.to_owned() });
        }
        return resolve(requested);
    }
    let program = env::current_exe().ok();
    let nearest = find_above(folder).or_else(|| find_above(program.as_deref()?));
    resolve(&nearest.ok_or_else(|| AuthorError::NoSdk { from: folder.to_owned() })?)
}

fn find_above(start: &Path) -> Option<PathBuf> {
    start.ancestors().skip(1).map(|folder| folder.join(SDK_FOLDER)).find(|sdk| is_sdk(sdk))
}

fn is_sdk(folder: &Path) -> bool {
    let manifest = fs::read_to_string(folder.join("Cargo.toml"));
    manifest.is_ok_and(|text| text.lines().any(|line| line.trim() == NAME))
}

/// Returns the SDK's path for a crate's manifest. The path is relative if the crate is in the SDK's own
/// checkout, because a checkout is moved as a whole. Otherwise it is absolute.
pub(crate) fn dependency_path(folder: &Path, sdk: &Path) -> Result<String, AuthorError> {
    let path_in_checkout = sdk.parent().and_then(|checkout| folder.strip_prefix(checkout).ok());
    let path = match path_in_checkout {
        Some(path_below) => path_below.components().map(|_| "..").collect::<PathBuf>().join(SDK_FOLDER),
        None => sdk.to_owned(),
    };
    path.to_str().map(str::to_owned).ok_or(AuthorError::PathText { path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sdk_in(checkout: &Path) -> PathBuf {
        let sdk = checkout.join(SDK_FOLDER);
        fs::create_dir_all(&sdk).expect("the folder can be made");
        fs::write(sdk.join("Cargo.toml"), format!("[package]\n{NAME}\n")).expect("written");
        sdk
    }

    #[test]
    fn the_nearest_sdk_above_the_crate_is_found_and_no_other_crate() {
        let root = tempfile::tempdir().expect("a folder");
        let root = setup::real_path(root.path()).expect("the path exists");
        let sdk = sdk_in(&root);
        let wrong_crate = root.join("a/sdk");
        fs::create_dir_all(&wrong_crate).expect("the folder can be made");
        fs::write(wrong_crate.join("Cargo.toml"), "[package]\nname = \"sdk\"\n").expect("written");
        assert_eq!(find(None, &root.join("a/b/c")).expect("found"), sdk);
        assert!(matches!(find(Some(&wrong_crate), &root.join("a/b")), Err(AuthorError::NotTheSdk { .. })));
        assert_eq!(find_above(Path::new("/a/b")), None);
    }

    #[test]
    fn a_crate_of_the_checkout_names_the_sdk_relative_to_itself() {
        let sdk = Path::new("/checkout/sdk");
        let path_in_manifest = |folder: &str| dependency_path(Path::new(folder), sdk).expect("text");
        assert_eq!(path_in_manifest("/checkout/words"), "../sdk");
        assert_eq!(path_in_manifest("/checkout/tools/of/mine/words"), "../../../../sdk");
        assert_eq!(path_in_manifest("/elsewhere/words"), "/checkout/sdk");
    }
}
