//! The title of a document: of its information, or of its XMP metadata.

use encoding_rs::{UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use hayro_syntax::{
    Pdf,
    object::{Dict, Stream, dict::keys},
};

use super::{
    budget::{Budget, MAX_TABLE_BYTES},
    decode::decode,
};

/// The title, if a document has one.
pub(super) fn title(pdf: &Pdf, budget: &mut Budget) -> Option<String> {
    let said = pdf.metadata().title.as_deref().map(text).filter(|title| !title.trim().is_empty());
    said.or_else(|| {
        let root = pdf.xref().get::<Dict<'_>>(pdf.xref().root_id())?;
        let packet = root.get::<Stream<'_>>(keys::METADATA)?;
        // Metadata that exhaust the budget leave none for the pages either, which tell so.
        let packet = decode(&packet, MAX_TABLE_BYTES, budget).ok()?;
        of_xmp(&String::from_utf8_lossy(&packet))
    })
}

/// A text string: UTF-16 or UTF-8 by its mark, else an encoding that is nearly Windows' own.
fn text(bytes: &[u8]) -> String {
    let encoding = match bytes {
        [0xfe, 0xff, ..] => UTF_16BE,
        [0xff, 0xfe, ..] => UTF_16LE,
        [0xef, 0xbb, 0xbf, ..] => UTF_8,
        _ => WINDOWS_1252,
    };
    encoding.decode_with_bom_removal(bytes).0.into_owned()
}

/// The first `dc:title` of an XMP packet.
fn of_xmp(packet: &str) -> Option<String> {
    let (_, title) = packet.split_once("<dc:title")?;
    let (title, _) = title.split_once("</dc:title>")?;
    let (_, item) = title.split_once("<rdf:li")?;
    let (_, item) = item.split_once('>')?;
    let (item, _) = item.split_once('<')?;
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    let title = plain.iter().fold(item.to_owned(), |title, (name, character)| title.replace(name, character));
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
        assert_eq!(of_xmp(&format!("{packet}</rdf:Alt></dc:title>")).as_deref(), Some("Gates & walls"));
        assert_eq!(of_xmp(packet), None);
        assert_eq!(of_xmp("<dc:title></dc:title>"), None);
    }
}
