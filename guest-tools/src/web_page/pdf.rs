//! The text of a PDF file, page by page.
//!
//! Behind the feature `pdf`. The number of pages and the length of the text are bounded; memory is bounded by the
//! guest's limit alone, as a page's content may be compressed a thousandfold.

use pdf_oxide::PdfDocument;

/// The most pages that are read.
const MAX_PAGES: usize = 500;

/// The longest text, in bytes.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// The text of a file; nothing where it cannot be read, is encrypted, or has no text.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let document = PdfDocument::from_bytes(bytes.to_vec()).ok()?;
    let pages = document.page_count().ok()?;
    let mut text = String::new();
    for page in 0..pages.min(MAX_PAGES) {
        // A page that cannot be read does not cost the others.
        let Ok(part) = document.extract_text(page) else { continue };
        text.push_str(part.trim_end());
        text.push_str("\n\n");
        if text.len() > MAX_TEXT_BYTES {
            break;
        }
    }
    let end = text.floor_char_boundary(text.trim_end().len().min(MAX_TEXT_BYTES));
    text.truncate(end);
    if pages > MAX_PAGES {
        text.push_str(&format!("\n\n[{} more pages]", pages - MAX_PAGES));
    }
    (!text.trim().is_empty()).then_some(text)
}
