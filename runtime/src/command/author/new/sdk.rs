//! Finds the SDK, and decides how a new crate refers to it.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::error::AuthorError;
use crate::setup;

/// The SDK's folder name, and the line that its manifest must have.
const FOLDER: &str = "sdk";
const NAME: &str = "name = \"portcullis-sdk\"";

/// The named SDK, else the nearest above the new crate, else the nearest above this program.
pub(crate) fn find(named: Option<&Path>, folder: &Path) -> Result<PathBuf, AuthorError> {
    let real = |path: &Path| {
        setup::real_path(path).map_err(|source| AuthorError::Make { path: path.to_owned(), source })
    };
    if let Some(named) = named {
        if !is_sdk(named) {
            return Err(AuthorError::NotTheSdk { path: named.to_owned() });
        }
        return real(named);
    }
    let program = env::current_exe().ok();
    let nearest = above(folder).or_else(|| above(program.as_deref()?));
    real(&nearest.ok_or_else(|| AuthorError::NoSdk { from: folder.to_owned() })?)
}

fn above(place: &Path) -> Option<PathBuf> {
    place.ancestors().skip(1).map(|folder| folder.join(FOLDER)).find(|sdk| is_sdk(sdk))
}

fn is_sdk(folder: &Path) -> bool {
    let manifest = fs::read_to_string(folder.join("Cargo.toml"));
    manifest.is_ok_and(|text| text.lines().any(|line| line.trim() == NAME))
}

/// The SDK's path in a crate's manifest: relative within the SDK's own checkout, which is moved as a whole,
/// else absolute.
pub(crate) fn seen_from(folder: &Path, sdk: &Path) -> Result<String, AuthorError> {
    let within = sdk.parent().and_then(|checkout| folder.strip_prefix(checkout).ok());
    let path = match within {
        Some(below) => below.components().map(|_| "..").collect::<PathBuf>().join(FOLDER),
        None => sdk.to_owned(),
    };
    path.to_str().map(str::to_owned).ok_or(AuthorError::PathText { path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sdk_in(checkout: &Path) -> PathBuf {
        let sdk = checkout.join(FOLDER);
        fs::create_dir_all(&sdk).expect("made");
        fs::write(sdk.join("Cargo.toml"), format!("[package]\n{NAME}\n")).expect("written");
        sdk
    }

    #[test]
    fn the_nearest_sdk_above_the_crate_is_found_and_no_other_crate() {
        let root = tempfile::tempdir().expect("a folder");
        let root = setup::real_path(root.path()).expect("there");
        let sdk = sdk_in(&root);
        let other = root.join("a/sdk");
        fs::create_dir_all(&other).expect("made");
        fs::write(other.join("Cargo.toml"), "[package]\nname = \"sdk\"\n").expect("written");
        assert_eq!(find(None, &root.join("a/b/c")).expect("found"), sdk);
        assert!(matches!(find(Some(&other), &root.join("a/b")), Err(AuthorError::NotTheSdk { .. })));
        assert_eq!(above(Path::new("/a/b")), None);
    }

    #[test]
    fn a_crate_of_the_checkout_names_the_sdk_relative_to_itself() {
        let sdk = Path::new("/checkout/sdk");
        let seen = |folder: &str| seen_from(Path::new(folder), sdk).expect("text");
        assert_eq!(seen("/checkout/words"), "../sdk");
        assert_eq!(seen("/checkout/tools/of/mine/words"), "../../../../sdk");
        assert_eq!(seen("/elsewhere/words"), "/checkout/sdk");
    }
}
