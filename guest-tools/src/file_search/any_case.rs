//! Finds lines that may contain a text in any case.
//!
//! The engine would search for all spellings of the text together, which takes three times as long as the rest of a
//! search, because the engine has no SIMD for it on WebAssembly. This matcher therefore searches for a byte of the
//! text that is rare in source code, in both cases, and passes only lines with that byte to the engine. The same
//! works for a text that every match of an expression contains.

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoError};
use grep_regex::{RegexCaptures, RegexMatcher};
use memchr::memchr2_iter;

/// A matcher that may have a cheap test for candidate lines.
#[derive(Debug)]
pub(super) struct LineMatcher {
    matcher: RegexMatcher,
    variants: Option<CaseVariants>,
}

/// Bytes that every matching line contains.
#[derive(Debug)]
struct CaseVariants {
    rare_cases: Cases,
    /// The byte after `rare_cases`.
    next_cases: Option<Cases>,
}

/// A byte in both cases. The two can be equal.
#[derive(Debug, Clone, Copy)]
struct Cases(u8, u8);

/// The most frequent bytes of source code, in descending order. All other bytes count as rare.
const FREQUENT: &[u8] = b" etranisolcdupmf_hgb(),.;:=/\"-y{}>&vx<w'0*#1+[]";

/// The first bytes of [`FREQUENT`] that are in nearly every line.
const MOST_FREQUENT: usize = 16;

impl LineMatcher {
    pub(super) fn new(matcher: RegexMatcher) -> Self {
        Self { matcher, variants: None }
    }

    /// A matcher whose every match contains each of these texts, in any case.
    pub(super) fn with_any_case_texts<'t>(
        matcher: RegexMatcher,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> Self {
        let all_variants = texts.into_iter().flat_map(|text| CaseVariants::candidates(text.as_bytes()));
        let variants = all_variants.max_by_key(|(rarity, _)| *rarity).map(|(_, variants)| variants);
        Self { matcher, variants }
    }
}

impl CaseVariants {
    /// Each byte of a text that can serve as the test, with its rarity.
    fn candidates(text: &[u8]) -> impl Iterator<Item = (usize, Self)> {
        text.iter().enumerate().filter_map(|(offset, byte)| {
            let rare = Cases::from_byte(*byte)?;
            let next_byte = text.get(offset + 1).copied().filter(|byte| Cases::from_byte(*byte).is_some());
            // A byte that is in nearly all lines is not useful as the test.
            let is_selective = next_byte.is_some() || rarity(*byte) >= MOST_FREQUENT;
            // Count the first byte twice: each of its occurrences costs a check of the second byte.
            let pair_rarity = 2 * rarity(*byte) + next_byte.map_or(0, rarity);
            is_selective.then_some((
                pair_rarity,
                Self { rare_cases: rare, next_cases: next_byte.and_then(Cases::from_byte) },
            ))
        })
    }
}

/// How rare a byte is in source code, in either case.
fn rarity(byte: u8) -> usize {
    let rank = FREQUENT.iter().position(|frequent| *frequent == byte.to_ascii_lowercase());
    rank.unwrap_or(FREQUENT.len())
}

impl Cases {
    /// `None` for a character with more than two cases in Unicode: `k` can also be the Kelvin sign, and `s` the long
    /// s. Also `None` for letters of other alphabets, because they have more than one byte.
    fn from_byte(byte: u8) -> Option<Self> {
        let has_other_cases = !byte.is_ascii() || matches!(byte, b'k' | b'K' | b's' | b'S');
        (!has_other_cases).then_some(Self(byte.to_ascii_lowercase(), byte.to_ascii_uppercase()))
    }

    fn contains(self, byte: u8) -> bool {
        byte == self.0 || byte == self.1
    }
}

impl Matcher for LineMatcher {
    type Captures = RegexCaptures;
    type Error = NoError;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, NoError> {
        self.matcher.find_at(haystack, at)
    }

    fn new_captures(&self) -> Result<RegexCaptures, NoError> {
        self.matcher.new_captures()
    }

    fn is_match(&self, haystack: &[u8]) -> Result<bool, NoError> {
        self.matcher.is_match(haystack)
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.matcher.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.matcher.line_terminator()
    }

    fn find_candidate_line(&self, haystack: &[u8]) -> Result<Option<LineMatchKind>, NoError> {
        let Some(CaseVariants { rare_cases: rare, next_cases }) = &self.variants else {
            return self.matcher.find_candidate_line(haystack);
        };
        let follows = |offset: usize| {
            next_cases.is_none_or(|cases| haystack.get(offset + 1).is_some_and(|byte| cases.contains(*byte)))
        };
        let position = memchr2_iter(rare.0, rare.1, haystack).find(|at| follows(*at));
        Ok(position.map(LineMatchKind::Candidate))
    }
}
