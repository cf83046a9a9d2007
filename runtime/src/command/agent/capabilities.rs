//! The capabilities of an agent: the only tools that it has, and the instructions that belong to them.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use portcullis_tools::{ToolRegistry, native::Capability};
use portcullis_types::ToolName;

use crate::{agent_file::AgentFile, cli::ModelOptions, error::CliError};

/// The capabilities of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Capabilities(Option<BTreeSet<Capability>>);

impl Capabilities {
    /// Chooses the capabilities of the command line, or those of `agent.toml`. Without either, the agent has
    /// all tools that the policy offers.
    pub(super) fn chosen(options: &ModelOptions, file: &AgentFile) -> Self {
        let from_options = (!options.capabilities.is_empty()).then_some(&options.capabilities);
        Self(from_options.or(file.agent.capabilities.as_ref()).map(|given| given.iter().copied().collect()))
    }

    /// Returns the only tools of the agent, for [`Caller::tools`](portcullis_tools::Caller::tools). `None`
    /// means all.
    pub(super) fn tools(&self) -> Option<Arc<BTreeSet<ToolName>>> {
        let given = self.0.as_ref()?;
        let names = given.iter().flat_map(|capability| capability.tools());
        Some(Arc::new(names.filter_map(|name| ToolName::parse(*name).ok()).collect()))
    }

    /// Appends the instructions of the capabilities to the instructions.
    pub(super) fn with_prompts(&self, instructions: &str) -> String {
        let mut text = instructions.to_owned();
        for capability in self.0.iter().flatten() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n\n{}", capability.prompt());
        }
        text
    }

    /// Refuses a capability if none of its tools is offered here, so that the agent does not silently work
    /// without it.
    ///
    /// # Errors
    /// [`CliError::Capability`] with the first such capability.
    pub(super) fn ensure_offered(&self, registry: &ToolRegistry) -> Result<(), CliError> {
        let offered = registry.offered();
        // `output_read` belongs to several capabilities, so it does not show that a capability is offered.
        let is_offered =
            |name: &&str| *name != "output_read" && offered.iter().any(|tool| tool.decl().name == *name);
        match self.0.iter().flatten().find(|capability| !capability.tools().iter().any(&is_offered)) {
            Some(capability) => {
                Err(CliError::Capability { capability: *capability, tool: capability.tools()[0] })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_their_tools_and_instructions() {
        let capabilities = Capabilities(Some([Capability::WebFetch, Capability::CurrentTime].into()));
        let tools = capabilities.tools().expect("some tools");
        let names: Vec<&str> = tools.iter().map(ToolName::as_str).collect();
        assert_eq!(names, ["get_current_time", "output_read", "web_fetch"]);
        let text = capabilities.with_prompts("Be short.");
        assert!(text.starts_with("Be short.\n\nAsk `get_current_time`"), "{text}");
        assert!(text.ends_with(Capability::WebFetch.prompt()), "{text}");
    }

    #[test]
    fn none_is_all_tools_and_an_empty_list_is_no_tool() {
        assert_eq!(Capabilities(None).tools(), None);
        assert_eq!(Capabilities(Some(BTreeSet::new())).tools(), Some(Arc::default()));
        assert_eq!(Capabilities(None).with_prompts("x"), "x");
    }
}
