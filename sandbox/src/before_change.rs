//! [`BeforeChangeFn`]: lets the host record the state of a path before a guest changes it.

use std::{fmt, sync::Arc};

use portcullis_types::ChangeScope;

/// The parts of a mount that a guest is about to change. A path has its components below the mount.
pub type GuestChangeScope<'c> = ChangeScope<&'c str, &'c [&'c [u8]]>;

/// The host did not record the state of a path, so the guest must not change the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeNotRecorded;

/// The host's function that runs before each change that a guest makes in a mount. Clones share the function.
///
/// Its arguments are the mount's name, the components of the path below the mount, with links resolved, and the scope
/// of the change. It runs on the worker's thread, which is confined to the call's mounts, and may block it until the
/// call's deadline.
#[derive(Clone)]
pub struct BeforeChangeFn(Arc<RecordFunction>);

type RecordFunction =
    dyn Fn(&str, &[&[u8]], GuestChangeScope<'_>) -> Result<(), ChangeNotRecorded> + Send + Sync;

impl BeforeChangeFn {
    /// Wraps this function.
    pub fn new<F>(record: F) -> Self
    where
        F: Fn(&str, &[&[u8]], GuestChangeScope<'_>) -> Result<(), ChangeNotRecorded> + Send + Sync + 'static,
    {
        Self(Arc::new(record))
    }

    pub(crate) fn record(
        &self,
        mount: &str,
        path: &[&[u8]],
        scope: GuestChangeScope<'_>,
    ) -> Result<(), ChangeNotRecorded> {
        (self.0)(mount, path, scope)
    }
}

impl fmt::Debug for BeforeChangeFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeChangeFn")
    }
}
