//! The encodings of Asian texts that are charsets. Their codes are characters, so no table of a font is needed.
//!
//! The specification names about sixty of these encodings. A font with such an encoding is often not in the file.

use encoding_rs::{BIG5, EUC_JP, EUC_KR, GB18030, SHIFT_JIS};

/// A charset, with the rules that separate its codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charset {
    Utf16,
    ShiftJis,
    EucJp,
    /// JIS X 0208 in two bytes of seven bits.
    Jis,
    /// GBK, and GB 18030, which contains it.
    Gb18030,
    Big5,
    EucKr,
}

impl Charset {
    /// The charset of the encoding with this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let name_contains = |part: &str| name.contains(part);
        Some(match name {
            "H" | "V" => Self::Jis,
            "EUC-H" | "EUC-V" => Self::EucJp,
            _ if name.starts_with("Uni") && (name_contains("UCS2") || name_contains("UTF16")) => Self::Utf16,
            _ if name_contains("RKSJ") => Self::ShiftJis,
            _ if name.starts_with("GB") => Self::Gb18030,
            _ if name_contains("B5") => Self::Big5,
            _ if name.starts_with("KSC") => Self::EucKr,
            _ => return None,
        })
    }

    /// The length of the first code in bytes, at least 1.
    pub(super) fn length(self, bytes: &[u8]) -> usize {
        let (first, second) = (bytes[0], bytes.get(1).copied().unwrap_or(0));
        let length = match self {
            Self::Utf16 if (0xd8..0xdc).contains(&first) => 4,
            Self::Utf16 | Self::Jis => 2,
            // Half-width katakana have one byte.
            Self::ShiftJis if matches!(first, 0x81..=0x9f | 0xe0..=0xfc) => 2,
            Self::EucJp if first == 0x8f => 3,
            Self::EucJp if first == 0x8e || first >= 0xa1 => 2,
            Self::Gb18030 if first >= 0x81 && second.is_ascii_digit() => 4,
            Self::Gb18030 | Self::Big5 | Self::EucKr if first >= 0x81 => 2,
            _ => 1,
        };
        length.min(bytes.len())
    }

    pub(super) fn characters(self, code: &[u8]) -> Option<String> {
        if self == Self::Utf16 {
            let units = code.chunks_exact(2).map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
            let text = char::decode_utf16(units).collect::<Result<String, _>>().ok();
            return text.filter(|text| !text.is_empty());
        }
        let high: Vec<u8>;
        let (charset, code) = match self {
            Self::ShiftJis => (SHIFT_JIS, code),
            Self::Gb18030 => (GB18030, code),
            Self::Big5 => (BIG5, code),
            Self::EucKr => (EUC_KR, code),
            Self::Jis => {
                high = code.iter().map(|byte| byte | 0x80).collect();
                (EUC_JP, &*high)
            }
            Self::EucJp | Self::Utf16 => (EUC_JP, code),
        };
        charset.decode_without_bom_handling_and_without_replacement(code).map(std::borrow::Cow::into_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, bytes: &[u8], expected: &[&str]) {
        let charset = Charset::from_name(name).expect("known");
        let mut rest = bytes;
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (code, after) = rest.split_at(charset.length(rest));
            found.push(charset.characters(code).unwrap_or_default());
            rest = after;
        }
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn codes_are_characters_of_the_charset() {
        check("90ms-RKSJ-H", b"a\x93\xfa\x96\x7b\xb1", &["a", "日", "本", "\u{ff71}"]);
        check("UniJIS-UCS2-H", b"\x65\xe5\x67\x2c", &["日", "本"]);
        check("UniJIS-UTF16-V", b"\xd8\x42\xdf\xb7", &["𠮷"]);
        check("V", b"\x46\x7c\x4b\x5c", &["日", "本"]);
        check("EUC-H", b"\xc6\xfc\x8e\xb1", &["日", "\u{ff71}"]);
        check("GBK-EUC-H", b"\xd6\xd0A", &["中", "A"]);
        check("ETen-B5-V", b"\xa4\xa4", &["中"]);
        check("KSCms-UHC-H", b"\xc7\xd1", &["한"]);
    }

    #[test]
    fn a_cut_code_is_not_a_character() {
        check("90ms-RKSJ-H", b"\x93", &[""]);
        check("UniGB-UCS2-H", b"\x65", &[""]);
        check("GBK2K-H", b"\x81\x30", &[""]);
        assert_eq!(Charset::from_name("Identity-H"), None);
    }
}
