//! An author's hints: aliases, a cap on output, a hidden tool. No hint widens a grant.

use std::sync::atomic::Ordering;

use portcullis_sdk::tool;
use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{BootstrapError, PolicyFiles, RegistryError, ToolRegistry};
use portcullis_types::{
    SafetyTier, SandboxTier,
    ToolErrorKind::{Denied, NotFound, Unavailable},
    ToolMeta, ToolOutput,
};
use serde_json::json;

use crate::{
    hostile::wat_guest::WatGuest,
    support::{Spy, fixture_enabling, native_registry},
};

fn aliases(names: &[&str]) -> ToolMeta {
    ToolMeta { aliases: names.iter().map(|name| (*name).to_owned()).collect(), ..ToolMeta::default() }
}

/// Declares no tier.
#[tool]
async fn silent() {}

/// Declares that it only reads.
#[tool(tier = ReadOnly)]
async fn reading() {}

#[tokio::test]
async fn a_native_tool_has_the_tier_that_its_author_declared_or_none() {
    let fixture = fixture_enabling(&["silent", "reading"]);
    let builder = ToolRegistry::builder().state(fixture.state()).tool(silent_tool()).tool(reading_tool());
    let policy = PolicyFiles::find(&fixture.envelope()).expect("files").load(SandboxTier::Process);
    let registry = builder.policy(policy.expect("loads")).build().expect("builds");
    let tiers = |name: &str| {
        let tool = registry.get(name).expect("registered");
        (tool.descriptor().declared_tier, registry.policy().describe(tool.descriptor()).tier)
    };
    assert_eq!(tiers("silent"), (None, SafetyTier::SideEffecting));
    assert_eq!(tiers("reading"), (Some(SafetyTier::ReadOnly), SafetyTier::ReadOnly));
}

#[tokio::test]
async fn a_tool_is_called_by_an_alias_and_recorded_by_its_name() {
    let fixture = fixture_enabling(&["grep"]);
    let spy = Spy::repeating("grep").meta(aliases(&["search_text", "find_text"]));
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy]);
    for name in ["grep", "search_text", "find_text"] {
        let answer = CallOutcome::run(&registry, name, json!({})).await;
        assert_eq!(answer.text(), "{}", "{name}");
        assert_eq!(answer.0.tool, "grep");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert!(fixture.rows().iter().all(|row| &*row.tool == "grep"));
    let tools = registry.tools();
    let listed: Vec<_> = tools.iter().map(|tool| tool.decl().name.as_str()).collect();
    assert!(listed.contains(&"grep") && !listed.contains(&"find_text"), "{listed:?}");
}

#[tokio::test]
async fn policy_of_a_tool_holds_for_its_aliases() {
    let fixture = Fixture::new().with_policy("[tools.grep]\nenabled = false\n");
    let spy = Spy::repeating("grep").meta(aliases(&["search_text"]));
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy]);
    CallOutcome::run(&registry, "search_text", json!({})).await.assert_refused(Denied, "tool_disabled");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_alias_that_is_already_a_name_is_refused() {
    for (meta, taken_name) in [
        (aliases(&["echo"]), "echo"),
        (aliases(&["output_read"]), "output_read"),
        (aliases(&["grep"]), "grep"),
        (aliases(&["twice", "twice"]), "twice"),
        (aliases(&["other"]), "other"),
        (aliases(&["Grep"]), "Grep"),
        (aliases(&["twice", "Twice"]), "Twice"),
    ] {
        let fixture = Fixture::new();
        let files = PolicyFiles::find(&fixture.envelope()).expect("policy files");
        let policy = files.load(SandboxTier::Process).expect("a policy");
        let builder = ToolRegistry::builder().policy(policy).state(fixture.state()).default_tools();
        let builder = builder.tool(Spy::repeating("other")).tool(Spy::repeating("grep").meta(meta));
        match builder.build() {
            Err(BootstrapError::Registry(RegistryError::Taken { name, .. })) => {
                assert_eq!(name.as_str(), taken_name);
            }
            other => panic!("{taken_name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_module_alias_like_a_shipped_name_is_refused() {
    for alias in ["file_read", "fi1e_read", "ech0", "File_Read"] {
        let describe = format!(
            r#"{{"v":1,"tools":[{{"name":"innocent","parameters":{{"type":"object"}},"meta":{{"aliases":["{alias}"]}}}}]}}"#
        );
        let fixture = Fixture::new().with_policy("[modules]\ndir = \"modules\"\n");
        std::fs::create_dir(fixture.root().join("modules")).expect("a folder");
        let module = WatGuest::describing(&describe).bytes();
        std::fs::write(fixture.root().join("modules/m.wasm"), module).expect("written");
        let registry = fixture.registry().await;
        assert_eq!(registry.refused_modules().len(), 1, "{alias}");
        CallOutcome::run(&registry, "innocent", json!({}))
            .await
            .assert_refused(Unavailable, "module_unavailable");
    }
}

#[tokio::test]
async fn a_hidden_tool_is_called_by_name_and_never_suggested() {
    let fixture = fixture_enabling(&["secret_door"]);
    let spy = Spy::repeating("secret_door").meta(ToolMeta { hidden: true, ..ToolMeta::default() });
    let registry = native_registry(&fixture, [spy]);
    assert_eq!(CallOutcome::run(&registry, "secret_door", json!({})).await.text(), "{}");
    let message =
        CallOutcome::run(&registry, "secret_dor", json!({})).await.assert_refused(NotFound, "unknown_tool");
    assert!(!message.contains("secret_door"), "{message}");
}

#[tokio::test]
async fn an_output_is_cut_at_its_authors_cap_and_the_rest_is_kept() {
    let fixture = fixture_enabling(&["talk"]);
    let meta = ToolMeta { output_cap_bytes: Some(10), ..ToolMeta::default() };
    let spy = Spy::new("talk", |_, _| async { Ok(ToolOutput::text("0123456789abcdef")) }).meta(meta);
    let registry = native_registry(&fixture, [spy]);
    let answer = CallOutcome::run(&registry, "talk", json!({})).await;
    assert_eq!(answer.text(), "0123456789\n[output truncated — original size: 16 bytes]");
    let id = answer.0.details["output_id"].as_str().expect("the output is stored").to_owned();
    let rest = CallOutcome::run(&registry, "output_read", json!({"call_id": id, "offset": 10})).await;
    assert_eq!(rest.text(), "abcdef");
}
