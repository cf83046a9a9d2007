//! PDF files of the budgets: a file of many pages, and files that ask for more work than their size.

use std::io::Write as _;

use flate2::{Compression, write::ZlibEncoder};
use portcullis_testing::pdf_file::{HELVETICA, PdfFile};

/// Creates a file whose pages are full of compressed text.
pub(super) fn text_pages(count: usize) -> Vec<u8> {
    let line = "The northern gate was built first, and it is the only one that still has its portcullis.";
    let content: String =
        (0..60).map(|line_number| format!("1 0 0 1 50 {} Tm ({line}) Tj ", 780 - 12 * line_number)).collect();
    let content = deflate(format!("BT /F 10 Tf {content}ET").as_bytes());
    let mut file = PdfFile::new();
    let font = file.object(HELVETICA);
    for _ in 0..count {
        let content = file.stream("/Filter /FlateDecode", &content);
        file.page(&format!("/Font << /F {font} 0 R >>"), content);
    }
    file.finish()
}

pub(super) fn inflating_content() -> Vec<u8> {
    let mut file = PdfFile::new();
    let content = file.stream("/Filter /FlateDecode", &deflate(&vec![b' '; 1 << 30]));
    for _ in 0..100 {
        file.page("", content);
    }
    file.finish()
}

pub(super) fn forms_of_forms() -> Vec<u8> {
    let mut file = PdfFile::new();
    let first = file.next_number();
    for number in first..first + 20 {
        let entries = format!("/Subtype /Form /Resources << /XObject << /X {} 0 R >> >>", number + 1);
        file.stream(&entries, "/X Do ".repeat(20).as_bytes());
    }
    let content = file.stream("", b"/X Do");
    file.page(&format!("/XObject << /X {first} 0 R >>"), content);
    file.finish()
}

pub(super) fn inflating_objects() -> Vec<u8> {
    let objects = deflate(&vec![b' '; 1 << 30]);
    let head = format!(
        "%PDF-1.5\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 9 0 obj<</Type/ObjStm/N 9/First 9/Filter/FlateDecode/Length {}>>stream\n",
        objects.len()
    );
    [head.as_bytes(), &objects, b"\nendstream endobj trailer<</Root 1 0 R>>"].concat()
}

pub(super) fn endless_pages() -> Vec<u8> {
    let head = "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[";
    format!("{head}{}]>>endobj trailer<</Root 1 0 R>>", "<<>>".repeat(1_000_000)).into_bytes()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("written");
    encoder.finish().expect("finished")
}
