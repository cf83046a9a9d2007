//! Selects the environment variables that a nested cargo must not inherit. Used by the build scripts that
//! build guests, and by the author's commands, which build tools.

/// Whether a variable was set for another cargo, or for another compiler than that of guests: target folders
/// are locked, wrappers and flags are meant for the host. Where packages come from stays.
#[must_use]
pub fn is_inherited(name: &str) -> bool {
    name.starts_with("CARGO_") && name != "CARGO_HOME" && !name.starts_with("CARGO_NET_")
        || name.contains("RUSTFLAGS")
        || name.starts_with("RUSTC")
        || name.starts_with("RUSTDOC")
}
