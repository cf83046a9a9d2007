//! The readable part of a page: the article that Mozilla's Readability finds, or the body if the article keeps too
//! little of the text.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
};

use super::{
    markup,
    tree::{HtmlTree, NodeData, NodeId, ROOT, WalkEvent},
};

/// The maximum length of a page that the extractor reads, in bytes of cleaned markup: 1 MiB. The extractor's tree takes
/// about twenty times as much memory.
const MAX_EXTRACTED_BYTES: usize = 1 << 20;

/// The maximum number of nodes of a tree that the extractor reads.
const MAX_EXTRACTED_NODES: usize = 40_000;

/// The smallest part of the words outside navigation that an article must keep, in per cent.
const KEPT_PERCENT: usize = 60;

/// The readable part of a page.
#[derive(Debug)]
pub(super) struct Article {
    pub(super) tree: HtmlTree,
    /// The author and the time, if the page names them.
    pub(super) byline: Option<String>,
    pub(super) published: Option<String>,
    pub(super) title: Option<String>,
    /// Whether the extractor found the article. Otherwise `tree` is the body.
    pub(super) extracted: bool,
}

/// Finds the readable part of a cleaned page. `head` is the markup of the page's metadata.
pub(super) fn find(tree: HtmlTree, head: &str, url: &str) -> Article {
    if tree.is_cut || tree.len() > MAX_EXTRACTED_NODES {
        return body(tree, None);
    }
    let source = markup::source(&tree);
    if source.len() > MAX_EXTRACTED_BYTES {
        return body(tree, None);
    }
    let page = format!("<!doctype html><html><head>{head}</head><body>{source}</body></html>");
    drop(source);
    let options = legible::Options::new().keep_classes(true);
    let address = url::Url::parse(url).is_ok().then_some(url);
    let Ok(parsed) = legible::parse(&page, address, Some(options)) else { return body(tree, None) };
    drop(page);
    let extract = HtmlTree::parse(&parsed.content);
    // Compare the words instead of their number: on a short page, the extractor may take the footer for the article.
    let main = words(&tree, Some(&boilerplate(&tree)));
    let extracted = words(&extract, None);
    let common: usize =
        main.iter().map(|(word, count)| extracted.get(word).copied().unwrap_or(0).min(*count)).sum();
    if common * 100 < count_words(&main) * KEPT_PERCENT {
        return body(tree, Some(parsed));
    }
    let title = Some(parsed.title).filter(|title| !title.trim().is_empty());
    Article { tree: extract, byline: parsed.byline, published: parsed.published_time, title, extracted: true }
}

/// Returns the body without navigation, or the whole body if almost no words would remain.
pub(super) fn body(mut tree: HtmlTree, parsed: Option<legible::Article>) -> Article {
    let aside = boilerplate(&tree);
    // If less than a fifth of the words would remain, the class names matched the content itself, so keep the whole body.
    if count_words(&words(&tree, Some(&aside))) * 5 >= count_words(&words(&tree, None)) {
        for id in aside {
            tree.remove(id);
        }
    }
    let title = parsed.map(|parsed| parsed.title).filter(|title| !title.trim().is_empty());
    Article { tree, byline: None, published: None, title, extracted: false }
}

/// Counts the words of a tree outside some elements, by their hash. Scripts without spaces write a sentence as one long
/// word, which counts as several.
fn words(tree: &HtmlTree, excluded: Option<&HashSet<NodeId>>) -> HashMap<u64, usize> {
    let mut walk = tree.walk(ROOT);
    let mut word_counts = HashMap::new();
    // Fixed keys make two sets comparable. Hash collisions only harm the page that causes them.
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    while let Some(step) = walk.next() {
        let WalkEvent::Open(id) = step else { continue };
        match tree.data(id) {
            NodeData::Text(text) => {
                for word in text.split_whitespace() {
                    // One more word for each 12 bytes: most words of European languages are shorter.
                    *word_counts.entry(hasher.hash_one(word)).or_default() += 1 + word.len() / 12;
                }
            }
            NodeData::Element { .. } if excluded.is_some_and(|excluded| excluded.contains(&id)) => {
                walk.skip_subtree(id);
            }
            NodeData::Element { .. } => {}
        }
    }
    word_counts
}

fn count_words(words: &HashMap<u64, usize>) -> usize {
    words.values().sum()
}

/// Finds the elements that only lead to other pages.
fn boilerplate(tree: &HtmlTree) -> HashSet<NodeId> {
    let mut boilerplate_ids = HashSet::new();
    let mut walk = tree.walk(ROOT);
    while let Some(step) = walk.next() {
        let WalkEvent::Open(id) = step else { continue };
        let name = tree.name(id);
        if !name.is_empty() && (is_boilerplate(tree, id, name) || is_list_of_links(tree, id, name)) {
            boilerplate_ids.insert(id);
            walk.skip_subtree(id);
        }
    }
    boilerplate_ids
}

fn is_boilerplate(tree: &HtmlTree, id: NodeId, name: &str) -> bool {
    let role = tree.attribute(id, "role").unwrap_or_default();
    let has_boilerplate_role =
        ["navigation", "banner", "contentinfo", "search", "complementary", "menu", "menubar", "alertdialog"]
            .contains(&role);
    let has_boilerplate_tag = match name {
        "nav" | "aside" | "footer" | "dialog" => !is_in_content(tree, id),
        "header" => !is_in_content(tree, id) && !has_heading(tree, id),
        _ => false,
    };
    has_boilerplate_role
        || has_boilerplate_tag
        || (matches!(name, "div" | "section" | "ul" | "p" | "form") && has_boilerplate_name(tree, id))
}

/// Whether an element is inside an article. A header or footer there belongs to the article.
fn is_in_content(tree: &HtmlTree, id: NodeId) -> bool {
    let mut above = tree.parent(id);
    while above != ROOT {
        if matches!(tree.name(above), "article" | "blockquote" | "li") {
            return true;
        }
        above = tree.parent(above);
    }
    false
}

fn has_heading(tree: &HtmlTree, id: NodeId) -> bool {
    // A main heading stands near the beginning. The bound keeps a page of nested elements from costing a walk for each.
    tree.walk(id).take(400).any(|step| matches!(step, WalkEvent::Open(inner) if tree.name(inner) == "h1"))
}

/// Whether the class or id of an element marks it as a part without content.
fn has_boilerplate_name(tree: &HtmlTree, id: NodeId) -> bool {
    const BOILERPLATE_WORDS: [&str; 22] = [
        "cookie",
        "cookies",
        "consent",
        "gdpr",
        "ad",
        "ads",
        "advert",
        "advertisement",
        "banner",
        "sidebar",
        "nav",
        "navbar",
        "navigation",
        "menu",
        "breadcrumb",
        "breadcrumbs",
        "footer",
        "newsletter",
        "share",
        "social",
        "related",
        "popup",
    ];
    ["class", "id"].into_iter().filter_map(|name| tree.attribute(id, name)).any(|value| {
        let mut parts = value.split(|character: char| !character.is_ascii_alphanumeric()).take(32);
        parts.any(|part| BOILERPLATE_WORDS.iter().any(|word| part.eq_ignore_ascii_case(word)))
    })
}

/// Whether a list has at least five items and almost no words outside short links.
fn is_list_of_links(tree: &HtmlTree, id: NodeId, name: &str) -> bool {
    if !matches!(name, "ul" | "ol") || is_in_content(tree, id) {
        return false;
    }
    let (mut link_bytes, mut other_bytes, mut links, mut in_link) = (0_usize, 0_usize, 0_usize, None);
    for step in tree.walk(id) {
        match step {
            WalkEvent::Close(closed) if in_link == Some(closed) => in_link = None,
            WalkEvent::Close(_) => {}
            WalkEvent::Open(opened) => match tree.data(opened) {
                NodeData::Text(text) if in_link.is_some() => link_bytes += text.trim().len(),
                NodeData::Text(text) => other_bytes += text.trim().len(),
                NodeData::Element { name, .. } if name == "a" => {
                    links += 1;
                    in_link = Some(opened);
                }
                NodeData::Element { .. } => {}
            },
        }
        // This is enough to decide. Nested lists are examined again at each level, so end the search here.
        if other_bytes > 400 {
            return false;
        }
    }
    // Links of navigation are short: at most 30 bytes each on average. A tenth of other text allows for separators.
    links >= 5 && other_bytes * 10 < link_bytes && link_bytes < links * 30
}
