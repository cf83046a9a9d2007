//! The answers of the providers, in their own formats, read into one.

use serde_json::Value;

use super::{duckduckgo, refusal};
use crate::web_page::tree::{ROOT, Tree};

/// The most results of an answer that are looked at. Providers send up to about 50.
pub(super) const MAX_CONSIDERED: usize = 1_000;

/// The interface of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchProvider {
    Searxng,
    Brave,
    Tavily,
    Google,
    Duckduckgo,
}

/// A result as the provider wrote it: nothing in it is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) title: String,
    pub(super) url: String,
    pub(super) snippet: String,
    pub(super) published: Option<String>,
}

/// An answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ProviderAnswer {
    pub(super) found: Vec<Found>,
    /// The engines behind the provider that did not answer, as it names them.
    pub(super) silent: Vec<String>,
}

/// Where a provider's JSON has what is needed of a result.
struct Fields {
    title: &'static str,
    url: &'static str,
    snippet: &'static str,
    /// A JSON pointer (RFC 6901).
    published: &'static str,
    texts: Texts,
}

/// What the texts of a result are.
#[derive(Clone, Copy)]
enum Texts {
    Plain,
    /// With tags and character references.
    Html,
}

impl SearchProvider {
    /// The provider of this name. The tool's schema has checked it.
    pub(super) fn of(name: &str) -> Self {
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
    /// The reason why it is none, in words.
    pub(super) fn read(self, bytes: &[u8]) -> Result<ProviderAnswer, String> {
        if self == Self::Duckduckgo {
            return duckduckgo::read(&String::from_utf8_lossy(bytes));
        }
        let unexpected = |what: &str| {
            let said = refusal::message(bytes);
            let said = if said.is_empty() { String::new() } else { format!("; it says: {said}") };
            format!("the provider's answer is not what was asked for: {what}{said}")
        };
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let answer: Value =
            serde_json::from_slice(bytes).map_err(|error| match bytes.trim_ascii_start() {
                [b'<', ..] => unexpected("it is a page, not JSON"),
                [] => unexpected("it is empty"),
                _ if error.is_eof() => unexpected("it is JSON that ends too early"),
                _ => unexpected("it is no JSON"),
            })?;
        let results = match self.results(&answer) {
            Some(Value::Array(results)) => results.as_slice(),
            None if self.is_without_results(&answer) => &[],
            _ => return Err(unexpected("it has no list of results")),
        };
        let fields = self.fields();
        let found = results.iter().take(MAX_CONSIDERED).map(|result| fields.read(result)).collect();
        Ok(ProviderAnswer { found, silent: self.silent(&answer) })
    }

    /// The list of results.
    fn results(self, answer: &Value) -> Option<&Value> {
        answer.pointer(match self {
            Self::Searxng | Self::Tavily | Self::Duckduckgo => "/results",
            Self::Brave => "/web/results",
            Self::Google => "/items",
        })
    }

    /// Whether an answer without a list says so: two providers leave an empty list out.
    fn is_without_results(self, answer: &Value) -> bool {
        match self {
            Self::Brave => answer["type"] == "search" && answer["web"].is_null(),
            Self::Google => answer["kind"] == "customsearch#search",
            Self::Searxng | Self::Tavily | Self::Duckduckgo => false,
        }
    }

    fn fields(self) -> Fields {
        let (title, url, snippet) = match self {
            Self::Searxng | Self::Tavily | Self::Duckduckgo => ("title", "url", "content"),
            Self::Brave => ("title", "url", "description"),
            Self::Google => ("title", "link", "snippet"),
        };
        let published = match self {
            Self::Searxng | Self::Duckduckgo => "/publishedDate",
            Self::Brave => "/page_age",
            Self::Tavily => "/published_date",
            Self::Google => "/pagemap/metatags/0/article:published_time",
        };
        let texts = if self == Self::Brave { Texts::Html } else { Texts::Plain };
        Fields { title, url, snippet, published, texts }
    }

    /// The engines that did not answer, as pairs of a name and a reason.
    fn silent(self, answer: &Value) -> Vec<String> {
        let Some(engines) = answer["unresponsive_engines"].as_array().filter(|_| self == Self::Searxng)
        else {
            return Vec::new();
        };
        let shown = |engine: &Value| match (engine[0].as_str(), engine[1].as_str()) {
            (Some(name), Some(reason)) => Some(format!("{name} ({reason})")),
            (name, _) => name.map(str::to_owned),
        };
        engines.iter().take(MAX_CONSIDERED).filter_map(shown).collect()
    }
}

impl Fields {
    /// Reads a result. A value that is no text counts as missing.
    fn read(&self, result: &Value) -> Found {
        let text = |key: &str| result[key].as_str().map(|text| self.texts.read(text)).unwrap_or_default();
        Found {
            title: text(self.title),
            url: result[self.url].as_str().unwrap_or_default().to_owned(),
            snippet: text(self.snippet),
            published: result.pointer(self.published).and_then(Value::as_str).map(str::to_owned),
        }
    }
}

impl Texts {
    fn read(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Html => {
                Tree::parse(&text[..text.floor_char_boundary(MAX_HTML_BYTES)]).text(ROOT, MAX_HTML_BYTES)
            }
        }
    }
}

/// The part of a marked-up text that is read, in bytes.
const MAX_HTML_BYTES: usize = 16 << 10;
