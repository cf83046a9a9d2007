//! The text of a PDF file, page by page.
//!
//! Pure: bytes in, text out; no file, clock or network. Scripts, links, forms to fill in and embedded files are not
//! looked at. The work is bounded by a [budget](budget); where it ends, the text so far stays.
//!
//! `hayro-syntax` reads the objects of a file, also of a damaged one; `hayro-cmap` the tables of fonts. What makes text of
//! them is here: a reader that draws pages would spend its time on pictures.

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
    budget::{Budget, MAX_PAGES, PLAIN_PAGES},
    font::Fonts,
    layout::Layout,
};
use crate::{
    PageEffort,
    web_page::characters::{one_line, visible},
};

/// A PDF file, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PdfText {
    /// The text, pages apart; empty where the file has none.
    pub text: String,
    /// The title, if the file has one.
    pub title: Option<String>,
    /// How many pages the file has.
    pub pages: usize,
    /// How many of them were read, from the first.
    pub pages_read: usize,
}

/// Why a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PdfError {
    /// It opens with a password only.
    NeedsPassword,
    /// It is encrypted in a way that is not known.
    UnknownEncryption,
    /// It has no page that could be found.
    Damaged,
}

/// The longest title, in bytes.
const MAX_TITLE_BYTES: usize = 300;

/// Reads the text of a file. With [`PageEffort::Plain`] only of its first pages.
///
/// # Errors
/// [`PdfError`] where no page can be read.
pub fn read_pdf(bytes: Vec<u8>, effort: PageEffort) -> Result<PdfText, PdfError> {
    let (pdf, is_whole) = open(bytes)?;
    // Without a tree of pages, the library lists every object that has a content as a page.
    let is_page =
        |page: &&Page<'_>| is_whole || page.raw().get::<Name<'_>>(keys::TYPE).as_deref() == Some(b"Page");
    let pages: Vec<&Page<'_>> = pdf.pages().iter().filter(is_page).collect();
    let (mut budget, mut fonts) = (Budget::new(), Fonts::default());
    let title = title::title(&pdf, &mut budget)
        .map(|title| one_line(&title, MAX_TITLE_BYTES))
        .filter(|title| !title.is_empty());
    let most = match effort {
        PageEffort::Extract => MAX_PAGES,
        PageEffort::Plain => PLAIN_PAGES,
    };
    let (mut text, mut pages_read) = (String::new(), 0);
    for (index, page) in pages.iter().copied().enumerate().take(most) {
        let mut layout = Layout::default();
        let read = content::read_page(page, &mut fonts, &mut budget, &mut layout);
        push_page(&mut text, index + 1, &visible(&layout.finish()));
        if read.is_err() {
            break;
        }
        pages_read = index + 1;
    }
    let end = crate::limits::that_fits(&text);
    text.truncate(end);
    Ok(PdfText { text, title, pages: pages.len(), pages_read })
}

/// Opens a file, and tells whether its pages are those that it says.
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
    // A file that was cut off has lost its catalog, which most have at their end. With another one, whose tree of pages
    // is not there, the library looks for pages among all objects.
    let mended = [bytes.as_slice(), OTHER_CATALOG].concat();
    drop(bytes);
    Pdf::new(mended).map(|pdf| (pdf, false)).map_err(|_error| PdfError::Damaged)
}

/// A catalog, with numbers that no file comes to.
const OTHER_CATALOG: &[u8] =
    b"\nendstream endobj 8388606 0 obj << /Type /Catalog /Pages 8388607 0 R >> endobj \
    trailer << /Root 8388606 0 R >>\n";

/// Appends a page below its number. The first needs none, and a page without text is left out.
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
