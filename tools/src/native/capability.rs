//! Capabilities: tools that an agent gets by the name of a capability (specification 000).

use std::sync::Arc;

use portcullis_types::Tool;

use super::GetCurrentTime;

/// A capability that an agent can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Knows the time: `get_current_time`.
    CurrentTime,
}

impl Capability {
    /// The tools that have this capability.
    pub(crate) fn tools(self) -> Vec<Arc<dyn Tool>> {
        match self {
            Self::CurrentTime => vec![Arc::new(GetCurrentTime)],
        }
    }
}

#[cfg(test)]
mod tests {
    use portcullis_policy::{DEFAULT_POLICY, LoadOptions, PolicySource, WorkspaceSecurityPolicy};
    use portcullis_types::SandboxTier;

    use super::*;
    use crate::{BootstrapError, RegistryBuilder, RegistryError, ToolRegistry, native::EchoTool};

    /// Builds, and gives the names of the tools.
    fn names(add: impl FnOnce(RegistryBuilder) -> RegistryBuilder) -> Result<Vec<String>, BootstrapError> {
        let state = tempfile::tempdir().expect("a folder");
        let operator = PolicySource { name: "test", text: DEFAULT_POLICY };
        let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
        let policy = WorkspaceSecurityPolicy::load(&options).expect("loads");
        let registry = add(ToolRegistry::builder().policy(policy).state(state.path())).build()?;
        Ok(registry.tools().iter().map(|tool| tool.decl().name.clone()).collect())
    }

    #[test]
    fn a_capabilitys_tools_join_the_others_and_come_once() {
        let time = Capability::CurrentTime;
        assert_eq!(
            names(|builder| builder.capability(time)).expect("builds"),
            ["get_current_time", "output_read"]
        );
        let beside =
            names(|builder| builder.capability(time).tool(EchoTool).capability(time)).expect("builds");
        assert_eq!(beside, ["echo", "get_current_time", "output_read"]);
        let all = names(RegistryBuilder::default_tools).expect("builds");
        assert_eq!(names(|builder| builder.capability(time).default_tools()).expect("builds"), all);
    }

    #[test]
    fn a_tool_of_another_with_the_name_of_one_is_no_part_of_it() {
        let error = names(|builder| builder.tool(GetCurrentTime).capability(Capability::CurrentTime));
        assert!(matches!(error, Err(BootstrapError::Registry(RegistryError::Taken { .. }))), "{error:?}");
    }
}
