//! Extracts the text of a PDF file, page by page.
//!
//! The code maps bytes to text, and uses no file, clock or network. Scripts, links, fillable forms and embedded files
//! are not read. A [budget](budget) bounds the work. When it is used up, the text read so far is returned.
//!
//! `hayro-syntax` reads the objects of a file, even of a damaged one, and `hayro-cmap` reads the tables of fonts. The
//! code here turns them into text. A reader that draws pages would spend its time on pictures.

mod budget;
mod content;
mod decode;
mod font;
mod layout;
mod matrix;
mod title;

use std::sync::Arc;

use hayro_syntax::{
    DecryptionError, LoadPdfError, Pdf,
    object::{Name, dict::keys},
    page::Page,
};

use self::{
    budget::{MAX_PAGES, MAX_PLAIN_PAGES, PdfBudget},
    font::Fonts,
    layout::Layout,
};
use crate::{
    PageEffort,
    web_page::characters::{truncate_to_line, visible},
};

/// The text of a PDF file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdfText {
    /// The text of all pages read, with marks between the pages. Empty if the file has no text.
    pub text: String,
    /// The title, if the file has one.
    pub title: Option<String>,
    /// The number of pages of the file.
    pub pages: usize,
    /// The number of pages that were read, counted from the first.
    pub pages_read: usize,
}

/// Why a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PdfError {
    /// The file opens only with a password.
    NeedsPassword,
    /// The file is encrypted in an unknown way.
    UnknownEncryption,
    /// The file has no page that could be found.
    Damaged,
}

/// The maximum length of a title, in bytes.
const MAX_TITLE_BYTES: usize = 300;

/// Reads the text of a file. With [`PageEffort::Plain`], reads only its first pages.
///
/// # Errors
/// [`PdfError`] if no page can be read.
pub fn read_pdf(bytes: Vec<u8>, effort: PageEffort) -> Result<PdfText, PdfError> {
    let (pdf, is_whole) = open(bytes)?;
    // Without a page tree, the library lists every object with content as a page.
    let is_page =
        |page: &&Page<'_>| is_whole || page.raw().get::<Name<'_>>(keys::TYPE).as_deref() == Some(b"Page");
    let pages: Vec<&Page<'_>> = pdf.pages().iter().filter(is_page).collect();
    let (mut budget, mut fonts) = (PdfBudget::new(), Fonts::default());
    let title = title::title(&pdf, &mut budget)
        .map(|title| truncate_to_line(&title, MAX_TITLE_BYTES))
        .filter(|title| !title.is_empty());
    let max_pages = match effort {
        PageEffort::Extract => MAX_PAGES,
        PageEffort::Plain => MAX_PLAIN_PAGES,
    };
    let (mut text, mut pages_read) = (String::new(), 0);
    for (index, page) in pages.iter().copied().enumerate().take(max_pages) {
        let mut layout = Layout::default();
        let page_result = content::read_page(page, &mut fonts, &mut budget, &mut layout);
        push_page(&mut text, index + 1, &visible(&layout.finish()));
        if page_result.is_err() {
            break;
        }
        pages_read = index + 1;
    }
    let end = crate::limits::fitting_length(&text);
    text.truncate(end);
    Ok(PdfText { text, title, pages: pages.len(), pages_read })
}

/// Opens a file. Also returns whether the file's own page tree lists its pages.
fn open(bytes: Vec<u8>) -> Result<(Pdf, bool), PdfError> {
    let bytes = Arc::new(bytes);
    match Pdf::new(Arc::clone(&bytes)) {
        Ok(pdf) => return Ok((pdf, true)),
        Err(LoadPdfError::Decryption(DecryptionError::PasswordProtected)) => {
            return Err(PdfError::NeedsPassword);
        }
        Err(LoadPdfError::Decryption(_)) => return Err(PdfError::UnknownEncryption),
        Err(LoadPdfError::Invalid) => {}
    }
    // A file that was cut off has lost its catalog, which most files have at their end. If the catalog's page tree is
    // missing, the library searches all objects for pages. So append a catalog without one.
    let mended = [bytes.as_slice(), OTHER_CATALOG].concat();
    drop(bytes);
    Pdf::new(mended).map(|pdf| (pdf, false)).map_err(|_error| PdfError::Damaged)
}

/// A catalog with object numbers that no real file reaches.
const OTHER_CATALOG: &[u8] =
    b"\nendstream endobj 8388606 0 obj << /Type /Catalog /Pages 8388607 0 R >> endobj \
    trailer << /Root 8388606 0 R >>\n";

/// Appends a page below its number. The first page gets no number, and a page without text is left out.
fn push_page(text: &mut String, number: usize, page: &str) {
    if page.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    if number > 1 {
        text.push_str(&format!("--- page {number} ---\n\n"));
    }
    text.push_str(page);
}

#[cfg(test)]
mod tests;
