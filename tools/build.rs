//! Builds the core tools for WASI and names the module to the crate.
//!
//! `PORTCULLIS_GUESTS_DIR` names a folder with prebuilt guests instead, for packagers.

use std::{env, path::PathBuf};

#[path = "../guest-tools/build/nested.rs"]
mod nested;

/// The module with all core tools.
const CORE: &str = "core_tools";

fn main() {
    println!("cargo::rerun-if-env-changed=PORTCULLIS_GUESTS_DIR");
    let module = match env::var_os("PORTCULLIS_GUESTS_DIR") {
        Some(folder) => PathBuf::from(folder).join(format!("{CORE}.wasm")),
        None => {
            let module = nested::build(&["--bin", CORE]).join(format!("{CORE}.wasm"));
            nested::rerun_if_sources_change(&module);
            module
        }
    };
    if !module.is_file() {
        nested::fail(&format!("there is no guest module at `{}`", module.display()));
    }
    println!("cargo::rerun-if-changed={}", module.display());
    println!("cargo::rustc-env=PORTCULLIS_CORE_TOOLS={}", module.display());
}
