//! Reads the answers of the providers, each in its own format, into one common form.

use std::fmt;

use serde_json::Value;

use super::{duckduckgo, error_message};
use crate::web_page::tree::{HtmlTree, ROOT};

/// The maximum number of results of an answer that are read. Providers send up to about 50.
pub(super) const MAX_CONSIDERED: usize = 1_000;

/// The search provider whose format is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseFormat {
    Searxng,
    Brave,
    Tavily,
    Google,
    Duckduckgo,
}

/// An unchecked result, as the provider sent it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SearchHit {
    pub(super) title: String,
    pub(super) url: String,
    pub(super) snippet: String,
    pub(super) published: Option<String>,
}

/// A provider's answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SearchResponse {
    pub(super) results: Vec<SearchHit>,
    /// The search engines behind the provider that did not answer, named as the provider names them.
    pub(super) unresponsive: Vec<String>,
}

/// Bytes that are not an answer of the provider.
#[derive(Debug)]
pub(super) struct UnexpectedResponse {
    problem: &'static str,
    /// The provider's own message; empty if there is none.
    message: String,
}

impl UnexpectedResponse {
    pub(super) fn new(problem: &'static str, message: String) -> Self {
        Self { problem, message }
    }
}

impl fmt::Display for UnexpectedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the provider's answer is not what was asked for: {}", self.problem)?;
        if self.message.is_empty() { Ok(()) } else { write!(f, "; it says: {}", self.message) }
    }
}

impl std::error::Error for UnexpectedResponse {}

/// The keys of a result in a provider's JSON.
struct ResultFields {
    title: &'static str,
    url: &'static str,
    snippet: &'static str,
    /// A JSON pointer (RFC 6901).
    published: &'static str,
    texts: TextFormat,
}

/// The format of a result's texts.
#[derive(Clone, Copy)]
enum TextFormat {
    Plain,
    /// The text contains tags and character references.
    Html,
}

impl ResponseFormat {
    /// The provider with this name. The tool's schema has already checked the name.
    pub(super) fn from_name(name: &str) -> Self {
        match name {
            "brave" => Self::Brave,
            "tavily" => Self::Tavily,
            "google" => Self::Google,
            "duckduckgo" => Self::Duckduckgo,
            _ => Self::Searxng,
        }
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`UnexpectedResponse`] if the bytes do not have the form of the provider's answers.
    pub(super) fn read(self, bytes: &[u8]) -> Result<SearchResponse, UnexpectedResponse> {
        if self == Self::Duckduckgo {
            return duckduckgo::read(&String::from_utf8_lossy(bytes));
        }
        let unexpected_answer = |problem| UnexpectedResponse::new(problem, error_message::message(bytes));
        // The JSON parser does not accept a byte order mark.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let answer: Value =
            serde_json::from_slice(bytes).map_err(|error| match bytes.trim_ascii_start() {
                [b'<', ..] => unexpected_answer("it is a page, not JSON"),
                [] => unexpected_answer("it is empty"),
                _ if error.is_eof() => unexpected_answer("it is JSON that ends too early"),
                _ => unexpected_answer("it is not JSON"),
            })?;
        let results = match self.results(&answer) {
            Some(Value::Array(results)) => results.as_slice(),
            None if self.is_without_results(&answer) => &[],
            _ => return Err(unexpected_answer("it has no list of results")),
        };
        let fields = self.fields();
        let results = results.iter().take(MAX_CONSIDERED).map(|result| fields.read(result)).collect();
        Ok(SearchResponse { results, unresponsive: self.unresponsive(&answer) })
    }

    /// The list of results.
    fn results(self, answer: &Value) -> Option<&Value> {
        answer.pointer(match self {
            Self::Searxng | Self::Tavily | Self::Duckduckgo => "/results",
            Self::Brave => "/web/results",
            Self::Google => "/items",
        })
    }

    /// Whether an answer without a list says that there are no results. Two providers omit an empty list.
    fn is_without_results(self, answer: &Value) -> bool {
        match self {
            Self::Brave => answer["type"] == "search" && answer["web"].is_null(),
            Self::Google => answer["kind"] == "customsearch#search",
            Self::Searxng | Self::Tavily | Self::Duckduckgo => false,
        }
    }

    fn fields(self) -> ResultFields {
        let (title, url, snippet) = match self {
            // SearXNG: https://docs.searxng.org/dev/search_api.html
            // Tavily: https://docs.tavily.com/api-reference/introduction
            // DuckDuckGo has no JSON: `duckduckgo::read` reads its page, and the arm is never used.
            Self::Searxng | Self::Tavily | Self::Duckduckgo => ("title", "url", "content"),
            // https://api.search.brave.com/app/documentation/web-search/responses
            Self::Brave => ("title", "url", "description"),
            // https://developers.google.com/custom-search/v1/reference/rest/v1/Search
            Self::Google => ("title", "link", "snippet"),
        };
        let published = match self {
            Self::Searxng | Self::Duckduckgo => "/publishedDate",
            Self::Brave => "/page_age",
            Self::Tavily => "/published_date",
            Self::Google => "/pagemap/metatags/0/article:published_time",
        };
        let texts = if self == Self::Brave { TextFormat::Html } else { TextFormat::Plain };
        ResultFields { title, url, snippet, published, texts }
    }

    /// Returns the search engines that did not answer. Each entry is a pair of a name and a reason.
    fn unresponsive(self, answer: &Value) -> Vec<String> {
        let Some(engines) = answer["unresponsive_engines"].as_array().filter(|_| self == Self::Searxng)
        else {
            return Vec::new();
        };
        let engine_text = |engine: &Value| match (engine[0].as_str(), engine[1].as_str()) {
            (Some(name), Some(reason)) => Some(format!("{name} ({reason})")),
            (name, _) => name.map(str::to_owned),
        };
        engines.iter().take(MAX_CONSIDERED).filter_map(engine_text).collect()
    }
}

impl ResultFields {
    /// Reads a result. A value that is not text counts as missing.
    fn read(&self, result: &Value) -> SearchHit {
        let text = |key: &str| result[key].as_str().map(|text| self.texts.read(text)).unwrap_or_default();
        SearchHit {
            title: text(self.title),
            url: result[self.url].as_str().unwrap_or_default().to_owned(),
            snippet: text(self.snippet),
            published: result.pointer(self.published).and_then(Value::as_str).map(str::to_owned),
        }
    }
}

impl TextFormat {
    fn read(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Html => {
                HtmlTree::parse(&text[..text.floor_char_boundary(MAX_HTML_BYTES)]).text(ROOT, MAX_HTML_BYTES)
            }
        }
    }
}

/// The maximum number of bytes of a text with markup that are read.
const MAX_HTML_BYTES: usize = 16 << 10;
