//! Builds guests for WASI with a nested cargo, for the build scripts of the crates that embed or test guests.
//! `portcullis tool` uses only [`configures_outer_cargo`].
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "cargo reads a build script's standard output")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

mod environment;

pub use environment::configures_outer_cargo;

/// Builds programs of the guest tools, and returns the folder with their modules. `cargo_args` selects the programs:
/// `--bin NAME`, or `--bins`.
///
/// Ends the build if the programs cannot be built.
#[must_use]
pub fn build_guests(cargo_args: &[&str]) -> PathBuf {
    let manifest = PathBuf::from(required("CARGO_MANIFEST_DIR"));
    let Some(root) = manifest.parent() else { fail("the crate has no workspace around it") };
    ensure_target(root);
    let target = guests_folder();
    #[expect(clippy::disallowed_methods, reason = "a build script, at build time: cargo builds the guests")]
    let mut cargo = Command::new(required("CARGO"));
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if configures_outer_cargo(&name) {
            cargo.env_remove(&*name);
        }
    }
    cargo
        .current_dir(root)
        .args(["build", "--quiet", "--locked", "--package", "portcullis-guest-tools"])
        .args(cargo_args)
        .args(["--profile", "guest", "--target", "wasm32-wasip1", "--target-dir"])
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(root));
    let status = cargo.status().unwrap_or_else(|error| fail(&format!("cannot start cargo: {error}")));
    if !status.success() {
        fail("the guest tools do not build for wasm32-wasip1");
    }
    for file in ["../Cargo.lock", "../Cargo.toml", "../guest-tools/Cargo.toml", "../sdk/Cargo.toml"] {
        println!("cargo::rerun-if-changed={file}");
    }
    target.join("wasm32-wasip1/guest")
}

/// Installs the target of guests. If that fails, ends the build with a message that contains the command to install it.
///
/// If cargo read the workspace's configuration, its first query of the compiler has already installed the target,
/// unless cargo had cached the answer.
fn ensure_target(root: &Path) {
    let program = root.join(".cargo/with-wasi-target");
    #[expect(
        clippy::disallowed_methods,
        reason = "a build script, at build time: rustup installs the target"
    )]
    let mut ensure = Command::new(&program);
    let output = ensure.arg("--ensure").arg(required("RUSTC")).output();
    let output =
        output.unwrap_or_else(|error| fail(&format!("cannot start `{}`: {error}", program.display())));
    let messages = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        fail(messages.trim());
    }
    for line in messages.lines() {
        println!("cargo::warning={line}");
    }
}

/// Tells cargo to run the build script again when a source of the module changes. The dependency file beside the module
/// lists the sources.
pub fn rerun_if_sources_change(module: &Path) {
    let dependencies = module.with_extension("d");
    let Ok(text) = fs::read_to_string(&dependencies) else {
        fail(&format!("cannot read `{}`", dependencies.display()));
    };
    let Some((_, sources)) = text.split_once(": ") else { return };
    for source in sources.trim_end().replace("\\ ", "\0").split(' ') {
        println!("cargo::rerun-if-changed={}", source.replace('\0', " "));
    }
}

/// Ends the build with a reason, which cargo shows.
#[expect(clippy::exit, reason = "how a build script fails without a backtrace")]
pub fn fail(reason: &str) -> ! {
    println!("cargo::error={reason}");
    std::process::exit(1)
}

/// Returns a variable that cargo sets for build scripts. Ends the build if the variable is missing.
#[must_use]
pub fn required(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| fail(&format!("cargo did not set {name}")))
}

/// Returns the compiler flags: SIMD, an initial heap, and no host paths in panic messages.
fn rustflags(root: &Path) -> String {
    // With an initial heap, a short call never grows its memory. Each growth would change the address space of the
    // process twice, under a lock that all threads share.
    let mut flags =
        vec!["-Ctarget-feature=+simd128".to_owned(), "-Clink-arg=--initial-heap=1048576".to_owned()];
    flags.push(format!("--remap-path-prefix={}=portcullis", root.display()));
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    if let Some(home) = env::var_os("CARGO_HOME").map(PathBuf::from).or(home) {
        flags.push(format!("--remap-path-prefix={}=cargo", home.display()));
    }
    flags.join("\u{1f}")
}

/// Returns the folder `<target>/guests`, which all profiles share. The build script's own folder is
/// `<target>/[<triple>/]<profile>/build/<crate>-<hash>/out`. Cargo marks the target folder with a file `CACHEDIR.TAG`.
fn guests_folder() -> PathBuf {
    let out_dir = PathBuf::from(required("OUT_DIR"));
    let target_folder = out_dir.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
    target_folder.or_else(|| out_dir.ancestors().nth(4)).unwrap_or(&out_dir).join("guests")
}
