//! Entries for tools: an entry that names no tool is a fault wherever a policy is used.

use std::{collections::BTreeMap, fs};

use portcullis_testing::World;
use portcullis_tools::{
    BootstrapError,
    policy::{ToolOrigin, shipped_tools},
};

use super::overlay;
use crate::{
    hostile::wat_guest::WatGuest,
    modules::{portcullis, stderr, stdout},
};

async fn fault(world: &World) -> String {
    match world.builder().await.expect("builds").build() {
        Err(BootstrapError::Policy(error)) => error.to_string(),
        other => panic!("expected a fault, got {other:?}"),
    }
}

#[tokio::test]
async fn an_entry_for_no_tool_is_refused_with_the_nearest_name() {
    for (world, overlaid, place) in [
        (World::new().with_policy("[tools.fil_delete]\nenabled = false"), "", ": tools.fil_delete: "),
        (World::new(), "[tools.fil_delete]\nenabled = false", "portcullis.toml:1:8: tools.fil_delete: "),
        (
            World::new().with_policy("[sandbox.process.tools.fil_delete]\nenabled = false"),
            "",
            ": sandbox.process.tools.fil_delete: ",
        ),
        (
            World::new().with_policy("[sandbox.micro_vm.tools.fil_delete]\nenabled = false"),
            "",
            ": sandbox.micro_vm.tools.fil_delete: ",
        ),
    ] {
        if !overlaid.is_empty() {
            overlay(&world, overlaid);
        }
        let said = fault(&world).await;
        assert!(said.contains(place), "{said}");
        assert!(said.contains("no tool has this name: did you mean `file_delete`?"), "{said}");
    }
}

#[test]
fn every_front_end_refuses_a_mistyped_entry() {
    let world = World::new().with_policy("[tools.fil_delete]\nenabled = false");
    let policy = world.policy_file();
    let file = policy.to_str().expect("text");
    for words in [
        &["policy", "check"][..],
        &["policy", "check", file],
        &["call", "file_list"],
        &["tools"],
        &["serve"],
        &["doctor"],
    ] {
        let output = portcullis(&world, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("did you mean `file_delete`?"), "{words:?}: {}", stderr(&output));
    }
}

#[tokio::test]
async fn an_entry_may_say_that_its_tool_is_not_always_here() {
    let world = World::new().with_policy("[tools.elsewhere]\nprofile = \"WorkspaceRead\"\noptional = true");
    let registry = world.registry().await;
    assert_eq!(registry.unused_entries().len(), 1);
    let policy = world.policy_file();
    for words in [&["policy", "check"][..], &["policy", "check", policy.to_str().expect("text")]] {
        let output = portcullis(&world, words);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("tools.elsewhere: no tool of this name is here"),
            "{}",
            stderr(&output)
        );
    }
}

#[tokio::test]
async fn an_entry_for_a_module_stands_while_the_module_is_there() {
    let world = World::new()
        .with_policy(
            "[modules]\ndir = \"modules\"\n[tools.words]\nprofile = \"FileReadWrite\"\napproval = \"allow\"",
        )
        .with_policy_edit(
            "side_effecting = { profile = \"FileReadWrite\", approval = \"allow\" }",
            "side_effecting = { profile = \"FileReadWrite\", approval = \"ask\" }",
        );
    let folder = world.root().join("modules");
    fs::create_dir(&folder).expect("a folder");
    fs::write(folder.join("words.wasm"), WatGuest::new("words").bytes()).expect("written");
    world.registry().await;
    // The check of the file shows the rule in force, not the one written.
    let policy = world.policy_file();
    let output = portcullis(&world, &["policy", "check", policy.to_str().expect("text")]);
    let row = stdout(&output).lines().rfind(|line| line.starts_with("words ")).map(str::to_owned);
    let row = row.unwrap_or_else(|| panic!("{}{}", stdout(&output), stderr(&output)));
    assert!(row.contains(" ask "), "{row}");
    fs::write(folder.join("words.wasm"), "broken").expect("written");
    world.registry().await;
    fs::remove_file(folder.join("words.wasm")).expect("removed");
    assert!(fault(&world).await.contains("tools.words: no tool has this name"));
}

#[tokio::test]
async fn the_list_of_shipped_tools_is_that_of_the_real_ones() {
    let world = World::new().with_policy("[search]\nprovider = \"brave\"\n");
    let registry = world.registry_with_shell().await;
    let tools = registry.tools();
    let real: BTreeMap<_, _> = tools
        .iter()
        .chain(tools.iter().flat_map(|tool| tool.steps()))
        .map(|tool| (tool.facts().name.clone(), (tool.facts().origin, tool.facts().declared_tier)))
        .collect();
    let listed: BTreeMap<_, _> =
        shipped_tools().map(|facts| (facts.name.clone(), (facts.origin, facts.declared_tier))).collect();
    assert_eq!(listed, real);
    assert!(listed.values().all(|(origin, _)| *origin != ToolOrigin::Native));
}
