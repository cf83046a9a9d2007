//! Removes hidden content. Moves content that the extractor would drop to places where it is kept: the
//! language of code, authors of posts, formulas, frames.

use super::{
    hidden::is_hidden,
    tree::{HtmlTree, NodeData, NodeId, ROOT},
};

/// Elements without readable content.
const UNREADABLE_ELEMENTS: [&str; 22] = [
    "script", "style", "template", "svg", "canvas", "iframe", "object", "embed", "applet", "audio", "video",
    "input", "select", "button", "datalist", "link", "meta", "map", "title", "noframes", "progress", "meter",
];

/// Cleans a tree in place.
pub(super) fn clean(tree: &mut HtmlTree) {
    let elements: Vec<NodeId> = tree.elements().collect();
    for id in &elements {
        let name = tree.name(*id);
        if UNREADABLE_ELEMENTS.contains(&name)
            || is_hidden(tree, *id)
            || is_heading_anchor(tree, *id)
            || is_long_parenthesis(tree, *id)
        {
            tree.remove(*id);
        } else if name == "math" {
            replace_formula(tree, *id);
        } else if name == "frame" {
            replace_frame(tree, *id);
        } else if name == "pre" {
            mark_code_language(tree, *id);
        }
    }
    unwrap_noscript(tree);
    mark_post_authors(tree);
}

/// Removes every `<base>`, for a page whose links are already absolute.
pub(super) fn remove_bases(tree: &mut HtmlTree) {
    let bases: Vec<NodeId> = tree.elements().filter(|id| tree.name(*id) == "base").collect();
    for id in bases {
        tree.remove(id);
    }
}

/// Keeps the text of a `<noscript>` only if the page has little other text.
fn unwrap_noscript(tree: &mut HtmlTree) {
    let noscripts: Vec<NodeId> = tree.elements().filter(|id| tree.name(*id) == "noscript").collect();
    let noscript_bytes: usize = noscripts.iter().map(|id| tree.text(*id, 1 << 10).trim().len()).sum();
    let page_bytes = tree.text(ROOT, 8 << 10).split_whitespace().map(str::len).sum::<usize>();
    for id in noscripts {
        if page_bytes > noscript_bytes + 200 {
            tree.remove(id);
        } else {
            rename(tree, id, "div");
        }
    }
}

/// Whether a link is the link of a heading to itself, such as `¶`.
fn is_heading_anchor(tree: &HtmlTree, id: NodeId) -> bool {
    tree.name(id) == "a"
        && tree.attribute(id, "href").is_some_and(|target| target.contains('#'))
        && matches!(tree.text(id, 16).trim(), "#" | "¶" | "§" | "🔗")
}

/// Whether an `<rp>`, which browsers hide, contains more than a parenthesis.
fn is_long_parenthesis(tree: &HtmlTree, id: NodeId) -> bool {
    tree.name(id) == "rp" && tree.text(id, 16).trim().chars().count() > 1
}

/// Replaces the elements of a formula by its source.
fn replace_formula(tree: &mut HtmlTree, id: NodeId) {
    let annotation = tree.walk(id).find_map(|step| match step {
        super::tree::WalkEvent::Open(child) if tree.name(child) == "annotation" => {
            Some(tree.text(child, 4 << 10))
        }
        _ => None,
    });
    let source = annotation.or_else(|| tree.attribute(id, "alttext").map(str::to_owned));
    if let Some(source) = source.filter(|source| !source.trim().is_empty()) {
        tree.set_children(id, Vec::new());
        tree.append(id, NodeData::Text(format!("${}$", source.trim())));
    }
    rename(tree, id, "span");
}

/// Replaces a frame of a frameset by a link.
fn replace_frame(tree: &mut HtmlTree, id: NodeId) {
    let Some(target) = tree.attribute(id, "src").map(str::to_owned) else { return };
    let name =
        tree.attribute(id, "title").or_else(|| tree.attribute(id, "name")).unwrap_or("frame").to_owned();
    if let NodeData::Element { name, .. } = tree.data_mut(id) {
        "p".clone_into(name);
    }
    let link = NodeData::Element { name: "a".to_owned(), attributes: vec![("href".to_owned(), target)] };
    let link = tree.append(id, link);
    tree.append(link, NodeData::Text(name));
}

fn rename(tree: &mut HtmlTree, id: NodeId, new_name: &str) {
    if let NodeData::Element { name, attributes } = tree.data_mut(id) {
        new_name.clone_into(name);
        attributes.clear();
    }
}

/// Writes the language of a code block into the class of its `<pre>`. Pages name the language in several places.
fn mark_code_language(tree: &mut HtmlTree, id: NodeId) {
    let code = tree.children(id).iter().copied().find(|child| tree.name(*child) == "code");
    let mut elements: Vec<NodeId> = code.into_iter().chain([id]).collect();
    let mut above = id;
    for _ in 0..3 {
        above = tree.parent(above);
        elements.push(above);
    }
    let Some(language) = elements.into_iter().find_map(|element| language_at(tree, element)) else { return };
    if let NodeData::Element { attributes, .. } = tree.data_mut(id) {
        attributes.retain(|(name, _)| name != "class");
        attributes.push(("class".to_owned(), format!("language-{language}")));
    }
}

/// Returns the language that an element's attributes name.
fn language_at(tree: &HtmlTree, id: NodeId) -> Option<String> {
    let valid_language = |language: &str| {
        let fits_length = (1..=24).contains(&language.len());
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+#-._".contains(&byte);
        (fits_length && language.bytes().all(is_allowed)).then(|| language.to_ascii_lowercase())
    };
    for name in ["data-lang", "data-language"] {
        if let Some(language) = tree.attribute(id, name).and_then(valid_language) {
            return Some(language);
        }
    }
    let classes = tree.attribute(id, "class")?;
    let mut tokens = classes.split_ascii_whitespace().peekable();
    while let Some(token) = tokens.next() {
        for prefix in ["language-", "lang-", "highlight-source-", "brush:"] {
            if let Some(language) = token.strip_prefix(prefix) {
                let language = if language.is_empty() { tokens.peek().copied()? } else { language };
                return valid_language(language.trim_end_matches(';'));
            }
        }
        if token == "sourceCode"
            && let Some(language) = tokens.peek()
        {
            return valid_language(language);
        }
        // Sphinx: `highlight-rust notranslate`.
        if let Some(language) = token.strip_prefix("highlight-")
            && classes.contains("notranslate")
        {
            return valid_language(language).filter(|language| language != "default");
        }
    }
    None
}

/// The maximum length of an author's name, and of a line around a name, in bytes.
const MAX_AUTHOR_BYTES: usize = 60;
const MAX_LINE_BYTES: usize = 160;

/// The maximum number of authors of a page, and of elements around a name that can form one line with it.
const MAX_AUTHORS: usize = 2000;
const MAX_ENCLOSING_ELEMENTS: usize = 6;

/// Turns the authors of a page with several posts into paragraphs, because the extractor keeps paragraphs. Otherwise it
/// would use the first author as the author of the page and drop the others.
fn mark_post_authors(tree: &mut HtmlTree) {
    let authors: Vec<NodeId> = tree.elements().filter(|id| is_author(tree, *id)).take(MAX_AUTHORS).collect();
    if authors.len() < 2 {
        return;
    }
    let mut marked_lines: Vec<NodeId> = Vec::new();
    for id in authors {
        let name = tree.text(id, MAX_AUTHOR_BYTES * 2);
        let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
        // The highest element around the name that is still one line. The siblings of this element are the post.
        let mut line = id;
        let mut enclosing = 0;
        while enclosing < MAX_ENCLOSING_ELEMENTS
            && tree.parent(line) != ROOT
            && matches!(
                tree.name(tree.parent(line)),
                "div" | "span" | "header" | "p" | "a" | "address" | "h3" | "h4"
            )
            && tree.text(tree.parent(line), MAX_LINE_BYTES + 1).trim().len() <= MAX_LINE_BYTES
        {
            line = tree.parent(line);
            enclosing += 1;
        }
        if marked_lines.contains(&line) || name.is_empty() {
            continue;
        }
        let line_text = tree.text(line, MAX_LINE_BYTES * 2);
        let text_without_name =
            line_text.split_whitespace().collect::<Vec<_>>().join(" ").replacen(&name, "", 1);
        rename(tree, line, "p");
        tree.set_children(line, Vec::new());
        let strong = NodeData::Element { name: "strong".to_owned(), attributes: Vec::new() };
        let strong = tree.append(line, strong);
        tree.append(strong, NodeData::Text(name));
        if !text_without_name.trim().is_empty() {
            tree.append(line, NodeData::Text(format!(" {}", text_without_name.trim())));
        }
        // Authors of one line follow each other closely, so the last lines suffice to find a repetition.
        if marked_lines.len() >= 64 {
            marked_lines.remove(0);
        }
        marked_lines.push(line);
    }
}

/// Whether an element names the author of a post.
fn is_author(tree: &HtmlTree, id: NodeId) -> bool {
    let attribute_has_word = |attribute: &str, words: &[&str]| {
        tree.attribute(id, attribute).is_some_and(|value| {
            value
                .split_ascii_whitespace()
                .take(16)
                .any(|token| words.iter().any(|word| token.eq_ignore_ascii_case(word)))
        })
    };
    let is_marked_as_author = attribute_has_word("rel", &["author"])
        || attribute_has_word("itemprop", &["author"])
        || attribute_has_word(
            "class",
            &[
                "author",
                "username",
                "user-name",
                "hnuser",
                "poster",
                "post-author",
                "comment-author",
                "byline",
                "p-author",
                "user-link",
                "nickname",
            ],
        );
    if !is_marked_as_author {
        return false;
    }
    let text = tree.text(id, MAX_AUTHOR_BYTES * 2);
    (1..=MAX_AUTHOR_BYTES).contains(&text.trim().len())
}
