//! PDF files through `web_fetch`: the request, and the guest that reads the files.

mod encrypted;
mod hostile;

use std::{collections::BTreeMap, io::Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use flate2::{Compression, write::ZlibEncoder};
use portcullis_testing::{
    CallOutcome, Fixture,
    pdf_file::{HELVETICA, PdfFile},
};
use portcullis_tools::ToolRegistry;
use serde_json::{Value, json};

use super::{
    fetch, fixture,
    server::{self, Server},
};

/// A server with these files, and a fixture in which they are fetched one after the other.
struct Files {
    fixture: Fixture,
    server: Server,
    registry: ToolRegistry,
}

impl Files {
    async fn serve(files: impl IntoIterator<Item = (&'static str, Vec<u8>)>) -> Self {
        Self::serve_as("application/pdf", files).await
    }

    async fn serve_as(
        content_type: &'static str,
        files: impl IntoIterator<Item = (&'static str, Vec<u8>)>,
    ) -> Self {
        let files: BTreeMap<String, Vec<u8>> =
            files.into_iter().map(|(name, bytes)| (format!("/{name}"), bytes)).collect();
        let server = Server::start(move |path| server::answer(content_type, &files[path]));
        let fixture = fixture(&server);
        let registry = fixture.registry().await;
        Self { fixture, server, registry }
    }

    async fn fetch(&self, name: &str) -> CallOutcome {
        fetch(&self.registry, &self.server.url(&format!("/{name}"))).await
    }

    #[track_caller]
    fn check(name: &str, answer: &CallOutcome, expected: &str) {
        assert_eq!(answer.text(), expected, "{name}");
    }
}

/// Creates a content stream that shows a text at a position.
fn show(x: u32, y: u32, text: &str) -> String {
    format!("BT /F 10 Tf {x} {y} Td ({text}) Tj ET\n")
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("written");
    encoder.finish().expect("finished")
}

#[tokio::test]
async fn a_pdf_file_is_read_by_a_separate_step() {
    let mut file =
        PdfFile::with_pages(HELVETICA, [show(50, 700, "The first gate"), show(50, 700, "The second")]);
    let info = file.object(b"<< /Title (\xfe\xff\0G\0a\0t\0e\0s) >>");
    file.trailer(&format!("/Info {info} 0 R"));
    let files = Files::serve([("gates", file.finish())]).await;
    let answer = files.fetch("gates").await;
    assert_eq!(answer.text(), "The first gate\n\n--- page 2 ---\n\nThe second");
    let details = &answer.0.details;
    assert_eq!((&details["title"], &details["pages"]), (&json!("Gates"), &json!(2)));
    assert_eq!((&details["type"], &details["status"]), (&json!("application/pdf"), &json!(200)));
    let rows = files.fixture.rows();
    let step = rows.iter().find(|row| &*row.tool == "web_fetch_read_pdf").expect("a row");
    assert_eq!(
        (step.profile.as_deref(), step.confinement.map(|confinement| confinement.as_str())),
        (Some("Nothing"), Some("wasm"))
    );
    assert!(step.mounts.is_empty() && step.labels.iter().any(|label| &**label == "web"), "{step:?}");
    assert!(rows.iter().all(|row| &*row.tool != "web_fetch_read"));
}

#[tokio::test]
async fn columns_stay_apart_and_turned_text_is_read() {
    let column = |x: u32| {
        (0..3).map(|line| show(x, 700 - 12 * line, &format!("column {x} {line}"))).collect::<String>()
    };
    let turned = "BT /F 10 Tf 0 1 -1 0 500 300 Tm (turned) Tj ET";
    let files = Files::serve([
        ("columns", PdfFile::with_pages(HELVETICA, [column(50) + &column(300)]).finish()),
        ("turned", PdfFile::with_pages(HELVETICA, [show(50, 700, "upright") + turned]).finish()),
    ])
    .await;
    let columns = "column 50 0\ncolumn 50 1\ncolumn 50 2\n\ncolumn 300 0\ncolumn 300 1\ncolumn 300 2";
    Files::check("columns", &files.fetch("columns").await, columns);
    Files::check("turned", &files.fetch("turned").await, "upright\n\nturned");
}

/// Creates a font with multi-byte codes, with this encoding and these further entries.
fn composite(encoding: &str, rest: &str) -> String {
    let descendant = "<< /Type /Font /Subtype /CIDFontType2 /DW 1000 >>";
    format!("<< /Type /Font /Subtype /Type0 /Encoding /{encoding} /DescendantFonts [{descendant}] {rest} >>")
}

#[tokio::test]
async fn fonts_need_not_be_in_the_file() {
    let show = |codes: &str| format!("BT /F 10 Tf 50 700 Td <{codes}> Tj ET");
    let mut embedded = PdfFile::new();
    let table =
        "1 beginbfrange <0001> <0003> <0061> endbfrange 1 beginbfchar <0004> <00660066006C> endbfchar";
    let table = embedded.stream("/Filter /FlateDecode", &deflate(table.as_bytes()));
    let font = embedded.object(composite("Identity-H", &format!("/ToUnicode {table} 0 R")));
    let content = embedded.stream("", show("0001000200030004").as_bytes());
    embedded.page(&format!("/Font << /F {font} 0 R >>"), content);
    let files = Files::serve([
        ("table", embedded.finish()),
        ("sjis", PdfFile::with_pages(&composite("90ms-RKSJ-H", ""), [show("93fa967b8cea")]).finish()),
        ("utf16", PdfFile::with_pages(&composite("UniGB-UTF16-H", ""), [show("4e2d6587")]).finish()),
        ("upright", PdfFile::with_pages(&composite("UniJIS-UCS2-V", ""), [show("7e266f22")]).finish()),
    ])
    .await;
    Files::check("table", &files.fetch("table").await, "abcffl");
    Files::check("sjis", &files.fetch("sjis").await, "日本語");
    Files::check("utf16", &files.fetch("utf16").await, "中文");
    Files::check("upright", &files.fetch("upright").await, "縦漢");
}

#[tokio::test]
async fn packed_encrypted_and_cut_files_are_read() {
    let plain = PdfFile::with_pages(HELVETICA, [show(50, 700, "packed"), show(50, 700, "more")]);
    let whole = plain.finish();
    let decoded = |text: &str| BASE64.decode(text).expect("base64");
    let files = Files::serve([
        ("packed", plain.finish_packed("/Filter /FlateDecode", deflate)),
        ("aes128", decoded(encrypted::OPEN_128)),
        ("aes256", decoded(encrypted::OPEN_256)),
        ("locked", decoded(encrypted::LOCKED)),
        ("cut", whole[..whole.len() / 2].to_vec()),
        ("late", [&b"\r\n\r\n"[..], &whole].concat()),
    ])
    .await;
    Files::check("packed", &files.fetch("packed").await, "packed\n\n--- page 2 ---\n\nmore");
    Files::check("aes128", &files.fetch("aes128").await, "Locked gate");
    Files::check("aes256", &files.fetch("aes256").await, "Locked gate");
    let locked = files.fetch("locked").await;
    Files::check("locked", &locked, "application/pdf, 1162 bytes; it opens with a password only");
    assert_eq!(locked.0.details["pages"], Value::Null);
    assert!(files.fetch("cut").await.text().starts_with("packed"));
    assert!(files.fetch("late").await.text().starts_with("packed"));
}

#[tokio::test]
async fn a_scan_says_that_it_has_no_text() {
    let mut scan = PdfFile::new();
    let image =
        scan.stream("/Type /XObject /Subtype /Image /Width 1 /Height 1 /Filter /DCTDecode", b"\xff\xd8\xff");
    let content = scan.stream("", b"q 600 0 0 800 0 0 cm /I Do Q");
    scan.page(&format!("/XObject << /I {image} 0 R >>"), content);
    let scan = scan.finish();
    let length = scan.len();
    // The text that OCR adds to a scan is invisible.
    let layer = "BT /F 10 Tf 3 Tr 50 700 Td (read by software) Tj ET";
    let files =
        Files::serve([("scan", scan), ("layer", PdfFile::with_pages(HELVETICA, [layer]).finish())]).await;
    let expected_note = format!("application/pdf, {length} bytes, 1 page; there is no text in it");
    Files::check("scan", &files.fetch("scan").await, &expected_note);
    Files::check("layer", &files.fetch("layer").await, "read by software");
}

#[tokio::test]
async fn the_format_html_gives_escaped_paragraphs() {
    let lines = [show(50, 700, "a <b> & c"), show(50, 600, "<script>x</script>")].concat();
    let files = Files::serve([("marks", PdfFile::with_pages(HELVETICA, [lines]).finish())]).await;
    let arguments = json!({ "url": files.server.url("/marks"), "format": "html" });
    let answer = CallOutcome::run(&files.registry, "web_fetch", arguments).await;
    let expected = "<p>a &lt;b&gt; &amp; c</p>\n<p>&lt;script&gt;x&lt;/script&gt;</p>";
    Files::check("marks", &answer, expected);
}

#[tokio::test]
async fn a_page_that_is_a_pdf_file_too_stays_a_page() {
    let file = PdfFile::with_pages(HELVETICA, [show(50, 700, "the other face")]).finish();
    let both = [&b"<!doctype html><title>Page</title><p>the page</p><!--"[..], &file, b"-->"].concat();
    let files = Files::serve_as("text/html", [("both", both), ("only", file)]).await;
    let page = files.fetch("both").await.text();
    assert!(page.contains("the page") && !page.contains("other face"), "{page}");
    // A body that starts with the PDF signature is read as PDF, whatever its header says.
    Files::check("only", &files.fetch("only").await, "the other face");
}
