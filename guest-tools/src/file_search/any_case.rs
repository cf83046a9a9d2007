//! Finds lines that may contain a text in any case.
//!
//! The engine would search for all spellings of the text at once, for which it has no SIMD on WebAssembly;
//! that is three times slower than everything else. So this searches for a byte of the text that is rare in
//! source code, in both cases, and passes only lines with that byte to the engine. The same works for a text
//! that every match of an expression contains.

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoError};
use grep_regex::{RegexCaptures, RegexMatcher};
use memchr::memchr2_iter;

/// A matcher with an optional cheap sign of candidate lines.
#[derive(Debug)]
pub(super) struct LineMatcher {
    matcher: RegexMatcher,
    variants: Option<CaseVariants>,
}

/// Bytes without which no line matches.
#[derive(Debug)]
struct CaseVariants {
    rare: Cases,
    /// The byte after it.
    next: Option<Cases>,
}

/// A byte in both cases, which may be equal.
#[derive(Debug, Clone, Copy)]
struct Cases(u8, u8);

/// The most frequent bytes of source code, in order. All others count as rare.
const FREQUENT: &[u8] = b" etranisolcdupmf_hgb(),.;:=/\"-y{}>&vx<w'0*#1+[]";

/// The first of these are in nearly every line.
const MOST_FREQUENT: usize = 16;

impl LineMatcher {
    pub(super) fn of(matcher: RegexMatcher) -> Self {
        Self { matcher, variants: None }
    }

    /// Requires that every match of `matcher` contains each of these texts, in any case.
    pub(super) fn of_any_case<'t>(matcher: RegexMatcher, texts: impl IntoIterator<Item = &'t str>) -> Self {
        let all_variants = texts.into_iter().flat_map(|text| CaseVariants::all_of(text.as_bytes()));
        let variants = all_variants.max_by_key(|(rarity, _)| *rarity).map(|(_, variants)| variants);
        Self { matcher, variants }
    }
}

impl CaseVariants {
    /// Each possible sign of a text, with its rarity.
    fn all_of(text: &[u8]) -> impl Iterator<Item = (usize, Self)> {
        text.iter().enumerate().filter_map(|(at, byte)| {
            let rare = Cases::of(*byte)?;
            let next = text.get(at + 1).copied().filter(|next| Cases::of(*next).is_some());
            // A byte in nearly all lines is no useful sign.
            let usable = next.is_some() || rarity(*byte) >= MOST_FREQUENT;
            // Each occurrence of the first byte costs a look at the second.
            let both = 2 * rarity(*byte) + next.map_or(0, rarity);
            usable.then_some((both, Self { rare, next: next.and_then(Cases::of) }))
        })
    }
}

/// How rare a byte is in source code, in either case.
fn rarity(byte: u8) -> usize {
    let place = FREQUENT.iter().position(|frequent| *frequent == byte.to_ascii_lowercase());
    place.unwrap_or(FREQUENT.len())
}

impl Cases {
    /// None for a character with more than two cases in Unicode: `k` is also written as the Kelvin sign and
    /// `s` as the long s. Letters of other alphabets have more than one byte.
    fn of(byte: u8) -> Option<Self> {
        let other = !byte.is_ascii() || matches!(byte, b'k' | b'K' | b's' | b'S');
        (!other).then_some(Self(byte.to_ascii_lowercase(), byte.to_ascii_uppercase()))
    }

    fn has(self, byte: u8) -> bool {
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
        let Some(CaseVariants { rare, next }) = &self.variants else {
            return self.matcher.find_candidate_line(haystack);
        };
        let follows =
            |at: usize| next.is_none_or(|next| haystack.get(at + 1).is_some_and(|byte| next.has(*byte)));
        let found = memchr2_iter(rare.0, rare.1, haystack).find(|at| follows(*at));
        Ok(found.map(LineMatchKind::Candidate))
    }
}
