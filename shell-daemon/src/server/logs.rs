//! Writes the operator's log to standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::{
    EnvFilter,
    filter::{LevelFilter, ParseError},
    fmt::format::JsonFields,
};

use crate::log_line::{Colours, LogLine};

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// For programs: one JSON object.
    Json,
}

/// Starts the log at the levels of `RUST_LOG`. If that variable is unset or invalid, the log starts at
/// `default_level`.
pub(super) fn init(format: LogFormat, default_level: &str) {
    let filter = std::env::var(EnvFilter::DEFAULT_ENV).ok().and_then(|text| log_filter(&text).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(default_level));
    // A file or a container's log has no colours.
    let is_colourless = std::env::var_os("NO_COLOR").is_some() || !std::io::stderr().is_terminal();
    let colours = if is_colourless { Colours::Disabled } else { Colours::Enabled };
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr);
    // Ignore the result: this fails only if a subscriber was installed before, and none was.
    let _ = match format {
        LogFormat::Text => logs.event_format(LogLine::text(colours)).try_init(),
        LogFormat::Json => logs.fmt_fields(JsonFields::new()).event_format(LogLine::json()).try_init(),
    };
}

/// Libraries that log content at verbose levels, each with its most verbose safe level. More verbose levels would log
/// arguments, file contents and standard input of the clients' protocol, headers with tokens, and typed keys.
const CONTENT_LOG_LEVELS: [(&str, LevelFilter); 7] = [
    ("rmcp", LevelFilter::WARN),
    ("h2", LevelFilter::INFO),
    ("hyper", LevelFilter::INFO),
    ("hyper_util", LevelFilter::INFO),
    ("rustls", LevelFilter::INFO),
    // The command line's line editor, which logs keys.
    ("rustyline", LevelFilter::INFO),
    ("tonic", LevelFilter::INFO),
];

/// Makes a filter from an operator's text. A library that logs content gets verbose levels only if the text
/// names that library.
///
/// # Errors
/// [`ParseError`] if the text is not a valid filter.
pub fn log_filter(text: &str) -> Result<EnvFilter, ParseError> {
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let is_named = |library: &str| {
        let strip_library = |part: &str| part.strip_prefix(library).map(str::to_owned);
        parts().filter_map(strip_library).any(|rest| rest.is_empty() || rest.starts_with(['=', ':', '[']))
    };
    // The most verbose level for targets that the text does not name.
    let max_level =
        parts().filter_map(|part| part.parse::<LevelFilter>().ok()).max().unwrap_or(LevelFilter::OFF);
    let mut filter = EnvFilter::builder().parse(text)?;
    for (library, level) in CONTENT_LOG_LEVELS {
        if max_level > level && !is_named(library) {
            filter = filter.add_directive(format!("{library}={level}").parse()?);
        }
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, directive: &str, is_added: bool) {
        let filter = log_filter(text).unwrap().to_string();
        assert_eq!(filter.split(',').any(|part| part == directive), is_added, "{text}: {filter}");
    }

    #[test]
    fn libraries_that_log_content_are_logged_only_if_named() {
        for text in ["debug", "trace", "info", "DEBUG,portcullis=trace", "debug,rmcplike=debug"] {
            check(text, "rmcp=warn", true);
        }
        check("trace", "h2=info", true);
        for text in ["debug,rmcp=debug", "rmcp=trace", "debug,rmcp::service=debug", "rmcp,debug"] {
            check(text, "rmcp=warn", false);
        }
        // A filter that is less verbose than these levels stays unchanged.
        for text in ["error", "off", "warn", "portcullis_tools=debug", "error,portcullis_tools=debug"] {
            check(text, "rmcp=warn", false);
            check(text, "h2=info", false);
        }
        log_filter("a=b=c").unwrap_err();
    }
}
