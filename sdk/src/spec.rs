//! What a tool says of itself, as constant data: the one source of schema, declaration and decoding.

use std::time::Duration;

use portcullis_types::{
    ArgumentRole, FunctionDecl, JsonSchema, JsonSchemaType, RoleKind, SafetyTier, ToolDeclaration, ToolPolicy,
};
use serde_json::{Map, Value};

/// What `#[tool]` writes down of a function.
#[derive(Debug)]
pub struct ToolSpec {
    /// The tool's name.
    pub name: &'static str,
    /// A name for people.
    pub label: Option<&'static str>,
    /// What the tool does, for the model.
    pub description: Option<&'static str>,
    /// How dangerous it is, if the author said so.
    pub tier: Option<SafetyTier>,
    /// How long a call may take, in milliseconds, if the author said so.
    pub timeout_ms: Option<u64>,
    /// Whether every call needs an approval.
    pub policy: ToolPolicy,
    /// The profile that the author had in mind.
    pub profile: Option<&'static str>,
    /// What happens to arguments that are no parameter's.
    pub unknown_keys: UnknownKeys,
    /// The parameters, in order of declaration.
    pub params: &'static [ParamSpec],
}

/// A parameter.
#[derive(Debug)]
pub struct ParamSpec {
    /// Its name in the schema.
    pub name: &'static str,
    /// What it means, for the model.
    pub description: Option<&'static str>,
    /// Its JSON type.
    pub kind: ParamKind,
    /// Whether it must be given.
    pub presence: Presence,
    /// The least value of an integer.
    pub minimum: Option<i128>,
    /// The greatest value of an integer.
    pub maximum: Option<i128>,
    /// The allowed texts; empty where any is.
    pub one_of: &'static [&'static str],
    /// What it is to the policy.
    pub role: Option<RoleKind>,
}

/// The JSON types of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamKind {
    /// A text.
    String,
    /// True or false.
    Boolean,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
}

/// Whether a parameter must be given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Presence {
    /// It must.
    Required,
    /// It may be left out or be null.
    Optional,
    /// Left out or null, it has this value.
    Default(DefaultValue),
}

/// A default.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum DefaultValue {
    /// A text.
    String(&'static str),
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i128),
    /// Any number.
    Number(f64),
}

/// What happens to arguments that are no parameter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownKeys {
    /// They are not read.
    Ignore,
    /// The call is refused.
    Refuse,
}

impl ToolSpec {
    /// Stands in for a tool whose function has mistakes, so that the compiler reports only those.
    #[doc(hidden)]
    pub const STUB: Self = Self {
        name: "stub",
        label: None,
        description: None,
        tier: None,
        timeout_ms: None,
        policy: ToolPolicy::Auto,
        profile: None,
        unknown_keys: UnknownKeys::Ignore,
        params: &[],
    };

    /// The part that a model sees.
    #[must_use]
    pub fn function_decl(&self) -> FunctionDecl {
        FunctionDecl {
            name: self.name.to_owned(),
            description: self.description.map(str::to_owned),
            parameters: self.parameters(),
        }
    }

    /// All of it, as a module's `describe` answers it.
    #[must_use]
    pub fn declaration(&self) -> ToolDeclaration {
        ToolDeclaration {
            name: self.name.to_owned(),
            label: self.label(),
            description: self.description.map(str::to_owned),
            parameters: self.parameters(),
            output_schema: None,
            tier: self.tier,
            policy: self.policy,
            timeout_ms: self.timeout_ms,
            roles: self.roles(),
            profile: self.profile.map(str::to_owned),
            hosts: Vec::new(),
        }
    }

    /// The schema of the arguments.
    #[must_use]
    pub fn parameters(&self) -> JsonSchema {
        let schema = JsonSchema::from(JsonSchemaType::Object {
            properties: self.params.iter().map(|param| (param.name.to_owned(), param.schema())).collect(),
            required: self
                .params
                .iter()
                .filter(|param| param.presence == Presence::Required)
                .map(|param| param.name.to_owned())
                .collect(),
        });
        match self.unknown_keys {
            UnknownKeys::Ignore => schema,
            UnknownKeys::Refuse => schema.with_keyword("additionalProperties", Value::Bool(false)),
        }
    }

    /// How long a call may take; [`portcullis_types::DEFAULT_TIMEOUT`] where the author did not say.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout_ms.map_or(portcullis_types::DEFAULT_TIMEOUT, Duration::from_millis)
    }

    /// How dangerous the tool counts as: `SideEffecting` where the author did not say.
    #[must_use]
    pub fn safety_tier(&self) -> SafetyTier {
        self.tier.unwrap_or(SafetyTier::SideEffecting)
    }

    /// A name for people.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        self.label.map(str::to_owned)
    }

    /// Which arguments are paths, addresses or commands.
    #[must_use]
    pub fn roles(&self) -> Vec<ArgumentRole> {
        self.params
            .iter()
            .filter_map(|param| param.role.map(|role| ArgumentRole { argument: param.name.to_owned(), role }))
            .collect()
    }
}

impl ParamSpec {
    /// Keywords in alphabetical order: stable bytes keep a provider's prompt cache warm.
    fn schema(&self) -> JsonSchema {
        let mut schema = Map::new();
        if let Presence::Default(value) = self.presence {
            schema.insert("default".into(), value.into());
        }
        if let Some(description) = self.description {
            schema.insert("description".into(), description.into());
        }
        if !self.one_of.is_empty() {
            schema.insert("enum".into(), self.one_of.into());
        }
        if let Some(maximum) = self.maximum {
            schema.insert("maximum".into(), integer(maximum));
        }
        if let Some(minimum) = self.minimum {
            schema.insert("minimum".into(), integer(minimum));
        }
        schema.insert("type".into(), self.kind.as_str().into());
        JsonSchema::new(Value::Object(schema))
    }
}

impl ParamKind {
    /// The word in a schema's `type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
        }
    }
}

impl From<DefaultValue> for Value {
    fn from(value: DefaultValue) -> Self {
        match value {
            DefaultValue::String(text) => text.into(),
            DefaultValue::Boolean(value) => value.into(),
            DefaultValue::Integer(value) => integer(value),
            DefaultValue::Number(value) => value.into(),
        }
    }
}

/// The macro admits only what fits `i64` or `u64`.
fn integer(value: i128) -> Value {
    serde_json::Number::from_i128(value).map_or(Value::Null, Value::Number)
}
