//! The title, the base URL and the metadata of a page.

use std::iter;

use super::{
    tokens::Attribute,
    tree::{HtmlTree, NodeData, NodeId, ROOT},
};

/// The maximum number of `<meta>` elements that the extractor gets.
const MAX_METAS: usize = 200;

#[derive(Debug)]
pub(super) struct PageMetadata {
    pub(super) title: Option<String>,
    pub(super) base: Option<String>,
    /// Title and `<meta>` elements as markup, for the extractor.
    pub(super) head: String,
}

/// Reads the metadata of a tree that still has its head.
pub(super) fn read(tree: &HtmlTree) -> PageMetadata {
    let (mut title, mut heading, mut base, mut open_graph_title) = (None, None, None, None);
    let mut head = String::new();
    let mut metas = 0;
    for id in tree.elements() {
        let NodeData::Element { name, attributes } = tree.data(id) else { continue };
        match name.as_str() {
            // The title of a drawing is not the title of the page.
            "title" if title.is_none() && !is_in_foreign_content(tree, id) => {
                title = line(&tree.text(id, 1 << 10));
            }
            "h1" if heading.is_none() => heading = line(&tree.text(id, 1 << 10)),
            "base" if base.is_none() => base = tree.attribute(id, "href").map(str::to_owned),
            "meta" if metas < MAX_METAS => {
                metas += 1;
                let is_og_title = tree.attribute(id, "property") == Some("og:title");
                if is_og_title {
                    open_graph_title =
                        open_graph_title.or_else(|| tree.attribute(id, "content").and_then(line));
                }
                push_element("meta", attributes, &mut head);
            }
            _ => {}
        }
    }
    let title = title.or(open_graph_title).or(heading);
    if let Some(title) = &title {
        head.push_str("<title>");
        push_escaped(title, &mut head);
        head.push_str("</title>");
    }
    PageMetadata { title, base, head }
}

/// Whether an element is inside a drawing or a formula, which has titles of its own.
fn is_in_foreign_content(tree: &HtmlTree, id: NodeId) -> bool {
    iter::successors(Some(tree.parent(id)), |above| (*above != ROOT).then(|| tree.parent(*above)))
        .any(|above| matches!(tree.name(above), "svg" | "math"))
}

fn line(text: &str) -> Option<String> {
    let line = super::truncate_to_line(text);
    (!line.is_empty()).then_some(line)
}

fn push_element(name: &str, attributes: &[Attribute], html: &mut String) {
    html.push('<');
    html.push_str(name);
    for (name, value) in attributes {
        if matches!(name.as_str(), "name" | "property" | "content" | "itemprop") {
            html.push(' ');
            html.push_str(name);
            html.push_str("=\"");
            push_escaped(value, html);
            html.push('"');
        }
    }
    html.push('>');
}

fn push_escaped(text: &str, html: &mut String) {
    html.push_str(&text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;"));
}
