//! The declaration of a module's tool, as facts that a person can read and compare. The hash decides whether
//! anything changed; the facts show what.

use std::collections::BTreeMap;

use portcullis_types::escape_for_display;
use portcullis_types::{JsonSchema, RoleKind, ToolDeclaration, ToolMeta, ToolPolicy};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The most characters of a fact that are shown and kept; a longer fact also gets its hash.
const MAX_FACT_CHARS: usize = 400;

/// The text of a fact that the tool does not state.
const NONE: &str = "none";

/// A tool's declaration: its hash and its facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclarationFacts {
    sha256: String,
    facts: BTreeMap<&'static str, String>,
}

impl DeclarationFacts {
    pub(crate) fn of(declaration: &ToolDeclaration) -> Self {
        // This text is pinned. A new field that is written also where it is empty would quarantine every pinned tool.
        let text = serde_json::to_vec(declaration).expect("a map with text keys always serialises");
        let stated = |text: Option<&str>| fact(text.unwrap_or(NONE));
        let facts = BTreeMap::from([
            (
                "approval",
                match declaration.policy {
                    ToolPolicy::Auto => NONE.to_owned(),
                    ToolPolicy::RequiresApproval => "required".to_owned(),
                },
            ),
            ("description", stated(declaration.description.as_deref())),
            ("aliases", fact(&listed(declaration.meta.aliases.iter().cloned()))),
            ("hosts", fact(&listed(declaration.hosts.iter().cloned()))),
            ("label", stated(declaration.label.as_deref())),
            ("parameters", parameters(&declaration.parameters)),
            ("profile", stated(declaration.profile.as_deref())),
            ("hints", fact(&listed(hints(&declaration.meta).into_iter()))),
            (
                "results",
                declaration
                    .output_schema
                    .as_ref()
                    .map_or(NONE.to_owned(), |schema| format!("a schema, sha256 {}", digest_of(schema))),
            ),
            (
                "roles",
                fact(&listed(declaration.roles.iter().map(|role| match role.role {
                    RoleKind::Path(access) => format!("{}: path to {access}", role.argument),
                    RoleKind::Entry => format!("{}: name to change", role.argument),
                    RoleKind::Url => format!("{}: address", role.argument),
                    RoleKind::Command => format!("{}: command", role.argument),
                }))),
            ),
            ("tier", declaration.tier.map_or(NONE.to_owned(), |tier| tier.to_string())),
            ("timeout", declaration.timeout_ms.map_or(NONE.to_owned(), |time| format!("{time} ms"))),
        ]);
        Self { sha256: hex::encode(Sha256::digest(text)), facts }
    }

    /// The SHA-256 of the whole declaration, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The facts by name: `tier`, `profile`, `roles`, `hosts` and so on. Bounded, and escaped for a terminal.
    #[must_use]
    pub fn facts(&self) -> &BTreeMap<&'static str, String> {
        &self.facts
    }
}

/// The hints of a tool's author besides aliases, named as in the attribute.
fn hints(meta: &ToolMeta) -> Vec<String> {
    // Field by field: a new hint does not compile until it is shown here. Aliases are a fact of their own.
    let ToolMeta { aliases: _, idempotent, hidden, output_cap_bytes } = meta;
    let flags = [("hidden", *hidden), ("idempotent", *idempotent)];
    let flags = flags.into_iter().filter(|(_, is_said)| *is_said).map(|(name, _)| name.to_owned());
    flags.chain(output_cap_bytes.map(|cap| format!("output_cap of {cap} bytes"))).collect()
}

/// The names and types of the parameters, and a hash over every detail.
fn parameters(schema: &JsonSchema) -> String {
    let properties = schema.as_value().get("properties").and_then(Value::as_object);
    let required = schema.as_value().get("required").and_then(Value::as_array);
    let names = properties.into_iter().flatten().map(|(name, property)| {
        let kind = property.get("type").and_then(Value::as_str).unwrap_or("any");
        let optional = required.is_none_or(|names| !names.iter().any(|one| one == name.as_str()));
        format!("{name}{}: {kind}", if optional { "?" } else { "" })
    });
    format!("{}; sha256 {}", fact(&listed(names)), digest_of(schema))
}

fn digest_of(schema: &JsonSchema) -> String {
    hex::encode(Sha256::digest(schema.as_value().to_string()))
}

fn listed(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { NONE.to_owned() } else { items.join(", ") }
}

/// An untrusted text as a fact: escaped, and cut with a hash of the whole, so that a change behind the cut
/// still shows. A backslash before `u{` in the author's text is doubled, so that author text never looks like
/// an escaped line end. Any other backslash stays as it is, since existing locks hold these facts.
fn fact(text: &str) -> String {
    let shown: String = text.chars().take(MAX_FACT_CHARS).collect();
    let cut = shown.len() < text.len();
    let shown = shown.replace(ESCAPE, DOUBLED_ESCAPE);
    let shown = escape_for_display(&shown);
    if cut { format!("{shown}…; sha256 {}", hex::encode(Sha256::digest(text))) } else { shown.to_string() }
}

/// The start of an escaped character, and its form in an author's own text.
const ESCAPE: &str = r"\u{";
const DOUBLED_ESCAPE: &str = r"\\u{";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(edit: impl FnOnce(&mut Value)) -> DeclarationFacts {
        let mut declaration = json!({
            "name": "t", "description": "Does it.", "tier": "read_only", "timeout_ms": 5000, "profile": "P",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            "roles": [{"argument": "path", "role": {"path": "read"}}], "hosts": ["https://example.org"],
        });
        edit(&mut declaration);
        DeclarationFacts::of(&serde_json::from_value(declaration).expect("a declaration"))
    }

    #[test]
    fn backslash_of_an_author_is_no_escape() {
        assert_eq!(fact("a\nb"), r"a\u{a}b");
        assert_eq!(fact(r"a\u{a}b \n c:\d"), r"a\\u{a}b \n c:\d");
    }

    #[test]
    fn each_change_changes_the_hash_and_the_fact_that_it_is_about() {
        let before = declared(|_| {});
        let long = "x".repeat(500);
        for (key, value, fact) in [
            ("description", json!("Does it. <IMPORTANT>"), "description"),
            ("description", json!(long), "description"),
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
            let changed: Vec<_> =
                before.facts().keys().filter(|name| before.facts()[*name] != after.facts()[*name]).collect();
            assert_eq!(changed, [&fact], "{key} = {value}");
        }
    }

    #[test]
    fn a_change_behind_the_cut_counts_and_nothing_deceives() {
        let long = |end: &str| declared(|it| it["description"] = json!(format!("{}{end}", "x".repeat(900))));
        assert_ne!(long("a").facts()["description"], long("b").facts()["description"]);
        assert!(long("a").facts()["description"].len() < 600);
        let deceptive = declared(|it| it["description"] = json!("a\u{1b}[2J\u{202e}b\n"));
        assert_eq!(deceptive.facts()["description"], "a\\u{1b}[2J\\u{202e}b\\u{a}");
    }
}
