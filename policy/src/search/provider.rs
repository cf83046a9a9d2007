//! The known providers of searches.

use serde::Serialize;

use crate::HttpMethod;

portcullis_types::word_enum! {
    /// A search provider, identified by its interface.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    pub enum SearchProvider as "provider" {
        /// An instance of SearXNG that answers in JSON.
        Searxng = "searxng",
        /// The Brave Search API.
        Brave = "brave",
        /// The Tavily API.
        Tavily = "tavily",
        /// Google's Custom Search JSON API.
        Google = "google",
        /// DuckDuckGo's page for browsers without scripts.
        Duckduckgo = "duckduckgo",
    }
}

impl SearchProvider {
    /// Returns the provider's address, or `None` for software that each user hosts.
    #[must_use]
    pub const fn default_url(self) -> Option<&'static str> {
        match self {
            Self::Searxng => None,
            Self::Brave => Some("https://api.search.brave.com/res/v1/web/search"),
            Self::Tavily => Some("https://api.tavily.com/search"),
            Self::Google => Some("https://www.googleapis.com/customsearch/v1"),
            Self::Duckduckgo => Some("https://html.duckduckgo.com/html/"),
        }
    }

    /// Returns the method of a search.
    #[must_use]
    pub const fn method(self) -> HttpMethod {
        match self {
            Self::Tavily => HttpMethod::Post,
            Self::Searxng | Self::Brave | Self::Google | Self::Duckduckgo => HttpMethod::Get,
        }
    }

    /// Returns whether a search needs the ID of an engine (`engine`).
    #[must_use]
    pub const fn has_engine(self) -> bool {
        match self {
            Self::Google => true,
            Self::Searxng | Self::Brave | Self::Tavily | Self::Duckduckgo => false,
        }
    }
}
