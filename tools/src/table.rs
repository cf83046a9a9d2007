//! [`ToolTable`]: the registered tools, by name and alias.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use portcullis_types::ToolName;

use crate::{
    registered::RegisteredTool,
    registry::{NameHolder, RegistryError},
};

/// The registered tools. No two of them share a name or an alias.
#[derive(Debug, Default)]
pub(crate) struct ToolTable {
    tools: BTreeMap<ToolName, Arc<RegisteredTool>>,
    /// The tool's name for each alias.
    aliases: BTreeMap<ToolName, ToolName>,
    /// Tools that should be here and are missing.
    lost: BTreeSet<ToolName>,
}

impl ToolTable {
    /// Adds a tool under its name and its aliases.
    pub(crate) fn insert(&mut self, tool: RegisteredTool) -> Result<(), RegistryError> {
        if let Some((name, holder)) = tool.names().find_map(|name| Some((name, self.get(name.as_str())?))) {
            return Err(RegistryError::Taken { name: name.clone(), holder: NameHolder::of(holder) });
        }
        let name = tool.facts().name.clone();
        for alias in tool.aliases() {
            if *alias == name || self.aliases.insert(alias.clone(), name.clone()).is_some() {
                return Err(RegistryError::Taken { name: alias.clone(), holder: NameHolder::SameTool });
            }
        }
        self.tools.insert(name, Arc::new(tool));
        Ok(())
    }

    /// The tool of a name or an alias.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.tools.get(name).or_else(|| self.tools.get(self.aliases.get(name)?))
    }

    /// Notes tools that should be here and are missing: their calls fail as unavailable, not as unknown.
    pub(crate) fn note_lost(&mut self, lost: impl IntoIterator<Item = ToolName>) {
        self.lost.extend(lost);
    }

    /// The name of a missing tool.
    pub(crate) fn lost(&self, name: &str) -> Option<&ToolName> {
        self.lost.get(name)
    }

    /// The tools, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.tools.values().map(AsRef::as_ref)
    }
}
