//! Tests with whole pages: what is kept, what is dropped, and the limits for hostile pages.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn page(html: &str, format: PageFormat) -> WebPage {
    let source = PageSource {
        bytes: html.as_bytes(),
        content_type: Some("text/html; charset=utf-8"),
        url: "https://a.example/dir/page",
    };
    read_page(source, format, PageEffort::Extract)
}

fn text_of(page: WebPage) -> String {
    match page.content {
        PageContent::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

#[track_caller]
fn check(html: &str, markdown: &str) {
    assert_eq!(text_of(page(html, PageFormat::Markdown)), markdown);
}

#[test]
fn inline_marks_and_links_are_written() {
    check(
        "<p>a <b>bold</b>, <i>it</i> <a href='../x'>link</a>.",
        "a **bold**, *it* [link](https://a.example/x).",
    );
    check("<p>see<a href='javascript:alert(1)'> this </a>and", "see this and");
    check("<p><code>a`b</code> and 1 * 2", "``a`b`` and 1 \\* 2");
    check("<p>x<br>y", "x\ny");
}

#[test]
fn lists_keep_their_numbers_and_nesting() {
    check("<ol start=3><li>a<li>b<ul><li>c</ul></ol>", "3. a\n4. b\n   - c");
    check("<ul><li><p>a</p><p>b</p></li></ul>", "- a\n\n  b");
}

#[test]
fn quotes_and_headings_are_written() {
    check("<h2>T <b>x</b></h2><blockquote><p>a<p>b</blockquote>c", "## T x\n\n> a\n>\n> b\n\nc");
}

#[test]
fn a_table_has_a_head_and_escaped_bars() {
    check(
        "<table><tr><th>A<th>B<tr><td>1|2<td>x<br>y<tr><td colspan=2>z</table>",
        "| A | B |\n| --- | --- |\n| 1\\|2 | x<br>y |\n| z |  |",
    );
}

#[test]
fn a_layout_table_is_not_a_table() {
    check(
        "<table><tr><td><table><tr><td>a<td>b<tr><td>c<td>d</table></table>",
        "| a | b |\n| --- | --- |\n| c | d |",
    );
    check("<table><tr><td>one<td>two</table>", "one\n\ntwo");
}

#[test]
fn code_keeps_its_language_and_lines() {
    check(
        "<pre><code class=language-rust>fn a() {\n    b\n}\n</code></pre>",
        "```rust\nfn a() {\n    b\n}\n```",
    );
    check("<div class='highlight highlight-source-python'><pre>x = 1</pre></div>", "```python\nx = 1\n```");
    check("<pre>```\n</pre>", "````\n```\n````");
}

#[test]
fn hidden_text_is_dropped() {
    check("<p>a</p><p hidden>b</p><div style='display:none'><p>c</div><span aria-hidden=true>d</span>", "a");
    check("<p>a\u{202e}b\u{1b}[31mc\u{e0041}&#x1b;[0m&#8238;d", "abcd");
    check("<script>x</script><style>y</style><!-- z --><template>t</template><p>a", "a");
    for hidden in [
        "<![CDATA[b>",
        "<!b>",
        "<?b>",
        "</ b>",
        "<noframes>b</noframes>",
        "<noembed>b</noembed>",
        "<iframe srcdoc='<p>b'>b</iframe>",
        "<object>b</object>",
        "<video>b</video>",
        "<canvas>b</canvas>",
        "<progress>b</progress>",
        "<meter>b</meter>",
        "<ruby><rp>b c</rp></ruby>",
        "<div popover>b</div>",
        "<dialog>b</dialog>",
        "<input type=hidden value=b>",
        "<datalist><option>b</datalist>",
        "<svg><text>b</text><title>b</title><foreignObject><p>b</foreignObject></svg>",
        "<template><p>b</template>",
        "<p style='d\\69splay:none'>b</p>",
    ] {
        check(&format!("<p>a</p>{hidden}"), "a");
    }
}

#[test]
fn an_element_is_hidden_behind_any_number_of_attributes() {
    let many: String = (0..200).map(|n| format!(" a{n}=1")).collect();
    let long = format!("/*{}*/display:none", "x".repeat(20_000));
    let visible_style = format!("background:url(data:{})", "x".repeat(20_000));
    check(&format!("<p>a</p><p{many} hidden>b</p><p{many} style=display:none>c</p>"), "a");
    check(&format!("<p>a</p><p style='{long}'>b</p><p style='{visible_style}'>c</p>"), "a\n\nc");
}

#[test]
fn links_lead_to_the_web_only() {
    for target in [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "java&#x73;cript:alert(1)",
        "java\tscript:alert(1)",
        "&#1;javascript:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "blob:https://a.example/x",
        "file:///etc/passwd",
        "view-source:https://a.example/",
        "intent://x#Intent;end",
    ] {
        check(&format!("<p><a href=\"{target}\">b</a> c"), "b c");
        let page_text =
            text_of(page(&format!("<a href=\"{target}\" src='{target}'>b</a>"), PageFormat::Html));
        assert_eq!(page_text, "<a>b</a>", "{target}");
    }
    let active = "<form action=//e><button formaction=//e>x</button><p background=//e ping=//e srcset=//e \
        xlink:href=javascript:x onload=x style=x>b</p></form><meta http-equiv=refresh content='0;url=//e'>\
        <base href=javascript:x><link rel=x href=//e><svg onload=x><a href=//e></svg><math href=javascript:x>";
    let page_text = text_of(page(active, PageFormat::Html));
    assert_eq!(page_text, "<form><p>b</p></form><span></span>");
}

#[test]
fn text_of_a_page_is_neither_a_link_nor_html() {
    for (html, expected) in [
        ("<p>[x]: javascript:alert(1)<p>[x]", "\\[x\\]: javascript:alert(1)\n\n\\[x\\]"),
        ("<p>[x]<span>(javascript:alert(1))</span>", "\\[x\\](javascript:alert(1))"),
        ("<p>&lt;<span>img src=x onerror=alert(1)&gt;</span>", "\\<img src=x onerror=alert(1)>"),
        ("<p>&lt;<span>https://evil.example&gt;</span>", "\\<https://evil.example>"),
        (
            "<p><img alt='&lt;img src=x onerror=alert(1)> [x](javascript:y)'>",
            "\\<img src=x onerror=alert(1)> \\[x\\](javascript:y)",
        ),
        ("<p><img src=y alt='[x](javascript:y)'>", "![\\[x\\](javascript:y)](https://a.example/dir/y)"),
        ("<p>wow!<a href=y>x</a>", "wow\\![x](https://a.example/dir/y)"),
    ] {
        check(html, expected);
        renders_no_more(expected);
    }
    let titled = "<title>&lt;img src=x onerror=alert(1)&gt; [x](javascript:y)</title><p>text";
    check(titled, "# \\<img src=x onerror=alert(1)> \\[x\\](javascript:y)\n\ntext");
    let words = "Some words of a text that goes on for long enough to be an article. ".repeat(20);
    let author = format!(
        "<meta name=author content='&lt;img onerror=x&gt; [x](javascript:y)'><article><p>{words}</article>"
    );
    let page_text = text_of(page(&author, PageFormat::Markdown));
    assert!(page_text.starts_with("\\<img onerror=x> \\[x\\](javascript:y)"), "{page_text:.200}");
}

#[test]
fn code_of_a_page_stays_code_to_its_end() {
    for (html, expected) in [
        // Code over two lines is written as text.
        ("<p><code>&lt;img src=x onerror=y&gt;<br>z</code>", "\\<img src=x onerror=y>\nz"),
        ("<p><code>x</code><code>y`&lt;img onerror=z&gt;</code>", "`x` ``y`<img onerror=z>``"),
        ("<p><b><pre>&lt;script&gt;</pre></b>", "```\n<script>\n```"),
        ("<p>a <b><pre>&lt;script&gt;</pre></b>", "a\n\n```\n<script>\n```"),
        (
            "<p><a href='?`'>x</a> <code>&lt;img onerror=z&gt;</code>",
            "[x](https://a.example/dir/page?%60) `<img onerror=z>`",
        ),
        ("<p>~~~</p><pre>~~~\n&lt;img&gt;</pre>", "\\~\\~\\~\n\n```\n~~~\n<img>\n```"),
        ("<p>a | b<br>--- | ---<br><code>c | &lt;img&gt;</code>", "a | b\n\\--- | ---\n`c | <img>`"),
        (
            "<table><tr><th>a<th>b<tr><td><code>\\|&lt;img&gt;</code><td>c</table>",
            "| a | b |\n| --- | --- |\n| \\\\\\|\\<img> | c |",
        ),
        (
            "<ul><li>a<ol start=3><li><pre>&lt;img&gt;\n\nb</pre></ol></ul>",
            "- a\n\n  3. ```\n     <img>\n\n     b\n     ```",
        ),
        ("<ol start=9999999999><li><pre>&lt;img&gt;</pre></ol>", "- ```\n  <img>\n  ```"),
        (
            "<dl><dt>a<dd><dl><dd><dl><dd><pre>&lt;img&gt;\n\nb</pre></dl></dl></dl>",
            "**a**\n\n  ```\n  <img>\n\n  b\n  ```",
        ),
    ] {
        check(html, expected);
        renders_no_more(expected);
    }
}

#[test]
fn pages_of_the_corpus_render_no_html() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let mut pages = 0;
    for entry in std::fs::read_dir(folder).expect("a corpus") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "html") {
            let bytes = std::fs::read(&path).expect("readable");
            let source =
                PageSource { bytes: &bytes, content_type: Some("text/html"), url: "https://a.example/" };
            renders_no_more(&text_of(read_page(source, PageFormat::Markdown, PageEffort::Extract)));
            pages += 1;
        }
    }
    assert!(pages >= 60, "{pages}");
}

/// Renders Markdown with all of GitHub's extensions, and returns the text. The output must have no HTML except the
/// line breaks of cells, and no link target that a page has smuggled in, which would contain `javascript:` or `evil`.
#[track_caller]
fn renders_no_more(markdown: &str) -> String {
    use pulldown_cmark::{Event, LinkType, Options, Parser, Tag};
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM;
    let mut text = String::new();
    for event in Parser::new_ext(markdown, options) {
        match event {
            Event::Html(html) | Event::InlineHtml(html) => assert_eq!(&*html, "<br>", "{markdown}"),
            Event::Start(Tag::Link { link_type, dest_url, .. } | Tag::Image { link_type, dest_url, .. }) => {
                let is_of_text = dest_url.contains("evil") || dest_url.starts_with("javascript:");
                assert!(link_type == LinkType::Inline && !is_of_text, "{link_type:?} {dest_url}\n{markdown}");
            }
            Event::FootnoteReference(_) | Event::Start(Tag::FootnoteDefinition(_)) => {
                panic!("a note\n{markdown}")
            }
            Event::Text(part) | Event::Code(part) => text.push_str(&part),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            _ => {}
        }
    }
    text
}

#[test]
fn a_base_of_another_site_is_followed_openly() {
    let html = "<base href='//evil.example/a/'><base href=/second><p><a href=b>c</a>";
    check(html, "[c](https://evil.example/a/b)");
}

#[test]
fn an_encoding_hides_no_markup() {
    let read = |bytes: &[u8], content_type| {
        let source = PageSource { bytes, content_type: Some(content_type), url: "https://a.example/" };
        text_of(read_page(source, PageFormat::Html, PageEffort::Extract))
    };
    // UTF-7 is not an encoding of the web.
    assert_eq!(read(b"+ADw-p hidden+AD4-a", "text/html; charset=utf-7"), "+ADw-p hidden+AD4-a");
    // Escape sequences of ISO-2022-JP are decoded before the markup is read, as in browsers.
    let escaped = b"<p>a\x1b(B<script>b</script>\x1b$B\x1b(Bc";
    assert_eq!(read(escaped, "text/html; charset=iso-2022-jp"), "<p>a\u{fffd}c</p>");
    // Encodings that browsers refuse become one U+FFFD for the whole text.
    assert_eq!(read(b"<p>a", "text/html; charset=hz-gb-2312"), "\u{fffd}");
    let wide: Vec<u8> = "<p>a<script>b</script>\u{202e}c".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(read(&wide, "text/html; charset=utf-16le"), "<p>ac</p>");
}

#[test]
fn a_title_is_one_plain_line() {
    let html = "<title>a\u{1b}[31m\u{202e}b&#x1b;]0;x&#7;\n\r\n# c <b>d</b></title><p>e";
    assert_eq!(page(html, PageFormat::Text).title.as_deref(), Some("ab # c <b>d</b>"));
    let long = format!("<title>{}</title><p>e", "\u{e9}".repeat(10_000));
    assert!(page(&long, PageFormat::Text).title.is_some_and(|title| title.len() <= 300));
}

#[test]
fn an_image_is_what_its_bytes_are() {
    let read = |bytes: &[u8], content_type| {
        let source = PageSource { bytes, content_type: Some(content_type), url: "https://a.example/" };
        let page = read_page(source, PageFormat::Markdown, PageEffort::Extract);
        (matches!(page.content, PageContent::Image), page.media_type)
    };
    assert_eq!(read(b"\x89PNG\r\n\x1a\n", "text/html"), (true, "image/png".to_owned()));
    assert_eq!(read(b"\xff\xd8\xff\xe0", "image/png"), (true, "image/jpeg".to_owned()));
    for lying in [&b"<p>text"[..], b"", b"MZ\x90", b"%PDF-1.7", b"<svg onload=x>"] {
        assert!(!read(lying, "image/png").0, "{lying:?}");
    }
}

#[test]
fn text_has_no_marks() {
    let html = "<h1>T</h1><p>a <b>b</b> <a href=/x>c</a> 1*2</p><ul><li>d</ul>";
    assert_eq!(text_of(page(html, PageFormat::Text)), "T\n\na b c 1*2\n\n- d");
}

#[test]
fn html_is_cleaned_and_whole() {
    let html =
        "<nav><a href=/x onclick=e()>n</a></nav><p style=color:red>a<script>b</script><img src=data:x alt=i>";
    let expected = "<nav><a href=\"https://a.example/x\">n</a></nav><p>a<img alt=\"i\"></p>";
    assert_eq!(text_of(page(html, PageFormat::Html)), expected);
}

#[test]
fn other_kinds_are_named_without_content() {
    let read = |bytes: &[u8], content_type| {
        read_page(
            PageSource { bytes, content_type, url: "https://a.example/" },
            PageFormat::Markdown,
            PageEffort::Extract,
        )
    };
    let json = read(b"{\"a\": \"<b>\"}", Some("application/json"));
    assert_eq!(json.content, PageContent::Text("{\"a\": \"<b>\"}".to_owned()));
    let image = read(b"\x89PNG\r\n\x1a\n", None);
    assert_eq!((image.content, image.media_type.as_str()), (PageContent::Image, "image/png"));
    let other = read(b"PK\x03\x04", Some("application/zip"));
    assert_eq!((other.content, other.media_type.as_str()), (PageContent::NotShown, "application/zip"));
}

#[test]
fn a_script_only_page_shows_its_noscript() {
    check(
        "<div id=root></div><noscript>Please enable <b>JavaScript</b>.</noscript>",
        "Please enable **JavaScript**.",
    );
}

/// The limit is generous, because debug builds are some twenty times slower than the guest.
const HOSTILE_TIME: Duration = Duration::from_secs(60);

#[track_caller]
fn bounded(html: &str, words: &str) {
    for format in [PageFormat::Markdown, PageFormat::Text, PageFormat::Html] {
        let begin = Instant::now();
        let text = text_of(page(html, format));
        assert!(begin.elapsed() < HOSTILE_TIME, "{:?}", begin.elapsed());
        assert!(text.contains(words), "{text:.200}");
        assert!(text.len() < 4 * html.len() + 10_000, "{} bytes from {}", text.len(), html.len());
    }
}

#[test]
fn a_million_nested_elements_are_bounded() {
    bounded(&format!("<p>first</p>{}last", "<div>".repeat(1_000_000)), "last");
    bounded(&format!("{}deep{}last", "<b><i>".repeat(100_000), "</i></b>".repeat(100_000)), "last");
    bounded(&format!("{}last", "<blockquote>".repeat(100_000)), "last");
    bounded(&format!("{}last", "<table><tr><td>".repeat(50_000)), "last");
    bounded(&format!("{}last", "<ul><li>x".repeat(50_000)), "last");
    bounded(&format!("{}last", "<a href=x><b>".repeat(50_000)), "last");
}

#[test]
fn floods_of_one_kind_are_bounded() {
    let attributes: String = (0..100_000).map(|n| format!(" a{n}=1")).collect();
    bounded(&format!("<p{attributes}>last"), "last");
    bounded(&format!("<p>{}last", "&amp;".repeat(200_000)), "last");
    bounded(&format!("<p>last{}", "<".repeat(500_000)), "last");
    bounded(&format!("<p>last{}", "</x>".repeat(200_000)), "last");
    bounded(&format!("<p>last{}", "<p>".repeat(200_000)), "last");
    bounded(&format!("<p>last{}", "<!--".repeat(200_000)), "last");
    let authors = format!("{}x{}", "<span class=author>".repeat(190), "</span>".repeat(190));
    bounded(&format!("{}<p>last", authors.repeat(300)), "last");
    bounded(&format!("<table>{}<tr>{}last", "<tr><td>x".repeat(30_000), "<td>y".repeat(60)), "last");
    bounded(&format!("<svg><p>x{}</svg><p>last", "<svg><math>".repeat(50_000)), "");
}

#[test]
fn a_page_of_five_megabytes_is_read_whole() {
    let paragraph =
        "<div class=c><p>Some <b>words</b> of a <a href=/x>page</a> that goes on and on.</p></div>\n";
    let html =
        format!("<nav>menu</nav><main>{}<p>last</main>", paragraph.repeat((5 << 20) / paragraph.len()));
    bounded(&html, "last");
}

/// Pieces of markup, separated by `§`.
const SOUP: &str = "<p>§</p>§<table>§<tr>§<td>§</td>§</table>§<a href='x'>§</a>§<b>§</b>§<li>§<ul>§</ul>§\
    <pre>§</pre>§<code>§text §é§&amp;§&#x202e;§<§>§\"§<!--§-->§<script>§</script>§<svg>§\
    <math>§</svg>§<style>§<title>§<h1>§</h1>§<br>§<hr>§<img alt=i src=x>§<template>§\
    <select><option>§<frameset><frame src=y>§<plaintext>§\u{1b}[1m§\
    <p style='display:none'>§<dl><dt>§<dd>§<blockquote>§<th colspan=9>§<a§<p a=\"§\
    a stray \0 in a text that is otherwise none§<noscript>§<span class=author>x</span>§\
    </html>§<body>§<base href=//x>§<![CDATA[§\n";

/// Pieces in any order, which trigger all rules of the builder.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(SOUP.split('§').collect::<Vec<_>>());
    prop::collection::vec(piece, 0..120).prop_map(|pieces| pieces.concat())
}

/// Pieces of text that Markdown would read as marks, in markup that joins and encloses them.
const MARKS: &str = "[x]§(javascript:y)§[x]: javascript:y§&lt;§img src=evil onerror=y&gt;§&lt;https://evil.example&gt;§\
    !§`§``§```§~§~~~§\\§|§---§:-§--- | ---§a | b§*§_§#§&gt;§-§1.§3)§&amp;lt;img&amp;gt;§&amp;§lt;§[^1]§[^1]: evil§\n§ §    §\
    &lt;script&gt;§&lt;!--§--&gt;§]§[§(§)§\"§=§<br>§<b>§</b>§<i>§</i>§<s>§</s>§<code>§</code>§<pre>§</pre>§<p>§<span>§</span>§\
    <a href='x'>§<a href='?`'>§<a href='?\\'>§<a href='mailto:a`b(c) &lt;d'>§</a>§<img alt='[x](javascript:y)'>§<img src=y alt='`'>§\
    <ul>§</ul>§<ol start=3>§<ol start=9999999999>§<ol>§</ol>§<li>§<dl>§<dd>§</dl>§<blockquote>§</blockquote>§\
    <table>§<tr>§<td>§<th>§</table>§<h2>§</h2>§<hr>§<details>§word";

fn marks() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(MARKS.split('§').collect::<Vec<_>>());
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn shows_no_control(text: &str) -> bool {
    text.chars().all(|character| {
        matches!(character, '\n' | '\t') || !(character.is_control() || character == '\u{202e}')
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..2000), header in ".{0,40}") {
        for content_type in [None, Some("text/html"), Some(header.as_str())] {
            let source = PageSource { bytes: &bytes, content_type, url: "https://a.example/" };
            let page = read_page(source, PageFormat::Markdown, PageEffort::Extract);
            if let PageContent::Text(text) = page.content {
                prop_assert!(shows_no_control(&text));
            }
        }
    }

    #[test]
    fn no_text_of_a_page_becomes_a_link_or_html(html in marks()) {
        for effort in [PageEffort::Extract, PageEffort::Plain] {
            let source = PageSource { bytes: html.as_bytes(), content_type: Some("text/html"), url: "https://a.example/" };
            renders_no_more(&text_of(read_page(source, PageFormat::Markdown, effort)));
        }
    }

    #[test]
    fn a_line_of_text_renders_as_itself(text in "[ a-c0-9!-/:-@\\[-`{-~é]{0,40}") {
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
        let html = format!("<p>{escaped}</p>");
        let source = PageSource { bytes: html.as_bytes(), content_type: Some("text/html"), url: "https://a.example/" };
        let page_text = text_of(read_page(source, PageFormat::Markdown, PageEffort::Plain));
        let expected = text.split_whitespace().collect::<Vec<_>>().join(" ");
        prop_assert_eq!(renders_no_more(&page_text), expected, "{}", page_text);
    }

    #[test]
    fn any_markup_is_read(html in soup()) {
        for format in [PageFormat::Markdown, PageFormat::Text, PageFormat::Html] {
            let page = page(&html, format);
            prop_assert!(page.title.as_deref().is_none_or(shows_no_control));
            prop_assert!(shows_no_control(&text_of(page)));
        }
    }
}
