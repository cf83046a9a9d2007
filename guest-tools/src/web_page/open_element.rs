//! The open elements, which collect their content.

use super::tree::NodeId;

/// The form that an element gives its content.
#[derive(Debug)]
pub(super) enum ElementForm {
    Page,
    Quote,
    Item { marker: String },
    Heading(usize),
    Code { language: String },
    Inline(&'static str),
    CodeSpan,
    Link { target: Option<String> },
    Cell { heading: bool, columns: usize },
    Caption,
}

/// An element that is open, with the content that it has collected.
#[derive(Debug)]
pub(super) struct OpenElement {
    pub(super) kind: ElementForm,
    pub(super) text: String,
    /// The node of the element.
    pub(super) id: NodeId,
    /// Whether a space comes before the next word.
    pub(super) needs_space: bool,
    /// Whether the element contains blocks, which a mark within a line cannot enclose.
    pub(super) has_blocks: bool,
    /// The length of the text after the last item of a list.
    pub(super) item_end: usize,
}

impl OpenElement {
    pub(super) fn new(id: NodeId, kind: ElementForm) -> Self {
        Self { kind, text: String::new(), id, needs_space: false, has_blocks: false, item_end: 0 }
    }
}
