//! Creates the lock file of a new crate, with the versions that the SDK's checkout was built with. All of
//! them are then available offline.

use std::{fs, io, path::Path};

use super::super::cargo::{Network, metadata};
use crate::error::AuthorError;

/// Creates the lock file from the checkout's lock file, which cargo reduces to the packages that the crate
/// needs. Falls back to packages that are available offline, and then to the network.
pub(crate) fn create_lockfile(folder: &Path, sdk: &Path) -> Result<(), AuthorError> {
    let failed = |source| AuthorError::Make { path: folder.to_owned(), source };
    let lock = folder.join("Cargo.lock");
    if let Some(checkout) = sdk.parent() {
        match fs::copy(checkout.join("Cargo.lock"), &lock) {
            Ok(_) => {
                if metadata(folder, Network::Never)?.is_some() {
                    return Ok(());
                }
                fs::remove_file(&lock).map_err(failed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    for network in [Network::Never, Network::IfNeeded] {
        if metadata(folder, network)?.is_some() {
            return Ok(());
        }
    }
    Err(AuthorError::Cargo { problem: "the new crate cannot be resolved" })
}
