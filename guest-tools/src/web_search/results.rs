//! The results that a model gets: the first good ones, bounded, each once, as a list in Markdown and as data.

use std::collections::HashSet;

use portcullis_sdk::ToolOutput;
use serde_json::{Value, json};
use url::Url;

use super::{answer::Found, duckduckgo::begins_with_date};
use crate::web_page::{
    characters::one_line,
    escape::{escape_line, escape_target},
};

/// The longest title, in bytes.
const MAX_TITLE_BYTES: usize = 200;

/// The longest snippet, in bytes.
const MAX_SNIPPET_BYTES: usize = 600;

/// The longest address, in bytes. A longer one is left out: cut, it would lead elsewhere.
const MAX_URL_BYTES: usize = 2_048;

/// The longest date, in bytes.
const MAX_DATE_BYTES: usize = 40;

/// The longest list of engines that did not answer, in bytes.
const MAX_SILENT_BYTES: usize = 300;

/// The part of a text that is cleaned, in bytes.
const MAX_CLEANED_BYTES: usize = 16 << 10;

/// What a result must be.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResultFilter<'a> {
    pub(super) max_results: usize,
    pub(super) site: Option<&'a str>,
    pub(super) since: Option<&'a str>,
}

/// The chosen results, and how many were left out: without a usable address, of another site, too old.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) results: Vec<Shown>,
    pub(super) left_out: usize,
}

/// A result, clean.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) title: String,
    pub(super) url: Url,
    pub(super) snippet: String,
    pub(super) published: Option<String>,
}

/// Chooses the first results that fit.
pub(super) fn choose(found: &[Found], terms: ResultFilter<'_>) -> Chosen {
    let mut chosen = Chosen::default();
    let mut seen = HashSet::new();
    for found in found {
        if chosen.results.len() == terms.max_results {
            break;
        }
        match shown(found).filter(|result| terms.fit(result)) {
            Some(result) => {
                // Two results that differ in the fragment only are one page.
                let mut page = result.url.clone();
                page.set_fragment(None);
                if seen.insert(page) {
                    chosen.results.push(result);
                }
            }
            None => chosen.left_out += 1,
        }
    }
    chosen
}

impl ResultFilter<'_> {
    fn fit(self, result: &Shown) -> bool {
        let on_site = |site: &str| {
            let host = result.url.host_str().unwrap_or_default();
            host.strip_suffix(site).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        let recent = |since: &str| {
            let date = result.published.as_deref().filter(|date| begins_with_date(date));
            // Dates of this form sort as texts. Without one, the provider's choice stands.
            date.is_none_or(|date| date >= since)
        };
        self.site.is_none_or(on_site) && self.since.is_none_or(recent)
    }
}

/// A result that can be shown; none if its address is no address of the web.
fn shown(found: &Found) -> Option<Shown> {
    // Relative addresses do not parse: what they are relative to is the provider.
    let url = Url::parse(found.url.trim()).ok()?;
    let is_of_the_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    // A user before the host disguises it.
    let is_plain = url.username().is_empty() && url.password().is_none();
    if !is_of_the_web || !is_plain || url.as_str().len() > MAX_URL_BYTES {
        return None;
    }
    let title = line(&found.title, MAX_TITLE_BYTES);
    let title = if title.is_empty() { url.host_str().unwrap_or_default().to_owned() } else { title };
    let published = found.published.as_deref().map(|date| line(date, MAX_DATE_BYTES));
    Some(Shown {
        title,
        snippet: line(&found.snippet, MAX_SNIPPET_BYTES),
        published: published.filter(|date| !date.is_empty()),
        url,
    })
}

/// A text as one bounded line; `…` stands for what is left out.
fn line(text: &str, max_bytes: usize) -> String {
    let mut line = one_line(&text[..text.floor_char_boundary(MAX_CLEANED_BYTES)], MAX_CLEANED_BYTES);
    if line.len() > max_bytes {
        line.truncate(line.floor_char_boundary(max_bytes));
        line.truncate(line.trim_end().len());
        line.push('…');
    }
    line
}

/// The results for the model, and as data in the details.
pub(super) fn list(chosen: &Chosen, silent: &[String]) -> ToolOutput {
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
        if !silent.is_empty() {
            let engines = escape_line(&line(&silent.join(", "), MAX_SILENT_BYTES));
            text.push_str(&format!(" These engines behind the provider did not answer: {engines}."));
        }
    }
    text.truncate(text.trim_end().len());
    let results: Vec<Value> = chosen.results.iter().map(Shown::data).collect();
    ToolOutput::text(text).with_details(json!({ "results": results, "left_out": chosen.left_out }))
}

impl Shown {
    fn data(&self) -> Value {
        let mut data = json!({ "title": self.title, "url": self.url.as_str(), "snippet": self.snippet });
        if let Some(published) = &self.published {
            data["published"] = published.as_str().into();
        }
        data
    }
}
