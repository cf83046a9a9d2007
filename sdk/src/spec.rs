//! What a tool says of itself, as constant data: the one source of schema, declaration and decoding.

use std::time::Duration;

use portcullis_types::{
    ArgumentRole, FunctionDecl, JsonSchema, RoleKind, SafetyTier, ToolDeclaration, ToolMeta, ToolPolicy,
};
use serde_json::{Map, Value};

use crate::schema::{Definitions, ParamKind, sorted};

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
    /// Makes the schema of structured results, where there is one.
    pub output_schema: fn() -> Option<JsonSchema>,
    /// Hints for the registry.
    pub hints: Hints,
}

/// What [`ToolMeta`] carries, as constant data.
#[derive(Debug)]
pub struct Hints {
    /// Other names of the tool.
    pub aliases: &'static [&'static str],
    /// Whether a second call with the same arguments changes nothing more; a hint for clients.
    pub idempotent: bool,
    /// Whether models are not shown the tool.
    pub hidden: bool,
    /// How much of an output a model is shown, in bytes.
    pub output_cap_bytes: Option<u64>,
}

impl Hints {
    /// Nothing is said.
    pub const NONE: Self = Self { aliases: &[], idempotent: false, hidden: false, output_cap_bytes: None };
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
    /// The least value of a number.
    pub minimum: Option<LiteralValue>,
    /// The greatest value of a number.
    pub maximum: Option<LiteralValue>,
    /// The allowed texts; empty where any is.
    pub one_of: &'static [&'static str],
    /// What it is to the policy.
    pub role: Option<RoleKind>,
}

/// Whether a parameter must be given.
#[derive(Debug, Clone, Copy)]
pub enum Presence {
    /// It must.
    Required,
    /// It may be left out or be null.
    Optional,
    /// Left out or null, it has this value.
    Default(DefaultValue),
}

/// A value of a primitive type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LiteralValue {
    /// A text.
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
        self.shown().fmt(f)
    }
}

/// A default.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum DefaultValue {
    /// A primitive's.
    Literal(LiteralValue),
    /// What an expression gives; none where it cannot be shown as JSON.
    Computed(fn() -> Option<Value>),
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
        output_schema: || None,
        hints: Hints::NONE,
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
            output_schema: self.output_schema(),
            tier: self.tier,
            policy: self.policy,
            timeout_ms: self.timeout_ms,
            roles: self.roles(),
            profile: self.profile.map(str::to_owned),
            hosts: Vec::new(),
            meta: self.meta(),
        }
    }

    /// The schema of the arguments, in normal form.
    #[must_use]
    pub fn parameters(&self) -> JsonSchema {
        let mut definitions = Definitions::default();
        let mut properties = Map::new();
        let mut required = Vec::new();
        for param in self.params {
            properties.insert(param.name.to_owned(), param.schema(&mut definitions).into());
            if matches!(param.presence, Presence::Required) {
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

    /// The schema of structured results: that of `T` for a function that returns `Json<T>`, or a described `T`
    /// that is an object.
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
    fn schema(&self, definitions: &mut Definitions) -> Map<String, Value> {
        let mut schema = self.kind.schema(self.description, definitions);
        if let Presence::Default(value) = self.presence
            && let Some(value) = value.shown()
        {
            schema.insert("default".into(), value);
        }
        if !self.one_of.is_empty() {
            schema.insert("enum".into(), self.one_of.into());
        }
        if let Some(maximum) = self.maximum {
            schema.insert("maximum".into(), maximum.shown());
        }
        if let Some(minimum) = self.minimum {
            schema.insert("minimum".into(), minimum.shown());
        }
        schema
    }
}

impl DefaultValue {
    /// The default as the schema shows it.
    fn shown(self) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value.shown()),
            Self::Computed(compute) => compute(),
        }
    }
}

impl LiteralValue {
    /// Whether both are numbers of one type, and this is the less.
    pub(crate) fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Integer(this), Self::Integer(other)) => this < other,
            (Self::Number(this), Self::Number(other)) => this < other,
            _ => false,
        }
    }

    /// The value as the schema shows it.
    pub(crate) fn shown(self) -> Value {
        match self {
            Self::String(text) => text.into(),
            Self::Boolean(value) => value.into(),
            // The macro admits only what fits `i64` or `u64`.
            Self::Integer(value) => serde_json::Number::from_i128(value).map_or(Value::Null, Value::Number),
            Self::Number(value) => value.into(),
        }
    }
}
