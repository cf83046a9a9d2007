//! The registered tools, by name and alias: [`ToolTable`] is a snapshot, and [`ServedTools`] can change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use portcullis_policy::{MountName, Operation};
use portcullis_types::ToolName;
use tokio::sync::watch;

use crate::{
    home::NonDefaultHome,
    registered::RegisteredTool,
    registry::{NameHolder, RegistryError},
};

/// The registered tools. No two of them share a name or an alias, or have names that differ only in case.
#[derive(Debug, Default, Clone)]
pub(crate) struct ToolTable {
    tools: BTreeMap<ToolName, Arc<RegisteredTool>>,
    /// Maps each alias to the tool's name.
    aliases: BTreeMap<ToolName, ToolName>,
    /// Expected tools that are missing.
    lost_tools: BTreeSet<ToolName>,
    /// The mount in which relative paths of all tools are resolved, if not `shared`.
    home: Option<NonDefaultHome>,
}

impl ToolTable {
    /// Creates an empty table. Relative paths of tools that are added later are resolved in this mount.
    pub(crate) fn new(home: &MountName) -> Self {
        Self { home: NonDefaultHome::new(home), ..Self::default() }
    }

    /// Adds a tool that callers can call by name. On an error, the table is unchanged.
    pub(crate) fn add(&mut self, tool: RegisteredTool) -> Result<(), RegistryError> {
        // A tool with the name of a step would get the policy's entry for that step.
        if let Some(name) = tool.names().find(|name| Operation::has_step(&name.as_str().to_ascii_lowercase()))
        {
            return Err(RegistryError::Taken { name: name.clone(), holder: NameHolder::Shipped });
        }
        self.insert(tool)
    }

    /// Adds a tool, which can be a step, under its name and its aliases. On an error, the table is unchanged.
    pub(crate) fn insert(&mut self, tool: RegisteredTool) -> Result<(), RegistryError> {
        if let Some(error) = tool.names().find_map(|name| self.clash(name)) {
            return Err(error);
        }
        let tool = match &self.home {
            Some(home) => tool.with_home(home)?,
            None => tool,
        };
        let name = tool.descriptor().name.clone();
        let mut aliases = BTreeMap::new();
        for alias in tool.aliases() {
            let mut earlier_names = std::iter::once(&name).chain(aliases.keys());
            if earlier_names.any(|earlier| earlier.is_same_but_for_case(alias)) {
                return Err(RegistryError::Taken { name: alias.clone(), holder: NameHolder::SameTool });
            }
            aliases.insert(alias.clone(), name.clone());
        }
        self.aliases.append(&mut aliases);
        self.tools.insert(name, Arc::new(tool));
        Ok(())
    }

    /// Why a name cannot be given to another tool: it is taken, or it differs from a taken name only in case.
    /// `None` if the name is free.
    fn clash(&self, name: &ToolName) -> Option<RegistryError> {
        if let Some(holder) = self.get(name.as_str()) {
            return Some(RegistryError::Taken { name: name.clone(), holder: NameHolder::new(holder) });
        }
        let taken_names = self.tools.keys().chain(self.aliases.keys());
        let other = taken_names.into_iter().find(|taken| taken.is_same_but_for_case(name))?;
        Some(RegistryError::DiffersInCase { name: name.clone(), other_tool: other.clone() })
    }

    /// Removes a tool with its aliases.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Arc<RegisteredTool>> {
        let removed_tool = self.tools.remove(name)?;
        self.aliases.retain(|_, target| target.as_str() != name);
        Some(removed_tool)
    }

    /// Returns the tool with this name or alias.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.tools.get(name).or_else(|| self.tools.get(self.aliases.get(name)?))
    }

    /// Records expected tools that are missing. Their calls then fail as unavailable instead of unknown.
    pub(crate) fn record_lost_tools(&mut self, lost_names: impl IntoIterator<Item = ToolName>) {
        self.lost_tools.extend(lost_names);
    }

    /// Returns the name of a missing tool, if `name` is one.
    pub(crate) fn missing_tool(&self, name: &str) -> Option<&ToolName> {
        self.lost_tools.get(name)
    }

    /// The tools, sorted by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<RegisteredTool>> {
        self.tools.values()
    }
}

/// The tools that a registry serves. A call takes a snapshot, and keeps the tool that it finds there until the call
/// ends, even if tools are added or removed in the meantime.
#[derive(Debug)]
pub(crate) struct ServedTools {
    table: watch::Sender<Arc<ToolTable>>,
    /// Held during a change, so that two concurrent changes do not overwrite each other.
    change_lock: Mutex<()>,
}

impl ServedTools {
    pub(crate) fn new(tools: ToolTable) -> Self {
        Self { table: watch::Sender::new(Arc::new(tools)), change_lock: Mutex::default() }
    }

    /// Returns the current tools.
    pub(crate) fn snapshot(&self) -> Arc<ToolTable> {
        Arc::clone(&self.table.borrow())
    }

    /// Changes the tools for later snapshots. A failed change has no effect.
    pub(crate) fn change<T, E>(&self, change: impl FnOnce(&mut ToolTable) -> Result<T, E>) -> Result<T, E> {
        let _changing = self.change_lock.lock();
        let mut tools = ToolTable::clone(&self.snapshot());
        let output = change(&mut tools)?;
        self.table.send_replace(Arc::new(tools));
        Ok(output)
    }

    /// Watches the changes from this call on.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<ToolTable>> {
        self.table.subscribe()
    }
}
