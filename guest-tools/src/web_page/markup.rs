//! Writes a tree as HTML: for the extractor, and as the content of the format `html`.

use super::{
    characters::visible,
    links::Links,
    tree::{HtmlTree, NodeData, ROOT, VOID_ELEMENTS, WalkEvent},
};

/// The attributes that the format `html` keeps. The other attributes serve scripts and styles.
const READER_ATTRIBUTES: [&str; 18] = [
    "href", "src", "alt", "title", "class", "id", "name", "colspan", "rowspan", "start", "lang", "dir",
    "datetime", "type", "value", "rel", "role", "itemprop",
];

/// The whole tree with all attributes, for the extractor.
pub(super) fn source(tree: &HtmlTree) -> String {
    write(tree, |_, value| Some(value.to_owned()))
}

/// The tree for a reader, with absolute links and without handlers and styles.
pub(super) fn to_reader_html(tree: &HtmlTree, links: &Links) -> String {
    write(tree, |name, value| match name {
        "href" | "src" => links.absolute(value),
        _ if READER_ATTRIBUTES.contains(&name) => Some(visible(value)),
        _ => None,
    })
}

fn write(tree: &HtmlTree, attribute: impl Fn(&str, &str) -> Option<String>) -> String {
    let mut html = String::new();
    for step in tree.walk(ROOT) {
        match step {
            WalkEvent::Open(id) => match tree.data(id) {
                NodeData::Text(text) => escape(&visible(text), &mut html),
                NodeData::Element { name, attributes } if !name.is_empty() => {
                    html.push('<');
                    push_name(name, &mut html);
                    for (name, value) in attributes {
                        if let Some(value) = attribute(name, value) {
                            html.push(' ');
                            push_name(name, &mut html);
                            html.push_str("=\"");
                            escape(&value, &mut html);
                            html.push('"');
                        }
                    }
                    html.push('>');
                }
                NodeData::Element { .. } => {}
            },
            WalkEvent::Close(id) => {
                let name = tree.name(id);
                if !name.is_empty() && !VOID_ELEMENTS.contains(&name) {
                    html.push_str("</");
                    push_name(name, &mut html);
                    html.push('>');
                }
            }
        }
    }
    html
}

/// Appends a name without the characters that would end it.
fn push_name(name: &str, html: &mut String) {
    html.extend(name.chars().filter(|character| character.is_alphanumeric() || "-_:.".contains(*character)));
}

fn escape(text: &str, html: &mut String) {
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            _ => html.push(character),
        }
    }
}
