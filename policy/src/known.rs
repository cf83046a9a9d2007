//! Which tools there are, and which entries of a policy name none: an entry that restricts nothing must not look as if
//! it did.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_types::ToolName;

use crate::{
    PolicyError, PolicyFault, WorkspaceSecurityPolicy,
    file::{Faults, Placed, did_you_mean, further, nearest},
    shipped,
};

/// The names that entries `[tools.NAME]` may have: those of the shipped tools, whether or not they are registered, and
/// those that are added.
#[derive(Debug, Clone)]
pub struct KnownTools {
    names: BTreeSet<String>,
    /// Other names that calls may use, and the tools that they stand for. The policy knows a tool by its own.
    aliases: BTreeMap<String, String>,
    /// Whether there are modules that could not be asked what they have.
    has_unreadable: bool,
}

impl KnownTools {
    /// The shipped tools.
    #[must_use]
    pub fn shipped() -> Self {
        Self {
            names: shipped::shipped_names().map(str::to_owned).collect(),
            aliases: BTreeMap::new(),
            has_unreadable: false,
        }
    }

    /// Adds a tool.
    pub fn add(&mut self, name: &ToolName) {
        self.names.insert(name.to_string());
    }

    /// Adds another name of a tool, which calls may use and entries may not.
    pub fn add_alias(&mut self, alias: &ToolName, tool: &ToolName) {
        self.aliases.insert(alias.to_string(), tool.to_string());
    }

    /// Remembers that a module could not be asked what it has, which is told by itself: one that is damaged keeps
    /// nothing else from working. An entry whose name is like none that is known may be for a tool of it; one that is
    /// like another stays a fault.
    pub fn add_unreadable(&mut self) {
        self.has_unreadable = true;
    }

    /// Whether an entry that names no tool may be for one of a module that could not be asked.
    fn may_be_unreadable(&self, name: &str) -> bool {
        self.has_unreadable && nearest(name, self.names.iter().map(String::as_str)).is_none()
    }

    /// Why an entry is a fault whose name is no tool's.
    fn fault(&self, name: &str) -> String {
        if let Some(tool) = self.aliases.get(name) {
            return format!("this is another name of `{tool}`; write `[tools.{tool}]`");
        }
        let right = did_you_mean(name, self.names.iter().map(String::as_str));
        format!(
            "no tool has this name: {right}; write `optional = true` in an entry whose tool is not always here"
        )
    }
}

/// An entry of a policy text for a tool, and what is to be said of its place.
#[derive(Debug, Clone)]
pub(crate) struct ToolPlace {
    name: ToolName,
    optional: bool,
    /// Without a message.
    place: PolicyFault,
}

impl ToolPlace {
    pub(crate) fn new(name: &Placed<ToolName>, optional: bool, faults: &Faults<'_>) -> Self {
        Self { name: name.value.clone(), optional, place: faults.told(name.at, &name.key, "") }
    }
}

impl WorkspaceSecurityPolicy {
    /// Holds every entry `[tools.NAME]`, of the operator's policy with all its sandbox sections and of the overlay,
    /// against the tools that there are. Whoever puts a registry together asks this before a call is served.
    ///
    /// What comes back are warnings: the entries with `optional = true` whose tools are not here, at most 50 and how
    /// many there are besides.
    ///
    /// # Errors
    /// [`PolicyError`] with each entry that names no tool and has no `optional = true`.
    pub fn check_tools(&self, known: &KnownTools) -> Result<Vec<PolicyFault>, PolicyError> {
        let (mut faults, mut warnings) = (Vec::new(), Vec::new());
        let (mut faults_out, mut warnings_out) = (0, 0);
        for ToolPlace { name, optional, place } in self.tool_places() {
            if known.names.contains(name.as_str()) {
                continue;
            }
            if *optional || known.may_be_unreadable(name.as_str()) {
                if warnings.len() == MAX_FAULTS {
                    warnings_out += 1;
                    continue;
                }
                let message = "no tool of this name is here, so the entry does nothing".to_owned();
                warnings.push(PolicyFault { message, ..place.clone() });
            } else if faults.len() == MAX_FAULTS {
                // Before the message is made, which compares with every name.
                faults_out += 1;
            } else {
                let message = known.fault(name.as_str());
                faults.push(PolicyFault { message, ..place.clone() });
            }
        }
        if faults.is_empty() {
            warnings.extend(further(&warnings, warnings_out));
            return Ok(warnings);
        }
        Err(PolicyError { faults, left_out: faults_out })
    }

    /// The names of all entries for tools, in the order of the texts; some twice.
    pub fn named_tools(&self) -> impl Iterator<Item = &ToolName> {
        self.tool_places().iter().map(|place| &place.name)
    }
}

/// How many faults, and how many warnings, are told; the rest is counted.
const MAX_FAULTS: usize = 50;
