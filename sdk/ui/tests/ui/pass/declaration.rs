//! Every key of `#[tool]`.

use portcullis_sdk::{tool, Tool};

/// Fetches.
#[tool(
    name = "fetch-page", label = "Fetch", tier = Privileged, timeout = "1500ms", approval = required,
    profile = WebFetch, deny_unknown
)]
async fn fetch(
    #[arg(url)] address: &str,
    #[arg(path = "write")] to: String,
    #[arg(command)]
    #[arg(default = "")]
    then: String,
) {
    let _ = (address, to, then);
}

/// Says nothing more.
#[tool]
async fn bare() {}

fn main() {
    assert_eq!(
        portcullis_sdk::serde_json::to_string(&__tool_declaration_fetch()).unwrap(),
        r#"{"name":"fetch-page","label":"Fetch","description":"Fetches.","parameters":{"additionalProperties":false,"properties":{"address":{"type":"string"},"then":{"default":"","type":"string"},"to":{"type":"string"}},"required":["address","to"],"type":"object"},"tier":"privileged","policy":"requires_approval","timeout_ms":1500,"roles":[{"argument":"address","role":"url"},{"argument":"to","role":{"path":"write"}},{"argument":"then","role":"command"}],"profile":"WebFetch","hosts":[]}"#
    );
    let bare = __tool_declaration_bare();
    assert_eq!((bare.tier, bare.timeout_ms, bare.profile), (None, None, None));
    // A registry of this process is told what a module's `describe` tells it.
    assert_eq!(bare_tool().declared_tier(), bare.tier);
    assert_eq!(fetch_tool().declared_tier(), __tool_declaration_fetch().tier);
    assert_eq!(bare_tool().safety_tier(), portcullis_sdk::SafetyTier::SideEffecting);
    assert_eq!(bare_tool().timeout(), std::time::Duration::from_secs(30));
}
