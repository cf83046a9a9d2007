//! PDF files that need far more work than their size suggests. Each call ends with a text or a typed error,
//! and the registry still serves the next call.

use portcullis_testing::pdf_file::{HELVETICA, PdfFile};
use portcullis_types::ToolErrorKind;

use super::{Files, deflate, show};

const MIB: usize = 1 << 20;

/// Creates a page with a text, followed by this content.
fn page_with_text_before(rest: &[u8]) -> Vec<u8> {
    PdfFile::with_pages(HELVETICA, [[show(50, 700, "kept").as_bytes(), rest].concat()]).finish()
}

/// Creates a page whose content uses forms. `add` adds the forms, and returns the number of the first one.
fn file_with_forms(content: &str, add: impl FnOnce(&mut PdfFile) -> usize) -> Vec<u8> {
    let mut file = PdfFile::new();
    let font = file.object(HELVETICA);
    let form = add(&mut file);
    let content = file.stream("", format!("{}{content}", show(50, 700, "kept")).as_bytes());
    file.page(&format!("/Font << /F {font} 0 R >> /XObject << /X {form} 0 R >>"), content);
    file.finish()
}

fn form(file: &mut PdfFile, shows: usize, content: &str) -> usize {
    let entries = format!("/Type /XObject /Subtype /Form /Resources << /XObject << /X {shows} 0 R >> >>");
    file.stream(&entries, content.as_bytes())
}

#[tokio::test]
async fn work_beyond_the_budget_keeps_the_text_before_it() {
    let zeros = deflate(&vec![b' '; 64 * MIB]);
    let mut nested = PdfFile::new();
    let font = nested.object(HELVETICA);
    let packed = [show(50, 700, "kept").into_bytes(), vec![b' '; 64 * MIB]].concat();
    let content = nested.stream("/Filter [/FlateDecode /FlateDecode]", &deflate(&deflate(&packed)));
    nested.page(&format!("/Font << /F {font} 0 R >>"), content);
    let files = [
        ("inflated_twice", nested.finish()),
        ("form_of_itself", file_with_forms("/X Do", |file| form(file, file.next_number(), "/X Do /X Do"))),
        (
            "forms_of_forms",
            file_with_forms("/X Do", |file| {
                let first = file.next_number();
                for number in first..first + 20 {
                    form(file, number + 1, &"/X Do ".repeat(20));
                }
                first
            }),
        ),
        (
            "inflated_form",
            file_with_forms(&"/X Do ".repeat(10_000), |file| {
                file.stream("/Subtype /Form /Filter /FlateDecode", &zeros)
            }),
        ),
        ("states", page_with_text_before("q ".repeat(2 * MIB).as_bytes())),
        ("arrays", page_with_text_before("[".repeat(4 * MIB).as_bytes())),
        ("dictionaries", page_with_text_before("<<".repeat(2 * MIB).as_bytes())),
        ("strings", page_with_text_before("(".repeat(4 * MIB).as_bytes())),
        ("operands", page_with_text_before("1 ".repeat(2 * MIB).as_bytes())),
        ("images", page_with_text_before(format!("BI ID x{}", " EI q".repeat(MIB / 2)).as_bytes())),
        ("steps", page_with_text_before(format!("BT {}ET", "900 0 Td () Tj ".repeat(MIB / 2)).as_bytes())),
    ];
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let files = Files::serve(files).await;
    for name in names {
        let answer = files.fetch(name).await;
        assert!(answer.text().starts_with("kept"), "{name}: {answer:?}");
    }
}

#[tokio::test]
async fn fonts_of_endless_tables_are_read_as_far_as_needed() {
    let show = "BT /F 10 Tf 50 700 Td <00410042> Tj ET";
    let composite = |rest: &str, widths: &str| {
        format!(
            "<< /Type /Font /Subtype /Type0 /Encoding /Identity-H {rest} /DescendantFonts [<< /W [{widths}] >>] >>"
        )
    };
    let mut ranges = PdfFile::new();
    let table = "1 beginbfrange <00000000> <FFFFFFFF> <0000> endbfrange ".repeat(10_000);
    let table = ranges.stream("/Filter /FlateDecode", &deflate(table.as_bytes()));
    let itself = ranges.next_number();
    let font =
        ranges.object(composite(&format!("/ToUnicode {table} 0 R /FontDescriptor {itself} 0 R"), "1 2 3"));
    let content = ranges.stream("", show.as_bytes());
    ranges.page(&format!("/Font << /F {font} 0 R >>"), content);
    let files = Files::serve([
        ("ranges", ranges.finish()),
        ("widths", PdfFile::with_pages(&composite("", &"0 4294967295 500 ".repeat(1000)), [show]).finish()),
    ])
    .await;
    assert_eq!(files.fetch("ranges").await.text(), "AB");
    assert_eq!(files.fetch("widths").await.text(), "\u{fffd}\u{fffd}");
}

#[tokio::test]
async fn only_the_first_pages_of_a_long_file_are_read() {
    let pages: Vec<String> = (1..=600).map(|page| show(50, 700, &format!("number {page}"))).collect();
    let files = Files::serve([("long", PdfFile::with_pages(HELVETICA, pages).finish())]).await;
    let answer = files.fetch("long").await;
    let text = answer.text();
    assert!(text.starts_with("number 1\n\n--- page 2 ---\n\nnumber 2\n"), "{text}");
    assert_eq!((&answer.0.details["pages"], &answer.0.details["pages_read"]), (&600.into(), &500.into()));
}

#[tokio::test]
async fn cyclic_page_trees_and_xref_tables_terminate() {
    let catalog = "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj ";
    let trailer = " trailer<</Root 1 0 R>>";
    let tree =
        |kids: &str| format!("{catalog}2 0 obj<</Type/Pages/Kids[{kids}]>>endobj{trailer}").into_bytes();
    let chain: String = (2..50_000)
        .map(|number| format!("{number} 0 obj<</Type/Pages/Kids[{} 0 R]>>endobj ", number + 1))
        .collect();
    let files = [
        ("kid_of_itself", tree(&"2 0 R ".repeat(100_000))),
        ("chain", format!("{catalog}{chain}{trailer}").into_bytes()),
        ("reference", b"%PDF-1.4\n1 0 obj 1 0 R endobj trailer<</Root 1 0 R>>".to_vec()),
        (
            "table",
            b"%PDF-1.4\nxref\n0 1\n0000000000 65535 f \ntrailer<</Size 4000000000/Root 1 0 R/Prev 9>>\nstartxref\n9".to_vec(),
        ),
        ("length", format!("{catalog}2 0 obj<</Length 2 0 R>>stream\nx\nendstream endobj{trailer}").into_bytes()),
    ];
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let files = Files::serve(files).await;
    for name in names {
        let text = files.fetch(name).await.text();
        assert!(text.starts_with("application/pdf, "), "{name}: {text}");
    }
}

#[tokio::test]
async fn exhausted_memory_ends_the_call_alone() {
    // Only the memory limit of the guest bounds these: the library inflates object streams without a limit,
    // and keeps all pages of a file in memory.
    let bomb = deflate(&vec![b' '; 512 * MIB]);
    let head = format!(
        "%PDF-1.5\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 9 0 obj<</Type/ObjStm/N 9/First 9/Filter/FlateDecode/Length {}>>stream\n",
        bomb.len()
    );
    let bomb = [head.as_bytes(), &bomb, b"\nendstream endobj trailer<</Root 1 0 R>>"].concat();
    let kids = format!(
        "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[{}]>>endobj trailer<</Root 1 0 R>>",
        "<<>>".repeat(2 * MIB)
    );
    let after = PdfFile::with_pages(HELVETICA, [show(50, 700, "after")]).finish();
    let files = Files::serve([("objects", bomb), ("kids", kids.into_bytes()), ("after", after)]).await;
    for name in ["objects", "kids"] {
        let answer = files.fetch(name).await;
        assert_eq!(answer.error().kind(), ToolErrorKind::ResourceLimit, "{name}: {answer:?}");
    }
    assert_eq!(files.fetch("after").await.text(), "after");
}

#[tokio::test]
async fn scripts_and_embedded_files_are_ignored() {
    let mut file = PdfFile::with_pages(HELVETICA, [show(50, 700, "seen")]);
    file.object("<< /S /JavaScript /JS (app.alert\\(1\\)) >>");
    file.stream("/Type /EmbeddedFile", b"hidden payload");
    let files = Files::serve([("script", file.finish())]).await;
    assert_eq!(files.fetch("script").await.text(), "seen");
}
