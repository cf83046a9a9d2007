//! Extracts code from a specification: repairs its text, finds its blocks of Rust, and extracts parts of
//! them.
//!
//! The build script uses it, and the crate tests it.

/// Repairs UTF-8 text that was decoded as Windows-1252 and encoded as UTF-8 again.
///
/// Windows-1252 does not define five bytes and loses them; a character with such a byte becomes U+FFFD.
///
/// # Errors
/// Names the character that cannot result from such a reading.
pub(crate) fn decode_mojibake(text: &str) -> Result<String, String> {
    let bytes: Result<Vec<u8>, String> = text
        .chars()
        .map(|char| match u8::try_from(char) {
            Ok(byte) => Ok(byte),
            Err(_) => WINDOWS_1252
                .iter()
                .find(|(_, windows_char)| *windows_char == char)
                .map(|(byte, _)| *byte)
                .ok_or_else(|| format!("no byte of Windows-1252 is the character {char:?}")),
        })
        .collect();
    Ok(String::from_utf8_lossy(&bytes?).into_owned())
}

/// Returns the code of an example if no byte of it was lost.
///
/// # Errors
/// If a byte was lost.
pub(crate) fn require_undamaged(code: String) -> Result<String, String> {
    if code.contains('\u{fffd}') {
        return Err(format!("bytes of an example were lost: {code}"));
    }
    Ok(code)
}

/// Returns the only block of Rust that contains this text.
///
/// # Errors
/// If no block contains it, or more than one.
pub(crate) fn block_with<'t>(text: &'t str, needle: &str) -> Result<&'t str, String> {
    let mut matching_blocks = rust_blocks(text).into_iter().filter(|block| block.contains(needle));
    match (matching_blocks.next(), matching_blocks.next()) {
        (Some(block), None) => Ok(block),
        (None, _) => Err(format!("no block of Rust has `{needle}`")),
        (Some(_), Some(_)) => Err(format!("more than one block of Rust has `{needle}`")),
    }
}

/// Returns the content of the next block after this line, which must have no language.
///
/// # Errors
/// If the line does not occur exactly once, or the next block has a language, or no block follows.
pub(crate) fn block_after<'t>(text: &'t str, line: &str) -> Result<&'t str, String> {
    let mut parts = text.split(line);
    let (Some(_), Some(rest), None) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("`{line}` is not there once"));
    };
    let mut start = None;
    let mut offset = 0;
    for line in rest.split_inclusive('\n') {
        match (start, fence(line)) {
            (None, Some((_, ""))) => start = Some(offset + line.len()),
            (Some(start), Some((_, ""))) => return Ok(&rest[start..offset]),
            (None, Some((_, info))) => return Err(format!("a block of `{info}` follows")),
            _ => {}
        }
        offset += line.len();
    }
    Err(format!("no block follows `{line}`"))
}

/// Replaces the one damaged text of a block.
///
/// # Errors
/// If the text does not occur exactly once.
pub(crate) fn restore(block: &str, damaged: &str, restored: &str) -> Result<String, String> {
    match block.matches(damaged).count() {
        1 => Ok(block.replace(damaged, restored)),
        count => Err(format!("`{damaged}` is there {count} times")),
    }
}

/// Returns the beginning of a block, up to this text.
///
/// # Errors
/// If the text does not occur.
pub(crate) fn text_before<'t>(block: &'t str, end: &str) -> Result<&'t str, String> {
    block.split_once(end).map(|(before, _)| before).ok_or_else(|| format!("the block has no `{end}`"))
}

/// Replaces the only comment line that begins with `comment`, a placeholder for omitted code.
///
/// # Errors
/// If not exactly one line is such a comment.
pub(crate) fn fill_gap(block: &str, comment: &str, code: &str) -> Result<String, String> {
    let is_gap = |line: &&str| line.trim_start().starts_with(comment);
    if block.lines().filter(is_gap).count() != 1 {
        return Err(format!("not exactly one line is a comment `{comment}`"));
    }
    let lines: Vec<&str> = block.lines().map(|line| if is_gap(&line) { code } else { line }).collect();
    Ok(lines.join("\n"))
}

/// Returns the paragraphs of a block, separated by blank lines.
pub(crate) fn paragraphs(block: &str) -> Vec<&str> {
    block.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()).collect()
}

/// Returns the fenced blocks whose info string is `rust`, without their fences, in order.
///
/// Fences follow CommonMark: at least three backticks, indented by at most three spaces, closed by a line of
/// at least as many. An unclosed block extends to the end.
fn rust_blocks(text: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    // The number of backticks that opened the block, whether it is Rust, and where its content begins.
    let mut open: Option<(usize, bool, usize)> = None;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let line_end = offset + line.len();
        match (open, fence(line)) {
            (None, Some((ticks, info))) => open = Some((ticks, info == "rust", line_end)),
            (Some((ticks, is_rust, start)), Some((closing, ""))) if closing >= ticks => {
                if is_rust {
                    blocks.push(&text[start..offset]);
                }
                open = None;
            }
            _ => {}
        }
        offset = line_end;
    }
    if let Some((_, true, start)) = open {
        blocks.push(&text[start..]);
    }
    blocks
}

/// Returns the number of a fence's backticks, and its info string.
fn fence(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start_matches(' ');
    let rest = text.trim_start_matches('`');
    let ticks = text.len() - rest.len();
    let info = rest.trim();
    (line.len() - text.len() <= 3 && ticks >= 3 && !info.contains('`')).then_some((ticks, info))
}

/// The characters in which Windows-1252 differs from Latin-1.
const WINDOWS_1252: [(u8, char); 27] = [
    (0x80, '€'),
    (0x82, '‚'),
    (0x83, 'ƒ'),
    (0x84, '„'),
    (0x85, '…'),
    (0x86, '†'),
    (0x87, '‡'),
    (0x88, 'ˆ'),
    (0x89, '‰'),
    (0x8a, 'Š'),
    (0x8b, '‹'),
    (0x8c, 'Œ'),
    (0x8e, 'Ž'),
    (0x91, '‘'),
    (0x92, '’'),
    (0x93, '“'),
    (0x94, '”'),
    (0x95, '•'),
    (0x96, '–'),
    (0x97, '—'),
    (0x98, '˜'),
    (0x99, '™'),
    (0x9a, 'š'),
    (0x9b, '›'),
    (0x9c, 'œ'),
    (0x9e, 'ž'),
    (0x9f, 'Ÿ'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_was_read_as_windows_1252_is_mended() {
        assert_eq!(decode_mojibake("plain").as_deref(), Ok("plain"));
        assert_eq!(decode_mojibake("72Â°F â€” ðŸš€ â\u{9d}Œ").as_deref(), Ok("72°F — 🚀 ❌"));
        assert!(decode_mojibake("漢").is_err(), "no byte at all");
        let lost = decode_mojibake("âŒ").expect("bytes");
        assert_eq!(lost, "\u{fffd}", "0x9d is not a character of Windows-1252");
        assert!(require_undamaged(lost).is_err() && require_undamaged("72°F".to_owned()).is_ok());
    }

    #[test]
    fn blocks_are_found_by_fence_language_and_content() {
        let text = "a\n```rust\nfn a() {}\n```\n```json\nfn b\n```\n  ````rust\n```\nfn c() {}\n  ````\n```rust\nfn d";
        assert_eq!(rust_blocks(text), ["fn a() {}\n", "```\nfn c() {}\n", "fn d"]);
        assert_eq!(block_with(text, "fn c"), Ok("```\nfn c() {}\n"));
        assert!(block_with(text, "fn b").is_err(), "no Rust");
        assert!(block_with(text, "fn ").is_err(), "several");
        assert!(rust_blocks("    ```rust\nx\n```\n``` rust `\nx\n").is_empty());
    }

    #[test]
    fn output_block_under_a_program_is_found() {
        let text = "```rust\nx\n```\nIt prints:\n\n```\na\n b\n```\n```\nc\n```\n";
        assert_eq!(block_after(text, "It prints:"), Ok("a\n b\n"));
        assert!(block_after(text, "It says:").is_err(), "no such line");
        assert!(block_after(text, "```").is_err(), "not once");
        assert!(block_after("It prints:\n```json\n{}\n```\n", "It prints:").is_err(), "another language");
        assert!(block_after("It prints:\n```\nx\n", "It prints:").is_err(), "never closed");
    }

    #[test]
    fn parts_of_a_block_are_cut_and_filled() {
        assert_eq!(restore("a \u{fffd} b", "\u{fffd}", "❌").as_deref(), Ok("a ❌ b"));
        assert!(restore("a", "\u{fffd}", "❌").is_err() && restore("??", "?", "!").is_err());
        assert_eq!(text_before("a\nb\nc", "b"), Ok("a\n"));
        assert!(text_before("a", "b").is_err());
        assert_eq!(
            fill_gap("{\n    // ... more ...\n}", "// ...", "more!();").as_deref(),
            Ok("{\nmore!();\n}")
        );
        assert!(fill_gap("// x", "// ...", "").is_err());
        assert!(fill_gap("// ...\n// ...", "// ...", "").is_err());
        assert_eq!(paragraphs("a\nb\n\n\nc\n"), ["a\nb", "c"]);
    }
}
