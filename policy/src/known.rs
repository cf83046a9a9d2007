//! The known tools, and the check for entries of a policy that name none of them. An entry without a tool
//! restricts nothing, so it must be reported.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_types::{ToolName, display::near::nearest_name};

use crate::{
    LintCode, PolicyError, PolicyFault, WorkspaceSecurityPolicy,
    file::{Faults, Located, did_you_mean, omitted_warnings_note},
    gateway_names, shipped,
};

/// The names that entries `[tools.NAME]` may use: those of the shipped tools, registered or not, and added
/// names.
#[derive(Debug, Clone)]
pub struct KnownTools {
    names: BTreeSet<String>,
    /// Aliases that calls may use, each with its tool. An entry must use the tool's own name.
    aliases: BTreeMap<String, String>,
    /// Whether some module could not be queried for its tools, so that they are unknown.
    has_unreadable: bool,
}

impl KnownTools {
    /// Returns the shipped tools and those of the gateway.
    #[must_use]
    pub fn shipped() -> Self {
        Self {
            names: shipped::shipped_names().chain(gateway_names()).map(str::to_owned).collect(),
            aliases: BTreeMap::new(),
            has_unreadable: false,
        }
    }

    /// Adds a tool.
    pub fn add(&mut self, name: &ToolName) {
        self.names.insert(name.to_string());
    }

    /// Adds an alias of a tool, which calls may use and entries may not.
    pub fn add_alias(&mut self, alias: &ToolName, tool: &ToolName) {
        self.aliases.insert(alias.to_string(), tool.to_string());
    }

    /// Records that a module could not be queried for its tools. The damaged module is reported elsewhere,
    /// and must not prevent other tools from working. An unknown name in an entry may then belong to that
    /// module. A name that resembles the name of a known tool is still a fault.
    pub fn add_unreadable(&mut self) {
        self.has_unreadable = true;
    }

    /// Returns the message about a name that no tool has, or `None` for the name of a known tool.
    pub(crate) fn unknown(&self, name: &str) -> Option<String> {
        (!self.names.contains(name)).then(|| self.fault(name, false))
    }

    /// Returns whether an entry without a known tool may name a tool of an unreadable module.
    fn may_be_unreadable(&self, name: &str) -> bool {
        self.has_unreadable && nearest_name(name, self.names.iter().map(String::as_str)).is_none()
    }

    /// Formats the message about an entry or a secret that names no known tool.
    fn fault(&self, name: &str, is_entry: bool) -> String {
        if let Some(tool) = self.aliases.get(name) {
            let replacement = if is_entry { format!("[tools.{tool}]") } else { tool.clone() };
            return format!("this is another name of `{tool}`; write `{replacement}`");
        }
        let suggestion = did_you_mean(name, self.names.iter().map(String::as_str));
        let remedy = " (write `optional = true` in an entry whose tool is not always here)";
        format!("no tool has this name: {suggestion}{}", if is_entry { remedy } else { "" })
    }
}

/// An entry for a tool in a policy text, or a tool that a secret names, with its position.
#[derive(Debug, Clone)]
pub(crate) struct ToolMention {
    name: ToolName,
    optional: bool,
    /// Whether this is an entry `[tools.NAME]`. Only an entry can be optional.
    is_entry: bool,
    /// The position, with an empty message.
    location: PolicyFault,
}

impl ToolMention {
    pub(crate) fn new(name: &Located<ToolName>, optional: bool, faults: &Faults<'_>) -> Self {
        let location = PolicyFault { code: LintCode::NoTool, ..faults.fault_at(name.offset, &name.key, "") };
        Self { name: name.value.clone(), optional, is_entry: true, location }
    }

    /// Records a tool that a secret names.
    pub(crate) fn of_secret(name: &Located<ToolName>, faults: &Faults<'_>) -> Self {
        Self { is_entry: false, ..Self::new(name, false, faults) }
    }
}

impl WorkspaceSecurityPolicy {
    /// Checks every entry `[tools.NAME]`, and every tool of a secret, against the known tools: in the operator's policy
    /// with all its sandbox sections, and in the overlay. Call this after the registry is built and before it serves a
    /// call.
    ///
    /// Returns warnings: the entries with `optional = true` whose tools are missing, at most 50, then the
    /// number of further ones.
    ///
    /// # Errors
    /// [`PolicyError`] with each entry that names no tool and has no `optional = true`.
    pub fn check_tools(&self, known: &KnownTools) -> Result<Vec<PolicyFault>, PolicyError> {
        let (mut faults, mut warnings) = (Vec::new(), Vec::new());
        let (mut faults_out, mut warnings_out) = (0, 0);
        for ToolMention { name, optional, is_entry, location } in self.tool_mentions() {
            if known.names.contains(name.as_str()) {
                continue;
            }
            if *optional || known.may_be_unreadable(name.as_str()) {
                if warnings.len() == MAX_FAULTS {
                    warnings_out += 1;
                    continue;
                }
                let message = "no tool has this name, so the entry does nothing".to_owned();
                warnings.push(PolicyFault { message, ..location.clone() });
            } else if faults.len() == MAX_FAULTS {
                // Faults beyond the maximum are only counted, because a message costs a comparison with every
                // known name.
                faults_out += 1;
            } else {
                let message = known.fault(name.as_str(), *is_entry);
                faults.push(PolicyFault { message, ..location.clone() });
            }
        }
        if faults.is_empty() {
            warnings.extend(omitted_warnings_note(&warnings, warnings_out));
            return Ok(warnings);
        }
        Err(PolicyError { faults, omitted: faults_out })
    }
}

/// The maximum number of faults that are listed, and of warnings. Further ones are only counted.
const MAX_FAULTS: usize = 50;
