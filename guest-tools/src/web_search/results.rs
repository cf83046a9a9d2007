//! Prepares the results for the model: the first matching ones, bounded and without duplicates, as a Markdown list and
//! as data.

use std::collections::HashSet;

use portcullis_sdk::ToolOutput;
use serde_json::{Value, json};
use url::Url;

use super::{duckduckgo::begins_with_date, response::SearchHit};
use crate::web_page::{
    characters::truncate_to_line,
    escape::{escape_line, escape_target},
};

/// The maximum length of a title, in bytes.
const MAX_TITLE_BYTES: usize = 200;

/// The maximum length of a snippet, in bytes.
const MAX_SNIPPET_BYTES: usize = 600;

/// The maximum length of a URL, in bytes. A result with a longer URL is left out, because a cut URL would
/// lead elsewhere.
const MAX_URL_BYTES: usize = 2_048;

/// The maximum length of a date, in bytes.
const MAX_DATE_BYTES: usize = 40;

/// The maximum length of the list of engines that did not answer, in bytes.
const MAX_UNRESPONSIVE_BYTES: usize = 300;

/// The number of bytes of a text that are cleaned. The rest is dropped first.
const MAX_CLEANED_BYTES: usize = 16 << 10;

/// The conditions that a result must meet.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResultFilter<'a> {
    pub(super) max_results: usize,
    pub(super) site: Option<&'a str>,
    pub(super) since: Option<&'a str>,
}

/// The chosen results, and the number of results left out: results without a usable URL, of another site, or too old.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChosenResults {
    pub(super) results: Vec<CleanResult>,
    pub(super) left_out: usize,
}

/// A result with cleaned texts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CleanResult {
    pub(super) title: String,
    pub(super) url: Url,
    pub(super) snippet: String,
    pub(super) published: Option<String>,
}

/// Chooses the first results that meet the conditions.
pub(super) fn choose_results(hits: &[SearchHit], filter: ResultFilter<'_>) -> ChosenResults {
    let mut chosen = ChosenResults::default();
    let mut seen_pages = HashSet::new();
    for provider_result in hits {
        if chosen.results.len() == filter.max_results {
            break;
        }
        match clean(provider_result).filter(|result| filter.accepts(result)) {
            Some(result) => {
                // Two results whose URLs differ only in the fragment are one page.
                let mut page = result.url.clone();
                page.set_fragment(None);
                if seen_pages.insert(page) {
                    chosen.results.push(result);
                }
            }
            None => chosen.left_out += 1,
        }
    }
    chosen
}

impl ResultFilter<'_> {
    fn accepts(self, result: &CleanResult) -> bool {
        let on_site = |site: &str| {
            let host = result.url.host_str().unwrap_or_default();
            host.strip_suffix(site).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let is_recent = |since: &str| {
            let date = result.published.as_deref().filter(|date| begins_with_date(date));
            // Dates of this form sort as texts. Keep a result without such a date, because the provider chose it.
            date.is_none_or(|date| date >= since)
        };
        self.site.is_none_or(on_site) && self.since.is_none_or(is_recent)
    }
}

/// Cleans a result. `None` if its URL is not a plain web URL.
fn clean(provider_result: &SearchHit) -> Option<CleanResult> {
    // A relative URL, which would refer to the provider's site, does not parse here.
    let url = Url::parse(provider_result.url.trim()).ok()?;
    let is_of_the_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    // A user name before the host disguises the host.
    let is_plain = url.username().is_empty() && url.password().is_none();
    if !is_of_the_web || !is_plain || url.as_str().len() > MAX_URL_BYTES {
        return None;
    }
    let title = truncate_line(&provider_result.title, MAX_TITLE_BYTES);
    let title = if title.is_empty() { url.host_str().unwrap_or_default().to_owned() } else { title };
    let published = provider_result.published.as_deref().map(|date| truncate_line(date, MAX_DATE_BYTES));
    Some(CleanResult {
        title,
        snippet: truncate_line(&provider_result.snippet, MAX_SNIPPET_BYTES),
        published: published.filter(|date| !date.is_empty()),
        url,
    })
}

/// Makes a text one line of bounded length. `…` marks a cut.
fn truncate_line(text: &str, max_bytes: usize) -> String {
    let mut line = truncate_to_line(&text[..text.floor_char_boundary(MAX_CLEANED_BYTES)], MAX_CLEANED_BYTES);
    if line.len() > max_bytes {
        line.truncate(line.floor_char_boundary(max_bytes));
        line.truncate(line.trim_end().len());
        line.push('…');
    }
    line
}

/// Writes the results as text for the model, and as data in the details.
pub(super) fn list(chosen: &ChosenResults, unresponsive: &[String]) -> ToolOutput {
    let mut text = String::new();
    for (index, result) in chosen.results.iter().enumerate() {
        let (title, target) = (escape_line(&result.title), escape_target(result.url.as_str()));
        text.push_str(&format!("{}. [{title}]({target})\n", index + 1));
        let date = result.published.as_deref().map(escape_line);
        let snippet = Some(&result.snippet).filter(|text| !text.is_empty()).map(|text| escape_line(text));
        let below: Vec<String> = date.into_iter().chain(snippet).collect();
        if !below.is_empty() {
            text.push_str(&format!("   {}\n", below.join(" · ")));
        }
    }
    if chosen.results.is_empty() {
        text.push_str("No results.");
        if chosen.left_out > 0 {
            text.push_str(&format!(
                " {} of the provider's results did not fit and were left out.",
                chosen.left_out
            ));
        }
        if !unresponsive.is_empty() {
            let engines = escape_line(&truncate_line(&unresponsive.join(", "), MAX_UNRESPONSIVE_BYTES));
            text.push_str(&format!(" These engines behind the provider did not answer: {engines}."));
        }
    }
    text.truncate(text.trim_end().len());
    let results: Vec<Value> = chosen.results.iter().map(CleanResult::data).collect();
    ToolOutput::text(text).with_details(json!({ "results": results, "left_out": chosen.left_out }))
}

impl CleanResult {
    fn data(&self) -> Value {
        let mut data = json!({ "title": self.title, "url": self.url.as_str(), "snippet": self.snippet });
        if let Some(published) = &self.published {
            data["published"] = published.as_str().into();
        }
        data
    }
}
