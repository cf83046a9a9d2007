//! The read step of `web_fetch` for PDF files: receives a file, and returns its text.
//!
//! The step has a separate module, so that a fetch of an HTML page neither loads nor compiles it. Like the other read
//! step it has neither a mount nor a network.

use portcullis_sdk::{ToolContext, ToolError, ToolOutput, tool, transfer};
use serde_json::json;

use crate::{PageEffort, PdfError, PdfText, read_pdf};

/// The media type of all files that this step gets.
const PDF: &str = "application/pdf";

/// Reads the PDF file that the host sends. A step of `web_fetch`.
#[tool(tier = ReadOnly, timeout = "30s", profile = Nothing, deny_unknown)]
pub async fn web_fetch_read_pdf(
    ctx: &ToolContext,
    /// The format of the text: `html` puts each paragraph into `<p>`.
    #[arg(default = "markdown", one_of("markdown", "text", "html"))]
    format: &str,
    /// Whether to read all pages, or the first ones: for a second try.
    #[arg(default = "extract", one_of("extract", "plain"))]
    effort: &str,
) -> Result<ToolOutput, ToolError> {
    let bytes = transfer::receive_all(ctx)?;
    let length = bytes.len();
    let effort = if effort == "plain" { PageEffort::Plain } else { PageEffort::Extract };
    Ok(match read_pdf(bytes, effort) {
        Ok(file) => text_output(&file, length, format == "html"),
        Err(error) => {
            let reason = match error {
                PdfError::NeedsPassword => "it opens with a password only",
                PdfError::UnknownEncryption => "its encryption is not known",
                PdfError::Damaged => "it is damaged, and no page of it can be read",
            };
            let details = json!({ "type": PDF, "title": null, "pages": null, "pages_read": 0 });
            ToolOutput::text(format!("{PDF}, {length} bytes; {reason}")).with_details(details)
        }
    })
}

fn text_output(file: &PdfText, length: usize, as_html: bool) -> ToolOutput {
    let PdfText { text, title, pages, pages_read } = file;
    let mut output_text = match (text.is_empty(), as_html) {
        (true, _) => {
            let noun = if *pages == 1 { "page" } else { "pages" };
            format!("{PDF}, {length} bytes, {pages} {noun}; there is no text in it")
        }
        (false, true) => html(text),
        (false, false) => text.clone(),
    };
    if pages_read < pages {
        let unread_pages = pages - pages_read;
        output_text.push_str(&format!(
            "\n\n[{unread_pages} more {}]",
            if unread_pages == 1 { "page" } else { "pages" }
        ));
    }
    let details = json!({ "type": PDF, "title": title, "pages": pages, "pages_read": pages_read });
    ToolOutput::text(output_text).with_details(details)
}

/// Formats a text as HTML paragraphs.
fn html(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let escaped = paragraph.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        format!("<p>{escaped}</p>")
    });
    paragraphs.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, pages_read: usize, as_html: bool, expected: &str) {
        let file = PdfText { text: text.to_owned(), title: None, pages: 3, pages_read };
        assert_eq!(text_output(&file, 9, as_html).joined_text(), expected);
    }

    #[test]
    fn pages_that_were_not_read_are_counted() {
        check("one", 3, false, "one");
        check("one", 1, false, "one\n\n[2 more pages]");
        check("one", 2, false, "one\n\n[1 more page]");
    }

    #[test]
    fn a_file_without_text_says_so() {
        check("", 3, false, "application/pdf, 9 bytes, 3 pages; there is no text in it");
    }

    #[test]
    fn html_is_escaped_paragraphs() {
        check("a <b>\nc\n\nd & e", 3, true, "<p>a &lt;b&gt;\nc</p>\n<p>d &amp; e</p>");
    }
}
