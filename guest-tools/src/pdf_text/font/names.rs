//! Finds characters by the names of their glyphs.
//!
//! `glyph_names.txt` has the names of the Adobe Glyph List, of the fonts of TeX, and of Zapf Dingbats, each with its
//! characters in hexadecimal. The names are facts. Adobe's list is under the licence at the end of
//! [DEPENDENCIES.md](../../../../DEPENDENCIES.md).

/// The list of names as a table, sorted by name.
#[derive(Debug)]
pub(in crate::pdf_text) struct GlyphNames(Vec<(&'static str, &'static str)>);

/// The maximum length of a name that is looked up, in bytes. The specification allows 63.
const MAX_NAME_BYTES: usize = 63;

impl GlyphNames {
    pub(in crate::pdf_text) fn new() -> Self {
        let mut words = include_str!("glyph_names.txt").split_ascii_whitespace();
        Self(std::iter::from_fn(|| Some((words.next()?, words.next()?))).collect())
    }

    /// Returns the characters that a name stands for, by the rules of the Adobe Glyph List Specification.
    /// `f_i.alt` is `f` and `i`, and `uni00E9` is `é`.
    pub(in crate::pdf_text) fn characters(&self, name: &str) -> Option<String> {
        let base_name = name.split('.').next().filter(|name| name.len() <= MAX_NAME_BYTES)?;
        let mut characters = String::new();
        for part in base_name.split('_') {
            self.push(part, &mut characters);
        }
        (!characters.is_empty()).then_some(characters)
    }

    fn push(&self, name: &str, characters: &mut String) {
        /// Forms of letters and digits for which the list has private characters.
        const FORMS: [&str; 5] = ["small", "oldstyle", "superior", "inferior", "fitted"];
        if let Ok(index) = self.0.binary_search_by_key(&name, |(name, _)| name) {
            characters.extend(self.0[index].1.split('_').filter_map(character));
        // `uni004100E9` is `Aé`: four digits for each character.
        } else if let Some(digits) = name.strip_prefix("uni").filter(|digits| digits.len() % 4 == 0) {
            let groups = digits.as_bytes().chunks(4);
            characters.extend(groups.filter_map(|group| character(str::from_utf8(group).ok()?)));
        // `u1F600` is one character of four to six digits.
        } else if let Some(digits) = name.strip_prefix('u').filter(|digits| (4..=6).contains(&digits.len())) {
            characters.extend(character(digits));
        // `Asmall` is a form of `A`.
        } else if let Some(letter) = FORMS.iter().find_map(|form| name.strip_suffix(form)) {
            let search_result = self.0.binary_search_by_key(&letter, |(name, _)| name);
            characters.extend(search_result.into_iter().flat_map(|index| character(self.0[index].1)));
        }
    }
}

fn character(hexadecimal: &str) -> Option<char> {
    char::from_u32(u32::from_str_radix(hexadecimal, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Option<&str>) {
        assert_eq!(GlyphNames::new().characters(name).as_deref(), expected, "{name}");
    }

    #[test]
    fn names_are_those_of_the_list() {
        check("A", Some("A"));
        check("Lcommaaccent", Some("\u{13b}"));
        check("dalethatafpatah", Some("\u{5d3}\u{5b2}"));
        check("a10", Some("\u{2721}"));
        check(".notdef", None);
        check("g123", None);
        check("", None);
    }

    #[test]
    fn names_are_put_together_by_the_rules() {
        check("f_f_l", Some("ffl"));
        check("hyphen.case", Some("-"));
        check("uni20AC0308", Some("\u{20ac}\u{308}"));
        check("u1040C", Some("\u{1040c}"));
        check("uniD801", None);
        check("oneoldstyle", Some("1"));
        check("universal", Some("\u{2200}"));
        check(&"a_".repeat(100), None);
    }

    #[test]
    fn the_list_is_sorted() {
        let names = GlyphNames::new();
        assert!(names.0.is_sorted_by(|(first, _), (second, _)| first < second));
        assert!(
            names.0.iter().all(|(_, characters)| characters
                .split('_')
                .all(|glyph_name| character(glyph_name).is_some()))
        );
    }
}
