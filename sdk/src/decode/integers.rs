//! Integers that are written with a point or an exponent.
//!
//! JSON Schema accepts `5.0` and `5e0` as integers, and models write them; the decoder of an integer does
//! not. The text is rewritten, not the value, so no digit is lost.

/// The same JSON with such numbers rewritten as integers; none if there are none.
pub(super) fn numbers(text: &str) -> Option<String> {
    let mut rewritten = String::new();
    // The text before this index is in `rewritten`.
    let mut done = 0;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => (at, _) = string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let end = bytes[at..]
                    .iter()
                    .position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
                    .map_or(bytes.len(), |length| at + length);
                if let Some(whole) = whole(&text[at..end]) {
                    rewritten.push_str(&text[done..at]);
                    rewritten.push_str(&whole);
                    done = end;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    if done == 0 {
        return None;
    }
    rewritten.push_str(&text[done..]);
    Some(rewritten)
}

/// The index after a string that begins at this quote, and whether it has escapes.
pub(super) fn string(bytes: &[u8], quote: usize) -> (usize, bool) {
    let mut has_escapes = false;
    let mut at = quote + 1;
    loop {
        // Eight bytes at a time, up to the first that may end the string.
        while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
            let eight = u64::from_le_bytes(*eight);
            let ends = places(eight, b'"') | places(eight, b'\\');
            if ends != 0 {
                at += ends.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match bytes.get(at) {
            None => return (bytes.len(), has_escapes),
            Some(b'"') => return (at + 1, has_escapes),
            Some(b'\\') => {
                has_escapes = true;
                at += 2;
            }
            Some(_) => at += 1,
        }
    }
}

/// Marks the byte's occurrences by their highest bit. Only the first mark is reliable: a borrow may set later
/// ones.
fn places(bytes: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let zeros = bytes ^ (ONES * u64::from(byte));
    zeros.wrapping_sub(ONES) & !zeros & (ONES << 7)
}

/// The digits of an integer that is written otherwise.
fn whole(number: &str) -> Option<String> {
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
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if after.is_empty() && !number.contains(['.', 'e', 'E']) {
        return None;
    }
    let mut digits = format!("{before}{after}");
    if digits.bytes().all(|digit| digit == b'0') {
        return Some("0".to_owned());
    }
    let significant = digits.trim_end_matches('0').len();
    let zeros = i32::try_from(digits.len() - significant).ok()?;
    let exponent = exponent.checked_sub(i32::try_from(after.len()).ok()?)?.checked_add(zeros)?;
    digits.truncate(significant);
    let exponent = usize::try_from(exponent).ok()?;
    let digits = digits.trim_start_matches('0');
    if digits.len() + exponent > MAX_DIGITS {
        return None;
    }
    Some(format!("{sign}{digits}{}", "0".repeat(exponent)))
}

/// The most digits of any integer type: 39. A longer number stays unchanged, and is then refused.
const MAX_DIGITS: usize = 39;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(numbers(text).as_deref().unwrap_or(text), expected);
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
