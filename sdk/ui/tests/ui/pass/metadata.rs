//! Hints for the registry.

use portcullis_sdk::{Tool, ToolMeta, tool};

/// Hints.
#[tool(aliases("grep_files", "search"), idempotent, hidden, output_cap = "4KiB")]
async fn hinted() {}

/// Hints at nothing.
#[tool]
async fn bare() {}

fn main() {
    let meta = __tool_meta_hinted();
    assert_eq!(meta.aliases, ["grep_files", "search"]);
    assert!(meta.idempotent && meta.hidden);
    assert_eq!(meta.output_cap_bytes, Some(4096));
    assert_eq!(hinted_tool().meta(), meta);
    assert_eq!(__tool_declaration_hinted().meta, meta);
    assert_eq!(
        portcullis_sdk::serde_json::to_string(&meta).unwrap(),
        r#"{"aliases":["grep_files","search"],"idempotent":true,"hidden":true,"output_cap_bytes":4096}"#
    );
    assert_eq!(bare_tool().meta(), ToolMeta::default());
    let described = portcullis_sdk::serde_json::to_string(&__tool_declaration_bare()).unwrap();
    assert!(!described.contains("meta"), "{described}");
}
