//! Builds the WASI modules of the embedded tools, and passes their paths and digests to the crate.
//!
//! Packagers can set `PORTCULLIS_GUESTS_DIR` to a folder of prebuilt modules. Then nothing is built here.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use portcullis_guest_build as nested;
use sha2::{Digest as _, Sha256};

/// The embedded modules, and the environment variable that passes the path of each to the crate.
const MODULES: [(&str, &str); 5] = [
    ("core_tools", "PORTCULLIS_CORE_TOOLS"),
    ("pdf_tools", "PORTCULLIS_PDF_TOOLS"),
    ("search_tools", "PORTCULLIS_SEARCH_TOOLS"),
    ("vault_tools", "PORTCULLIS_VAULT_TOOLS"),
    ("web_tools", "PORTCULLIS_WEB_TOOLS"),
];

fn main() {
    println!("cargo::rerun-if-env-changed=PORTCULLIS_GUESTS_DIR");
    let prebuilt = env::var_os("PORTCULLIS_GUESTS_DIR").map(PathBuf::from);
    let folder = prebuilt.clone().unwrap_or_else(|| {
        let bins: Vec<&str> = MODULES.iter().flat_map(|(name, _)| ["--bin", name]).collect();
        nested::build_guests(&bins)
    });
    for (name, variable) in MODULES {
        let module = folder.join(format!("{name}.wasm"));
        if !module.is_file() {
            nested::fail(&format!("there is no guest module at `{}`", module.display()));
        }
        write_digest(name, variable, &module);
        if prebuilt.is_some() {
            println!("cargo::rerun-if-changed={}", module.display());
            println!("cargo::rustc-env={variable}={}", module.display());
            continue;
        }
        nested::rerun_if_sources_change(&module);
        // Copy the module into `OUT_DIR`: Cargo reruns this script if an input is newer than the script's
        // start, and would compile the crate a second time.
        let copied_module = PathBuf::from(nested::required("OUT_DIR")).join(format!("{name}.wasm"));
        if let Err(error) = fs::copy(&module, &copied_module) {
            nested::fail(&format!("cannot copy `{}`: {error}", module.display()));
        }
        println!("cargo::rustc-env={variable}={}", copied_module.display());
    }
}

/// Writes the module's SHA-256 at build time, so that the program does not compute it at each start.
fn write_digest(name: &str, variable: &str, module: &Path) {
    let path = PathBuf::from(nested::required("OUT_DIR")).join(format!("{name}.sha256"));
    let result = fs::read(module).and_then(|wasm| fs::write(&path, Sha256::digest(wasm)));
    if let Err(error) = result {
        nested::fail(&format!("cannot take the digest of `{}`: {error}", module.display()));
    }
    println!("cargo::rustc-env={variable}_DIGEST={}", path.display());
}
