//! Single-line JSON text for task files. It has no backticks, so that it cannot end a fence, and no
//! characters that are invisible or change how a line is read.

use std::fmt::Write as _;

use portcullis_types::{is_deceptive, is_invisible};
use serde::Serialize;

/// Writes a value as JSON on one line. All escaped characters read back unchanged.
///
/// # Errors
/// Same as [`serde_json::to_string`].
pub(crate) fn line(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string(value)?;
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_plain(character) {
            out.push(character);
            continue;
        }
        // Outside strings, JSON has only plain ASCII, so each of these characters is in a string and can be
        // escaped.
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            // Writing into a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Ok(out)
}

fn is_plain(character: char) -> bool {
    character == ' '
        || !(character == '`'
            || character.is_control()
            || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
            || is_deceptive(character)
            || is_invisible(character))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_text_survives_a_line_without_backticks(text in ".*|[`~\\PC\u{0}-\u{ff}\u{202e}\u{10ffff}]*") {
            let line = line(&text).expect("a string is JSON");
            prop_assert!(!line.contains(['`', '\n', '\r']));
            prop_assert_eq!(serde_json::from_str::<String>(&line).expect("reads"), text);
        }
    }
}
