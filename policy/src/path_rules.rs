//! [`PathRules`]: the paths of a file tool that need no approval.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use portcullis_types::GuestPath;
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::{MountName, RequestedSubject, hidden::matches_wildcards};

/// The tools that can have such rules: those that access only the files that their arguments name. A foreign
/// module may also write other files.
pub(crate) const FILE_TOOLS: [&str; 6] =
    ["file_delete", "file_edit", "file_list", "file_read", "file_search", "file_write"];

/// The maximum length of a pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 4096;

/// `[tools.NAME] unasked`: for each argument, the patterns of the paths that need no approval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PathRules(BTreeMap<String, BTreeSet<PathPattern>>);

/// A pattern of paths, such as `src/**` or `/tmp/*.txt`. In a component, `*` matches any characters. The
/// component `**` matches any number of components. A pattern without a leading `/` is relative to the mount
/// `home`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathPattern(String);

/// The reason why a text is not a pattern of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidPathPattern {
    /// The text is too long.
    #[error("a pattern has at most {MAX_PATTERN_BYTES} bytes")]
    TooLong,
    /// The text has a character that no pattern has.
    #[error("a pattern has no control character, quote or backslash, and `*` is the only wildcard")]
    Character,
    /// The text has an empty component.
    #[error("a pattern must not contain `//` or end with `/`")]
    EmptyName,
    /// The text has the component `.` or `..`.
    #[error("a pattern has no `.` and no `..`")]
    Dots,
    /// The text has `**` beside other characters of a component.
    #[error("`**` must stand for a whole path component, as in `src/**`")]
    PartialWildcard,
    /// The text starts with `/`, and its mount has a wildcard.
    #[error("a pattern that starts with `/` names its mount, as in `/tmp/**`")]
    WildcardMount,
}

impl PathRules {
    /// Builds the rules of these arguments, each with one pattern.
    pub(crate) fn new(patterns: impl IntoIterator<Item = (String, PathPattern)>) -> Self {
        let mut rules = BTreeMap::<String, BTreeSet<PathPattern>>::new();
        for (argument, pattern) in patterns {
            rules.entry(argument).or_default().insert(pattern);
        }
        Self(rules)
    }

    /// Returns all rules, as `ARGUMENT["PATTERN"]`.
    pub(crate) fn patterns(&self) -> BTreeSet<String> {
        let rules = self.0.iter();
        rules
            .flat_map(|(argument, patterns)| {
                patterns.iter().map(move |pattern| format!("{argument}[\"{pattern}\"]"))
            })
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all rules: each argument with each of its patterns.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (&str, &PathPattern)> {
        self.0
            .iter()
            .flat_map(|(argument, patterns)| patterns.iter().map(move |pattern| (argument.as_str(), pattern)))
    }

    /// Returns the rules that cover all paths of a call, one for each path, as `ARGUMENT["PATTERN"]`. Empty
    /// if a path is not covered, or if the call names a subject other than a path.
    pub(crate) fn covering(&self, subjects: &[RequestedSubject], home: &MountName) -> Vec<String> {
        let rule = |subject: &RequestedSubject| {
            let RequestedSubject::Path { argument, path, .. } = subject else { return None };
            let pattern = self.0.get(argument)?.iter().find(|pattern| pattern.covers(path, home))?;
            Some(format!("{argument}[\"{pattern}\"]"))
        };
        // If no rule covers one of the paths, the whole call needs approval.
        subjects.iter().map(rule).collect::<Option<Vec<_>>>().unwrap_or_default()
    }
}

/// Formats the value of the key, in TOML.
impl fmt::Display for PathRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.0.iter().map(|(argument, patterns)| {
            let patterns: Vec<String> = patterns.iter().map(|pattern| format!("{:?}", pattern.0)).collect();
            format!("{argument} = [{}]", patterns.join(", "))
        });
        write!(f, "{{ {} }}", rules.collect::<Vec<_>>().join(", "))
    }
}

impl PathPattern {
    /// Reads a pattern of at most 4,096 bytes.
    ///
    /// # Errors
    /// [`InvalidPathPattern`] if the text is longer, or has a character, component or wildcard that is
    /// not allowed.
    pub fn parse(text: &str) -> Result<Self, InvalidPathPattern> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(InvalidPathPattern::TooLong);
        }
        if text.chars().any(char::is_control) || text.contains(['?', '[', ']', '\\', '"']) {
            return Err(InvalidPathPattern::Character);
        }
        let components = text.strip_prefix('/').unwrap_or(text);
        for component in components.split('/') {
            match component {
                "" => return Err(InvalidPathPattern::EmptyName),
                "." | ".." => return Err(InvalidPathPattern::Dots),
                "**" => {}
                name if name.contains("**") => return Err(InvalidPathPattern::PartialWildcard),
                _ => {}
            }
        }
        if text.starts_with('/') && components.split('/').next().is_some_and(|mount| mount.contains('*')) {
            return Err(InvalidPathPattern::WildcardMount);
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns whether a pattern that starts with `/` covers a path. Other patterns, and paths with `..`,
    /// never match.
    #[must_use]
    pub fn covers_absolute(&self, path: &GuestPath) -> bool {
        let Some((mount, pattern)) = self.split_absolute() else { return false };
        covers_in(mount, pattern, path)
    }

    /// Returns the mount of a pattern that starts with `/`, and the pattern below it.
    fn split_absolute(&self) -> Option<(&str, &str)> {
        let absolute = self.0.strip_prefix('/')?;
        Some(absolute.split_once('/').unwrap_or((absolute, "")))
    }

    pub(crate) fn covers(&self, path: &GuestPath, home: &MountName) -> bool {
        let (mount, pattern) = self.split_absolute().unwrap_or((home.as_str(), &self.0));
        covers_in(mount, pattern, path)
    }

    /// Returns the mount, and the components below it.
    pub(crate) fn split<'t>(&'t self, home: &'t MountName) -> (&'t str, Vec<&'t str>) {
        let (mount, pattern) = self.split_absolute().unwrap_or((home.as_str(), &self.0));
        (mount, pattern.split('/').filter(|name| !name.is_empty()).collect())
    }

    /// Returns the name of the mount whose paths the pattern covers.
    #[must_use]
    pub fn mount<'t>(&'t self, home: &'t MountName) -> &'t str {
        self.split(home).0
    }
}

/// Returns whether a pattern below a mount covers a path.
fn covers_in(mount: &str, pattern: &str, path: &GuestPath) -> bool {
    let names: Vec<&str> = path.components().collect();
    // A path with `..` has a different target than its text shows.
    if names.contains(&"..") {
        return false;
    }
    let pattern: Vec<&str> = pattern.split('/').filter(|name| !name.is_empty()).collect();
    names.first() == Some(&mount) && covers(&pattern, &names[1..])
}

/// Returns whether a pattern covers the names of a path. Each `**` first matches as few names as possible.
/// Only the last `**` is extended when the rest does not match, because extending an earlier one could not
/// help.
fn covers(pattern: &[&str], names: &[&str]) -> bool {
    let (mut at, mut name_at) = (0, 0);
    let mut last_any: Option<(usize, usize)> = None;
    while name_at < names.len() {
        match pattern.get(at) {
            Some(&"**") => {
                last_any = Some((at, name_at));
                at += 1;
                continue;
            }
            Some(name) if matches_wildcards(name, names[name_at]) => {
                (at, name_at) = (at + 1, name_at + 1);
                continue;
            }
            _ => {}
        }
        // Backtrack: let the last `**` match one more name.
        let Some((any_at, any_name_at)) = last_any else { return false };
        last_any = Some((any_at, any_name_at + 1));
        (at, name_at) = (any_at + 1, any_name_at + 1);
    }
    pattern[at..].iter().all(|name| *name == "**")
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for PathPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(pattern: &str, covered: &[&str], others: &[&str]) {
        let parsed = PathPattern::parse(pattern).expect(pattern);
        let home = MountName::parse("project").expect("a name");
        for (paths, expected) in [(covered, true), (others, false)] {
            for path in paths {
                let guest_path = GuestPath::parse(path).expect(path);
                assert_eq!(parsed.covers(&guest_path, &home), expected, "{pattern} {path}");
            }
        }
    }

    #[test]
    fn patterns_cover_names_below_a_mount() {
        check(
            "src/**",
            &["/project/src/a", "/project/src/a/b", "/project/src"],
            &["/project/srcs/a", "/tmp/src/a"],
        );
        check(
            "src/*.rs",
            &["/project/src/a.rs"],
            &["/project/src/a/b.rs", "/project/src/a.rs/b", "/project/a.rs"],
        );
        check("**/*.md", &["/project/a.md", "/project/x/y/a.md"], &["/project/a.mdx", "/project/a.md/b"]);
        check("/tmp/**", &["/tmp/a", "/tmp"], &["/project/tmp/a"]);
        check("a/**/b/**", &["/project/a/b", "/project/a/x/b/y"], &["/project/a/x", "/project/b"]);
        check("src/**", &[], &["/project/src/../Makefile", "/project/x/../src/a"]);
    }

    #[test]
    fn other_texts_are_not_patterns() {
        for text in
            ["", "/", "a//b", "a/", "../a", "a/./b", "a/**b", "/*/a", "/**", "a?b", "[a]", "a\nb", "a\"b"]
        {
            assert!(PathPattern::parse(text).is_err(), "{text:?}");
        }
    }

    /// The reference for the test: tries every alternative.
    fn covers_slowly(pattern: &[&str], names: &[&str]) -> bool {
        match pattern {
            [] => names.is_empty(),
            ["**", rest @ ..] => (0..=names.len()).any(|skipped| covers_slowly(rest, &names[skipped..])),
            [name, rest @ ..] => names
                .split_first()
                .is_some_and(|(first, others)| matches_wildcards(name, first) && covers_slowly(rest, others)),
        }
    }

    proptest! {
        #[test]
        fn any_names_are_covered_as_by_trying_each_way(
            pattern in prop::collection::vec(prop::sample::select(vec!["**", "a", "b", "a*", "*"]), 0..6),
            names in prop::collection::vec(prop::sample::select(vec!["a", "b", "ab"]), 0..6),
        ) {
            prop_assert_eq!(covers(&pattern, &names), covers_slowly(&pattern, &names));
        }
    }
}
