//! A module from outside, loaded and asked what it has; or why it is not.

use std::sync::Arc;

use portcullis_types::{Declarations, ToolName};

use super::ModuleError;
use crate::sandbox::GuestModule;

/// A module from outside whose tools are still to be registered.
#[derive(Debug)]
pub(crate) struct OutsideModule {
    /// The file that it was found in, or what an embedder calls it.
    pub(crate) name: String,
    pub(crate) module: Arc<GuestModule>,
    pub(crate) declarations: Declarations,
    pub(crate) wanted: Wanted,
}

/// What becomes of a start whose module cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It was named: without it there is no start.
    Named,
    /// It lay in the folder: the start goes on without it, and says so.
    Found,
}

/// A module that is not used, and why.
#[derive(Debug)]
pub struct RefusedModule {
    pub(crate) name: String,
    pub(crate) error: ModuleError,
    pub(crate) tools: Vec<ToolName>,
}

impl RefusedModule {
    /// The file that it was found in.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why it is not used.
    #[must_use]
    pub fn error(&self) -> &ModuleError {
        &self.error
    }
}
