//! Where an operator's log goes: standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::{
    EnvFilter,
    filter::{LevelFilter, ParseError},
    fmt::format::JsonFields,
};

use crate::log_line::{Colours, LogLine};

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
    let filter = std::env::var(EnvFilter::DEFAULT_ENV).ok().and_then(|text| log_filter(&text).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(least));
    // A file or a container's log has no colours.
    let is_plain = std::env::var_os("NO_COLOR").is_some() || !std::io::stderr().is_terminal();
    let colours = if is_plain { Colours::Left } else { Colours::Shown };
    let logs =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr);
    // Only a second subscriber could be refused, and there is none.
    let _ = match form {
        Form::Text => logs.event_format(LogLine::text(colours)).try_init(),
        Form::Json => logs.fmt_fields(JsonFields::new()).event_format(LogLine::json()).try_init(),
    };
}

/// The libraries that repeat at lower levels what passes through them, with the level up to which they are heard all
/// the same: arguments, file contents and standard input in the protocol of clients, headers with tokens below that.
const WITH_CONTENT: [(&str, LevelFilter); 7] = [
    ("rmcp", LevelFilter::WARN),
    ("h2", LevelFilter::INFO),
    ("hyper", LevelFilter::INFO),
    ("hyper_util", LevelFilter::INFO),
    ("reqwest", LevelFilter::INFO),
    ("rustls", LevelFilter::INFO),
    ("tonic", LevelFilter::INFO),
];

/// The filter that an operator's text asks for. A library that logs content is heard at its lower levels only where
/// the text names it.
///
/// # Errors
/// What is wrong with the text.
pub fn log_filter(text: &str) -> Result<EnvFilter, ParseError> {
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let is_named = |library: &str| {
        let after = |part: &str| part.strip_prefix(library).map(str::to_owned);
        parts().filter_map(after).any(|rest| rest.is_empty() || rest.starts_with(['=', ':', '[']))
    };
    // The level of whatever is not named.
    let most = parts().filter_map(|part| part.parse::<LevelFilter>().ok()).max().unwrap_or(LevelFilter::OFF);
    let mut filter = EnvFilter::builder().parse(text)?;
    for (library, level) in WITH_CONTENT {
        if most > level && !is_named(library) {
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
    fn libraries_that_log_content_are_heard_only_where_they_are_named() {
        for text in ["debug", "trace", "info", "DEBUG,portcullis=trace", "debug,rmcplike=debug"] {
            check(text, "rmcp=warn", true);
        }
        check("trace", "h2=info", true);
        for text in ["debug,rmcp=debug", "rmcp=trace", "debug,rmcp::service=debug", "rmcp,debug"] {
            check(text, "rmcp=warn", false);
        }
        // Less is not made more.
        for text in ["error", "off", "warn", "portcullis_tools=debug", "error,portcullis_tools=debug"] {
            check(text, "rmcp=warn", false);
            check(text, "h2=info", false);
        }
        log_filter("a=b=c").unwrap_err();
    }
}
