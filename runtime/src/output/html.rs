//! HTML pages, each in one file, without scripts and without anything that a browser would load. Only this
//! module knows the frame and the style.

use std::{
    fmt::{self, Write as _},
    io::{self, Write as _},
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use maud::{DOCTYPE, Escaper, Markup, PreEscaped, Render, html};
use portcullis_types::display::EscapedText;
use sha2::{Digest as _, Sha256};

use crate::error::CliError;

/// The style of every page. The page's content security policy pins its hash, so an injected style would not
/// apply.
const STYLE: &str = include_str!("html/style.css");

/// An untrusted text within a page: at most 256 characters, with control characters and deceptive characters
/// made visible. It is isolated, so that right-to-left letters do not reorder the text around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Untrusted<'a>(pub(crate) &'a str);

impl Render for Untrusted<'_> {
    fn render_to(&self, buffer: &mut String) {
        buffer.push_str("<bdi>");
        // Writing to a string cannot fail.
        let _ = write!(Escaper::new(buffer), "{}", EscapedText(self.0));
        buffer.push_str("</bdi>");
    }
}

/// A number with separated thousands: `25,108`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(pub(crate) u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_char(',')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}

impl Render for Count {
    fn render_to(&self, buffer: &mut String) {
        // Writing to a string cannot fail.
        let _ = write!(buffer, "{self}");
    }
}

/// A time in UTC, to the second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time(pub(crate) Timestamp);

impl Render for Time {
    fn render_to(&self, buffer: &mut String) {
        let text = self.0.strftime("%Y-%m-%d %H:%M:%S");
        html! { time datetime=(format_args!("{:.0}", self.0)) { (format_args!("{text}")) } }
            .render_to(buffer);
    }
}

/// Returns the first 12 digits of a digest, which suffice to tell digests apart. The whole digest is shown
/// where it matters.
pub(crate) fn short_digest(digest: &str) -> &str {
    digest.char_indices().nth(12).map_or(digest, |(end, _)| &digest[..end])
}

/// Renders a whole page. The title is a fixed text, never a name from a log or a policy.
pub(crate) fn page(title: &str, body: &Markup) -> String {
    let hash = STANDARD.encode(Sha256::digest(STYLE));
    let policy =
        format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                meta name="robots" content="noindex";
                meta name="generator" content=(concat!("portcullis ", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string() + "\n"
}

/// Renders a table within a box that scrolls if the table is wider than the page. The box is reachable by
/// keyboard.
pub(crate) fn table_box(label: &str, table: &Markup) -> Markup {
    html! { div.scroll role="region" aria-label=(label) tabindex="0" { (table) } }
}

/// A column of a listing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column {
    Text(&'static str),
    /// A column of numbers, which are right-aligned.
    Number(&'static str),
}

/// A table whose rows begin with their name.
pub(crate) struct Listing<'a> {
    pub(crate) caption: &'a str,
    pub(crate) columns: &'a [Column],
    pub(crate) rows: Vec<Vec<Markup>>,
    /// The number of rows that are left out.
    pub(crate) omitted: u64,
}

impl Render for Listing<'_> {
    fn render(&self) -> Markup {
        let class =
            |index: usize| matches!(self.columns.get(index), Some(Column::Number(_))).then_some("number");
        let table = html! {
            table {
                caption { (self.caption) }
                thead {
                    tr {
                        @for (index, column) in self.columns.iter().enumerate() {
                            @let (Column::Text(title) | Column::Number(title)) = column;
                            th class=[class(index)] scope="col" { (title) }
                        }
                    }
                }
                tbody {
                    @for row in &self.rows {
                        tr {
                            @for (index, cell) in row.iter().enumerate() {
                                @if index == 0 { th scope="row" { (cell) } }
                                @else { td class=[class(index)] { (cell) } }
                            }
                        }
                    }
                }
            }
        };
        html! {
            (table_box(self.caption, &table))
            @if self.omitted > 0 { p.more { "and " (Count(self.omitted)) " more" } }
        }
    }
}

/// Refuses an existing file, before any work is done for it.
///
/// # Errors
/// [`CliError::Page`] if a file, a symlink or a folder has the name.
pub(crate) fn check_new_file(path: &Path) -> Result<(), CliError> {
    match path.symlink_metadata() {
        Ok(_) => {
            let source = io::Error::from(io::ErrorKind::AlreadyExists);
            Err(CliError::Page { path: path.to_owned(), source })
        }
        // A missing file is the usual case. Any other error is reported when the file is written.
        Err(_) => Ok(()),
    }
}

/// Writes a page atomically as a new file that only its owner can read. An existing file or symlink is left
/// alone.
///
/// # Errors
/// [`CliError::Page`] if the name is taken, or the file cannot be written.
pub(crate) fn write_new_file(path: &Path, page: &str) -> Result<(), CliError> {
    let write = || {
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        // Temporary files have the mode 0600.
        let mut file = tempfile::Builder::new()
            .prefix(".portcullis-page-")
            .tempfile_in(folder.unwrap_or(Path::new(".")))?;
        file.write_all(page.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist_noclobber(path).map_err(|error| error.error)
    };
    write().map(drop).map_err(|source| CliError::Page { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
