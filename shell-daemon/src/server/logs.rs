//! Where an operator's log goes: standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// For people.
    Text,
    /// For programs: one JSON object.
    Json,
}

/// Begins to log what `RUST_LOG` asks for, or from `least` on.
pub(super) fn begin(form: Form, least: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_unset| EnvFilter::new(least));
    // A file or a container's log has no colours.
    let is_plain = std::env::var_os("NO_COLOR").is_some() || !std::io::stderr().is_terminal();
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(!is_plain).with_writer(std::io::stderr);
    // Only a second subscriber could be refused, and there is none.
    let _ = match form {
        Form::Text => logs.try_init(),
        Form::Json => logs.json().try_init(),
    };
}
