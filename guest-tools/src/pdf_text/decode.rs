//! Decodes streams, with a bound on the decoded bytes.
//!
//! The library can also decode, but without a bound, and ten megabytes can inflate to ten gigabytes. The library
//! decodes the tables and objects of a file, which it needs to find anything. Contents, fonts and metadata are decoded
//! here. If a stream is damaged, the part before the damage is kept.

use hayro_syntax::{
    Filter,
    object::{Array, Dict, Object, Stream, dict::keys},
};
use miniz_oxide::inflate::{
    DecompressError, decompress_to_vec_with_limit, decompress_to_vec_zlib_with_limit,
};

use super::budget::{Exhausted, MAX_STREAM_BYTES, PdfBudget};

/// The maximum number of filters of one stream.
const MAX_FILTERS: usize = 4;

/// Decodes a stream to at most `max_bytes`. The result is empty if it has an unknown filter or a filter for
/// images.
pub(super) fn decode(
    stream: &Stream<'_>,
    max_bytes: usize,
    budget: &mut PdfBudget,
) -> Result<Vec<u8>, Exhausted> {
    let filters = stream.filters();
    // An entry `F` names a file outside the document, which is never read.
    let leads_out = stream.dict().get::<Object<'_>>(keys::F).is_some();
    if filters.len() > MAX_FILTERS || leads_out || !are_filters_known(stream.dict(), filters.len()) {
        return Ok(Vec::new());
    }
    let mut bytes = stream.raw_data().into_owned();
    for (index, filter) in filters.iter().enumerate() {
        let max_bytes = if index + 1 == filters.len() { max_bytes } else { MAX_STREAM_BYTES };
        let max_bytes = max_bytes.min(budget.stream_bytes());
        bytes = match filter {
            Filter::FlateDecode => inflate(&bytes, max_bytes),
            Filter::LzwDecode => lzw(&bytes, early_change(stream.dict(), index), max_bytes),
            Filter::Ascii85Decode => ascii85(&bytes, max_bytes),
            Filter::AsciiHexDecode => ascii_hex(&bytes),
            Filter::RunLengthDecode => run_length(&bytes, max_bytes),
            Filter::Crypt => bytes,
            _ => return Ok(Vec::new()),
        };
        budget.decoded(bytes.len())?;
    }
    if filters.is_empty() {
        bytes.truncate(max_bytes.min(budget.stream_bytes()));
        budget.decoded(bytes.len())?;
    }
    Ok(bytes)
}

/// Whether the library knows all filters of a stream. It leaves out unknown filters.
fn are_filters_known(dict: &Dict<'_>, known_count: usize) -> bool {
    let filter_count = match dict.get::<Object<'_>>(keys::FILTER) {
        Some(Object::Name(_)) => 1,
        Some(Object::Array(names)) => names.raw_iter().take(MAX_FILTERS + 1).count(),
        _ => 0,
    };
    filter_count == known_count
}

/// Whether LZW codes grow one code early, which is the default.
fn early_change(dict: &Dict<'_>, index: usize) -> bool {
    let parameters = dict.get::<Dict<'_>>(keys::DECODE_PARMS).or_else(|| {
        let parameters = dict.get::<Array<'_>>(keys::DECODE_PARMS)?;
        parameters.iter::<Object<'_>>().nth(index)?.into_dict()
    });
    parameters.and_then(|parameters| parameters.get::<i32>(keys::EARLY_CHANGE)) != Some(0)
}

/// Inflates a zlib stream, or a bare deflate stream if the header is missing.
fn inflate(bytes: &[u8], max_bytes: usize) -> Vec<u8> {
    let inflated = decompress_to_vec_zlib_with_limit(bytes, max_bytes).unwrap_or_else(partial_output);
    if inflated.is_empty() && !bytes.is_empty() {
        return decompress_to_vec_with_limit(bytes, max_bytes).unwrap_or_else(partial_output);
    }
    inflated
}

/// Returns the bytes that were inflated before the fault. The decoder leaves unused bytes of its buffer after
/// them.
fn partial_output(error: DecompressError) -> Vec<u8> {
    let mut start = error.output;
    start.truncate(start.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    start
}

fn ascii_hex(bytes: &[u8]) -> Vec<u8> {
    let end = memchr::memchr(b'>', bytes).unwrap_or(bytes.len());
    let digits = bytes[..end].iter().filter_map(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(end / 2 + 1);
    let mut first = None;
    for digit in digits.filter_map(|digit| u8::try_from(digit).ok()) {
        match first.take() {
            Some(high) => decoded.push(high << 4 | digit),
            None => first = Some(digit),
        }
    }
    decoded.extend(first.map(|high: u8| high << 4));
    decoded
}

fn ascii85(bytes: &[u8], max_bytes: usize) -> Vec<u8> {
    let mut decoded = Vec::with_capacity((bytes.len() / 5 * 4).min(max_bytes));
    let (mut group, mut length) = (0_u32, 0);
    for byte in bytes.iter().copied().take_while(|byte| *byte != b'~') {
        if decoded.len() + 4 > max_bytes {
            return decoded;
        }
        match byte {
            b'z' if length == 0 => decoded.extend([0; 4]),
            b'!'..=b'u' => {
                group = group.wrapping_mul(85).wrapping_add(u32::from(byte - b'!'));
                length += 1;
                if length == 5 {
                    decoded.extend(group.to_be_bytes());
                    (group, length) = (0, 0);
                }
            }
            // Skip white space, which is allowed between digits, and invalid characters.
            _ => {}
        }
    }
    // A partial group is padded with the highest digit, and gives one byte less than it has digits.
    if length > 1 {
        for _ in length..5 {
            group = group.wrapping_mul(85).wrapping_add(84);
        }
        decoded.extend(&group.to_be_bytes()[..length - 1]);
    }
    decoded
}

fn run_length(bytes: &[u8], max_bytes: usize) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = bytes;
    while let [length, after_length @ ..] = rest {
        // 128 ends the data.
        if decoded.len() >= max_bytes || *length == 128 {
            break;
        }
        if *length < 128 {
            let count = (usize::from(*length) + 1).min(after_length.len());
            decoded.extend(&after_length[..count]);
            rest = &after_length[count..];
        } else {
            let [byte, after_byte @ ..] = after_length else { break };
            decoded.resize(decoded.len() + 257 - usize::from(*length), *byte);
            rest = after_byte;
        }
    }
    decoded.truncate(max_bytes);
    decoded
}

/// LZW with codes of 9 to 12 bits, in which the first bit of a byte comes first.
fn lzw(bytes: &[u8], early_change: bool, max_bytes: usize) -> Vec<u8> {
    const CLEAR: usize = 256;
    const END: usize = 257;
    let mut decoded: Vec<u8> = Vec::new();
    // Each entry is a part of the bytes decoded before: its start and its length.
    let mut entries: Vec<(usize, usize)> = Vec::new();
    let mut last_entry: Option<(usize, usize)> = None;
    let (mut bits, mut held_bits) = (0_u32, 0_u32);
    let mut input = bytes.iter();
    loop {
        let next_code = entries.len() + 258 + usize::from(early_change);
        // The codes grow with the number of entries.
        let width = if next_code < 512 {
            9
        } else if next_code < 1024 {
            10
        } else if next_code < 2048 {
            11
        } else {
            12
        };
        while held_bits < width {
            let Some(byte) = input.next() else { return decoded };
            // Used bits need no mask: the shift drops them at the top.
            bits = bits << 8 | u32::from(*byte);
            held_bits += 8;
        }
        held_bits -= width;
        let code = (bits >> held_bits & ((1 << width) - 1)) as usize;
        let start = decoded.len();
        match code {
            CLEAR => {
                entries.clear();
                last_entry = None;
                continue;
            }
            END => return decoded,
            0..CLEAR => decoded.extend(u8::try_from(code)),
            _ => {
                let entry = entries.get(code - 258).copied();
                // The code that is being defined now: the last entry, followed by its own first byte.
                let new_entry = last_entry
                    .filter(|_| code - 258 == entries.len())
                    .map(|(start, length)| (start, length + 1));
                let Some((at, length)) = entry.or(new_entry) else { return decoded };
                if start + length > max_bytes {
                    return decoded;
                }
                for index in at..at + length {
                    decoded.push(decoded[index]);
                }
            }
        }
        if let Some((at, length)) = last_entry
            && entries.len() + 258 < 4096
        {
            // The entry is the last text and the byte after it, which are next to each other.
            entries.push((at, length + 1));
        }
        last_entry = Some((start, decoded.len() - start));
        if decoded.len() >= max_bytes {
            return decoded;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_or_cut_stream_gives_its_beginning() {
        let text = b"the gate was built first ".repeat(400);
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(&text, 6);
        assert_eq!(inflate(&packed, usize::MAX >> 1), text);
        let beginning = inflate(&packed[..packed.len() - 8], 1 << 20);
        assert!(!beginning.is_empty() && text.starts_with(&beginning), "{}", beginning.len());
        assert_eq!(inflate(&miniz_oxide::deflate::compress_to_vec(&text, 6), 1 << 20), text);
    }

    #[test]
    fn no_filter_gives_more_than_its_bound() {
        let spaces = miniz_oxide::deflate::compress_to_vec_zlib(&vec![b' '; 1 << 20], 9);
        assert_eq!(inflate(&spaces, 1000).len(), 1000);
        assert!(ascii85(&b"z".repeat(1000), 100).len() <= 100);
        assert!(run_length(&[129, 0].repeat(100), 1000).len() <= 1000);
        // One byte, then codes that each name the entry being defined: the text grows quadratically.
        let mut bits = String::from("100000000001000001");
        for code in 258..500 {
            bits.push_str(&format!("{code:09b}"));
        }
        let packed: Vec<u8> = bits
            .as_bytes()
            .chunks(8)
            .map(|byte| byte.iter().fold(0, |byte, bit| byte << 1 | (bit & 1)))
            .collect();
        assert!(lzw(&packed, true, 1 << 20).len() > 20_000);
        assert!(lzw(&packed, true, 1000).len() <= 1000);
    }

    #[test]
    fn text_filters_decode_the_examples_of_their_specifications() {
        assert_eq!(ascii_hex(b"48 65 6C6c 6F 7>garbage"), b"Hellop");
        assert_eq!(ascii85(b"87cURD]i,\"Ebo80~>", 100), b"Hello World!");
        assert_eq!(run_length(&[2, b'a', b'b', b'c', 254, b'd', 128, 9], 100), b"abcddd");
        let packed = [0x80, 0x0b, 0x60, 0x50, 0x22, 0x0c, 0x0c, 0x85, 0x01];
        assert_eq!(lzw(&packed, true, 100), [45, 45, 45, 45, 45, 65, 45, 45, 45, 66]);
    }
}
