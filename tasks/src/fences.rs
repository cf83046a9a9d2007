//! Finds the fenced code blocks of a Markdown text, as CommonMark defines them.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A fenced code block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fence {
    /// The range from the opening fence to the end of the closing fence, without the newline, in bytes.
    pub(crate) span: Range<usize>,
    /// The first line of the range: the fence and its info string, as written.
    pub(crate) opening: String,
    /// The text before the opening fence on its line: indentation, and the markers of quotes and lists.
    pub(crate) prefix: String,
    /// The content, without the prefixes of containers, with `\n` as the only line break.
    pub(crate) code: String,
    /// Whether a closing fence ends the block. Otherwise the end of its container does, and the block may
    /// continue.
    pub(crate) is_closed: bool,
}

impl Fence {
    /// Returns whether the block may contain a call: three backticks, and exactly `json` as the info
    /// string. Compares the text as written, because an info string may spell a letter as a character
    /// reference.
    pub(crate) fn is_json(&self) -> bool {
        self.opening
            .strip_prefix("```")
            .is_some_and(|info| !info.starts_with('`') && info.trim_matches([' ', '\t']) == "json")
    }
}

/// Returns the fenced code blocks, in document order.
pub(crate) fn fences(text: &str) -> Vec<Fence> {
    // Fast path: most files have no fence, and a byte search is much faster than parsing.
    if !text.contains("```") && !text.contains("~~~") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut open: Option<(Range<usize>, String)> = None;
    for (event, range) in Parser::new_ext(text, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => open = Some((range, String::new())),
            Event::Text(piece) => {
                if let Some((_, code)) = &mut open {
                    code.push_str(&piece);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                found.extend(open.take().map(|(span, code)| fence(text, &span, &code)));
            }
            _ => {}
        }
    }
    found
}

fn fence(text: &str, span: &Range<usize>, code: &str) -> Fence {
    let source = text[span.clone()].trim_end_matches(['\n', '\r']);
    let span = span.start..span.start + source.len();
    let line_start = text[..span.start].rfind(['\n', '\r']).map_or(0, |at| at + 1);
    let code = code.replace("\r\n", "\n").replace('\r', "\n");
    let (opening, last) =
        (lines(source).next().unwrap_or_default(), lines(source).last().unwrap_or_default());
    // A closed block has two lines more than its content, and ends with a fence. Check both: inside a
    // container the last line of the content may look like a fence, and the parser omits a trailing blank line
    // from the content.
    let content_lines = code.matches('\n').count() + usize::from(!code.is_empty() && !code.ends_with('\n'));
    let is_closed = lines(source).count() == content_lines + 2 && closes(opening, last);
    Fence {
        opening: opening.to_owned(),
        prefix: text[line_start..span.start].to_owned(),
        is_closed,
        code,
        span,
    }
}

/// Returns whether a line is a closing fence for this opening line, ignoring the markers of containers
/// before it.
fn closes(opening: &str, line: &str) -> bool {
    let Some(mark) = opening.chars().next() else { return false };
    let length = |text: &str| text.chars().take_while(|&character| character == mark).count();
    let fence = line.trim_start_matches([' ', '\t', '>']).trim_end_matches([' ', '\t']);
    length(fence) >= length(opening) && fence.chars().all(|character| character == mark)
}

/// Returns the lines of a text. CommonMark ends a line at `\n`, `\r\n` or a lone `\r`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r']) else {
            rest = None;
            return Some(text);
        };
        let length = if text[end..].starts_with("\r\n") { 2 } else { 1 };
        rest = Some(&text[end + length..]);
        Some(&text[..end])
    })
}

#[cfg(test)]
pub(crate) mod tests;
