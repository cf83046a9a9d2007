//! An author's hints for the registry. They are never shown to a model, and grant nothing.

use serde::{Deserialize, Serialize};

/// Hints of a tool's author. A registry may use them; none of them widens a call's access.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolMeta {
    /// Aliases of the tool, for instance earlier names. Never listed to a model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Whether the tool is idempotent: a repeated call with equal arguments has no further effect. Clients of
    /// the Model Context Protocol see this hint as `idempotentHint`. If a native tool fails because something
    /// was unavailable, the registry retries the call, unless the tool had made calls itself. A run that is
    /// resumed after its process died repeats an interrupted call of a tool with this hint. Neither applies
    /// to a foreign module, whose hints are not trusted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// Whether the tool is hidden from models. It can still be called by name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// The maximum number of bytes of an output for a model, if the author wants less than
    /// the registry's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_cap_bytes: Option<u64>,
}

impl ToolMeta {
    /// Whether there are no hints.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_meta_fields_are_not_written() {
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
