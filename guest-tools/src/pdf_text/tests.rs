//! Tests with whole files, which have no table of their objects: the library finds the objects itself. Files with
//! tables, with encryption, and malicious files are in `tests/tests/all/web/`, where the guest reads them.

use super::*;

/// A file with these objects. The first object is the catalog.
fn file(objects: &[&str]) -> Vec<u8> {
    let objects: String =
        (1..).zip(objects).map(|(number, object)| format!("{number} 0 obj\n{object}\nendobj\n")).collect();
    format!("%PDF-1.4\n{objects}trailer << /Root 1 0 R >>\n").into_bytes()
}

/// A file with one page, this font and this content.
fn page(font: &str, content: &str) -> Vec<u8> {
    file(&[
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        "<< /Type /Page /Parent 2 0 R /Resources << /Font << /F 4 0 R >> >> /Contents 5 0 R >>",
        font,
        &format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()),
    ])
}

#[track_caller]
fn check(font: &str, content: &str, expected: &str) {
    let read = read_pdf(page(font, content), PageEffort::Extract).expect("readable");
    assert_eq!((read.text.as_str(), read.pages), (expected, 1));
}

const HELVETICA: &str = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>";

#[test]
fn words_and_lines_come_from_where_letters_stand() {
    check(HELVETICA, "BT /F 10 Tf 50 700 Td (One) Tj 30 0 Td (two) Tj ET", "One two");
    check(HELVETICA, "BT /F 10 Tf 50 700 Td [(T) 70 (o) -300 (day)] TJ ET", "To day");
    check(HELVETICA, "BT /F 10 Tf 12 TL 50 700 Td (a) Tj T* (b) Tj (c) ' ET", "a\nb\nc");
    check(HELVETICA, "BT /F 10 Tf 50 700 Td (a) Tj 0 -12 Td (b) Tj 0 -30 Td (c) Tj ET", "a\nb\n\nc");
    check(HELVETICA, "BT /F 10 Tf 3 Tr 50 700 Td (scanned) Tj ET", "scanned");
    check(HELVETICA, "BT /F 10 Tf 0 1 -1 0 50 100 Tm (upwards) Tj ET", "upwards");
    check(HELVETICA, "q 2 0 0 2 0 0 cm BT /F 10 Tf 50 300 Td (in) Tj ET Q BT 200 600 Td ( out) Tj ET", "in");
}

#[test]
fn encodings_say_the_characters_of_codes() {
    let font = |rest: &str| format!("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica {rest} >>");
    let show = |codes: &str| format!("BT /F 10 Tf 50 700 Td <{codes}> Tj ET");
    check(&font("/Encoding /WinAnsiEncoding"), &show("93636166e994"), "\u{201c}café\u{201d}");
    check(&font("/Encoding << /Differences [1 /f_i /uni00E9 65 /Omega] >>"), &show("010241"), "fié\u{2126}");
    check("<< /Type /Font /Subtype /Type1 /BaseFont /Symbol >>", &show("6162b7"), "αβ\u{2022}");
    let true_type = "<< /Type /Font /Subtype /TrueType /BaseFont /ABCDEF+Arial >>";
    check(true_type, &show("9361ad"), "\u{201c}a-");
}

#[test]
fn an_unmapped_code_is_a_replacement_character() {
    let font = "<< /Type /Font /Subtype /Type0 /Encoding /Identity-H /DescendantFonts [<< /DW 500 >>] >>";
    check(font, "BT /F 10 Tf 50 700 Td <00010002> Tj ET", "\u{fffd}\u{fffd}");
}

#[test]
fn hidden_characters_of_a_table_are_removed() {
    let table = "1 beginbfchar <41> <202E> endbfchar 1 beginbfchar <42> <E000> endbfchar";
    let mut bytes =
        page("<< /Type /Font /Subtype /Type1 /ToUnicode 6 0 R >>", "BT /F 10 Tf 50 700 Td (ABC) Tj ET");
    let end = format!("6 0 obj\n<< /Length {} >>\nstream\n{table}\nendstream\nendobj\n", table.len());
    bytes.extend(end.bytes());
    let read = read_pdf(bytes, PageEffort::Extract).expect("readable");
    assert_eq!(read.text, "\u{fffd}C");
}

#[test]
fn a_cut_file_gives_the_pages_that_are_there() {
    let whole = page(HELVETICA, "BT /F 10 Tf 50 700 Td (kept) Tj ET");
    let start = whole.windows(7).position(|bytes| bytes == b"2 0 obj").expect("an object");
    let end = whole.windows(7).position(|bytes| bytes == b"trailer").expect("a trailer");
    let cut = [b"%PDF-1.4\n", &whole[start..end]].concat();
    let read = read_pdf(cut, PageEffort::Extract).expect("readable");
    assert_eq!((read.text.as_str(), read.pages), ("kept", 1));
    assert_eq!(read_pdf(b"%PDF-1.4\n".to_vec(), PageEffort::Extract), Err(PdfError::Damaged));
    assert_eq!(read_pdf(Vec::new(), PageEffort::Extract), Err(PdfError::Damaged));
}

#[test]
fn any_cut_or_changed_file_does_no_harm() {
    let whole = page(HELVETICA, "BT /F 10 Tf 50 700 Td [(some) -300 (text)] TJ ET");
    for length in 0..whole.len() {
        let _ = read_pdf(whole[..length].to_vec(), PageEffort::Extract);
    }
    for at in 0..whole.len() {
        for byte in [b'(', b'<', b'9', b' ', 0xff] {
            let mut changed = whole.clone();
            changed[at] = byte;
            let _ = read_pdf(changed, PageEffort::Extract);
        }
    }
}

#[test]
fn pages_have_their_numbers_and_a_plain_pass_reads_the_first() {
    let mut objects = vec!["<< /Type /Catalog /Pages 2 0 R >>".to_owned()];
    let kids: Vec<String> = (4..34).map(|number| format!("{number} 0 R")).collect();
    objects.push(format!("<< /Type /Pages /Kids [{}] >>", kids.join(" ")));
    objects.push(HELVETICA.to_owned());
    for number in 34..64 {
        objects
            .push(format!("<< /Type /Page /Resources << /Font << /F 3 0 R >> >> /Contents {number} 0 R >>"));
    }
    for page in 1..31 {
        let content =
            if page == 2 { String::new() } else { format!("BT /F 9 Tf 9 9 Td (page {page}) Tj ET") };
        objects.push(format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()));
    }
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let all = read_pdf(file(&objects), PageEffort::Extract).expect("readable");
    assert!(all.text.starts_with("page 1\n\n--- page 3 ---\n\npage 3\n\n--- page 4"), "{}", all.text);
    assert_eq!((all.pages, all.pages_read), (30, 30));
    let plain = read_pdf(file(&objects), PageEffort::Plain).expect("readable");
    assert_eq!((plain.pages, plain.pages_read), (30, MAX_PLAIN_PAGES));
}

/// A file with one page. `contents` is the value of `/Contents`, and `stream` is object 5.
fn contents(contents: &str, entries: &str, stream: &str) -> Vec<u8> {
    file(&[
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        &format!("<< /Type /Page /Resources << /Font << /F 4 0 R >> >> /Contents {contents} >>"),
        HELVETICA,
        &format!("<< {entries} /Length {} >>\nstream\n{stream}\nendstream", stream.len()),
    ])
}

#[test]
fn more_filters_than_any_file_needs_are_not_followed() {
    let content = "BT /F 10 Tf 9 9 Td (x) Tj ET";
    let digits: String = content.bytes().map(|byte| format!("{byte:02x}")).collect();
    let text = |filters: &str, stream: &str| {
        read_pdf(contents("5 0 R", filters, stream), PageEffort::Extract).expect("readable").text
    };
    assert_eq!(text("/Filter /ASCIIHexDecode", &digits), "x");
    assert_eq!(text("/Filter [/AHx]", &digits), "x");
    assert_eq!(text(&format!("/Filter [{}]", "/ASCIIHexDecode ".repeat(5)), &digits), "");
    assert_eq!(text("/Filter /NoSuchDecode", content), "");
    assert_eq!(text("/Filter [/ASCIIHexDecode /NoSuchDecode]", &digits), "");
}

#[test]
fn the_parts_of_a_page_are_read_up_to_their_bound() {
    let parts = format!("[{}]", "5 0 R ".repeat(20_000));
    let content = "BT /F 10 Tf 9 9 Td (x) Tj ET 1 0 0 1 20 0 cm";
    let read = read_pdf(contents(&parts, "", content), PageEffort::Extract).expect("readable");
    assert_eq!(read.text.matches('x').count(), 10_000);
}
