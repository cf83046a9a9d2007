//! Builds the core tools for WASI, passes the paths of their modules to the crate, and generates the client
//! of the shell sidecar from the daemon's protocol files.
//!
//! `PORTCULLIS_GUESTS_DIR` names a folder with prebuilt guests instead, for packagers.

use std::{env, fs, path::PathBuf};

use portcullis_guest_build as nested;

/// The modules that are embedded, and the variables that name them.
const MODULES: [(&str, &str); 3] = [
    ("core_tools", "PORTCULLIS_CORE_TOOLS"),
    ("search_tools", "PORTCULLIS_SEARCH_TOOLS"),
    ("vault_tools", "PORTCULLIS_VAULT_TOOLS"),
];

fn main() {
    sidecar_client();
    println!("cargo::rerun-if-env-changed=PORTCULLIS_GUESTS_DIR");
    let prebuilt = env::var_os("PORTCULLIS_GUESTS_DIR").map(PathBuf::from);
    let folder = prebuilt.clone().unwrap_or_else(|| {
        let bins: Vec<&str> = MODULES.iter().flat_map(|(name, _)| ["--bin", name]).collect();
        nested::build(&bins)
    });
    for (name, variable) in MODULES {
        let module = folder.join(format!("{name}.wasm"));
        if !module.is_file() {
            nested::fail(&format!("there is no guest module at `{}`", module.display()));
        }
        if prebuilt.is_some() {
            println!("cargo::rerun-if-changed={}", module.display());
            println!("cargo::rustc-env={variable}={}", module.display());
            continue;
        }
        nested::rerun_if_sources_change(&module);
        // Copy the module into `OUT_DIR`: a module newer than the start of this script would make cargo run
        // the script, and compile this crate, once more.
        let own = PathBuf::from(nested::required("OUT_DIR")).join(format!("{name}.wasm"));
        if let Err(error) = fs::copy(&module, &own) {
            nested::fail(&format!("cannot copy `{}`: {error}", module.display()));
        }
        println!("cargo::rustc-env={variable}={}", own.display());
    }
}

/// Generates the sidecar's client. The protocol belongs to the daemon; this crate speaks it but may not
/// depend on the daemon.
fn sidecar_client() {
    const PROTOCOL: &str = "../shell-daemon/proto";
    println!("cargo::rerun-if-changed={PROTOCOL}");
    let made = protox::compile(["portcullis/shell/v1/shell.proto"], [PROTOCOL]).map(|descriptors| {
        let client = tonic_prost_build::configure().build_server(false).build_transport(false);
        client.compile_fds(descriptors)
    });
    match made {
        Ok(Ok(())) => {}
        Ok(Err(error)) => nested::fail(&format!("the sidecar's protocol cannot be made: {error}")),
        Err(error) => nested::fail(&format!("the sidecar's protocol cannot be read: {error}")),
    }
}
