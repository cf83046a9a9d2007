//! The names that a guest must not see, and the names that it must not write: protected paths in every call, and
//! protected kinds if a flow rule withholds them from the call.

use std::{os::fd::BorrowedFd, sync::Arc};

use portcullis_policy::{HiddenNames, ProtectedKinds, ProtectedPaths};

use super::{fs_result::Violation, repository};

/// The rules for the names of one call.
#[derive(Debug, Clone)]
pub(super) struct Protection {
    pub(super) paths: Arc<ProtectedPaths>,
    /// The protected kinds, if the call must not write them.
    pub(super) forbidden_kinds: Option<Arc<ProtectedKinds>>,
    /// The names that the guest does not see.
    pub(super) hidden: Arc<HiddenNames>,
}

impl Protection {
    /// Returns the names that are hidden in a mount. `None` if there are none, so that callers can skip the
    /// comparison.
    pub(super) fn hidden_in(&self, mount: &str) -> Option<&Arc<HiddenNames>> {
        (!self.hidden.is_empty() && HiddenNames::apply_to_mount(mount)).then_some(&self.hidden)
    }

    /// Returns the violation if a guest must not write a path. The path is given as its components below
    /// its mount, with links resolved.
    pub(super) fn violation(
        &self,
        mount: BorrowedFd<'_>,
        below: &[String],
        path: impl FnOnce() -> String,
    ) -> Option<Violation> {
        let pattern = self.paths.covers(below).map(str::to_owned);
        if let Some(pattern) = pattern.or_else(|| repository::protects(&self.paths, mount, below)) {
            return Some(Violation::Protected { path: path(), pattern });
        }
        let pattern = self.forbidden_kinds.as_ref()?.covers(below)?;
        Some(Violation::WithheldKind { path: path(), pattern })
    }

    /// Returns the violation if a guest must not give this path to a prepared directory or a link. If the
    /// path is the start of a protected pattern, the prepared content would appear under protected names.
    pub(super) fn violation_of_stand_in(
        &self,
        below: &[String],
        path: impl FnOnce() -> String,
    ) -> Option<Violation> {
        if self.paths.is_prefix_of_protected(below) {
            let pattern = below.last().cloned().unwrap_or_default();
            return Some(Violation::Protected { path: path(), pattern });
        }
        let pattern = self.forbidden_kinds.as_ref()?.begun_by(below)?.to_owned();
        Some(Violation::WithheldKind { path: path(), pattern })
    }
}
