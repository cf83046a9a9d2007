//! Elements by what they are to the text around them.

use super::tree::{HtmlTree, NodeId};

/// Elements that begin on a line of their own.
pub(super) fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "body"
            | "center"
            | "dd"
            | "details"
            | "dialog"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "header"
            | "hgroup"
            | "legend"
            | "main"
            | "nav"
            | "noframes"
            | "p"
            | "section"
            | "summary"
            | "table"
            | "tbody"
            | "thead"
            | "tfoot"
            | "frameset"
            | "optgroup"
            | "textarea"
    )
}

/// Elements that are lines of code, besides the blocks.
pub(super) fn is_line_of_code(name: &str) -> bool {
    matches!(name, "li" | "tr" | "pre" | "ul" | "ol")
}

/// The language of code, as its classes name it; empty without one.
pub(super) fn language(tree: &HtmlTree, id: NodeId) -> String {
    let places = [Some(id), tree.children(id).first().copied()];
    let language = places.into_iter().flatten().find_map(|place| {
        let classes = tree.attribute(place, "class")?;
        classes.split_ascii_whitespace().find_map(|class| class.strip_prefix("language-"))
    });
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+#-._".contains(&byte);
    language
        .filter(|language| language.len() <= 24 && language.bytes().all(fits))
        .unwrap_or_default()
        .to_owned()
}
