//! The capabilities of an agent's definition. They select the shipped tools that the agent has, and add
//! instructions.

use std::{collections::BTreeSet, sync::Arc};

use portcullis_tools::{native::Capability, policy::gateway_names};
use portcullis_types::ToolName;

use crate::error::ApiError;

/// The capabilities of an agent. `None` means that the agent has every tool that the policy offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentCapabilities(Option<BTreeSet<Capability>>);

impl AgentCapabilities {
    /// Reads the names of a definition.
    ///
    /// # Errors
    /// [`ApiError`] for an unknown capability, and for a capability that is not available yet.
    pub(crate) fn read(names: Option<&[String]>) -> Result<Self, ApiError> {
        let Some(names) = names else { return Ok(Self(None)) };
        let given = names.iter().map(|name| Capability::available(name)).collect::<Result<_, _>>();
        Ok(Self(Some(given.map_err(|error| ApiError::invalid("capabilities", error.to_string()))?)))
    }

    /// Returns the only tools of the agent: those of its capabilities, its own, and the built-in ones. `None`
    /// means no restriction.
    pub(crate) fn tools<'n>(
        &self,
        own: impl IntoIterator<Item = &'n ToolName>,
    ) -> Option<Arc<BTreeSet<ToolName>>> {
        let given = self.0.as_ref()?;
        let shipped = given.iter().flat_map(|capability| capability.tools().iter().copied());
        let mut names: BTreeSet<ToolName> =
            shipped.chain(gateway_names()).filter_map(|name| ToolName::parse(name).ok()).collect();
        names.extend(own.into_iter().cloned());
        Some(Arc::new(names))
    }

    /// Returns the instructions with those of the capabilities appended.
    pub(crate) fn with_prompts(&self, instructions: &str) -> String {
        let prompts = self.0.iter().flatten().map(|capability| capability.prompt());
        let texts: Vec<&str> =
            [instructions].into_iter().filter(|text| !text.is_empty()).chain(prompts).collect();
        texts.join("\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(names: &[&str]) -> Result<AgentCapabilities, ApiError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        AgentCapabilities::read(Some(&names))
    }

    #[test]
    fn capabilities_are_their_tools_beside_the_agents_own() {
        let tools = read(&["CurrentTime"]).expect("read").tools([]).expect("some");
        let names: Vec<&str> = tools.iter().map(ToolName::as_str).collect();
        assert!(names.contains(&"get_current_time") && names.contains(&"send_message"), "{names:?}");
        assert!(!names.contains(&"file_read"), "{names:?}");
        assert_eq!(AgentCapabilities::read(None).expect("read").tools([]), None);
    }

    #[test]
    fn unknown_and_coming_capabilities_are_refused() {
        for name in ["currenttime", "Research", ""] {
            let error = read(&[name]).expect_err("refused");
            assert!(!error.message().is_empty(), "{name}");
        }
    }

    #[test]
    fn the_instructions_of_capabilities_follow_the_agents_own() {
        let text = read(&["WebFetch"]).expect("read").with_prompts("Be short.");
        assert!(text.starts_with("Be short.\n\n") && text.ends_with(Capability::WebFetch.prompt()), "{text}");
    }
}
