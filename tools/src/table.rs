//! The registered tools, by name and alias: [`ToolTable`] at one moment, [`ServedTools`] while they may change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use portcullis_policy::Operation;
use portcullis_types::ToolName;
use tokio::sync::watch;

use crate::{
    registered::RegisteredTool,
    registry::{NameHolder, RegistryError},
};

/// The registered tools. No two of them share a name or an alias.
#[derive(Debug, Default, Clone)]
pub(crate) struct ToolTable {
    tools: BTreeMap<ToolName, Arc<RegisteredTool>>,
    /// The tool's name for each alias.
    aliases: BTreeMap<ToolName, ToolName>,
    /// Tools that should be here and are missing.
    lost: BTreeSet<ToolName>,
}

impl ToolTable {
    /// Adds a tool that callers can name, or nothing.
    pub(crate) fn add(&mut self, tool: RegisteredTool) -> Result<(), RegistryError> {
        // Otherwise the policy's entry of the step would apply to this tool.
        if let Some(name) = tool.names().find(|name| Operation::has_step(name.as_str())) {
            return Err(RegistryError::Taken { name: name.clone(), holder: NameHolder::Shipped });
        }
        self.insert(tool)
    }

    /// Adds a tool, which may be a step, under its name and its aliases, or nothing.
    pub(crate) fn insert(&mut self, tool: RegisteredTool) -> Result<(), RegistryError> {
        if let Some((name, holder)) = tool.names().find_map(|name| Some((name, self.get(name.as_str())?))) {
            return Err(RegistryError::Taken { name: name.clone(), holder: NameHolder::of(holder) });
        }
        let name = tool.facts().name.clone();
        let mut aliases = BTreeMap::new();
        for alias in tool.aliases() {
            if *alias == name || aliases.insert(alias.clone(), name.clone()).is_some() {
                return Err(RegistryError::Taken { name: alias.clone(), holder: NameHolder::SameTool });
            }
        }
        self.aliases.append(&mut aliases);
        self.tools.insert(name, Arc::new(tool));
        Ok(())
    }

    /// Removes a tool with its aliases.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<RegisteredTool>> {
        let removed = self.tools.remove(name)?;
        self.aliases.retain(|_, of| of.as_str() != name);
        Some(removed)
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
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<RegisteredTool>> {
        self.tools.values()
    }
}

/// The tools that a registry serves. A call takes a snapshot, and keeps the tool that it finds there until its
/// end, whatever is added or removed meanwhile.
#[derive(Debug)]
pub(crate) struct ServedTools {
    table: watch::Sender<Arc<ToolTable>>,
    /// Held during a change, so that no other change is lost.
    changing: Mutex<()>,
}

impl ServedTools {
    pub(crate) fn new(tools: ToolTable) -> Self {
        Self { table: watch::Sender::new(Arc::new(tools)), changing: Mutex::default() }
    }

    /// The tools at this moment.
    pub(crate) fn snapshot(&self) -> Arc<ToolTable> {
        Arc::clone(&self.table.borrow())
    }

    /// Changes the tools for later snapshots. A change that fails has no effect.
    pub(crate) fn change<T, E>(&self, change: impl FnOnce(&mut ToolTable) -> Result<T, E>) -> Result<T, E> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tools = ToolTable::clone(&self.snapshot());
        let done = change(&mut tools)?;
        self.table.send_replace(Arc::new(tools));
        Ok(done)
    }

    /// Follows the changes from this moment on.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<ToolTable>> {
        self.table.subscribe()
    }
}
