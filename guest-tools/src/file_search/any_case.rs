//! Finding the lines that may hold a text in any case.
//!
//! The engine looks for all ways to write such a text at once, for which it has no SIMD on WebAssembly: three
//! times slower than all else. So a byte of the text that is rare in source code is looked for, in both
//! cases, and only lines that have it are given to the engine.

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoError};
use grep_regex::{RegexCaptures, RegexMatcher};
use memchr::memchr2_iter;

/// A matcher that may know a cheap sign of the lines to look at.
#[derive(Debug)]
pub(super) struct LineMatcher {
    matcher: RegexMatcher,
    sign: Option<Sign>,
}

/// Bytes without which no line matches.
#[derive(Debug)]
struct Sign {
    rare: Cases,
    /// The byte after it.
    next: Option<Cases>,
}

/// A byte in both cases, which may be the same.
#[derive(Debug, Clone, Copy)]
struct Cases(u8, u8);

/// What source code is mostly made of, the most frequent first. What is not here is rare.
const FREQUENT: &[u8] = b" etranisolcdupmf_hgb(),.;:=/\"-y{}>&vx<w'0*#1+[]";

/// So many of these are in nearly every line.
const MOST_FREQUENT: usize = 16;

impl LineMatcher {
    pub(super) fn of(matcher: RegexMatcher) -> Self {
        Self { matcher, sign: None }
    }

    /// `matcher` is one of this text, in any case.
    pub(super) fn of_any_case(matcher: RegexMatcher, text: &str) -> Self {
        let bytes = text.as_bytes();
        let rarity = |byte: u8| {
            let place = FREQUENT.iter().position(|frequent| *frequent == byte.to_ascii_lowercase());
            place.unwrap_or(FREQUENT.len())
        };
        let usable = bytes.iter().enumerate().filter_map(|(at, byte)| Some((at, *byte, Cases::of(*byte)?)));
        let rarest = usable.max_by_key(|(_, byte, _)| rarity(*byte));
        let sign = rarest.and_then(|(at, byte, rare)| {
            let next = bytes.get(at + 1).and_then(|next| Cases::of(*next));
            // A sign that nearly all lines have is none.
            (next.is_some() || rarity(byte) >= MOST_FREQUENT).then_some(Sign { rare, next })
        });
        Self { matcher, sign }
    }
}

impl Cases {
    /// None for what has other cases than its two in ASCII: `k` is also written as the Kelvin sign, `s` as
    /// the long one, and other alphabets' letters are more than a byte.
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
        let Some(Sign { rare, next }) = &self.sign else {
            return self.matcher.find_candidate_line(haystack);
        };
        let follows =
            |at: usize| next.is_none_or(|next| haystack.get(at + 1).is_some_and(|byte| next.has(*byte)));
        let found = memchr2_iter(rare.0, rare.1, haystack).find(|at| follows(*at));
        Ok(found.map(LineMatchKind::Candidate))
    }
}
