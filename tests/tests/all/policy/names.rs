//! Entries for tools: an entry that names no tool is a fault in every use of a policy.

use std::{collections::BTreeMap, fs};

use portcullis_testing::Fixture;
use portcullis_tools::{
    BootstrapError,
    policy::{ToolOrigin, shipped_tools},
};

use super::write_overlay;
use crate::{
    hostile::wat_guest::WatGuest,
    modules::{portcullis, stderr, stdout},
};

async fn fault(fixture: &Fixture) -> String {
    match fixture.builder().await.expect("builds").build() {
        Err(BootstrapError::Policy(error)) => error.to_string(),
        other => panic!("expected a fault, got {other:?}"),
    }
}

#[tokio::test]
async fn an_entry_for_no_tool_is_refused_with_the_nearest_name() {
    for (fixture, overlaid, location) in [
        (Fixture::new().with_policy("[tools.fil_delete]\nenabled = false"), "", ": tools.fil_delete: "),
        (Fixture::new(), "[tools.fil_delete]\nenabled = false", "portcullis.toml:1:8: tools.fil_delete: "),
        (
            Fixture::new().with_policy("[sandbox.process.tools.fil_delete]\nenabled = false"),
            "",
            ": sandbox.process.tools.fil_delete: ",
        ),
        (
            Fixture::new().with_policy("[sandbox.micro_vm.tools.fil_delete]\nenabled = false"),
            "",
            ": sandbox.micro_vm.tools.fil_delete: ",
        ),
    ] {
        if !overlaid.is_empty() {
            write_overlay(&fixture, overlaid);
        }
        let message = fault(&fixture).await;
        assert!(message.contains(location), "{message}");
        assert!(message.contains("no tool has this name: did you mean `file_delete`?"), "{message}");
    }
}

#[test]
fn every_front_end_refuses_a_mistyped_entry() {
    let fixture = Fixture::new().with_policy("[tools.fil_delete]\nenabled = false");
    let policy = fixture.policy_file();
    let file = policy.to_str().expect("the path is UTF-8");
    for words in [
        &["policy", "check"][..],
        &["policy", "check", file],
        &["call", "file_list"],
        &["tools"],
        &["serve"],
        &["doctor"],
    ] {
        let output = portcullis(&fixture, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("did you mean `file_delete`?"), "{words:?}: {}", stderr(&output));
    }
}

#[tokio::test]
async fn an_entry_may_say_that_its_tool_is_not_always_here() {
    let fixture =
        Fixture::new().with_policy("[tools.elsewhere]\nprofile = \"WorkspaceRead\"\noptional = true");
    let registry = fixture.registry().await;
    assert_eq!(registry.unused_entries().len(), 1);
    let policy = fixture.policy_file();
    for words in [&["policy", "check"][..], &["policy", "check", policy.to_str().expect("the path is UTF-8")]]
    {
        let output = portcullis(&fixture, words);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).contains("tools.elsewhere: no tool has this name"), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn an_entry_for_a_module_stands_while_the_module_is_there() {
    let fixture = Fixture::new()
        .with_policy(
            "[modules]\ndir = \"modules\"\n[tools.words]\nprofile = \"FileReadWrite\"\napproval = \"allow\"",
        )
        .with_policy_edit(
            "side_effecting = { profile = \"FileReadWrite\", approval = \"allow\" }",
            "side_effecting = { profile = \"FileReadWrite\", approval = \"ask\" }",
        );
    let folder = fixture.root().join("modules");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("words.wasm"), WatGuest::new("words").bytes()).expect("written");
    fixture.registry().await;
    // `policy check` shows the rule in force, not the written one.
    let policy = fixture.policy_file();
    let output = portcullis(&fixture, &["policy", "check", policy.to_str().expect("the path is UTF-8")]);
    let row = stdout(&output).lines().rfind(|line| line.starts_with("words ")).map(str::to_owned);
    let row = row.unwrap_or_else(|| panic!("{}{}", stdout(&output), stderr(&output)));
    assert!(row.contains(" ask "), "{row}");
    fs::write(folder.join("words.wasm"), "broken").expect("written");
    fixture.registry().await;
    fs::remove_file(folder.join("words.wasm")).expect("removed");
    assert!(fault(&fixture).await.contains("tools.words: no tool has this name"));
}

#[tokio::test]
async fn the_list_of_shipped_tools_is_that_of_the_real_ones() {
    let fixture = Fixture::new().with_policy(
        "[search]\nprovider = \"brave\"\n[notify]\nslack = \"https://slack.com/api/chat.postMessage\"\n",
    );
    let registry = fixture.registry_with_shell().await;
    let tools = registry.tools();
    let registered: BTreeMap<_, _> = tools
        .iter()
        .chain(tools.iter().flat_map(|tool| tool.steps()))
        .map(|tool| tool.descriptor())
        .map(|descriptor| {
            (
                descriptor.name.clone(),
                (
                    descriptor.origin,
                    descriptor.declared_tier,
                    descriptor.declared_policy,
                    descriptor.roles.clone(),
                ),
            )
        })
        .collect();
    let listed: BTreeMap<_, _> = shipped_tools()
        .map(|descriptor| {
            (
                descriptor.name.clone(),
                (descriptor.origin, descriptor.declared_tier, descriptor.declared_policy, descriptor.roles),
            )
        })
        .collect();
    assert_eq!(listed, registered);
    assert!(listed.values().all(|(origin, ..)| *origin != ToolOrigin::Native));
    for descriptor in shipped_tools().filter(|descriptor| descriptor.origin == ToolOrigin::ShippedModule) {
        let tool = registry.get(descriptor.name.as_str()).expect("registered");
        assert_eq!(descriptor.declared_timeout, tool.descriptor().declared_timeout, "{}", descriptor.name);
    }
}
