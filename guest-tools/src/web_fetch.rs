//! The read step of `web_fetch`: receives the body of a response, and returns content that a model can use.
//!
//! The step has neither a mount nor a network, so a page that exploits a bug of the guest reaches nothing.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use portcullis_sdk::{Content, ToolContext, ToolError, ToolOutput, tool, transfer};

use serde_json::json;

use crate::{PageContent, PageEffort, PageFormat, PagePart, PageSource, WebPage, read_page};

/// Reads the body that the host sends. A step of `web_fetch`.
#[tool(tier = ReadOnly, timeout = "30s", profile = Nothing, deny_unknown)]
pub async fn web_fetch_read(
    ctx: &ToolContext,
    /// The address after all redirects; links become absolute by it.
    url: &str,
    /// The `Content-Type` header; empty if there was none.
    content_type: &str,
    /// The format to convert HTML to.
    #[arg(default = "markdown", one_of("markdown", "text", "html"))]
    format: &str,
    /// Whether to look for the readable part, or to take the whole body: for a second try.
    #[arg(default = "extract", one_of("extract", "plain"))]
    effort: &str,
) -> Result<ToolOutput, ToolError> {
    let bytes = transfer::receive_all(ctx)?;
    let format = match format {
        "text" => PageFormat::Text,
        "html" => PageFormat::Html,
        _ => PageFormat::Markdown,
    };
    let effort = if effort == "plain" { PageEffort::Plain } else { PageEffort::Extract };
    let content_type = Some(content_type).filter(|text| !text.is_empty());
    let page = read_page(PageSource { bytes: &bytes, content_type, url }, format, effort);
    Ok(output(page, &bytes))
}

fn output(page: WebPage, bytes: &[u8]) -> ToolOutput {
    let WebPage { content, title, media_type, charset, part } = page;
    let part = match part {
        PagePart::Article => "article",
        PagePart::Body => "body",
        PagePart::Whole => "whole",
    };
    let details = json!({ "type": media_type, "title": title, "charset": charset, "part": part });
    let output = match content {
        PageContent::Text(text) => ToolOutput::text(text),
        PageContent::Image => ToolOutput {
            content: vec![Content::Image { data: BASE64.encode(bytes), mime_type: media_type }],
            ..ToolOutput::default()
        },
        PageContent::NotShown => {
            ToolOutput::text(format!("{media_type}, {} bytes; its content is not shown", bytes.len()))
        }
    };
    output.with_details(details)
}
