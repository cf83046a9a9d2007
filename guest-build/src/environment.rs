//! Selects the environment variables that a nested cargo must not inherit. The build scripts that build guests use it,
//! and so do the author's commands, which build tools.

/// Returns whether a variable configures the outer cargo, or a compiler for the host. The outer cargo has
/// locked its target folder, and wrappers and flags are meant for the host. Variables that configure package
/// sources are kept.
#[must_use]
pub fn configures_outer_cargo(name: &str) -> bool {
    name.starts_with("CARGO_") && name != "CARGO_HOME" && !name.starts_with("CARGO_NET_")
        || name.contains("RUSTFLAGS")
        || name.starts_with("RUSTC")
        || name.starts_with("RUSTDOC")
}
