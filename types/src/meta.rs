//! What an author says of a tool for the registry's sake: nothing here reaches a model or grants anything.

use serde::{Deserialize, Serialize};

/// Hints of a tool's author. A registry may use them; none of them widens what a call may do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolMeta {
    /// Other names by which the tool may be called, for instance earlier ones. Never listed to a model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Whether a second call with the same arguments changes nothing that the first one did not. Clients of the
    /// Model Context Protocol are told, by `idempotentHint`. A registry tries a call of a native tool again where what
    /// it needs was unavailable, unless the tool had made calls itself; a module's word for it does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// Whether the tool is left out of what a model is shown; it may still be called by name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// How much of an output a model is shown at most, in bytes, where the author wants less than the
    /// registry's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_cap_bytes: Option<u64>,
}

impl ToolMeta {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_said_is_written() {
        assert_eq!(serde_json::to_string(&ToolMeta::default()).expect("encodes"), "{}");
        let meta =
            ToolMeta { aliases: vec!["grep_files".to_owned()], idempotent: true, ..ToolMeta::default() };
        let text = serde_json::to_string(&meta).expect("encodes");
        assert_eq!(text, r#"{"aliases":["grep_files"],"idempotent":true}"#);
        assert_eq!(serde_json::from_str::<ToolMeta>(&text).expect("decodes"), meta);
        assert!(!meta.is_empty());
        assert!(serde_json::from_str::<ToolMeta>(r#"{"grants":"all"}"#).is_err());
    }
}
