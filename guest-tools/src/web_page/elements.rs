//! Classifies elements by their effect on the text around them.

use super::tree::{HtmlTree, NodeId};

/// Elements that start on a line of their own.
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

/// Elements that are lines in code, in addition to the block elements.
pub(super) fn is_line_of_code(name: &str) -> bool {
    matches!(name, "li" | "tr" | "pre" | "ul" | "ol")
}

/// Returns the programming language that the classes of a code block name. Empty if they name none.
pub(super) fn language(tree: &HtmlTree, id: NodeId) -> String {
    let elements = [Some(id), tree.children(id).first().copied()];
    let language = elements.into_iter().flatten().find_map(|element| {
        let classes = tree.attribute(element, "class")?;
        classes.split_ascii_whitespace().find_map(|class| class.strip_prefix("language-"))
    });
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+#-._".contains(&byte);
    language
        .filter(|language| language.len() <= 24 && language.bytes().all(is_allowed))
        .unwrap_or_default()
        .to_owned()
}
