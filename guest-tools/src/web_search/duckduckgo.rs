//! Reads DuckDuckGo's page of results for browsers without scripts. The page is not a documented interface. A page
//! without results is therefore an error, unless the page says that there are none.

use url::Url;

use super::response::{MAX_CONSIDERED, SearchHit, SearchResponse, UnexpectedResponse};
use crate::web_page::tree::{HtmlTree, NodeId};

/// The base of the page's relative links.
const BASE: &str = "https://duckduckgo.com/";

/// The maximum length of the text of a result, in bytes.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// Reads a page.
pub(super) fn read(html: &str) -> Result<SearchResponse, UnexpectedResponse> {
    let tree = HtmlTree::parse(html);
    let mut results: Vec<SearchHit> = Vec::new();
    let (mut says_none, mut in_advertisement) = (false, false);
    for id in tree.elements() {
        let is_in_class = |class: &str| has_class(&tree, id, class);
        let text = || tree.text(id, MAX_TEXT_BYTES);
        if is_in_class("no-results") || is_in_class("no-results__message") {
            says_none = true;
        } else if is_in_class("result") {
            in_advertisement = is_in_class("result--ad");
        } else if in_advertisement {
            // Leave out paid results.
        } else if is_in_class("result__a") {
            if results.len() == MAX_CONSIDERED {
                break;
            }
            let url = tree.attribute(id, "href").and_then(target).unwrap_or_default();
            results.push(SearchHit { title: text(), url, ..SearchHit::default() });
        } else if let Some(last_result) = results.last_mut() {
            if is_in_class("result__snippet") {
                last_result.snippet = text();
            } else if is_in_class("result__extras__url") {
                last_result.published =
                    text().split_whitespace().find(|word| begins_with_date(word)).map(str::to_owned);
            }
        }
    }
    if results.is_empty() && !says_none {
        let problem = "it is not a page of results; the provider may block automated requests";
        return Err(UnexpectedResponse::new(problem, String::new()));
    }
    Ok(SearchResponse { results, unresponsive: Vec::new() })
}

/// Returns the URL that a link of the page leads to. `None` for an advertisement, a redirect without a
/// target, or an invalid URL.
fn target(href: &str) -> Option<String> {
    let url = Url::parse(BASE).and_then(|base| base.join(href)).ok()?;
    if !url.host_str().is_some_and(|host| host == "duckduckgo.com" || host.ends_with(".duckduckgo.com")) {
        return Some(url.into());
    }
    match url.path() {
        "/l/" => url.query_pairs().find(|(name, _)| name == "uddg").map(|(_, target)| target.into_owned()),
        // The path of advertisements.
        "/y.js" => None,
        _ => Some(url.into()),
    }
}

fn has_class(tree: &HtmlTree, id: NodeId, class: &str) -> bool {
    tree.attribute(id, "class")
        .is_some_and(|classes| classes.split_ascii_whitespace().any(|class_name| class_name == class))
}

/// Whether a text starts with a date such as `2026-01-31`.
pub(super) fn begins_with_date(text: &str) -> bool {
    let digit = |(index, byte): (usize, u8)| match index {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() >= 10 && text.bytes().take(10).enumerate().all(digit)
}
