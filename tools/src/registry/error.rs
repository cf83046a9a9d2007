//! Why tools cannot be registered.

use std::fmt;

use portcullis_policy::{Denial, InvalidHostRule, ToolOrigin};
use portcullis_types::{InvalidToolName, ToolName, escape_for_display};
use thiserror::Error;

use crate::{arguments::SchemaError, native::Capability, registered::RegisteredTool};

/// The current holder of a name that another tool claims.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameHolder {
    /// A shipped tool, or a step of one.
    Shipped,
    /// A tool of the embedding program, or of a configuration.
    Program,
    /// A tool of a foreign module.
    Module {
        /// The module's name.
        name: String,
    },
    /// A tool of the same module.
    SameModule,
    /// The same tool: an alias equals its name, or an alias occurs twice.
    SameTool,
}

impl NameHolder {
    /// Returns the kind of holder that this tool is.
    pub(crate) fn new(tool: &RegisteredTool) -> Self {
        match tool.descriptor().origin {
            ToolOrigin::ShippedModule
            | ToolOrigin::ShippedOperation
            | ToolOrigin::ShippedNative
            | ToolOrigin::ShippedGateway
            | ToolOrigin::ShippedShell => Self::Shipped,
            ToolOrigin::Native
            | ToolOrigin::External
            | ToolOrigin::Http
            | ToolOrigin::Mcp
            | ToolOrigin::Internal => Self::Program,
            ToolOrigin::ForeignModule => {
                Self::Module { name: tool.module_name().unwrap_or_default().to_owned() }
            }
        }
    }
}

impl fmt::Display for NameHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipped => {
                f.write_str("one is shipped with Portcullis and keeps its name; give the other another name")
            }
            Self::Program => f.write_str("the program has one already"),
            Self::Module { name } => write!(f, "the module `{}` has one already", escape_for_display(name)),
            Self::SameModule => f.write_str("both are of one module"),
            Self::SameTool => f.write_str("it is one tool, which has the name and an alias, or two aliases"),
        }
    }
}

fn hint(denial: &Denial) -> String {
    if denial.hint.is_empty() { String::new() } else { format!("; {}", denial.hint) }
}

/// Why tools cannot be registered.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// A name or alias is invalid.
    #[error("tool `{}` cannot be registered under its name or an alias", escape_for_display(tool))]
    Name {
        /// The tool's name, valid or not.
        tool: String,
        /// The invalid name.
        #[source]
        source: InvalidToolName,
    },
    /// Two tools have the same name.
    #[error("two tools are named `{name}`: {holder}")]
    Taken {
        /// The refused name.
        name: ToolName,
        /// The current holder of the name.
        holder: NameHolder,
    },
    /// The policy does not know the tool as a built-in tool of the gateway.
    #[error("`{}` is not a built-in tool of the gateway", escape_for_display(name))]
    NotShipped {
        /// The refused name.
        name: String,
    },
    /// Two tools have names or aliases that differ only in case. A person or a model would confuse them.
    #[error(
        "the names `{name}` and `{other_tool}` differ only in upper and lower case; give one tool another name"
    )]
    DiffersInCase {
        /// The refused name.
        name: ToolName,
        /// The name of a registered tool.
        other_tool: ToolName,
    },
    /// A declared host is not a valid rule.
    #[error("tool `{tool}` declares the host `{}`, which is not a rule", escape_for_display(text))]
    Hosts {
        /// The tool's name.
        tool: String,
        /// The text of the host.
        text: String,
        /// Why the text is not a rule.
        source: InvalidHostRule,
    },
    /// The name looks like the name of another tool.
    #[error("tool `{name}` would be taken for `{other}`")]
    LookAlike {
        /// The refused name.
        name: ToolName,
        /// The name that it resembles.
        other: ToolName,
    },
    /// The policy refuses the URL of an HTTP tool for every profile.
    #[error("tool `{tool}` requests an address that is refused: {}{}", denial.message(), hint(denial))]
    Address {
        /// The tool's name.
        tool: String,
        /// The policy's refusal of the URL.
        denial: Box<Denial>,
    },
    /// This registry lacks the tools of a capability.
    #[error("the capability `{capability}` is not available: {reason}")]
    CapabilityMissing {
        /// The capability whose tools are missing.
        capability: Capability,
        /// The reason, with the remedy if there is one.
        reason: &'static str,
    },
    /// A step of an operation is missing from every module.
    #[error("`{operation}` cannot be registered without its step `{step}`")]
    MissingStep {
        /// The operation's name.
        operation: &'static str,
        /// The name of the missing step.
        step: &'static str,
    },
    /// A native tool takes a state that was not added to the registry.
    #[error(
        "tool `{tool}` takes `&State<{ty}>`, and the registry has no such state; give it by `.tool_state(…)`"
    )]
    StateMissing {
        /// The tool's name.
        tool: String,
        /// The type of the state, with its path.
        ty: &'static str,
    },
    /// Two states have the same type, so a tool could not choose between them.
    #[error("the registry was given two states of the type `{ty}`; wrap one of them in a new type")]
    StateGivenTwice {
        /// The type of the states, with its path.
        ty: &'static str,
    },
    /// A result schema is unusable.
    #[error("tool `{tool}` has an unusable schema of its results")]
    ResultSchema {
        /// The tool's name.
        tool: String,
        /// The fault of the schema.
        #[source]
        source: SchemaError,
    },
    /// A parameter schema is unusable.
    #[error("tool `{tool}` has an unusable parameter schema")]
    Schema {
        /// The tool's name.
        tool: String,
        /// The fault of the schema.
        #[source]
        source: SchemaError,
    },
}
