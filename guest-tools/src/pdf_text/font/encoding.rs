//! The encodings of simple fonts, which give the character of each code.

use encoding_rs::{MACINTOSH, WINDOWS_1252};

/// An encoding that the specification defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Adobe's encoding for Type 1 fonts.
    Standard,
    WinAnsi,
    MacRoman,
    Symbol,
    /// The encoding of the font Zapf Dingbats.
    Dingbats,
}

impl Encoding {
    /// The encoding with this name in a font's dictionary.
    pub(super) fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"StandardEncoding" => Some(Self::Standard),
            b"WinAnsiEncoding" => Some(Self::WinAnsi),
            b"MacRomanEncoding" => Some(Self::MacRoman),
            _ => None,
        }
    }

    /// The encoding of a font that names none. It depends on the font's name.
    pub(super) fn for_font(font: &str, otherwise: Self) -> Self {
        if font.starts_with("Symbol") {
            Self::Symbol
        } else if font.contains("Dingbats") {
            Self::Dingbats
        } else {
            otherwise
        }
    }

    pub(super) fn character(self, code: u8) -> Option<char> {
        match (self, code) {
            (_, ..b' ') => None,
            (_, b' ') => Some(' '),
            (Self::WinAnsi, _) => charset_character(WINDOWS_1252, code),
            (Self::MacRoman, _) => charset_character(MACINTOSH, code),
            (Self::Standard, b'\'') => Some('\u{2019}'),
            (Self::Standard, b'`') => Some('\u{2018}'),
            (Self::Standard, ..0x7f) => Some(char::from(code)),
            (Self::Standard, _) => table_character(STANDARD, code.checked_sub(0xa1)?),
            (Self::Symbol, _) => table_character(SYMBOL, code - b'!'),
            (Self::Dingbats, _) => table_character(DINGBATS, code - b'!'),
        }
    }
}

fn charset_character(charset: &'static encoding_rs::Encoding, code: u8) -> Option<char> {
    let code = [code];
    let (text, _) = charset.decode_without_bom_handling(&code);
    text.chars().next().filter(|character| !character.is_control())
}

/// The character at an index of a table. A space in the table means no character.
fn table_character(table: &str, index: u8) -> Option<char> {
    table.chars().nth(usize::from(index)).filter(|character| *character != ' ')
}

/// The characters from code 0xa1 on.
const STANDARD: &str =
    "¡¢£⁄¥ƒ§¤'“«‹›ﬁﬂ –†‡· ¶•‚„”»…‰ ¿ `´ˆ˜¯˘˙¨ ˚¸ ˝˛ˇ—                Æ ª    ŁØŒº     æ   ı  łøœß";

/// The characters from code 0x21 on.
const SYMBOL: &str = "\
    !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧ∆ΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_ αβχδεφγηιϕκλµνοπθρστυϖωξψζ{|}∼                                 \
    €ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…  ↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑           〉∫⌠ ⌡         ";

/// The characters from code 0x21 on.
const DINGBATS: &str = "\
    ✁✂✃✄☎✆✇✈✉☛☞✌✍✎✏✐✑✒✓✔✕✖✗✘✙✚✛✜✝✞✟✠✡✢✣✤✥✦✧★✩✪✫✬✭✮✯✰✱✲✳✴✵✶✷✸✹✺✻✼✽✾✿❀❁❂❃❄❅❆❇❈❉❊❋●❍■❏❐❑❒▲▼◆❖◗❘❙❚❛❜❝❞ ❨❩❪❫❬\
    ❭❮❯❰❱❲❳❴❵                   ❡❢❣❤❥❦❧♣♦♥♠①②③④⑤⑥⑦⑧⑨⑩❶❷❸❹❺❻❼❽❾❿➀➁➂➃➄➅➆➇➈➉➊➋➌➍➎➏➐➑➒➓➔→↔↕➘➙➚➛➜➝➞➟➠➡➢➣➤➥➦➧➨\
    ➩➪➫➬➭➮➯ ➱➲➳➴➵➶➷➸➹➺➻➼➽➾";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(encoding: Encoding, codes: &[u8], expected: &str) {
        let text: String = codes.iter().map(|code| encoding.character(*code).unwrap_or('?')).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn each_encoding_has_its_own_characters() {
        check(Encoding::Standard, b"it's \xae\xfb\x81", "it\u{2019}s \u{fb01}\u{df}?");
        check(Encoding::WinAnsi, b"\x93caf\xe9\x94 \x80", "\u{201c}caf\u{e9}\u{201d} \u{20ac}");
        check(Encoding::MacRoman, b"caf\x8e", "caf\u{e9}");
        check(Encoding::Symbol, b"abG\xb7\xfe", "\u{3b1}\u{3b2}\u{393}\u{2022}?");
        check(Encoding::Dingbats, b"!n\xfe", "\u{2701}\u{25a0}\u{27be}");
    }

    #[test]
    fn symbol_fonts_have_their_built_in_encoding() {
        assert_eq!(Encoding::for_font("SymbolMT", Encoding::WinAnsi), Encoding::Symbol);
        assert_eq!(Encoding::for_font("ITCZapfDingbats", Encoding::Standard), Encoding::Dingbats);
        assert_eq!(Encoding::for_font("Helvetica", Encoding::Standard), Encoding::Standard);
        assert_eq!(Encoding::from_name(b"Identity-H"), None);
    }
}
