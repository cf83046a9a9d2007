//! The encodings inside font programs, for fonts whose dictionaries name none. Documents made with TeX have such fonts.
//!
//! This module reads only the names of the glyphs, and no outlines.

/// The name of the glyph of each code.
pub(super) type BuiltInEncoding = Vec<(u8, String)>;

/// The maximum number of bytes of a Type 1 program that are read. The part in clear text is shorter.
pub(super) const MAX_TYPE1_BYTES: usize = 64 << 10;

/// The maximum number of bytes of a CFF program. Its parts can be anywhere in it.
pub(super) const MAX_CFF_BYTES: usize = 4 << 20;

/// Reads the encoding in a Type 1 program, which has lines such as `dup 65 /A put`.
pub(super) fn type1_encoding(program: &[u8]) -> BuiltInEncoding {
    // The encrypted part follows this word.
    let end = memchr::memmem::find(program, b"eexec").unwrap_or(program.len());
    let Some(start) = memchr::memmem::find(&program[..end], b"/Encoding") else { return Vec::new() };
    let text = String::from_utf8_lossy(&program[start..end]).replace('/', " /");
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let entries = words.windows(4).filter(|entry| entry[0] == "dup" && entry[3] == "put");
    let entries = entries.filter_map(|entry| {
        let code = match entry[1].split_once('#') {
            Some((radix, digits)) => {
                u8::from_str_radix(digits, radix.parse().ok().filter(|base| (2..=36).contains(base))?)
            }
            None => entry[1].parse(),
        };
        Some((code.ok()?, entry[2].strip_prefix('/')?.to_owned()))
    });
    // A font has 256 codes, so leave out further definitions.
    entries.take(256).collect()
}

/// Reads the encoding in a CFF program whose glyphs have names (Adobe Technical Note 5176).
pub(super) fn cff_encoding(program: &[u8]) -> BuiltInEncoding {
    read_cff(program).unwrap_or_default()
}

fn read_cff(program: &[u8]) -> Option<BuiltInEncoding> {
    let header = usize::from(*program.get(2)?);
    let (_, names_end) = Index::read(program, header)?;
    let (tops, tops_end) = Index::read(program, names_end)?;
    let (strings, _) = Index::read(program, tops_end)?;
    let top = TopDict::read(tops.get(0)?);
    // Glyphs of fonts with CIDs have no names.
    if top.has_cids {
        return None;
    }
    let glyphs = Index::read(program, top.char_strings?)?.0.count;
    let charset = charset(program, top.charset, glyphs)?;
    let mut built_in = Vec::new();
    for (code, glyph) in encoding(program, top.encoding)? {
        let name = charset.get(usize::from(glyph).checked_sub(1)?).and_then(|name| string(&strings, *name));
        built_in.extend(name.map(|name| (code, name)));
    }
    Some(built_in)
}

/// An index: the number of its objects, and their places.
struct Index<'a> {
    count: usize,
    offset_size: usize,
    offsets: &'a [u8],
    data: &'a [u8],
}

impl<'a> Index<'a> {
    /// Reads the index at this place, and the place after it.
    fn read(bytes: &'a [u8], offset: usize) -> Option<(Self, usize)> {
        let count = usize::from(u16::from_be_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?));
        if count == 0 {
            return Some((Self { count, offset_size: 1, offsets: &[], data: &[] }, offset + 2));
        }
        let offset_size = usize::from(*bytes.get(offset + 2)?);
        let offsets = bytes.get(offset + 3..offset + 3 + (count + 1) * offset_size)?;
        // Offsets count from 1: offset 1 is the first byte after the offsets. So the slice begins one byte
        // earlier, at the last byte of the offsets (after 2 bytes of count and 1 of their size).
        let data = bytes.get(offset + 3 + offsets.len() - 1..)?;
        let index = Self { count, offset_size, offsets, data };
        let length = index.offset(count)?;
        Some((index, offset + 2 + (count + 1) * offset_size + length))
    }

    fn offset(&self, number: usize) -> Option<usize> {
        let start = number * self.offset_size;
        let bytes = self.offsets.get(start..start + self.offset_size).filter(|bytes| bytes.len() <= 4)?;
        Some(bytes.iter().fold(0, |offset, byte| offset << 8 | usize::from(*byte)))
    }

    fn get(&self, number: usize) -> Option<&'a [u8]> {
        self.data.get(self.offset(number)?..self.offset(number + 1)?)
    }
}

/// The needed entries of a font's dictionary.
#[derive(Default)]
struct TopDict {
    charset: usize,
    encoding: usize,
    char_strings: Option<usize>,
    has_cids: bool,
}

impl TopDict {
    fn read(dict: &[u8]) -> Self {
        let mut top = Self::default();
        let mut operand = 0_usize;
        let mut rest = dict;
        while let [byte, after @ ..] = rest {
            rest = after;
            match (*byte, after) {
                (28, [high, low, after @ ..]) => {
                    operand = usize::from(u16::from_be_bytes([*high, *low]));
                    rest = after;
                }
                (29, [a, b, c, d, after @ ..]) => {
                    operand = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
                    rest = after;
                }
                // A real number, which ends with a nibble of 15.
                (30, _) => {
                    let end = after.iter().position(|byte| byte & 0xf == 0xf || byte >> 4 == 0xf);
                    rest = &after[end.map_or(after.len(), |end| end + 1)..];
                }
                (32..=246, _) => operand = usize::from(*byte).saturating_sub(139),
                (247..=250, [low, after @ ..]) => {
                    operand = (usize::from(*byte) - 247) * 256 + usize::from(*low) + 108;
                    rest = after;
                }
                (251..=254, [_, after @ ..]) => rest = after,
                (12, [second, after @ ..]) => {
                    // The operator `ROS` marks a font with CIDs.
                    top.has_cids |= *second == 30;
                    rest = after;
                }
                (15, _) => top.charset = operand,
                (16, _) => top.encoding = operand,
                (17, _) => top.char_strings = Some(operand),
                // The other operators do not affect the names of the glyphs.
                _ => {}
            }
        }
        top
    }
}

/// The numbers of the glyphs' names, from glyph 1 on.
fn charset(program: &[u8], offset: usize, glyphs: usize) -> Option<Vec<u16>> {
    let last = u16::try_from(glyphs.checked_sub(1)?).ok()?;
    // The first three charsets are predefined. The charset ISO Adobe is the standard strings in their order.
    if offset <= 2 {
        return Some((1..=last).collect());
    }
    let format = *program.get(offset)?;
    let mut rest = program.get(offset + 1..)?;
    let mut names = Vec::with_capacity(usize::from(last));
    while names.len() < usize::from(last) {
        let (first, further, after) = match (format, rest) {
            (0, [a, b, after @ ..]) => (u16::from_be_bytes([*a, *b]), 0, after),
            (1, [a, b, more, after @ ..]) => (u16::from_be_bytes([*a, *b]), u16::from(*more), after),
            (2, [a, b, c, d, after @ ..]) => {
                (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]), after)
            }
            _ => return None,
        };
        names.extend(first..=first.saturating_add(further));
        rest = after;
    }
    Some(names)
}

/// The codes and their glyphs. Predefined encodings are not listed, because the names of the glyphs give the same
/// mapping.
fn encoding(program: &[u8], offset: usize) -> Option<Vec<(u8, u16)>> {
    if offset <= 1 {
        return None;
    }
    let (format, count) = (program.get(offset)? & 0x7f, usize::from(*program.get(offset + 1)?));
    let rest = program.get(offset + 2..)?;
    if format == 0 {
        return Some(rest.iter().copied().take(count).zip(1..).collect());
    }
    let ranges = rest.chunks_exact(2).take(count);
    let codes = ranges.flat_map(|range| (range[0]..=range[0].saturating_add(range[1])).take(256));
    (format == 1).then(|| codes.take(256).zip(1..).collect())
}

fn string(strings: &Index<'_>, number: u16) -> Option<String> {
    let mut standard = include_str!("cff_strings.txt").split_ascii_whitespace();
    if let Some(name) = standard.nth(usize::from(number)) {
        return Some(name.to_owned());
    }
    let bytes = strings.get(usize::from(number).checked_sub(391)?)?;
    String::from_utf8(bytes.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_1_program_names_its_codes_in_clear_text() {
        let program = b"%!PS-AdobeFont-1.0: CMR10\n/FontName /CMR10 def\n/Encoding 256 array\n\
            0 1 255 {1 index exch /.notdef put} for\ndup 11 /ff put\ndup 8#101/A put\ndup 300 /no put\n\
            readonly def\ncurrentfile eexec dup 66 /B put";
        assert_eq!(type1_encoding(program), [(11, "ff".to_owned()), (65, "A".to_owned())]);
        assert_eq!(type1_encoding(b"/Encoding StandardEncoding def"), []);
        assert_eq!(type1_encoding(&[0x80; 100]), []);
    }

    /// A program with two glyphs: `A`, and a glyph with a name of its own.
    fn cff() -> Vec<u8> {
        let index = |objects: &[&[u8]]| {
            let mut bytes = u16::try_from(objects.len()).expect("few").to_be_bytes().to_vec();
            if objects.is_empty() {
                return bytes;
            }
            bytes.push(1);
            let mut offset = 1_u8;
            bytes.push(offset);
            for object in objects {
                offset += u8::try_from(object.len()).expect("short");
                bytes.push(offset);
            }
            bytes.extend(objects.concat());
            bytes
        };
        let top = |charset: u8, encoding: u8, glyphs: u8| {
            vec![28, 0, charset, 15, 28, 0, encoding, 16, 28, 0, glyphs, 17]
        };
        let head = |top: &[u8]| {
            [vec![1, 0, 4, 1], index(&[b"F"]), index(&[top]), index(&[b"gate"]), index(&[])].concat()
        };
        let at = u8::try_from(head(&top(0, 0, 0)).len()).expect("short");
        let mut program = head(&top(at, at + 5, at + 9));
        program.extend([0, 0, 34, 1, 135]);
        program.extend([0, 2, 65, 1]);
        program.extend(index(&[b"x", b"y", b"z"]));
        program
    }

    #[test]
    fn a_cff_program_names_its_codes_by_number() {
        assert_eq!(cff_encoding(&cff()), [(65, "A".to_owned()), (1, "gate".to_owned())]);
    }

    #[test]
    fn a_cut_or_changed_cff_program_does_no_harm() {
        let program = cff();
        for length in 0..program.len() {
            let _ = cff_encoding(&program[..length]);
        }
        for index in 0..program.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = program.clone();
                changed[index] = byte;
                assert!(cff_encoding(&changed).len() <= 256);
            }
        }
    }
}
