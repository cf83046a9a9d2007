//! Protected paths: names that no tool may write, at any depth, because other programs execute their content.

use serde::{Serialize, Serializer};
use thiserror::Error;

use portcullis_types::is_invisible;

/// The patterns of `[protect] paths`, ready for matching.
///
/// A pattern is a list of components. It covers a path that contains these components in sequence:
/// `.git/hooks` covers `/shared/.git/hooks` and `/shared/a/b/.git/hooks/pre-commit`, but neither
/// `/shared/.git/index` nor `/shared/x.git/hooks`.
///
/// Names are compared without case, by Unicode's mapping and not only ASCII's, and without invisible
/// characters: on some file systems `.GIT`, `.gıt` and `.g<U+200C>it` open the same folder. A false match
/// only refuses more.
///
/// Both checks are cheap enough for every open of a file: they allocate only for a path with `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedPaths {
    /// Sorted by text and deduplicated, so equal sets are equal values.
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pattern {
    /// The folded components, joined by `/`.
    text: String,
    /// The folded components. Never empty.
    parts: Vec<String>,
}

/// The reason why a text is not a pattern of a protected path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidPattern {
    /// The pattern has no components.
    #[error("a protected path needs a name")]
    Empty,
    /// The pattern starts with `/`.
    #[error("a protected path holds at any depth of any mount: write it without the leading `/`")]
    Absolute,
    /// The pattern has `.`, `..` or an empty component.
    #[error("a protected path is a list of plain names: `.`, `..` and `//` are not allowed")]
    Dots,
    /// The pattern has a NUL or another control character.
    #[error("a protected path cannot have control characters")]
    Control,
    /// The pattern looks like a glob.
    #[error("wildcards are not supported: a protected path is matched name by name, at any depth")]
    Wildcard,
    /// The pattern is longer than any path.
    #[error("a protected path has at most 4096 bytes")]
    TooLong,
}

impl ProtectedPaths {
    /// Parses patterns, for callers without a policy file, such as tests of the enforcing layer.
    ///
    /// # Errors
    /// [`InvalidPattern`] for the first invalid text.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidPattern> {
        let patterns: Result<Vec<_>, _> = patterns.into_iter().map(Pattern::parse).collect();
        Ok(Self::new(patterns?))
    }

    pub(crate) fn new(mut patterns: Vec<Pattern>) -> Self {
        patterns.sort();
        patterns.dedup();
        Self { patterns }
    }

    /// Removes a pattern. Returns `false` if it is not present.
    pub(crate) fn remove(&mut self, pattern: &Pattern) -> bool {
        let count_before = self.patterns.len();
        self.patterns.retain(|retained| retained != pattern);
        self.patterns.len() < count_before
    }

    /// Returns whether a pattern is present.
    pub(crate) fn has(&self, pattern: &Pattern) -> bool {
        self.patterns.contains(pattern)
    }

    /// Adds patterns.
    pub(crate) fn extend(&mut self, patterns: impl IntoIterator<Item = Pattern>) {
        self.patterns.extend(patterns);
        self.patterns.sort();
        self.patterns.dedup();
    }

    /// Returns the patterns in folded form, sorted.
    pub fn patterns(&self) -> impl Iterator<Item = &str> + Clone {
        self.patterns.iter().map(|pattern| pattern.text.as_str())
    }

    /// Returns the pattern that protects a path, if any: the pattern names the path itself or a folder above
    /// it. A protected path must not be opened for writing, created, removed, renamed or linked, and must not
    /// be the target of a rename or a link.
    ///
    /// `components` are the names below the mount. Pass `path.split('/')`: empty names and `.` are skipped. A path with
    /// `..` is matched both as written and with `..` resolved lexically. The code that opens the path must resolve
    /// links.
    pub fn covers<I>(&self, components: I) -> Option<&str>
    where
        I: IntoIterator<Item: AsRef<str>, IntoIter: Clone>,
    {
        let components = components.into_iter();
        if let Some(pattern) = self.find(components.clone(), Pattern::is_prefix_of) {
            return Some(pattern);
        }
        let resolved = resolve_dots(components)?;
        self.find(resolved.iter(), Pattern::is_prefix_of)
    }

    /// Returns whether the last components of a path start a pattern without completing it, as in
    /// `/shared/a/.git` for `.git/hooks`.
    ///
    /// Creating such a folder, or files in it, is harmless. Renaming or linking something onto it is not, because the
    /// new content would become protected paths.
    pub fn is_prefix_of_protected<I>(&self, components: I) -> bool
    where
        I: IntoIterator<Item: AsRef<str>, IntoIter: Clone>,
    {
        self.find_incomplete_pattern(components).is_some()
    }

    /// Returns the pattern that the last components of a path start without completing it.
    pub(crate) fn find_incomplete_pattern<I>(&self, components: I) -> Option<&str>
    where
        I: IntoIterator<Item: AsRef<str>, IntoIter: Clone>,
    {
        let components = components.into_iter();
        if let Some(pattern) = self.find(components.clone(), Pattern::has_proper_prefix) {
            return Some(pattern);
        }
        let resolved = resolve_dots(components)?;
        self.find(resolved.iter(), Pattern::has_proper_prefix)
    }

    /// Tries every pattern at the first component of a path, once as written and once with `..` resolved lexically.
    pub(crate) fn find_first<'a>(
        &self,
        path: &(impl Iterator<Item = &'a str> + Clone),
        matches: fn(&Pattern, &mut dyn Iterator<Item = &'a str>) -> bool,
    ) -> Option<&str> {
        let pattern =
            self.patterns.iter().find(|pattern| matches(pattern, &mut path.clone())).or_else(|| {
                let resolved = resolve_dots(path.clone())?;
                self.patterns.iter().find(|pattern| matches(pattern, &mut resolved.iter().copied()))
            });
        pattern.map(|pattern| pattern.text.as_str())
    }

    /// Tries every pattern at every component of a path.
    fn find<I, C>(
        &self,
        components: I,
        matches: fn(&Pattern, &mut dyn Iterator<Item = C>) -> bool,
    ) -> Option<&str>
    where
        I: Iterator<Item = C> + Clone,
        C: AsRef<str>,
    {
        let mut rest = components.filter(|part| !matches!(part.as_ref(), "" | "."));
        loop {
            // Clone before `next`, because the pattern starts at this name.
            let remaining = rest.clone();
            let name = rest.next()?;
            // Few names start a pattern, so most names cost one comparison per pattern.
            let mut candidates = self.patterns.iter().filter(|pattern| pattern.starts_with(name.as_ref()));
            if let Some(pattern) = candidates.find(|pattern| matches(pattern, &mut remaining.clone())) {
                return Some(&pattern.text);
            }
        }
    }
}

impl Serialize for ProtectedPaths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.patterns())
    }
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidPattern> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(InvalidPattern::TooLong);
        }
        if text.starts_with('/') {
            return Err(InvalidPattern::Absolute);
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidPattern::Control);
        }
        if text.contains(['*', '?', '[', ']']) {
            return Err(InvalidPattern::Wildcard);
        }
        // People write folders with a trailing slash. Strip only one, because `a//` is a mistake.
        let text = text.strip_suffix('/').unwrap_or(text);
        if text.is_empty() {
            return Err(InvalidPattern::Empty);
        }
        let parts: Vec<String> = text.split('/').map(|part| fold(part).collect()).collect();
        if parts.iter().any(|part| matches!(part.as_str(), "" | "." | "..")) {
            return Err(InvalidPattern::Dots);
        }
        Ok(Self { text: parts.join("/"), parts })
    }

    /// Returns the folded text.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    fn starts_with(&self, name: &str) -> bool {
        self.parts.first().is_some_and(|part| is_same_name(name, part))
    }

    /// Returns whether the components start with the whole pattern.
    pub(crate) fn is_prefix_of<C: AsRef<str>>(&self, components: &mut dyn Iterator<Item = C>) -> bool {
        self.parts.iter().all(|part| components.next().is_some_and(|name| is_same_name(name.as_ref(), part)))
    }

    /// Returns whether the components start the pattern without completing it.
    pub(crate) fn has_proper_prefix<C: AsRef<str>>(&self, components: &mut dyn Iterator<Item = C>) -> bool {
        let mut parts = self.parts.iter();
        let mut any = false;
        for name in components {
            if !parts.next().is_some_and(|part| is_same_name(name.as_ref(), part)) {
                return false;
            }
            any = true;
        }
        any && parts.next().is_some()
    }
}

/// Resolves `..` lexically. Returns `None` if there is no `..`. A `..` above the first component is dropped,
/// as the kernel does at the root.
fn resolve_dots<I>(components: I) -> Option<Vec<I::Item>>
where
    I: Iterator<Item: AsRef<str>> + Clone,
{
    if !components.clone().any(|part| part.as_ref() == "..") {
        return None;
    }
    let mut resolved = Vec::new();
    for part in components {
        match part.as_ref() {
            "" | "." => {}
            ".." => drop(resolved.pop()),
            _ => resolved.push(part),
        }
    }
    Some(resolved)
}

/// Returns whether a name equals a folded name.
fn is_same_name(name: &str, folded: &str) -> bool {
    // For ASCII this equals `fold`: an ASCII letter has only two forms, and no ASCII character is invisible.
    if name.is_ascii() { name.eq_ignore_ascii_case(folded) } else { fold(name).eq(folded.chars()) }
}

/// Folds a name's case and drops invisible characters. Upper case comes first, because some characters share their
/// upper case but not their lower case (`ſ` and `s`, `ı` and `i`).
pub(crate) fn fold(name: &str) -> impl Iterator<Item = char> {
    name.chars()
        .filter(|character| !is_invisible(*character))
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
}

/// The maximum length of a pattern in bytes: Linux's `PATH_MAX`.
const MAX_PATTERN_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn shipped() -> ProtectedPaths {
        ProtectedPaths::parse([".git/hooks", ".git/config", ".bashrc", ".vscode/tasks.json", "a/b/c"])
            .expect("patterns")
    }

    #[track_caller]
    fn check_covers(path: &str, pattern: Option<&str>) {
        let protected = shipped();
        assert_eq!(protected.covers(path.split('/')), pattern, "{path}");
        let parts: Vec<&str> = path.split('/').collect();
        assert_eq!(protected.covers(&parts), pattern, "{path}");
    }

    #[test]
    fn a_pattern_covers_itself_and_what_is_below_at_any_depth() {
        check_covers(".git/hooks", Some(".git/hooks"));
        check_covers(".git/hooks/pre-commit", Some(".git/hooks"));
        check_covers("x/y/.git/config", Some(".git/config"));
        check_covers(".bashrc", Some(".bashrc"));
        check_covers("x/.bashrc/y", Some(".bashrc"));
        check_covers("a/a/b/c", Some("a/b/c"));
        check_covers("a/b/a/b/c", Some("a/b/c"));
    }

    #[test]
    fn path_that_only_resembles_a_pattern_is_free() {
        for path in [
            "",
            ".",
            ".git",
            ".git/index",
            "hooks",
            ".git/x/hooks",
            "x.git/hooks",
            ".bashrc.bak",
            "a/b",
            "a/b/x/c",
        ] {
            check_covers(path, None);
        }
    }

    #[test]
    fn disguised_spellings_of_a_protected_path_are_matched() {
        check_covers(".GIT/Hooks/x", Some(".git/hooks"));
        check_covers(".git//.//hooks", Some(".git/hooks"));
        check_covers("./.git/hooks", Some(".git/hooks"));
        check_covers(".git/x/../hooks/pre-commit", Some(".git/hooks"));
        check_covers("a/../.bashrc", Some(".bashrc"));
        check_covers("../../.git/y/z/../../hooks", Some(".git/hooks"));
        check_covers(".git/hooks/../x", Some(".git/hooks"));
        check_covers(".g\u{200c}it/hooks", Some(".git/hooks"));
        check_covers(".ba\u{17f}hrc", Some(".bashrc"));
        check_covers(".vscode/tas\u{212a}s.json", Some(".vscode/tasks.json"));
        check_covers(".g\u{131}t/config", Some(".git/config"));
    }

    #[test]
    fn a_proper_beginning_at_the_end_of_a_path_is_found() {
        let protected = shipped();
        for path in [".git", "x/.GIT", "a", "a/b", "x/a/b", "a/a", ".vscode", "q/../.git", "a/b/."] {
            assert!(protected.is_prefix_of_protected(path.split('/')), "{path}");
        }
        for path in ["", ".", "x", ".git/hooks", ".git/x", "a/b/c", "b", "b/a/x", ".bashrc", ".git/.."] {
            assert!(!protected.is_prefix_of_protected(path.split('/')), "{path}");
        }
    }

    #[test]
    fn a_pattern_is_a_list_of_plain_names() {
        for (text, error) in [
            ("", InvalidPattern::Empty),
            ("/", InvalidPattern::Absolute),
            ("/etc", InvalidPattern::Absolute),
            ("a//b", InvalidPattern::Dots),
            ("../a", InvalidPattern::Dots),
            ("a/.", InvalidPattern::Dots),
            ("\u{200c}", InvalidPattern::Dots),
            ("a\0", InvalidPattern::Control),
            ("**/x", InvalidPattern::Wildcard),
        ] {
            assert_eq!(ProtectedPaths::parse([text]), Err(error), "{text}");
        }
        assert_eq!(ProtectedPaths::parse(["A/B/", "a/b"]), ProtectedPaths::parse(["a/b"]));
        assert_eq!(ProtectedPaths::parse([&*"a".repeat(5000)]), Err(InvalidPattern::TooLong));
    }
}
