//! Selects the environment variables that a nested cargo must not inherit. Used by the build scripts that
//! build guests, and by the author's commands, which build tools.

/// Whether a variable configures the outer cargo or a compiler for the host: target folders are locked, and
/// wrappers and flags are meant for the host. Variables that configure package sources are kept.
#[must_use]
pub fn configures_outer_cargo(name: &str) -> bool {
    name.starts_with("CARGO_") && name != "CARGO_HOME" && !name.starts_with("CARGO_NET_")
        || name.contains("RUSTFLAGS")
        || name.starts_with("RUSTC")
        || name.starts_with("RUSTDOC")
}
