//! A foreign module that has been loaded and described, or the reason why it is refused.

use std::sync::Arc;

use portcullis_types::{Declarations, ToolName};

use super::ModuleError;
use crate::sandbox::GuestModule;

/// A foreign module whose tools are not yet registered.
#[derive(Debug)]
pub(crate) struct ForeignModule {
    /// The module's file, or the embedder's name for the module.
    pub(crate) name: String,
    pub(crate) module: Arc<GuestModule>,
    pub(crate) declarations: Declarations,
    pub(crate) origin: ModuleOrigin,
}

/// The source of a module, which determines how its failure affects the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModuleOrigin {
    /// The module was named explicitly. The start fails without it.
    Named,
    /// The module was found in the folder. The start continues without it, and reports it.
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
    /// The module's file, or the embedder's name for the module.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why the module is refused.
    #[must_use]
    pub fn error(&self) -> &ModuleError {
        &self.error
    }
}
