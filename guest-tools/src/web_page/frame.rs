//! The frames that collect the content of open elements.

use super::tree::NodeId;

/// The form that a frame gives its content.
#[derive(Debug)]
pub(super) enum FrameKind {
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
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    pub(super) text: String,
    /// The element whose end closes the frame.
    pub(super) id: NodeId,
    /// Whether a space comes before the next word.
    pub(super) space: bool,
    /// Whether the frame contains blocks, which a mark within a line cannot enclose.
    pub(super) blocks: bool,
    /// The length of the text after the last item of a list.
    pub(super) item_end: usize,
}

impl Frame {
    pub(super) fn new(id: NodeId, kind: FrameKind) -> Self {
        Self { kind, text: String::new(), id, space: false, blocks: false, item_end: 0 }
    }
}
