//! The names that a guest must not write: protected paths in every call, protected kinds where a flow rule withholds
//! them from the call.

use std::{os::fd::BorrowedFd, sync::Arc};

use portcullis_policy::{ProtectedKinds, ProtectedPaths};

use super::{repository, path_verdict::Violation};

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
}
