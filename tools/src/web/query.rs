//! Parses a search from the arguments of its tool.

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use portcullis_policy::{HostName, UrlHost};
use portcullis_types::ToolError;
use serde_json::Value;

use super::search_tool::SearchToolVariant;

/// The maximum length of a query, in characters. Every provider accepts this length.
pub(super) const MAX_QUERY_CHARS: usize = 400;

/// The maximum length of a host name, in characters (RFC 1035, section 2.3.4).
pub(super) const MAX_SITE_CHARS: usize = 253;

/// The maximum number of results of one search.
pub(super) const MAX_RESULTS: u32 = 20;

/// The number of results if the arguments do not give one.
pub(super) const DEFAULT_RESULTS: u32 = 5;

/// The checked arguments of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchQuery {
    pub(super) text: String,
    pub(super) max_results: u32,
    pub(super) site: Option<HostName>,
    pub(super) since: Option<DateRange>,
}

/// The time from a date until today, both in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DateRange {
    pub(super) date: Date,
    pub(super) today: Date,
}

impl SearchQuery {
    /// Parses arguments that fit the tool's schema.
    ///
    /// # Errors
    /// `invalid_arguments` if the query is blank or has control characters, if `site` is not a host name, or
    /// if `since` is not a date or is in the future.
    pub(super) fn parse(
        arguments: &Value,
        variant: SearchToolVariant,
        now: Timestamp,
    ) -> Result<Self, ToolError> {
        let text = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default().trim();
        let query = text("query");
        if query.is_empty() {
            return Err(invalid("query", "it is empty; write what to search for"));
        }
        if query.chars().count() > MAX_QUERY_CHARS {
            return Err(invalid("query", &format!("it has more than {MAX_QUERY_CHARS} characters")));
        }
        if query.contains(char::is_control) {
            return Err(invalid("query", "it has a line break or another control character; write one line"));
        }
        let max_results = arguments.get(variant.max_results()).and_then(Value::as_u64);
        let max_results =
            max_results.and_then(|number| u32::try_from(number).ok()).unwrap_or(DEFAULT_RESULTS);
        // Models often leave an unused argument empty.
        let non_empty = |key| Some(text(key)).filter(|text| !text.is_empty());
        Ok(Self {
            text: query.to_owned(),
            max_results: max_results.clamp(1, MAX_RESULTS),
            site: non_empty("site").map(site).transpose()?,
            since: non_empty("since").map(|text| DateRange::parse(text, now)).transpose()?,
        })
    }
}

/// Parses a host name. Refuses IP addresses and any other text, which could add search
/// operators to the query.
fn site(text: &str) -> Result<HostName, ToolError> {
    match UrlHost::parse(text) {
        Ok(UrlHost::Name(name)) => Ok(name),
        Ok(UrlHost::Address(_)) | Err(_) => {
            let short_text: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            let message = format!(
                "`{}` is not a host name; write only the name, such as `docs.example.com`",
                short_text.escape_default()
            );
            Err(invalid("site", &message))
        }
    }
}

impl DateRange {
    fn parse(text: &str, now: Timestamp) -> Result<Self, ToolError> {
        let today = now.to_zoned(TimeZone::UTC).date();
        let is_date =
            text.len() == "2026-01-31".len() && text.bytes().filter(|byte| *byte == b'-').count() == 2;
        let date = text.parse::<Date>().ok().filter(|_| is_date);
        let date = date.ok_or_else(|| {
            let short_text: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            invalid(
                "since",
                &format!("`{}` is not a date; write one such as `{today}`", short_text.escape_default()),
            )
        })?;
        // East of UTC, the next day may already have started.
        let tomorrow = today.saturating_add(1.day());
        if date > tomorrow {
            return Err(invalid("since", &format!("{date} is in the future; today is {today} (UTC)")));
        }
        Ok(Self { date: date.min(today), today })
    }

    /// The number of days since the date. 0 means today.
    pub(super) fn days(self) -> i32 {
        // Both dates have four-digit years, so the difference is valid.
        self.date.until(self.today).map_or(0, |span| span.get_days())
    }
}

fn invalid(field: &str, message: &str) -> ToolError {
    ToolError::invalid_arguments(format!("field '{field}': {message}"))
}

/// The maximum number of characters of a refused text that an error repeats.
const MAX_SHOWN_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Parses arguments at a fixed time: the evening of 24 November 2026 in UTC.
    fn parse(arguments: &Value) -> Result<SearchQuery, ToolError> {
        let now = "2026-11-24T20:00:00Z".parse().expect("a time");
        SearchQuery::parse(arguments, SearchToolVariant::Own, now)
    }

    #[track_caller]
    fn check_refused(arguments: &Value, message_part: &str) {
        let error = parse(arguments).expect_err("is refused");
        assert!(error.to_string().contains(message_part) && error.to_string().len() < 300, "{error}");
    }

    #[test]
    fn arguments_that_are_left_out_or_empty_have_defaults() {
        for arguments in [json!({"query": " rust "}), json!({"query": "rust", "site": "", "since": " "})] {
            let query = parse(&arguments).expect("a query");
            assert_eq!((query.text.as_str(), query.max_results), ("rust", DEFAULT_RESULTS));
            assert_eq!((query.site, query.since), (None, None));
        }
    }

    #[test]
    fn query_is_one_bounded_line() {
        assert!(parse(&json!({"query": "\"a b\" -c site:d.example 'e' & ?=#"})).is_ok());
        for text in ["a\r\nHost: b", "a\0b", "a\u{1b}[31m", "a\tb"] {
            check_refused(&json!({ "query": text }), "control character");
        }
        check_refused(&json!({"query": " \n "}), "it is empty");
        check_refused(&json!({ "query": "a".repeat(100_000) }), "more than 400");
        assert!(parse(&json!({ "query": "ä".repeat(400) })).is_ok());
    }

    #[test]
    fn site_is_the_name_of_a_host() {
        let site = |text: &str| parse(&json!({"query": "q", "site": text})).map(|query| query.site);
        let name = |text| site(text).expect("a host").expect("given").to_string();
        assert_eq!(name("Docs.Example.com."), "docs.example.com");
        assert_eq!(name("b\u{fc}cher.example"), "xn--bcher-kva.example");
        for text in [
            "https://docs.example.com/",
            "docs.example.com/path",
            "site:docs.example.com",
            "a.example OR b.example",
            "*.example.com",
            "a.example:443",
            "127.0.0.1",
            "[::1]",
            "-inurl:x",
            "a\u{202e}.example\r\n",
            "user@a.example",
        ] {
            check_refused(&json!({"query": "q", "site": text}), "is not a host name");
        }
        check_refused(&json!({"query": "q", "site": "a".repeat(100_000)}), "is not a host name");
    }

    #[test]
    fn since_is_a_date_that_has_come() {
        let since = |text: &str| parse(&json!({"query": "q", "since": text})).map(|query| query.since);
        let days = |text| since(text).expect("a date").expect("given").days();
        for (text, expected) in [
            ("2026-11-24", 0),
            ("2026-11-25", 0),
            ("2026-11-23", 1),
            ("2025-11-24", 365),
            ("2024-02-29", 999),
        ] {
            assert_eq!(days(text), expected, "{text}");
        }
        check_refused(
            &json!({"query": "q", "since": "2026-11-26"}),
            "2026-11-26 is in the future; today is 2026-11-24",
        );
        for text in [
            "yesterday",
            "7d",
            "2026-02-30",
            "20261124",
            "2026-11-24T10:00",
            "24.11.2026",
            "2026-11-2\u{661}",
        ] {
            check_refused(&json!({"query": "q", "since": text}), "is not a date");
        }
    }
}
