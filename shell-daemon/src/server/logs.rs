//! Where an operator's log goes: standard error.

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
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Only a second subscriber could be refused, and there is none.
    let _ = match form {
        Form::Text => logs.try_init(),
        Form::Json => logs.json().try_init(),
    };
}
