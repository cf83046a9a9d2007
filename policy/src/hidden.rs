//! Hidden names: files and folders in the mounts that no tool can see, such as `.env` and `*.pem`.

use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::{MountName, protect::fold};

/// The patterns of `[hide] paths`, ready for matching.
///
/// A pattern is one name, in which each `*` matches any characters, or none. It covers every path that has a
/// component with such a name, at any depth of every mount except the vault. Names are compared as in
/// [`ProtectedPaths`](crate::ProtectedPaths): without case and without invisible characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenNames {
    /// Sorted and deduplicated, so equal sets are equal values.
    patterns: Vec<HiddenPattern>,
}

/// One folded pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HiddenPattern {
    text: String,
    /// The bytes before the first wildcard and after the last one. `None` without a wildcard.
    ends: Option<(usize, usize)>,
}

/// The reason why a text is not a pattern of a hidden name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidHiddenName {
    /// The pattern has no character.
    #[error("a hidden name is missing")]
    Empty,
    /// The pattern would hide everything.
    #[error("`*` alone would hide every file; take the mount away instead")]
    All,
    /// The pattern has a `/`.
    #[error("a hidden name is one name and holds at any depth: write it without `/`")]
    Slash,
    /// The pattern is `.` or `..`.
    #[error("`.` and `..` are not names")]
    Dots,
    /// The pattern has a NUL or another control character.
    #[error("a hidden name cannot have control characters")]
    Control,
    /// The pattern has a wildcard other than `*`.
    #[error("`?`, `[` and `]` are not supported: `*` is the only wildcard")]
    Wildcard,
    /// The pattern is longer than any name.
    #[error("the hidden name is longer than 255 bytes")]
    TooLong,
}

impl HiddenNames {
    /// Parses patterns, for callers without a policy file, such as tests of the enforcing layers.
    ///
    /// # Errors
    /// [`InvalidHiddenName`] for the first invalid text.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidHiddenName> {
        let patterns: Result<Vec<_>, _> = patterns.into_iter().map(HiddenPattern::parse).collect();
        Ok(Self::new(patterns?))
    }

    pub(crate) fn new(mut patterns: Vec<HiddenPattern>) -> Self {
        patterns.sort();
        patterns.dedup();
        Self { patterns }
    }

    /// Adds a pattern. Returns `false` if it is already present.
    pub(crate) fn insert(&mut self, pattern: HiddenPattern) -> bool {
        match self.patterns.binary_search(&pattern) {
            Ok(_) => false,
            Err(index) => {
                self.patterns.insert(index, pattern);
                true
            }
        }
    }

    /// Returns whether nothing is hidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns the patterns in folded form, sorted.
    pub fn patterns(&self) -> impl Iterator<Item = &str> + Clone {
        self.patterns.iter().map(|pattern| pattern.text.as_str())
    }

    /// Returns whether hidden names apply in a mount. They do not apply in the vault, which has its own
    /// rules.
    #[must_use]
    pub fn apply_to_mount(mount: &str) -> bool {
        mount != MountName::VAULT
    }

    /// Returns the pattern that hides a name, if any.
    #[must_use]
    pub fn hides(&self, name: &str) -> Option<&str> {
        // `.` and `..` are not names to hide, but a pattern such as `*.` would match them.
        if self.patterns.is_empty() || matches!(name, "." | "..") {
            return None;
        }
        // Fast path: a search asks about each name that it finds. For ASCII, folding is lower case, because
        // no ASCII character is invisible and each letter has only two forms.
        let mut buffer = [0; MAX_NAME_BYTES];
        if let Some(lower) = buffer.get_mut(..name.len())
            && name.is_ascii()
        {
            lower.copy_from_slice(name.as_bytes());
            lower.make_ascii_lowercase();
            return self.matching(str::from_utf8(lower).ok()?);
        }
        let folded: String = fold(name).collect();
        self.matching(&folded)
    }

    /// Returns the pattern that matches a folded name, if any.
    fn matching(&self, folded: &str) -> Option<&str> {
        self.patterns.iter().find(|pattern| pattern.matches(folded)).map(|pattern| pattern.text.as_str())
    }

    /// Returns the pattern that hides a path, if any: one of the path's components has a hidden name.
    pub fn covers<I>(&self, components: I) -> Option<&str>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        if self.patterns.is_empty() {
            return None;
        }
        components.into_iter().find_map(|name| self.hides(name.as_ref()))
    }
}

impl Serialize for HiddenNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.patterns())
    }
}

impl HiddenPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidHiddenName> {
        let folded: String = fold(text).collect();
        match folded.as_str() {
            "" => return Err(InvalidHiddenName::Empty),
            "." | ".." => return Err(InvalidHiddenName::Dots),
            _ => {}
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(InvalidHiddenName::TooLong);
        }
        if text.contains('/') {
            return Err(InvalidHiddenName::Slash);
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidHiddenName::Control);
        }
        if text.contains(['?', '[', ']']) {
            return Err(InvalidHiddenName::Wildcard);
        }
        if folded.chars().all(|character| character == '*') {
            return Err(InvalidHiddenName::All);
        }
        let first = folded.find('*');
        let ends = first.and_then(|first| Some((first, folded.len() - folded.rfind('*')? - 1)));
        Ok(Self { text: folded, ends })
    }

    /// Returns whether the pattern matches a folded name.
    fn matches(&self, name: &str) -> bool {
        let Some((prefix, suffix)) = self.ends else { return self.text == name };
        // Nearly every name fails here, so the parts between the wildcards are compared for few names.
        let (text, bytes) = (self.text.as_bytes(), name.as_bytes());
        bytes.len() >= prefix + suffix
            && bytes.starts_with(&text[..prefix])
            && bytes.ends_with(&text[text.len() - suffix..])
            && (text.len() == prefix + suffix + 1 || matches_wildcards(&self.text, name))
    }
}

/// Returns whether a folded name matches a pattern. The parts between the wildcards must occur in order: the
/// first at the start, the last at the end. The first occurrence of each part leaves the most text for the
/// later parts, so no backtracking is needed.
pub(crate) fn matches_wildcards(pattern: &str, name: &str) -> bool {
    let Some((prefix, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(prefix) else { return false };
    let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut name) = name.strip_suffix(suffix) else { return false };
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        let Some(offset) = name.find(part) else { return false };
        name = &name[offset + part.len()..];
    }
    true
}

/// The maximum length of a name in bytes: Linux's `NAME_MAX`.
const MAX_NAME_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hidden(patterns: &[&str]) -> HiddenNames {
        HiddenNames::parse(patterns.iter().copied()).expect("patterns")
    }

    #[test]
    fn a_name_is_hidden_at_any_depth_in_any_case() {
        let hidden = hidden(&[".env", "*.pem", "id_*", ".aws", "a*b*c"]);
        for path in [
            ".env",
            "x/.ENV",
            ".env/x",
            "a/b/key.PEM",
            ".pem",
            "id_rsa",
            "ID_",
            "x/.aws/credentials",
            "abc",
            "a-b-c",
            "ab-bc",
            ".e\u{200c}nv",
            "k.pe\u{200d}m",
        ] {
            assert!(hidden.covers(path.split('/')).is_some(), "{path}");
        }
        for path in
            ["", "env", ".env2", "x.env", "pem", "key.pem2", "id", "xid_", ".awsx", "ab", "ac", "abcd", "bc"]
        {
            assert_eq!(hidden.covers(path.split('/')), None, "{path}");
        }
        assert!(HiddenNames::apply_to_mount("shared") && !HiddenNames::apply_to_mount("vault"));
        assert_eq!(HiddenNames::default().covers([".env"]), None);
    }

    #[test]
    fn a_pattern_that_hides_nothing_or_everything_is_refused() {
        let long = "a".repeat(256);
        for bad in ["", "\u{200c}", "*", "**", "a/b", "/a", ".", "..", "a\0", "a\n", "a?", "[ab]", &long] {
            assert!(HiddenPattern::parse(bad).is_err(), "{bad:?}");
        }
    }

    /// The reference for the test: tries each way to match a wildcard.
    fn matches_slowly(pattern: &[u8], name: &[u8]) -> bool {
        match pattern {
            [] => name.is_empty(),
            [b'*', rest @ ..] => (0..=name.len()).any(|skipped| matches_slowly(rest, &name[skipped..])),
            [byte, rest @ ..] => name.first() == Some(byte) && matches_slowly(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn wildcards_match_as_by_trying_each_way(pattern in "[ab*]{0,8}", name in "[ab]{0,10}") {
            let expected = matches_slowly(pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(matches_wildcards(&pattern, &name), expected);
            if let Ok(pattern) = HiddenPattern::parse(&pattern) {
                prop_assert_eq!(pattern.matches(&name), expected);
            }
        }

        #[test]
        fn a_name_is_judged_by_its_folded_form(name in "[aAbBſıİ\u{200c}*.]{0,12}") {
            let hidden = hidden(&["a*b", "*.a", "b.*", "ab", "a*b*a"]);
            let folded: String = fold(&name).collect();
            let by_folding = hidden.patterns().find(|pattern| matches_wildcards(pattern, &folded));
            if !matches!(name.as_str(), "." | "..") {
                prop_assert_eq!(hidden.hides(&name), by_folding);
            }
        }
    }
}
