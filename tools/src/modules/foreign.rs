//! A foreign module, loaded and described, or the reason why it is refused.

use std::sync::Arc;

use portcullis_types::{Declarations, ToolName};

use super::ModuleError;
use crate::sandbox::GuestModule;

/// A foreign module whose tools are not yet registered.
#[derive(Debug)]
pub(crate) struct ForeignModule {
    /// The file of the module, or the embedder's name for it.
    pub(crate) name: String,
    pub(crate) module: Arc<GuestModule>,
    pub(crate) declarations: Declarations,
    pub(crate) wanted: ModuleOrigin,
}

/// How an unusable module affects the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModuleOrigin {
    /// The module was named: the start fails without it.
    Named,
    /// The module lay in the folder: the start goes on without it, and reports it.
    Found,
}

/// A refused module, and the reason.
#[derive(Debug)]
pub struct RefusedModule {
    pub(crate) name: String,
    pub(crate) error: ModuleError,
    pub(crate) tools: Vec<ToolName>,
}

impl RefusedModule {
    /// The file of the module.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why it is refused.
    #[must_use]
    pub fn error(&self) -> &ModuleError {
        &self.error
    }
}
