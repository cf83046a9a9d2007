//! Rewrites integers that are written with a point or an exponent.
//!
//! JSON Schema accepts `5.0` and `5e0` as integers, and models write them, but the decoder of an integer refuses
//! them. The text is rewritten, not the value, so no digit is lost.

/// Returns the same JSON with such numbers rewritten as integers; `None` if it has none.
pub(super) fn rewrite_whole_numbers(text: &str) -> Option<String> {
    let mut rewritten = String::new();
    // The text before this index is in `rewritten`.
    let mut copied_until = 0;
    let bytes = text.as_bytes();
    let mut index = 0;
    while index < bytes.len() {
        match bytes[index] {
            b'"' => (index, _) = skip_string(bytes, index),
            b'-' | b'0'..=b'9' => {
                let end = bytes[index..]
                    .iter()
                    .position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
                    .map_or(bytes.len(), |length| index + length);
                if let Some(digits) = integer_digits(&text[index..end]) {
                    rewritten.push_str(&text[copied_until..index]);
                    rewritten.push_str(&digits);
                    copied_until = end;
                }
                index = end;
            }
            _ => index += 1,
        }
    }
    if copied_until == 0 {
        return None;
    }
    rewritten.push_str(&text[copied_until..]);
    Some(rewritten)
}

/// Returns the index after a string that starts at this quote, and whether the string has escapes.
pub(super) fn skip_string(bytes: &[u8], quote: usize) -> (usize, bool) {
    let mut has_escapes = false;
    let mut index = quote + 1;
    loop {
        // Scans eight bytes at a time, up to the first byte that may end the string.
        while let Some(word) = bytes.get(index..).and_then(<[u8]>::first_chunk) {
            let word = u64::from_le_bytes(*word);
            let end_marks = mark_byte(word, b'"') | mark_byte(word, b'\\');
            if end_marks != 0 {
                index += end_marks.trailing_zeros() as usize / 8;
                break;
            }
            index += 8;
        }
        match bytes.get(index) {
            None => return (bytes.len(), has_escapes),
            Some(b'"') => return (index + 1, has_escapes),
            Some(b'\\') => {
                has_escapes = true;
                // Skip the escaped byte, which can be a quote.
                index += 2;
            }
            Some(_) => index += 1,
        }
    }
}

/// Marks the occurrences of a byte by the highest bit of each. Only the first mark is reliable, because a borrow may
/// set later ones.
fn mark_byte(bytes: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let zeros = bytes ^ (ONES * u64::from(byte));
    zeros.wrapping_sub(ONES) & !zeros & (ONES << 7)
}

/// Returns the digits of an integer that is written with a point or an exponent, or as `-0`.
fn integer_digits(number: &str) -> Option<String> {
    if number == "-0" {
        return Some("0".to_owned());
    }
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => ("-", number),
        None => ("", number),
    };
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole_part, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if fraction.is_empty() && !number.contains(['.', 'e', 'E']) {
        return None;
    }
    let mut digits = format!("{whole_part}{fraction}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some("0".to_owned());
    }
    let significant = digits.trim_end_matches('0').len();
    let zeros = i32::try_from(digits.len() - significant).ok()?;
    let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(zeros)?;
    digits.truncate(significant);
    // With a negative exponent a fraction is left, so the number is not whole.
    let exponent = usize::try_from(exponent).ok()?;
    let digits = digits.trim_start_matches('0');
    if digits.len() + exponent > MAX_DIGITS {
        return None;
    }
    Some(format!("{sign}{digits}{}", "0".repeat(exponent)))
}

/// The maximum number of digits of any integer type: 39. A longer number stays unchanged and is then refused.
const MAX_DIGITS: usize = 39;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(rewrite_whole_numbers(text).as_deref().unwrap_or(text), expected);
    }

    #[test]
    fn only_whole_numbers_are_rewritten() {
        check("5.0", "5");
        check("-5.000", "-5");
        check("5e2", "500");
        check("5.25E+2", "525");
        check("50e-1", "5");
        check("0.0", "0");
        check("-0", "0");
        check("-0.0e7", "0");
        check("5", "5");
        check("5.5", "5.5");
        check("5e-1", "5e-1");
        check("1e400", "1e400");
        check("1e99999999999", "1e99999999999");
        check("340282366920938463463374607431768211455.0", "340282366920938463463374607431768211455");
        check(r#"{"a":[1.0,"1.0",2.5],"b\"1.0":3.0}"#, r#"{"a":[1,"1.0",2.5],"b\"1.0":3}"#);
    }
}
