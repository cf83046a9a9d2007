//! Finds a provider's error message, and shortens it to one line.

use serde_json::Value;

use crate::web_page::{
    characters::truncate_to_line,
    tree::{HtmlTree, ROOT},
};

/// The maximum length of a message, in bytes.
const MAX_MESSAGE_BYTES: usize = 300;

/// The maximum number of bytes of a page that are searched for its title.
const MAX_HTML_BYTES: usize = 64 << 10;

/// JSON pointers (RFC 6901) to the messages in the providers' answers.
const MESSAGE_POINTERS: [&str; 7] = [
    "/error/message",
    "/error/detail",
    "/detail/error",
    "/detail",
    "/message",
    "/error",
    "/errors/0/message",
];

/// The message. Empty if there is none.
pub(super) fn message(bytes: &[u8]) -> String {
    let message = match serde_json::from_slice::<Value>(bytes) {
        Ok(answer) => {
            let text = |pointer: &&str| answer.pointer(pointer).and_then(Value::as_str);
            MESSAGE_POINTERS.iter().find_map(text).unwrap_or_default().to_owned()
        }
        Err(_) => {
            let start = &bytes[..bytes.len().min(MAX_HTML_BYTES)];
            let text = String::from_utf8_lossy(start);
            if text.trim_start().starts_with('<') { title(&text) } else { plain_text(&text) }
        }
    };
    truncate_to_line(&message, MAX_MESSAGE_BYTES)
}

/// The title of a page, or its first heading.
fn title(html: &str) -> String {
    let tree = HtmlTree::parse(html);
    let first_element = |tag: &str| tree.elements().find(|id| tree.name(*id) == tag);
    let id = first_element("title").or_else(|| first_element("h1")).unwrap_or(ROOT);
    tree.text(id, 2 * MAX_MESSAGE_BYTES)
}

/// The message in a plain text. JSON that cannot be parsed is not repeated.
fn plain_text(text: &str) -> String {
    if text.trim_start().starts_with(['{', '[']) { String::new() } else { text.to_owned() }
}
