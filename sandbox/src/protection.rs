//! The names that a guest must not write: protected paths in every call, protected kinds where a flow rule withholds
//! them from the call.

use std::{os::fd::BorrowedFd, sync::Arc};

use portcullis_policy::{ProtectedKinds, ProtectedPaths};

use super::{path_verdict::Violation, repository};

/// What holds for the writes of one call.
#[derive(Debug, Clone)]
pub(super) struct Protection {
    pub(super) paths: Arc<ProtectedPaths>,
    /// The protected kinds, if the call must not write any.
    pub(super) withheld: Option<Arc<ProtectedKinds>>,
}

impl Protection {
    /// The violation of writing a path, given as its components below its mount with links resolved; none if it may be
    /// written.
    pub(super) fn violation(
        &self,
        mount: BorrowedFd<'_>,
        below: &[String],
        path: impl FnOnce() -> String,
    ) -> Option<Violation> {
        let found = self.paths.covers(below).map(str::to_owned);
        if let Some(pattern) = found.or_else(|| repository::protects(&self.paths, mount, below)) {
            return Some(Violation::Protected { path: path(), pattern });
        }
        let pattern = self.withheld.as_ref()?.covers(below)?;
        Some(Violation::WithheldKind { path: path(), pattern })
    }

    /// The violation of giving a path to something with content of its own: the path is the beginning of a pattern, so
    /// that the content would appear at names that must not be written.
    pub(super) fn violation_of_stand_in(
        &self,
        below: &[String],
        path: impl FnOnce() -> String,
    ) -> Option<Violation> {
        if self.paths.is_prefix_of_protected(below) {
            let pattern = below.last().cloned().unwrap_or_default();
            return Some(Violation::Protected { path: path(), pattern });
        }
        let pattern = self.withheld.as_ref()?.begun_by(below)?.to_owned();
        Some(Violation::WithheldKind { path: path(), pattern })
    }
}
