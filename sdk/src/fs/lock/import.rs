//! The functions for locks that a module imports from its host. `sandbox/src/locks.rs` defines them.
#![expect(unsafe_code, reason = "functions of the host are declared in an `unsafe extern` block")]

use std::{io, path::Path};

use portcullis_types::GuestPath;

use super::LockError;

#[link(wasm_import_module = "portcullis_fs")]
unsafe extern "C" {
    /// Waits for the lock of a path. Returns the lock's number, or minus an error number of WASI.
    #[link_name = "lock"]
    safe fn host_lock(path: *const u8, len: usize) -> i32;
    /// Releases a lock.
    #[link_name = "unlock"]
    safe fn host_unlock(number: u32);
}

/// WASI's `EBUSY` and `ENOLCK`.
const BUSY: i32 = 10;
const NO_LOCK: i32 = 46;

pub(super) fn lock(path: &GuestPath, _target: &Path) -> Result<u32, LockError> {
    let path = path.as_str();
    let answer = host_lock(path.as_ptr(), path.len());
    u32::try_from(answer).map_err(|_negative| match answer.saturating_neg() {
        BUSY => LockError::HeldAlready,
        NO_LOCK => LockError::TooMany,
        errno => LockError::System(io::Error::from_raw_os_error(errno)),
    })
}

pub(super) fn unlock(number: u32) {
    host_unlock(number);
}
