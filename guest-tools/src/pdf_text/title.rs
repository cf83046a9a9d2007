//! The title of a document, from its information dictionary or its XMP metadata.

use encoding_rs::{UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use hayro_syntax::{
    Pdf,
    object::{Dict, Stream, dict::keys},
};

use super::{
    budget::{MAX_TABLE_BYTES, PdfBudget},
    decode::decode,
};

/// Returns the title, if a document has one.
pub(super) fn title(pdf: &Pdf, budget: &mut PdfBudget) -> Option<String> {
    let info_title = pdf.metadata().title.as_deref().map(text).filter(|title| !title.trim().is_empty());
    info_title.or_else(|| {
        let root = pdf.xref().get::<Dict<'_>>(pdf.xref().root_id())?;
        let packet = root.get::<Stream<'_>>(keys::METADATA)?;
        // An exhausted budget is not reported here: the reading of the pages fails immediately and reports it.
        let packet = decode(&packet, MAX_TABLE_BYTES, budget).ok()?;
        xmp_title(&String::from_utf8_lossy(&packet))
    })
}

/// Decodes a text string: UTF-16 or UTF-8 according to its mark, otherwise an encoding close to Windows-1252.
fn text(bytes: &[u8]) -> String {
    let encoding = match bytes {
        [0xfe, 0xff, ..] => UTF_16BE,
        [0xff, 0xfe, ..] => UTF_16LE,
        [0xef, 0xbb, 0xbf, ..] => UTF_8,
        _ => WINDOWS_1252,
    };
    encoding.decode_with_bom_removal(bytes).0.into_owned()
}

/// Returns the first `dc:title` of an XMP packet.
fn xmp_title(packet: &str) -> Option<String> {
    let (_, title) = packet.split_once("<dc:title")?;
    let (title, _) = title.split_once("</dc:title>")?;
    let (_, item) = title.split_once("<rdf:li")?;
    let (_, item) = item.split_once('>')?;
    let (item, _) = item.split_once('<')?;
    let replacements = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    let title =
        replacements.iter().fold(item.to_owned(), |title, (name, character)| title.replace(name, character));
    Some(title).filter(|title| !title.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_strings_are_known_by_their_mark() {
        assert_eq!(text(b"\xfe\xff\x00G\x20\x19"), "G\u{2019}");
        assert_eq!(text(b"\xef\xbb\xbf\xc3\xa9"), "é");
        assert_eq!(text(b"caf\xe9"), "café");
    }

    #[test]
    fn a_packet_has_its_title_in_a_list() {
        let packet =
            "<rdf:Description><dc:title>\n<rdf:Alt><rdf:li xml:lang=\"x-default\">Gates &amp; walls</rdf:li>";
        assert_eq!(xmp_title(&format!("{packet}</rdf:Alt></dc:title>")).as_deref(), Some("Gates & walls"));
        assert_eq!(xmp_title(packet), None);
        assert_eq!(xmp_title("<dc:title></dc:title>"), None);
    }
}
