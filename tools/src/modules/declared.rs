//! The declaration of a module's tool, as properties that a person can read and compare. The hash shows whether
//! anything changed, and the properties show what changed.

use std::collections::BTreeMap;

use portcullis_types::escape_for_display;
use portcullis_types::{JsonSchema, RoleKind, ToolDeclaration, ToolMeta, ToolPolicy};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The maximum number of characters of a property that are shown and stored. A longer property also gets a hash.
const MAX_PROPERTY_CHARS: usize = 400;

/// The text of a property that the declaration does not state.
const NONE: &str = "none";

/// A tool's declaration: its hash and its properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclarationSummary {
    sha256: String,
    properties: BTreeMap<&'static str, String>,
}

impl DeclarationSummary {
    pub(crate) fn new(declaration: &ToolDeclaration) -> Self {
        // The hash of this text is pinned. Adding a field that is serialized even when empty would quarantine
        // every pinned tool.
        let text = serde_json::to_vec(declaration).expect("a map with text keys always serializes");
        let property_or_none = |text: Option<&str>| property(text.unwrap_or(NONE));
        let properties = BTreeMap::from([
            (
                "approval",
                match declaration.policy {
                    ToolPolicy::Auto => NONE.to_owned(),
                    ToolPolicy::RequiresApproval => "required".to_owned(),
                },
            ),
            ("description", property_or_none(declaration.description.as_deref())),
            ("aliases", property(&join_or_none(declaration.meta.aliases.iter().cloned()))),
            ("hosts", property(&join_or_none(declaration.hosts.iter().cloned()))),
            ("label", property_or_none(declaration.label.as_deref())),
            ("parameters", parameters(&declaration.parameters)),
            ("profile", property_or_none(declaration.profile.as_deref())),
            ("hints", property(&join_or_none(hints(&declaration.meta).into_iter()))),
            (
                "results",
                declaration
                    .output_schema
                    .as_ref()
                    .map_or(NONE.to_owned(), |schema| format!("a schema, sha256 {}", digest_of(schema))),
            ),
            (
                "roles",
                property(&join_or_none(declaration.roles.iter().map(|role| match role.role {
                    RoleKind::Path(access) => format!("{}: path to {access}", role.argument),
                    RoleKind::Entry => format!("{}: name to change", role.argument),
                    RoleKind::Url => format!("{}: address", role.argument),
                    RoleKind::Command => format!("{}: command", role.argument),
                }))),
            ),
            ("tier", declaration.tier.map_or(NONE.to_owned(), |tier| tier.to_string())),
            ("timeout", declaration.timeout_ms.map_or(NONE.to_owned(), |time| format!("{time} ms"))),
        ]);
        Self { sha256: hex::encode(Sha256::digest(text)), properties }
    }

    /// The SHA-256 of the whole declaration, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The properties by name, such as `tier`, `profile`, `roles` and `hosts`. Truncated, and escaped for a
    /// terminal.
    #[must_use]
    pub fn properties(&self) -> &BTreeMap<&'static str, String> {
        &self.properties
    }
}

/// Lists the hints of a tool's author except aliases, named as in the attribute.
fn hints(meta: &ToolMeta) -> Vec<String> {
    // Destructure without `..`, so that a new hint does not compile until it is shown here. Aliases are a
    // separate property.
    let ToolMeta { aliases: _, idempotent, hidden, output_cap_bytes } = meta;
    let flags = [("hidden", *hidden), ("idempotent", *idempotent)];
    let flags = flags.into_iter().filter(|(_, is_said)| *is_said).map(|(name, _)| name.to_owned());
    flags.chain(output_cap_bytes.map(|cap| format!("output_cap of {cap} bytes"))).collect()
}

/// Formats the names and types of the parameters, and a hash of the whole schema.
fn parameters(schema: &JsonSchema) -> String {
    let properties = schema.as_value().get("properties").and_then(Value::as_object);
    let required = schema.as_value().get("required").and_then(Value::as_array);
    let names = properties.into_iter().flatten().map(|(name, property)| {
        let kind = property.get("type").and_then(Value::as_str).unwrap_or("any");
        let optional =
            required.is_none_or(|names| !names.iter().any(|required_name| required_name == name.as_str()));
        format!("{name}{}: {kind}", if optional { "?" } else { "" })
    });
    format!("{}; sha256 {}", property(&join_or_none(names)), digest_of(schema))
}

fn digest_of(schema: &JsonSchema) -> String {
    hex::encode(Sha256::digest(schema.as_value().to_string()))
}

fn join_or_none(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { NONE.to_owned() } else { items.join(", ") }
}

/// Formats an untrusted text as a property: escaped and truncated. A truncated text gets a hash of the whole, so
/// that a change beyond the cut is still visible. A backslash before `u{` in the author's text is doubled, so
/// that the text cannot imitate an escaped line break. Other backslashes are unchanged, because existing lock
/// files contain them.
fn property(text: &str) -> String {
    let excerpt: String = text.chars().take(MAX_PROPERTY_CHARS).collect();
    let is_cut = excerpt.len() < text.len();
    let excerpt = excerpt.replace(ESCAPE, DOUBLED_ESCAPE);
    let excerpt = escape_for_display(&excerpt);
    if is_cut {
        format!("{excerpt}…; sha256 {}", hex::encode(Sha256::digest(text)))
    } else {
        excerpt.to_string()
    }
}

/// The start of an escaped character, and its replacement in an author's own text.
const ESCAPE: &str = r"\u{";
const DOUBLED_ESCAPE: &str = r"\\u{";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(edit: impl FnOnce(&mut Value)) -> DeclarationSummary {
        let mut declaration = json!({
            "name": "t", "description": "Does it.", "tier": "read_only", "timeout_ms": 5000, "profile": "P",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            "roles": [{"argument": "path", "role": {"path": "read"}}], "hosts": ["https://example.org"],
        });
        edit(&mut declaration);
        DeclarationSummary::new(&serde_json::from_value(declaration).expect("a declaration"))
    }

    #[test]
    fn an_authors_backslash_is_not_an_escape() {
        assert_eq!(property("a\nb"), r"a\u{a}b");
        assert_eq!(property(r"a\u{a}b \n c:\d"), r"a\\u{a}b \n c:\d");
    }

    #[test]
    fn each_change_changes_the_hash_and_the_fact_that_it_is_about() {
        let before = declared(|_| {});
        let long_text = "x".repeat(500);
        for (key, value, property) in [
            ("description", json!("Does it. <IMPORTANT>"), "description"),
            ("description", json!(long_text), "description"),
            ("tier", json!("privileged"), "tier"),
            ("tier", Value::Null, "tier"),
            ("timeout_ms", json!(6000), "timeout"),
            ("profile", json!("Q"), "profile"),
            ("hosts", json!(["https://example.com"]), "hosts"),
            ("roles", json!([]), "roles"),
            ("policy", json!("requires_approval"), "approval"),
            ("label", json!("T"), "label"),
            ("output_schema", json!({"type": "object"}), "results"),
            ("meta", json!({"aliases": ["u"]}), "aliases"),
            ("meta", json!({"hidden": true}), "hints"),
            ("meta", json!({"output_cap_bytes": 5}), "hints"),
            (
                "parameters",
                json!({"type": "object", "properties": {"path": {"type": "string", "maxLength": 3}}}),
                "parameters",
            ),
        ] {
            let after = declared(|declaration| declaration[key] = value.clone());
            assert_ne!(before.sha256(), after.sha256(), "{key}");
            let changed: Vec<_> = before
                .properties()
                .keys()
                .filter(|name| before.properties()[*name] != after.properties()[*name])
                .collect();
            assert_eq!(changed, [&property], "{key} = {value}");
        }
    }

    #[test]
    fn a_change_behind_the_cut_counts_and_text_is_escaped() {
        let long_description = |end: &str| {
            declared(|declaration| declaration["description"] = json!(format!("{}{end}", "x".repeat(900))))
        };
        assert_ne!(
            long_description("a").properties()["description"],
            long_description("b").properties()["description"]
        );
        assert!(long_description("a").properties()["description"].len() < 600);
        let deceptive = declared(|declaration| declaration["description"] = json!("a\u{1b}[2J\u{202e}b\n"));
        assert_eq!(deceptive.properties()["description"], "a\\u{1b}[2J\\u{202e}b\\u{a}");
    }
}
