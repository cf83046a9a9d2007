//! The decoded bytes of a stream, bounded.
//!
//! The library decodes too, but without a bound, and ten megabytes can inflate to ten gigabytes. It decodes the tables
//! and the objects of a file, which it needs to find anything; contents, fonts and metadata are decoded here. Of a
//! damaged stream the part before the damage is kept.

use hayro_syntax::{
    Filter,
    object::{Array, Dict, Object, Stream, dict::keys},
};
use miniz_oxide::inflate::{
    DecompressError, decompress_to_vec_with_limit, decompress_to_vec_zlib_with_limit,
};

use super::budget::{Budget, Exhausted, MAX_STREAM_BYTES};

/// The most filters of one stream.
const MAX_FILTERS: usize = 4;

/// The decoded bytes of a stream, at most this many; nothing where it has a filter of images or one that is not known.
pub(super) fn decode(stream: &Stream<'_>, most: usize, budget: &mut Budget) -> Result<Vec<u8>, Exhausted> {
    let filters = stream.filters();
    // A dictionary with a file in place of a filter leads out of the document.
    let leads_out = stream.dict().get::<Object<'_>>(keys::F).is_some();
    if filters.len() > MAX_FILTERS || leads_out || !all_known(stream.dict(), filters.len()) {
        return Ok(Vec::new());
    }
    let mut bytes = stream.raw_data().into_owned();
    for (index, filter) in filters.iter().enumerate() {
        let most = if index + 1 == filters.len() { most } else { MAX_STREAM_BYTES };
        let most = most.min(budget.stream_bytes());
        bytes = match filter {
            Filter::FlateDecode => inflate(&bytes, most),
            Filter::LzwDecode => lzw(&bytes, early_change(stream.dict(), index), most),
            Filter::Ascii85Decode => ascii85(&bytes, most),
            Filter::AsciiHexDecode => ascii_hex(&bytes),
            Filter::RunLengthDecode => run_length(&bytes, most),
            Filter::Crypt => bytes,
            _ => return Ok(Vec::new()),
        };
        budget.decoded(bytes.len())?;
    }
    if filters.is_empty() {
        bytes.truncate(most.min(budget.stream_bytes()));
        budget.decoded(bytes.len())?;
    }
    Ok(bytes)
}

/// Whether the library knows all filters of a stream: it leaves out the others.
fn all_known(dict: &Dict<'_>, known: usize) -> bool {
    let named = match dict.get::<Object<'_>>(keys::FILTER) {
        Some(Object::Name(_)) => 1,
        Some(Object::Array(names)) => names.raw_iter().take(MAX_FILTERS + 1).count(),
        _ => 0,
    };
    named == known
}

/// Whether codes of LZW grow one code early, as they do by default.
fn early_change(dict: &Dict<'_>, index: usize) -> bool {
    let parameters = dict.get::<Dict<'_>>(keys::DECODE_PARMS).or_else(|| {
        let all = dict.get::<Array<'_>>(keys::DECODE_PARMS)?;
        all.iter::<Object<'_>>().nth(index)?.into_dict()
    });
    parameters.and_then(|parameters| parameters.get::<i32>(keys::EARLY_CHANGE)) != Some(0)
}

/// Inflates a zlib stream, or a bare deflate stream where the header is missing.
fn inflate(bytes: &[u8], most: usize) -> Vec<u8> {
    let whole = decompress_to_vec_zlib_with_limit(bytes, most).unwrap_or_else(start_of);
    if whole.is_empty() && !bytes.is_empty() {
        return decompress_to_vec_with_limit(bytes, most).unwrap_or_else(start_of);
    }
    whole
}

/// What was inflated before the fault. The decoder leaves the rest of its buffer behind it.
fn start_of(error: DecompressError) -> Vec<u8> {
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

fn ascii85(bytes: &[u8], most: usize) -> Vec<u8> {
    let mut decoded = Vec::with_capacity((bytes.len() / 5 * 4).min(most));
    let (mut group, mut length) = (0_u32, 0);
    for byte in bytes.iter().copied().take_while(|byte| *byte != b'~') {
        if decoded.len() + 4 > most {
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
            _ => {}
        }
    }
    if length > 1 {
        for _ in length..5 {
            group = group.wrapping_mul(85).wrapping_add(84);
        }
        decoded.extend(&group.to_be_bytes()[..length - 1]);
    }
    decoded
}

fn run_length(bytes: &[u8], most: usize) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = bytes;
    while let [length, after @ ..] = rest {
        if decoded.len() >= most || *length == 128 {
            break;
        }
        if *length < 128 {
            let count = (usize::from(*length) + 1).min(after.len());
            decoded.extend(&after[..count]);
            rest = &after[count..];
        } else {
            let [byte, after @ ..] = after else { break };
            decoded.resize(decoded.len() + 257 - usize::from(*length), *byte);
            rest = after;
        }
    }
    decoded.truncate(most);
    decoded
}

/// LZW with codes of 9 to 12 bits, the first bit first.
fn lzw(bytes: &[u8], early: bool, most: usize) -> Vec<u8> {
    const CLEAR: usize = 256;
    const END: usize = 257;
    let mut decoded: Vec<u8> = Vec::new();
    // Each entry is a part of what was decoded before: where it starts, and its length.
    let mut entries: Vec<(usize, usize)> = Vec::new();
    let mut last: Option<(usize, usize)> = None;
    let (mut bits, mut held) = (0_u32, 0_u32);
    let mut input = bytes.iter();
    loop {
        let next = entries.len() + 258 + usize::from(early);
        let width = if next < 512 {
            9
        } else if next < 1024 {
            10
        } else if next < 2048 {
            11
        } else {
            12
        };
        while held < width {
            let Some(byte) = input.next() else { return decoded };
            bits = bits << 8 | u32::from(*byte);
            held += 8;
        }
        held -= width;
        let code = (bits >> held & ((1 << width) - 1)) as usize;
        let start = decoded.len();
        match code {
            CLEAR => {
                entries.clear();
                last = None;
                continue;
            }
            END => return decoded,
            0..CLEAR => decoded.extend(u8::try_from(code)),
            _ => {
                let entry = entries.get(code - 258).copied();
                // The code that is only now being defined: the last one and its own first byte.
                let new = last.filter(|_| code - 258 == entries.len()).map(|(at, length)| (at, length + 1));
                let Some((at, length)) = entry.or(new) else { return decoded };
                if start + length > most {
                    return decoded;
                }
                for index in at..at + length {
                    decoded.push(decoded[index]);
                }
            }
        }
        if let Some((at, length)) = last
            && entries.len() + 258 < 4096
        {
            // The entry is the last text and the byte behind it, which stand beside each other.
            entries.push((at, length + 1));
        }
        last = Some((start, decoded.len() - start));
        if decoded.len() >= most {
            return decoded;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_or_cut_stream_gives_its_beginning() {
        let whole = b"the gate was built first ".repeat(400);
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(&whole, 6);
        assert_eq!(inflate(&packed, usize::MAX >> 1), whole);
        let cut = inflate(&packed[..packed.len() - 8], 1 << 20);
        assert!(!cut.is_empty() && whole.starts_with(&cut), "{}", cut.len());
        assert_eq!(inflate(&miniz_oxide::deflate::compress_to_vec(&whole, 6), 1 << 20), whole);
    }

    #[test]
    fn no_filter_gives_more_than_its_bound() {
        let spaces = miniz_oxide::deflate::compress_to_vec_zlib(&vec![b' '; 1 << 20], 9);
        assert_eq!(inflate(&spaces, 1000).len(), 1000);
        assert!(ascii85(&b"z".repeat(1000), 100).len() <= 100);
        assert!(run_length(&[129, 0].repeat(100), 1000).len() <= 1000);
        // One byte, then each code the one that is being defined: the text grows by the square.
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
