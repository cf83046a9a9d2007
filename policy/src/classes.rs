//! [`PathClasses`]: the paths of a pattern, divided into the classes that the evaluator can distinguish.
//!
//! A decision about a path depends on the mount and on what the names below it match: hidden names, protected
//! paths and kinds, and the patterns of `unasked`. There are finitely many combinations, so one path for each
//! combination represents all paths of the pattern. This module only finds these paths. The evaluator decides
//! about them.

mod names;
mod states;

use std::collections::{BTreeMap, BTreeSet};

use portcullis_types::GuestPath;
use thiserror::Error;

use crate::{PathPattern, WorkspaceSecurityPolicy};

use names::{MAX_NAME_STATES, NameClass, NameGlobs};
use states::{PathRulesOfMount, PathStates};

/// A pattern that has more classes than the limits allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{pattern}` matches more combinations of the policy's patterns than are examined; write it with fewer `*`"
)]
pub struct TooManyClasses {
    /// The pattern, as it is written.
    pub pattern: String,
}

/// Finds the classes of patterns under one policy.
#[derive(Debug)]
pub struct PathClasses<'p> {
    policy: &'p WorkspaceSecurityPolicy,
    /// The classes of names, cached by the mount and the globs of the pattern, because most patterns share
    /// them.
    names: BTreeMap<(String, Vec<String>), Option<Vec<NameClass>>>,
}

impl<'p> PathClasses<'p> {
    /// Prepares the classes of a policy.
    #[must_use]
    pub fn new(policy: &'p WorkspaceSecurityPolicy) -> Self {
        Self { policy, names: BTreeMap::new() }
    }

    /// Returns one path for each class of a pattern. A pattern without a leading `/` is relative to `home`.
    /// Paths with `..` belong to no pattern.
    ///
    /// # Errors
    /// [`TooManyClasses`] if the pattern cannot be decided within the bounds.
    pub fn of(&mut self, pattern: &PathPattern) -> Result<Vec<GuestPath>, TooManyClasses> {
        let (mount, components) = pattern.split(self.policy.home());
        if components.iter().all(|name| !name.contains('*')) {
            return Ok(GuestPath::parse(&path_of(mount, &components)).into_iter().collect());
        }
        let too_many = || TooManyClasses { pattern: pattern.to_string() };
        let rules = PathRulesOfMount::new(self.policy, mount);
        let globs: BTreeSet<&str> = components.iter().copied().filter(|name| *name != "**").collect();
        let globs: Vec<String> = globs.into_iter().map(str::to_owned).collect();
        let names = self
            .names
            .entry((mount.to_owned(), globs.clone()))
            .or_insert_with(|| NameGlobs::new(self.policy, &rules, &globs).classes(MAX_NAME_STATES));
        let names = names.as_deref().ok_or_else(too_many)?;
        let found = PathStates::new(&rules, &components, names).representatives().ok_or_else(too_many)?;
        // No call can contain a path that is too long.
        Ok(found.iter().filter_map(|names| GuestPath::parse(&path_of(mount, names)).ok()).collect())
    }
}

fn path_of(mount: &str, names: &[impl AsRef<str>]) -> String {
    let names = names.iter().map(AsRef::as_ref);
    std::iter::once(mount).chain(names).flat_map(|name| ["/", name]).collect()
}

#[cfg(test)]
mod tests;
