//! Compiles the query, or explains what is wrong with it.

use grep_regex::RegexMatcherBuilder;
use portcullis_sdk::ToolError;
use regex_syntax::ParserBuilder;

use super::{any_case::LineMatcher, required};

/// The maximum length of a query: 4 KiB. The compilation of a longer query could fill the guest's memory before the
/// limits below apply.
const MAX_QUERY_BYTES: usize = 4096;

/// The maximum size of a compiled expression: 4 MiB. A query has up to four of them: a forward and a backward one, and
/// both again for a part that is searched first.
const MAX_COMPILED_BYTES: usize = 4 << 20;

/// The memory of the lazy DFA of a search: 4 MiB. When it is full, the DFA clears it and continues.
const AUTOMATON_BYTES: usize = 4 << 20;

/// The deepest nesting of groups.
const MAX_NESTING: u32 = 100;

/// Builds the matcher of a query. A search takes time linear in the length of the text, for any expression.
pub(super) fn matcher(query: &str, regex: bool, case_sensitive: bool) -> Result<LineMatcher, ToolError> {
    let refused = |reason: String| ToolError::invalid_arguments(format!("field 'query': {reason}"));
    if query.is_empty() {
        return Err(refused("it is empty".to_owned()));
    }
    if query.len() > MAX_QUERY_BYTES {
        return Err(refused(format!("it has {} bytes; at most {MAX_QUERY_BYTES} are allowed", query.len())));
    }
    if query.contains(['\n', '\r']) {
        let reason = "it has a line break, but a match is within one line: search for one of its lines";
        return Err(refused(reason.to_owned()));
    }
    let mut required = Vec::new();
    if regex {
        // Parse separately. The builder below wraps the expression in a group, which would shift the positions of
        // errors and accept `a)|(b`.
        let expression = ParserBuilder::new()
            .case_insensitive(!case_sensitive)
            .nest_limit(MAX_NESTING)
            .utf8(false)
            .multi_line(true)
            .crlf(true)
            .build()
            .parse(query)
            .map_err(|error| refused(format!("not a regular expression: {error}")))?;
        required = required::texts(&expression);
    }
    let matcher = RegexMatcherBuilder::new()
        .fixed_strings(!regex)
        .case_insensitive(!case_sensitive)
        .multi_line(true)
        // With this setting `$` matches before a line break of either kind.
        .crlf(true)
        .nest_limit(MAX_NESTING + 1)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(AUTOMATON_BYTES)
        .build(query)
        .map_err(|error| refused(format!("not usable: {error}")))?;
    Ok(match (regex, case_sensitive) {
        (false, false) => LineMatcher::with_any_case_texts(matcher, [query]),
        // The engine itself is faster for texts in one case.
        (true, _) if required.iter().any(|required_text| required_text.any_case) => {
            LineMatcher::with_any_case_texts(
                matcher,
                required.iter().map(|required_text| required_text.text.as_str()),
            )
        }
        _ => LineMatcher::new(matcher),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(query: &str, message: &str) {
        let error = matcher(query, true, true).expect_err("refused");
        assert_eq!(error.to_string(), format!("field 'query': {message}"));
    }

    #[test]
    fn expression_error_names_its_place() {
        check_refused(
            "foo(",
            "not a regular expression: regex parse error:\n    foo(\n       ^\nerror: unclosed group",
        );
        check_refused(
            "a)|(b",
            "not a regular expression: regex parse error:\n    a)|(b\n     ^\nerror: unopened group",
        );
        check_refused("(?:\\pL{1000}){1000}", "not usable: compiled regex exceeds size limit of 4194304");
        check_refused("a\\nb", "not usable: the literal \"\\n\" is not allowed in a regex");
        check_refused("", "it is empty");
        check_refused(
            "a\nb",
            "it has a line break, but a match is within one line: search for one of its lines",
        );
        check_refused(&"a".repeat(5000), "it has 5000 bytes; at most 4096 are allowed");
        let nested = format!("{}a{}", "(".repeat(200), ")".repeat(200));
        let error = matcher(&nested, true, true).expect_err("refused").to_string();
        assert!(error.contains("exceed the maximum number of nested parentheses/brackets (100)"), "{error}");
    }

    #[test]
    fn literal_query_has_no_special_characters() {
        for query in ["foo(", "a)|(b", "\\", "[", "*"] {
            assert!(matcher(query, false, true).is_ok() && matcher(query, false, false).is_ok(), "{query}");
        }
    }
}
