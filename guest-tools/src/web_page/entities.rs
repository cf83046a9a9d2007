//! Decodes character references: `&amp;`, `&#8211;`, `&#x2013;`.

use web_atoms::NAMED_ENTITIES;

use super::tokens::InAttribute;

/// The maximum length of the name of a reference, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// Replaces the references in a text.
pub(super) fn decode(text: &str, in_attribute: InAttribute) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(offset) = memchr::memchr(b'&', rest.as_bytes()) {
        decoded.push_str(&rest[..offset]);
        rest = &rest[offset..];
        let length = reference(rest, in_attribute, &mut decoded);
        if length == 0 {
            decoded.push('&');
        }
        rest = &rest[length.max(1)..];
    }
    decoded.push_str(rest);
    decoded
}

/// Appends the characters of the reference at the start of `text`. Returns the length of the reference, or 0 if there
/// is no reference.
fn reference(text: &str, in_attribute: InAttribute, decoded: &mut String) -> usize {
    let bytes = text.as_bytes();
    if bytes.get(1) == Some(&b'#') {
        return numeric(text, decoded);
    }
    let length =
        bytes[1..].iter().take(MAX_NAME_BYTES).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let has_semicolon = bytes.get(1 + length) == Some(&b';');
    let reference_bytes = 1 + length + usize::from(has_semicolon);
    if has_semicolon && push(&text[1..reference_bytes], decoded) {
        return reference_bytes;
    }
    if in_attribute == InAttribute::Yes {
        // `?a=1&copy=2` is a query, not a copyright sign.
        let is_followed_by_equals = matches!(bytes.get(1 + length), Some(b'='));
        return if !has_semicolon && !is_followed_by_equals && push(&text[1..reference_bytes], decoded) {
            reference_bytes
        } else {
            0
        };
    }
    // Finds the longest start of the name that is valid without `;`: `&ampx` is `&x`. Names of this kind have at most
    // six letters.
    (2..=length.min(6)).rev().find(|end| push(&text[1..=*end], decoded)).map_or(0, |end| 1 + end)
}

/// Appends the characters of a name. The table also lists starts of names, which have no characters.
fn push(name: &str, decoded: &mut String) -> bool {
    let Some((first, second)) = NAMED_ENTITIES.get(name) else { return false };
    let characters =
        [*first, *second].map(|code| char::from_u32(code).filter(|character| *character != '\0'));
    decoded.extend(characters.into_iter().flatten());
    characters[0].is_some()
}

/// Appends the character of a numeric reference.
fn numeric(text: &str, decoded: &mut String) -> usize {
    let hexadecimal = matches!(text.as_bytes().get(2), Some(b'x' | b'X'));
    let begin = if hexadecimal { 3 } else { 2 };
    let radix = if hexadecimal { 16 } else { 10 };
    let digits = text.bytes().skip(begin).take_while(|byte| char::from(*byte).is_digit(radix)).count();
    if digits == 0 {
        return 0;
    }
    let end = begin + digits;
    let code = text[begin..end].chars().fold(0_u32, |code, digit| {
        code.saturating_mul(radix).saturating_add(digit.to_digit(radix).unwrap_or(0))
    });
    decoded.push(character_of(code));
    end + usize::from(text.as_bytes().get(end) == Some(&b';'))
}

/// The character with this number. As in browsers, the numbers 128 to 159 mean windows-1252.
fn character_of(code: u32) -> char {
    if let Ok(byte @ 0x80..=0x9f) = u8::try_from(code) {
        let bytes = [byte];
        let (text, _had_errors) = encoding_rs::WINDOWS_1252.decode_without_bom_handling(&bytes);
        return text.chars().next().unwrap_or('\u{fffd}');
    }
    char::from_u32(code).filter(|character| *character != '\0').unwrap_or('\u{fffd}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(decode(text, InAttribute::No), expected);
    }

    #[test]
    fn references_become_characters() {
        check("a &amp; b &lt;&gt; &eacute;&nbsp;&hellip;", "a & b <> é\u{a0}…");
        check("&#8211;&#x2014;&#X41;&#65", "–—AA");
        check("&#150;&#x80;", "–€");
        check("&NotEqualTilde;", "≂̸");
    }

    #[test]
    fn a_name_may_lack_its_semicolon() {
        check("&ampx &copy2 &lt", "&x ©2 <");
        assert_eq!(decode("?a=1&copy=2&amp;b", InAttribute::Yes), "?a=1&copy=2&b");
    }

    #[test]
    fn other_ampersands_stay() {
        for text in ["&", "a & b", "&;", "&#;", "&#x;", "&nosuchname;", "&é;", "&&&"] {
            check(text, text);
        }
    }

    #[test]
    fn numbers_without_a_character_are_replaced() {
        check("&#0;&#xD800;&#x110000;&#99999999999999999999;", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}");
    }
}
