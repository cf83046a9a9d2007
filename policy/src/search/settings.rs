//! The section `[search]`: its values, its reduction, and its text.

use std::{
    fmt::{self, Write},
    str::FromStr,
};

use serde::{Serialize, Serializer};
use thiserror::Error;
use url::Url;

use super::SearchProvider;
use crate::{
    InvalidUrl, LintCode, Operation,
    file::{Faults, Located, PolicyFile},
    network::{authority_of, parse_url},
    reduce::warn_of_no_effect,
    render::quote,
};

/// `[search]`, with every default filled in. Without the section there is no provider, and `web_search` is not
/// offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SearchSettings {
    /// The search provider.
    pub provider: SearchProvider,
    /// The address of the provider. Default: the provider's own address, if it has one.
    pub url: SearchUrl,
    /// The ID of the engine (`cx`). Always present for `google`, never for another provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

/// The address that searches are sent to: an `http` or `https` URL in its canonical form, without a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchUrl(Url);

/// A text that is not an address for searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidSearchUrl {
    /// The text is not a URL that a request may have.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// The URL has a query or a fragment. A search adds its own query.
    #[error(
        "the provider's URL has a query (`?`) or a fragment (`#`), which the search adds itself; write only the part before it"
    )]
    Query,
}

/// A text that is not the ID of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "not an engine ID: use 1 to {MAX_ENGINE_BYTES} characters of `a-z`, `A-Z`, `0-9`, `:`, `_`, `-`; copy the ID from the engine's overview"
)]
pub(crate) struct InvalidEngine;

impl SearchSettings {
    /// Creates the settings of a provider. Returns `None` if its `url` or `engine` is missing, or if it takes
    /// no `engine`.
    pub(crate) fn new(
        provider: SearchProvider,
        url: Option<SearchUrl>,
        engine: Option<String>,
    ) -> Option<Self> {
        let url = url.or_else(|| provider.default_url()?.parse().ok())?;
        (provider.has_engine() == engine.is_some()).then_some(Self { provider, url, engine })
    }
}

impl SearchUrl {
    /// Returns the URL.
    #[must_use]
    pub fn as_url(&self) -> &Url {
        &self.0
    }
}

impl FromStr for SearchUrl {
    type Err = InvalidSearchUrl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (url, _authority) = parse_url(text)?;
        // Search the text for `#`, because the parser has dropped a fragment.
        if text.contains(['?', '#']) { Err(InvalidSearchUrl::Query) } else { Ok(Self(url)) }
    }
}

impl fmt::Display for SearchUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.as_str())
    }
}

impl Serialize for SearchUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Parses `engine`.
pub(crate) fn parse_engine(text: &str) -> Result<String, InvalidEngine> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'-');
    if (1..=MAX_ENGINE_BYTES).contains(&text.len()) && text.bytes().all(is_allowed) {
        return Ok(text.to_owned());
    }
    Err(InvalidEngine)
}

/// Disables the provider, if a reduction does so.
pub(crate) fn reduce_search(
    search: &mut Option<SearchSettings>,
    removal: Option<&Located<()>>,
    faults: &mut Faults<'_>,
) {
    if let Some(removal) = removal
        && search.take().is_none()
    {
        warn_of_no_effect(removal, faults);
    }
}

/// Writes `[search]`, if there is a provider.
pub(crate) fn write_search(out: &mut String, search: Option<&SearchSettings>) -> fmt::Result {
    let Some(SearchSettings { provider, url, engine }) = search else { return Ok(()) };
    writeln!(out, "\n[search]\nprovider = \"{provider}\"\nurl = {}", quote(&url.to_string()))?;
    match engine {
        Some(engine) => writeln!(out, "engine = {}", quote(engine)),
        None => Ok(()),
    }
}

/// Warns of a provider that searches cannot reach, because the profile of the request step does not grant its
/// address.
pub(crate) fn idle_search(file: &PolicyFile, faults: &mut Faults<'_>) {
    let Some(located) = &file.search else { return };
    let SearchSettings { provider, url, .. } = &located.value;
    let Some(search_target) = authority_of(url.as_url()) else { return };
    let [step, _read] = Operation::WEB_SEARCH.steps else { return };
    let entry = file.tools.iter().find(|entry| entry.name.value.as_str() == *step);
    let profile = entry.and_then(|entry| entry.profile.as_ref()).map(|profile| profile.value.as_str());
    let granting = file.profiles.iter().map(|profile| &profile.value).find(|entry| {
        Some(entry.name.as_str()) == profile
            && entry.network.rules().any(|rule| rule.value.covers(&search_target))
    });
    let method = provider.method();
    match (profile, granting) {
        (None, _) => faults.warn_at(
            LintCode::IdleSearch,
            located,
            format!("`[tools.{step}]` has no profile, so every search is denied; one with `hosts = [\"{search_target}\"]` is needed"),
        ),
        (Some(profile), None) => faults.warn_at(
            LintCode::IdleSearch,
            located,
            format!("the profile `{profile}` of `{step}` does not grant `{search_target}`, so every search is denied"),
        ),
        (Some(profile), Some(granting)) if !granting.network.grants_method(method) => faults.warn_at(
            LintCode::IdleSearch,
            located,
            format!("`{provider}` needs the method {method}, which the profile `{profile}` does not grant, so every search is denied"),
        ),
        (Some(_), Some(_)) => {}
    }
}

/// The maximum length of the ID of an engine, in bytes. Google's IDs have up to 39 characters.
const MAX_ENGINE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_without_a_query() {
        let parse = |text: &str| text.parse::<SearchUrl>().map(|url| url.to_string());
        assert_eq!(parse("http://127.0.0.1:8888/search").as_deref(), Ok("http://127.0.0.1:8888/search"));
        assert_eq!(parse("HTTPS://Searx.example.:443").as_deref(), Ok("https://searx.example/"));
        for text in ["https://a.example/?q=", "https://a.example/#x", "https://a.example/?"] {
            assert_eq!(parse(text), Err(InvalidSearchUrl::Query), "{text}");
        }
        for text in ["searx.example", "ftp://a.example", "https://u:p@a.example/", "https://a.example/\n", ""]
        {
            assert!(matches!(parse(text), Err(InvalidSearchUrl::Url(_))), "{text}");
        }
    }

    #[test]
    fn a_providers_own_address_is_one() {
        for provider in SearchProvider::ALL {
            let engine = provider.has_engine().then(|| "e".to_owned());
            let settings = SearchSettings::new(provider, None, engine);
            let own_url = settings.map(|settings| settings.url.to_string());
            assert_eq!(own_url.as_deref(), provider.default_url(), "{provider}");
        }
    }

    #[test]
    fn an_engine_is_an_id() {
        assert!(parse_engine("017576662512468239146:omuauf_lfve").is_ok());
        for text in ["", "a b", "a&key=b", "\u{202e}a", &"a".repeat(65)] {
            assert!(parse_engine(text).is_err(), "{text}");
        }
    }
}
