//! Protected kinds: names of files that other programs run or load, but that tools have legitimate reasons to
//! write.
//!
//! No tool ever writes a name of `[protect] paths`. A protected kind is written like any other file, unless a flow rule
//! with the sink `write:protected` asks about it or denies it.

use std::{collections::BTreeSet, fmt};

use portcullis_types::Access;
use serde::{Serialize, Serializer};

use crate::{
    Grant, InvalidPattern, ProtectedPaths, RequestedSubject,
    protect::{Pattern, fold},
};

/// The patterns of `[protect] kinds`, ready for matching: names as in [`ProtectedPaths`], and name endings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedKinds {
    names: ProtectedPaths,
    /// The endings in folded form, each with its dot.
    endings: BTreeSet<String>,
}

/// An element of `[protect] kinds` or `[protect] except`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KindPattern {
    /// A list of plain names, as in `paths`.
    Name(Pattern),
    /// `*.sh`: every name with this ending.
    Ending(String),
}

impl ProtectedKinds {
    /// Parses patterns, for callers without a policy file, such as tests of the enforcing layer.
    ///
    /// # Errors
    /// [`InvalidPattern`] for the first invalid text.
    pub fn parse<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidPattern> {
        let patterns: Result<Vec<_>, _> = patterns.into_iter().map(KindPattern::parse).collect();
        Ok(Self::new(patterns?))
    }

    pub(crate) fn new(patterns: impl IntoIterator<Item = KindPattern>) -> Self {
        let mut kinds = Self { names: ProtectedPaths::new(Vec::new()), endings: BTreeSet::new() };
        patterns.into_iter().for_each(|pattern| kinds.insert(pattern));
        kinds
    }

    pub(crate) fn insert(&mut self, pattern: KindPattern) {
        match pattern {
            KindPattern::Name(name) => self.names.extend([name]),
            KindPattern::Ending(ending) => drop(self.endings.insert(ending)),
        }
    }

    /// Removes a pattern. Returns `false` if it is not present.
    pub(crate) fn remove(&mut self, pattern: &KindPattern) -> bool {
        match pattern {
            KindPattern::Name(name) => self.names.remove(name),
            KindPattern::Ending(ending) => self.endings.remove(ending),
        }
    }

    /// Returns whether a pattern is present.
    pub(crate) fn has(&self, pattern: &KindPattern) -> bool {
        match pattern {
            KindPattern::Name(name) => self.names.has(name),
            KindPattern::Ending(ending) => self.endings.contains(ending),
        }
    }

    /// Returns the patterns in folded form: names, then endings, each sorted.
    pub fn patterns(&self) -> impl Iterator<Item = String> {
        let endings = self.endings.iter().map(|ending| format!("*{ending}"));
        self.names.patterns().map(str::to_owned).chain(endings)
    }

    /// Returns the pattern that covers a path, if any: the pattern names the path itself or a folder above
    /// it. `components` have the same form as in [`ProtectedPaths::covers`].
    pub fn covers<I>(&self, components: I) -> Option<String>
    where
        I: IntoIterator<Item: AsRef<str>, IntoIter: Clone>,
    {
        let components = components.into_iter();
        if let Some(pattern) = self.names.covers(components.clone()) {
            return Some(pattern.to_owned());
        }
        // Endings also match names of folders. A false match only costs one more question.
        components
            .into_iter()
            .find_map(|name| self.ending_of(name.as_ref()))
            .map(|ending| format!("*{ending}"))
    }

    /// Returns the pattern that the last components of a path start without completing it, as `.github` does
    /// for `.github/workflows`. Creating such a folder is harmless, but renaming or linking one brings all
    /// its content along.
    pub fn begun_by<I>(&self, components: I) -> Option<&str>
    where
        I: IntoIterator<Item: AsRef<str>, IntoIter: Clone>,
    {
        self.names.find_incomplete_pattern(components)
    }

    fn ending_of(&self, name: &str) -> Option<&str> {
        // Compare the folded name: without its invisible characters, a name can have another ending.
        let folded: String = fold(name).collect();
        self.endings.iter().find(|ending| folded.ends_with(ending.as_str())).map(String::as_str)
    }
}

impl Serialize for ProtectedKinds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.patterns())
    }
}

impl KindPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let Some(ending) = text.strip_prefix("*.") else { return Pattern::parse(text).map(Self::Name) };
        let ending = Pattern::parse(ending)?;
        if ending.as_str().contains('/') {
            Err(InvalidPattern::Wildcard)
        } else {
            Ok(Self::Ending(format!(".{}", ending.as_str())))
        }
    }
}

impl fmt::Display for KindPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name.as_str()),
            Self::Ending(ending) => write!(f, "*{ending}"),
        }
    }
}

/// Returns whether a call with this grant may write a file of a protected kind. It may if one of its
/// arguments names such a file for writing, or if no argument names the files that it writes: a command, or a
/// tool whose paths have no role.
pub(crate) fn may_write(grant: &Grant, kinds: &ProtectedKinds) -> bool {
    if !grant.mounts.iter().any(|mount| mount.access == Access::Write) {
        return false;
    }
    let mut written_paths = grant.subjects.iter().filter_map(|subject| match subject {
        RequestedSubject::Path { path, access: Access::Write, .. } => Some(path),
        RequestedSubject::Path { .. } | RequestedSubject::Url { .. } | RequestedSubject::Command { .. } => {
            None
        }
    });
    let Some(first_path) = written_paths.next() else { return true };
    std::iter::once(first_path).chain(written_paths).any(|path| {
        let components = path.below_mount().split('/');
        // The argument may name a folder that the call moves with all its content.
        kinds.covers(components.clone()).is_some() || kinds.begun_by(components).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, pattern: Option<&str>) {
        let kinds = ProtectedKinds::parse(["Makefile", ".github/workflows", "*.sh"]).expect("patterns");
        assert_eq!(kinds.covers(path.split('/')).as_deref(), pattern, "{path}");
    }

    #[test]
    fn a_kind_is_a_name_at_any_depth_or_an_ending() {
        check("Makefile", Some("makefile"));
        check("a/b/Makefile", Some("makefile"));
        check(".github/workflows/ci.yml", Some(".github/workflows"));
        check("a/run.sh", Some("*.sh"));
        for free in ["Makefile.txt", "a/makefiles", "run.sh.txt", "sh", ".github2/x", "a/.githubs", ""] {
            check(free, None);
        }
    }

    #[test]
    fn a_folder_that_begins_a_kind_is_matched() {
        let kinds = ProtectedKinds::parse(["Makefile", ".github/workflows", "*.sh"]).expect("patterns");
        for (path, pattern) in [
            (".github", Some(".github/workflows")),
            ("a/.GITHUB", Some(".github/workflows")),
            (".github/other", None),
            (".github/workflows", None),
        ] {
            assert_eq!(kinds.begun_by(path.split('/')), pattern, "{path}");
        }
        check(".github", None);
    }

    #[test]
    fn disguised_spellings_of_a_kind_are_matched() {
        check("MAKEFILE", Some("makefile"));
        check("Make\u{200c}file", Some("makefile"));
        check("run.SH", Some("*.sh"));
        check("run.s\u{200c}h", Some("*.sh"));
        check("run.sh\u{200c}", Some("*.sh"));
        check("run.\u{17f}h", Some("*.sh"));
        check("x/../Makefile", Some("makefile"));
    }

    #[test]
    fn an_ending_is_the_only_wildcard() {
        for (text, error) in [
            ("*", InvalidPattern::Wildcard),
            ("*.", InvalidPattern::Empty),
            ("*.*", InvalidPattern::Wildcard),
            ("a/*.sh", InvalidPattern::Wildcard),
            ("*.sh/x", InvalidPattern::Wildcard),
            ("**.sh", InvalidPattern::Wildcard),
            ("/etc", InvalidPattern::Absolute),
        ] {
            assert_eq!(ProtectedKinds::parse([text]), Err(error), "{text}");
        }
        assert_eq!(ProtectedKinds::parse(["*.SH", "a"]), ProtectedKinds::parse(["a", "*.sh", "*.sh"]));
    }
}
