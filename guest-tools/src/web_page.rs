//! The content part of `web_fetch`'s read step: turns the bytes of a response into readable content.
//!
//! The content and title depend only on the bytes, the type and the URL: no file, clock or network is used. Each part
//! of the code is linear in the length of the page or works on a bounded part of it, does not recurse over the input,
//! and does not fail. A malformed page only gives poorer text.

mod article;
pub(crate) mod characters;
mod charset;
mod clean;
mod elements;
mod entities;
pub(crate) mod escape;
mod hidden;
mod kind;
mod links;
mod lists;
mod markdown;
mod markup;
mod metadata;
mod open_element;
mod table;
mod tokens;
pub(crate) mod tree;

use self::{
    charset::Declaration,
    kind::{BodyKind, MediaType},
    links::Links,
    markdown::Style,
    tree::{HtmlTree, ROOT},
};

/// A response body, with the facts that its reading needs.
#[derive(Clone, Copy, Debug)]
pub struct PageSource<'a> {
    /// The body, decompressed.
    pub bytes: &'a [u8],
    /// The `Content-Type` header, if the response has one.
    pub content_type: Option<&'a str>,
    /// The URL after all redirects.
    pub url: &'a str,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageFormat {
    /// The readable part as Markdown.
    #[default]
    Markdown,
    /// The readable part as plain text.
    Text,
    /// The whole page as HTML, without scripts, styles and hidden elements.
    Html,
}

/// The effort that is spent on a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageEffort {
    /// The extractor runs. If its article keeps too little text, the body is used.
    #[default]
    Extract,
    /// Only the body, for a second attempt after the extractor exceeded its time or memory.
    Plain,
}

/// A page that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebPage {
    /// The text in the requested form. Images and other bodies have no text.
    pub content: PageContent,
    /// The title, if the page has one.
    pub title: Option<String>,
    /// The type of the body, such as `text/html`.
    pub media_type: String,
    /// The encoding that the body was decoded from, if it is text.
    pub charset: Option<&'static str>,
    /// The part of the page that the content covers.
    pub part: PagePart,
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageContent {
    /// Text in the requested form.
    Text(String),
    /// The body is an image of the page's media type, which can be shown unchanged.
    Image,
    /// The body is of a kind that is not shown.
    NotShown,
}

/// The part of a page that the content covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePart {
    /// The article that the extractor found.
    Article,
    /// The body without its navigation.
    Body,
    /// The whole page.
    Whole,
}

/// Reads a page.
///
/// # Examples
///
/// ```
/// use portcullis_guest_tools::{PageContent, PageEffort, PageFormat, PageSource, read_page};
///
/// let source = PageSource {
///     bytes: b"<title>News</title><p>It is <b>out</b>: <a href=/v2>version 2</a>.",
///     content_type: Some("text/html; charset=utf-8"),
///     url: "https://example.com/news",
/// };
/// let page = read_page(source, PageFormat::Markdown, PageEffort::Extract);
/// assert_eq!(page.title.as_deref(), Some("News"));
/// let text = "It is **out**: [version 2](https://example.com/v2).";
/// assert_eq!(page.content, PageContent::Text(format!("# News\n\n{text}")));
/// ```
#[must_use]
pub fn read_page(source: PageSource<'_>, format: PageFormat, effort: PageEffort) -> WebPage {
    let header = MediaType::parse(source.content_type.unwrap_or_default());
    let (kind, media_type) = kind::kind_of(source.bytes, &header);
    let declaration = match kind {
        BodyKind::Html => Declaration::Meta,
        BodyKind::Xml => Declaration::Xml,
        BodyKind::Text => Declaration::Absent,
        BodyKind::Image => return WebPage::new(media_type, PageContent::Image),
        // The host gives PDF files to the step that reads them, so none should arrive here.
        BodyKind::Pdf | BodyKind::Other => return WebPage::new(media_type, PageContent::NotShown),
    };
    let domain = url::Url::parse(source.url).ok();
    let domain = domain.as_ref().and_then(url::Url::domain).and_then(|host| host.rsplit('.').next());
    let (text, charset) = charset::decode(source.bytes, header.charset.as_deref(), declaration, domain);
    let mut page = if kind == BodyKind::Html {
        html_page(&text, source.url, format, effort)
    } else {
        WebPage::new(String::new(), PageContent::Text(characters::visible(&text)))
    };
    page.media_type = media_type;
    page.charset = Some(charset);
    page
}

impl WebPage {
    fn new(media_type: String, content: PageContent) -> Self {
        Self { content, title: None, media_type, charset: None, part: PagePart::Whole }
    }
}

fn html_page(html: &str, url: &str, format: PageFormat, effort: PageEffort) -> WebPage {
    let mut tree = HtmlTree::parse(html);
    let metadata = metadata::read(&tree);
    let links = Links::new(url, metadata.base.as_deref());
    clean::clean(&mut tree);
    let page =
        |text, title, part| WebPage { title, part, ..WebPage::new(String::new(), PageContent::Text(text)) };
    let style = match format {
        PageFormat::Html => {
            clean::remove_bases(&mut tree);
            return page(markup::to_reader_html(&tree, &links), metadata.title, PagePart::Whole);
        }
        PageFormat::Text => Style::Text,
        PageFormat::Markdown => Style::Markdown,
    };
    let found_article = match effort {
        PageEffort::Extract => article::find(tree, &metadata.head, url),
        PageEffort::Plain => article::body(tree, None),
    };
    let part = if found_article.extracted { PagePart::Article } else { PagePart::Body };
    let title = metadata.title.or(found_article.title.clone()).map(|title| truncate_to_line(&title));
    let text = markdown::write(&found_article.tree, ROOT, &links, style);
    let text = with_title_and_author(&text, title.as_deref(), &found_article, style);
    page(text, title, part)
}

/// Puts the title before a text that does not start with it, and the author below the title.
fn with_title_and_author(
    text: &str,
    title: Option<&str>,
    found_article: &article::Article,
    style: Style,
) -> String {
    let format_line = |line: &str| match style {
        Style::Markdown => escape::escape_line(&truncate_to_line(line)),
        Style::Text => truncate_to_line(line),
    };
    let mut head = String::new();
    let title = found_article.title.as_deref().or(title).map(format_line);
    let has_title = text.lines().take(12).any(|line| line.starts_with("# "))
        || title.as_deref().is_some_and(|title| text.lines().take(6).any(|line| line.contains(title)));
    if let (Some(title), false) = (&title, has_title) {
        let mark = if style == Style::Markdown { "# " } else { "" };
        head.push_str(&format!("{mark}{title}\n\n"));
    }
    let published = found_article.published.as_deref().map(format_line);
    let byline =
        found_article.byline.as_deref().map(format_line).filter(|byline| !text.contains(byline.as_str()));
    let line: Vec<String> = byline.into_iter().chain(published).filter(|part| !part.is_empty()).collect();
    if !line.is_empty() {
        head.push_str(&format!("{}\n\n", line.join(" · ")));
    }
    head.push_str(text);
    head.truncate(head.trim_end().len());
    head
}

/// The maximum length of a title, in bytes.
const MAX_TITLE_BYTES: usize = 300;

fn truncate_to_line(text: &str) -> String {
    characters::truncate_to_line(text, MAX_TITLE_BYTES)
}

#[cfg(test)]
mod tests;
