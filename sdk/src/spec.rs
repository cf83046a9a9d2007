//! The declarations of a tool as constant data: the only source of schema, declaration and decoding.

use std::time::Duration;

use portcullis_types::{
    ArgumentRole, FunctionDecl, JsonSchema, RoleKind, SafetyTier, ToolDeclaration, ToolMeta, ToolPolicy,
};
use serde_json::{Map, Value};

use crate::schema::{Definitions, ParamKind, sorted};

/// The declarations that `#[tool]` makes from a function.
#[derive(Debug)]
pub struct ToolSpec {
    /// The tool's name.
    pub name: &'static str,
    /// A name for people.
    pub label: Option<&'static str>,
    /// The description for the model.
    pub description: Option<&'static str>,
    /// The declared safety tier, if any.
    pub tier: Option<SafetyTier>,
    /// The declared time limit of a call, in milliseconds, if any.
    pub timeout_ms: Option<u64>,
    /// Whether every call needs an approval.
    pub policy: ToolPolicy,
    /// The profile that the author suggests.
    pub profile: Option<&'static str>,
    /// The hosts that the tool wants to reach, such as `https://api.example.com`.
    pub hosts: &'static [&'static str],
    /// The treatment of unknown arguments.
    pub unknown_keys: UnknownKeys,
    /// The parameters, in order of declaration.
    pub params: &'static [ParamSpec],
    /// Makes the schema of structured results, if any.
    pub output_schema: fn() -> Option<JsonSchema>,
    /// Hints for the registry.
    pub hints: Hints,
}

/// The content of [`ToolMeta`], as constant data.
#[derive(Debug)]
pub struct Hints {
    /// The aliases of the tool.
    pub aliases: &'static [&'static str],
    /// Whether a repeated call with equal arguments has no further effect. Clients see this hint, and it
    /// permits the registry to retry native tools; see [`ToolMeta::idempotent`].
    pub idempotent: bool,
    /// Whether the tool is hidden from models.
    pub hidden: bool,
    /// The maximum number of bytes of an output for a model.
    pub output_cap_bytes: Option<u64>,
}

impl Hints {
    /// No hints.
    pub const NONE: Self = Self { aliases: &[], idempotent: false, hidden: false, output_cap_bytes: None };
}

/// A parameter of a tool function, as the macro has read it.
#[derive(Debug)]
pub struct ParamSpec {
    /// The parameter's name in the schema.
    pub name: &'static str,
    /// The description for the model.
    pub description: Option<&'static str>,
    /// The parameter's JSON type.
    pub kind: ParamKind,
    /// Whether the parameter is required.
    pub requiredness: Requiredness,
    /// The least allowed number.
    pub minimum: Option<LiteralValue>,
    /// The greatest allowed number.
    pub maximum: Option<LiteralValue>,
    /// The allowed texts; empty if any text is allowed.
    pub one_of: &'static [&'static str],
    /// The parameter's role for the policy.
    pub role: Option<RoleKind>,
}

/// Whether a parameter is required.
#[derive(Debug, Clone, Copy)]
pub enum Requiredness {
    /// The parameter is required.
    Required,
    /// The parameter may be omitted or null.
    Optional,
    /// The parameter has this value if it is omitted or null.
    Default(DefaultValue),
}

/// A value of a primitive type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LiteralValue {
    /// A text that is known at compile time.
    String(&'static str),
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i128),
    /// Any number.
    Number(f64),
}

impl std::fmt::Display for LiteralValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.json_value().fmt(f)
    }
}

/// The default of a parameter.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum DefaultValue {
    /// The default of a primitive.
    Literal(LiteralValue),
    /// The value of an expression; `None` if the value cannot be shown as JSON.
    Computed(fn() -> Option<Value>),
}

/// The treatment of unknown arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownKeys {
    /// Unknown arguments are ignored.
    Ignore,
    /// A call with unknown arguments is refused.
    Refuse,
}

impl ToolSpec {
    /// Replaces the spec of a tool whose function has mistakes, so that the compiler reports only the mistakes.
    #[doc(hidden)]
    pub const STUB: Self = Self {
        name: "stub",
        label: None,
        description: None,
        tier: None,
        timeout_ms: None,
        policy: ToolPolicy::Auto,
        profile: None,
        hosts: &[],
        unknown_keys: UnknownKeys::Ignore,
        params: &[],
        output_schema: || None,
        hints: Hints::NONE,
    };

    /// Returns the part for a model.
    #[must_use]
    pub fn function_decl(&self) -> FunctionDecl {
        FunctionDecl {
            name: self.name.to_owned(),
            description: self.description.map(str::to_owned),
            parameters: self.parameters(),
        }
    }

    /// Returns the whole declaration that a module's `describe` prints.
    #[must_use]
    pub fn declaration(&self) -> ToolDeclaration {
        ToolDeclaration {
            name: self.name.to_owned(),
            label: self.label(),
            description: self.description.map(str::to_owned),
            parameters: self.parameters(),
            output_schema: self.output_schema(),
            tier: self.tier,
            policy: self.policy,
            timeout_ms: self.timeout_ms,
            roles: self.roles(),
            profile: self.profile.map(str::to_owned),
            hosts: self.hosts.iter().map(|host| (*host).to_owned()).collect(),
            meta: self.meta(),
        }
    }

    /// Returns the schema of the arguments, in normal form.
    #[must_use]
    pub fn parameters(&self) -> JsonSchema {
        let mut definitions = Definitions::default();
        let mut properties = Map::new();
        let mut required = Vec::new();
        for param in self.params {
            properties.insert(param.name.to_owned(), param.schema(&mut definitions).into());
            if matches!(param.requiredness, Requiredness::Required) {
                required.push(Value::from(param.name));
            }
        }
        let mut schema = Map::new();
        let definitions = definitions.into_map();
        if !definitions.is_empty() {
            schema.insert("$defs".into(), definitions.into());
        }
        if self.unknown_keys == UnknownKeys::Refuse {
            schema.insert("additionalProperties".into(), Value::Bool(false));
        }
        schema.insert("properties".into(), properties.into());
        schema.insert("required".into(), required.into());
        schema.insert("type".into(), "object".into());
        JsonSchema::new(sorted(schema.into()))
    }

    /// Returns the schema of structured results: the schema of `T` if the function returns `Json<T>`, or a
    /// described `T` whose schema describes an object.
    #[must_use]
    pub fn output_schema(&self) -> Option<JsonSchema> {
        (self.output_schema)()
    }

    /// Hints for the registry.
    #[must_use]
    pub fn meta(&self) -> ToolMeta {
        let Hints { aliases, idempotent, hidden, output_cap_bytes } = self.hints;
        let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        ToolMeta { aliases, idempotent, hidden, output_cap_bytes }
    }

    /// Returns the time limit of a call; [`portcullis_types::DEFAULT_TIMEOUT`] if none is declared.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout_ms.map_or(portcullis_types::DEFAULT_TIMEOUT, Duration::from_millis)
    }

    /// Returns the effective safety tier: `SideEffecting` if none is declared.
    #[must_use]
    pub fn safety_tier(&self) -> SafetyTier {
        self.tier.unwrap_or(SafetyTier::SideEffecting)
    }

    /// Returns a name for people.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        self.label.map(str::to_owned)
    }

    /// Returns the arguments that are paths, addresses or commands.
    #[must_use]
    pub fn roles(&self) -> Vec<ArgumentRole> {
        self.params
            .iter()
            .filter_map(|param| param.role.map(|role| ArgumentRole { argument: param.name.to_owned(), role }))
            .collect()
    }
}

impl ParamSpec {
    fn schema(&self, definitions: &mut Definitions) -> Map<String, Value> {
        let mut schema = self.kind.schema(self.description, definitions);
        if let Requiredness::Default(value) = self.requiredness
            && let Some(value) = value.json_value()
        {
            schema.insert("default".into(), value);
        }
        if !self.one_of.is_empty() {
            schema.insert("enum".into(), self.one_of.into());
        }
        if let Some(maximum) = self.maximum {
            schema.insert("maximum".into(), maximum.json_value());
        }
        if let Some(minimum) = self.minimum {
            schema.insert("minimum".into(), minimum.json_value());
        }
        schema
    }
}

impl DefaultValue {
    /// The default as a JSON value for the schema.
    fn json_value(self) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value.json_value()),
            Self::Computed(compute) => compute(),
        }
    }
}

impl LiteralValue {
    /// Whether both are numbers of one type and this one is less.
    pub(crate) fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Integer(this), Self::Integer(other)) => this < other,
            (Self::Number(this), Self::Number(other)) => this < other,
            _ => false,
        }
    }

    /// The value as JSON for the schema.
    pub(crate) fn json_value(self) -> Value {
        match self {
            Self::String(text) => text.into(),
            Self::Boolean(value) => value.into(),
            // The macro admits only integers that fit `i64` or `u64`.
            Self::Integer(value) => serde_json::Number::from_i128(value).map_or(Value::Null, Value::Number),
            Self::Number(value) => value.into(),
        }
    }
}
