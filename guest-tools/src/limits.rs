//! Limits on the result of one call of a core tool.

/// The maximum size of the text of one result: 4 MiB. Without this limit a model could fill the guest's memory with one
/// call. The host shows far less, and pages the rest.
pub(crate) const MAX_TEXT_BYTES: usize = 4 << 20;

/// The maximum length of a text as a JSON string: 6 MiB. A final frame can have 8 MiB, and a control character takes
/// six bytes.
const MAX_ESCAPED_BYTES: usize = 6 << 20;

/// Returns the length in bytes of the longest start of a text that fits into one result. It is always a
/// character boundary.
pub(crate) fn fitting_length(text: &str) -> usize {
    // No byte takes more than six, and most texts are far below the limit.
    if text.len() <= MAX_ESCAPED_BYTES / 6 {
        return text.len();
    }
    let mut escaped = 0;
    let past = text.bytes().position(|byte| {
        escaped += match byte {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..0x20 => 6,
            _ => 1,
        };
        escaped > MAX_ESCAPED_BYTES
    });
    text.floor_char_boundary(past.unwrap_or(text.len()).min(MAX_TEXT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_its_frame_would_be_too_long() {
        assert_eq!(fitting_length("short"), 5);
        assert_eq!(fitting_length(&"a".repeat(5 << 20)), MAX_TEXT_BYTES);
        assert_eq!(fitting_length(&"\u{1}".repeat(2 << 20)), 1 << 20);
        assert_eq!(fitting_length(&"\n".repeat(4 << 20)), 3 << 20);
        assert_eq!(fitting_length(&format!("a{}", "é".repeat(3 << 20))), MAX_TEXT_BYTES - 1);
    }
}
