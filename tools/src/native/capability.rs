//! Capabilities: named sets of tools that an agent can get.

use std::sync::Arc;

use portcullis_policy::Operation;
use portcullis_types::{Tool, words};
use serde::Serialize;

use super::GetCurrentTime;

words! {
    /// A capability that an agent can be given.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[non_exhaustive]
    pub enum Capability {
        /// Knows the time: `get_current_time`.
        CurrentTime = "CurrentTime",
        /// Fetches pages: `web_fetch`, which needs the builder of [`crate::runtime_builder`] with its guests and its
        /// HTTP client.
        WebFetch = "WebFetch",
        /// A scratchpad and a search.
        Research = "Research",
        /// Runs code.
        Sandbox = "Sandbox",
        /// Reads, writes and searches files.
        FileSystem = "FileSystem",
    }
}

words! {
    /// Whether a capability can be given.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    pub enum CapabilityStatus {
        /// It has its tools.
        Available = "Available",
        /// It is specified, but has no tools yet. A registry with it cannot be built.
        ComingSoon = "ComingSoon",
    }
}

/// The tools of a capability.
pub(crate) enum CapabilityTools {
    /// Tools that need nothing else.
    Native(Vec<Arc<dyn Tool>>),
    /// A tool that the builder must have registered.
    Registered(&'static str),
    /// No tools exist yet.
    None,
}

impl Capability {
    /// Whether one of the capability's native tools has this name.
    pub(crate) fn has_native(self, name: &str) -> bool {
        match self.tools() {
            CapabilityTools::Native(tools) => tools.iter().any(|tool| tool.schema().name == name),
            CapabilityTools::Registered(_) | CapabilityTools::None => false,
        }
    }

    /// Whether the capability can be given.
    #[must_use]
    pub fn status(self) -> CapabilityStatus {
        match self.tools() {
            CapabilityTools::Native(_) | CapabilityTools::Registered(_) => CapabilityStatus::Available,
            CapabilityTools::None => CapabilityStatus::ComingSoon,
        }
    }

    pub(crate) fn tools(self) -> CapabilityTools {
        match self {
            Self::CurrentTime => CapabilityTools::Native(vec![Arc::new(GetCurrentTime)]),
            Self::WebFetch => CapabilityTools::Registered(Operation::WEB_FETCH.name),
            Self::Research | Self::Sandbox | Self::FileSystem => CapabilityTools::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use portcullis_policy::{DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy};
    use portcullis_types::SandboxTier;

    use super::*;
    use crate::{BootstrapError, RegistryBuilder, RegistryError, ToolRegistry, native::EchoTool};

    /// Builds a registry, and returns the names of its tools.
    fn names(
        configure: impl FnOnce(RegistryBuilder) -> RegistryBuilder,
    ) -> Result<Vec<String>, BootstrapError> {
        let state = tempfile::tempdir().expect("a folder");
        let operator = PolicySource { name: "test", text: DEFAULT_POLICY };
        let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
        let policy = WorkspaceSecurityPolicy::load(&options).expect("loads");
        let registry = configure(ToolRegistry::builder().policy(policy).state(state.path())).build()?;
        Ok(registry.tools().iter().map(|tool| tool.decl().name.clone()).collect())
    }

    #[test]
    fn a_capabilitys_tools_join_the_others_and_come_once() {
        let time = Capability::CurrentTime;
        assert_eq!(
            names(|builder| builder.capability(time)).expect("builds"),
            ["get_current_time", "output_read"]
        );
        let added_names =
            names(|builder| builder.capability(time).tool(EchoTool).capability(time)).expect("builds");
        assert_eq!(added_names, ["echo", "get_current_time", "output_read"]);
        let all = names(RegistryBuilder::default_tools).expect("builds");
        assert_eq!(names(|builder| builder.capability(time).default_tools()).expect("builds"), all);
    }

    #[test]
    fn a_capability_without_its_tool_builds_no_registry() {
        for capability in Capability::ALL {
            let available = capability.status() == CapabilityStatus::Available;
            assert_eq!(
                available,
                matches!(capability, Capability::CurrentTime | Capability::WebFetch),
                "{capability}"
            );
            if capability == Capability::CurrentTime {
                continue;
            }
            // This builder has neither guests nor an HTTP client.
            let error = names(|builder| builder.capability(capability)).expect_err("no stub takes its place");
            let BootstrapError::Registry(RegistryError::CapabilityMissing { capability: missing, .. }) =
                &error
            else {
                panic!("{error:?}");
            };
            assert_eq!(*missing, capability);
        }
    }

    #[test]
    fn a_tool_with_a_capabilitys_tool_name_is_refused() {
        let error = names(|builder| builder.tool(GetCurrentTime).capability(Capability::CurrentTime));
        assert!(matches!(error, Err(BootstrapError::Registry(RegistryError::Taken { .. }))), "{error:?}");
    }
}
