//! Hostile guest: lists everything that the host gave it.

use std::fmt::Write;

use portcullis_sdk::tool;

/// Lists arguments, environment, open descriptors and preopened directories, a line each.
#[tool]
async fn probe_environment() -> String {
    let mut found = String::new();
    for (index, argument) in std::env::args().enumerate() {
        let _ = writeln!(found, "arg {index}: {argument}");
    }
    for (name, value) in std::env::vars_os() {
        let _ = writeln!(found, "env: {}={}", name.to_string_lossy(), value.to_string_lossy());
    }
    for descriptor in 0..64 {
        if let Some(kind) = descriptors::kind(descriptor) {
            let _ = writeln!(found, "fd {descriptor}: type {kind}");
        }
        if let Some(name) = descriptors::preopen(descriptor) {
            let _ = writeln!(found, "preopen {descriptor}: {name}");
        }
    }
    found
}

/// WASI's functions for descriptors.
#[cfg(target_os = "wasi")]
#[expect(unsafe_code, reason = "WASI's own calls: the standard library cannot enumerate descriptors")]
mod descriptors {
    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    unsafe extern "C" {
        fn fd_fdstat_get(descriptor: u32, into: *mut u64) -> u32;
        fn fd_prestat_get(descriptor: u32, into: *mut u32) -> u32;
        fn fd_prestat_dir_name(descriptor: u32, into: *mut u8, bytes: usize) -> u32;
    }

    /// The file type of an open descriptor.
    pub(crate) fn kind(descriptor: u32) -> Option<u8> {
        let mut stat = [0_u64; 3];
        // SAFETY: an `fdstat` has 24 bytes, aligned to 8. `stat` has the same size and alignment.
        let code = unsafe { fd_fdstat_get(descriptor, stat.as_mut_ptr()) };
        (code == 0).then(|| stat[0].to_le_bytes()[0])
    }

    /// The guest path of a preopened directory.
    pub(crate) fn preopen(descriptor: u32) -> Option<String> {
        let mut stat = [0_u32; 2];
        // SAFETY: a `prestat` has 8 bytes, aligned to 4. `stat` has the same size and alignment.
        if unsafe { fd_prestat_get(descriptor, stat.as_mut_ptr()) } != 0 {
            return None;
        }
        let mut name = vec![0; usize::try_from(stat[1]).ok()?];
        // SAFETY: the host writes at most the given number of bytes, which is the length of `name`.
        let code = unsafe { fd_prestat_dir_name(descriptor, name.as_mut_ptr(), name.len()) };
        (code == 0).then(|| String::from_utf8_lossy(&name).into_owned())
    }
}

/// The substitute in a native build, which proves nothing.
#[cfg(not(target_os = "wasi"))]
mod descriptors {
    pub(crate) fn kind(_: u32) -> Option<u8> {
        None
    }

    pub(crate) fn preopen(_: u32) -> Option<String> {
        None
    }
}

portcullis_sdk::export_tools![probe_environment];
