//! Programs that link Portcullis: code that embedders write, and effects that linking must not have on their program.

#[expect(unreachable_pub, reason = "the line is the document's, where it is part of a program")]
mod program;
#[expect(unreachable_pub, reason = "the line is the document's, where it is part of a program")]
mod state;

use std::{collections::BTreeSet, sync::Arc};

use futures_util::future::join_all;
use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{BootstrapError, RegistryBuilder, RegistryError, ToolRegistry};
use serde_json::json;

/// Cargo unifies the features of a crate over a whole program, so our choice of reqwest's features would also
/// be the embedder's.
#[test]
fn an_embedder_can_make_its_http_client_beside_ours() {
    // The crates are linked, but none of their code runs before the client is made.
    let ours = portcullis_agent::ProviderKind::ALL;
    reqwest::Client::new();
    assert!(!ours.is_empty());
}

#[tokio::test]
async fn the_program_of_the_document_answers_as_it_says() {
    let fixture = Fixture::new();
    let read = program::run(fixture.workspace(), fixture.state()).await.expect("runs");
    assert_eq!(read[0], "ticket 1");
    assert!(!read[1].starts_with("Tool execution failed"), "{read:?}");
    assert!(read[2].starts_with("Tool execution failed: "), "{read:?}");
    assert_eq!(std::fs::read_to_string(fixture.shared("notes.md")).expect("written"), "Hello!");
    let rows = fixture.rows();
    assert!(rows.iter().all(|row| row.agent.as_deref() == Some("my-agent")), "{rows:?}");
}

#[test]
fn the_document_shows_the_program_that_is_tested() {
    let document = include_str!("../../../docs/embedding.md");
    let documented_programs = document.split("```rust\n").skip(1).map(|rest| rest.split("```").next());
    let programs = [include_str!("embedding/program.rs"), include_str!("embedding/state.rs")];
    for (documented_program, program) in documented_programs.zip(programs) {
        let program = program.split_once("\n\n").expect("its header").1;
        assert_eq!(documented_program, Some(program));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_tool_share_the_state_of_their_registry() {
    const CALLS: usize = 10;
    let fixture = Fixture::new().with_policy("[tools.take_ticket]\nenabled = true\napproval = \"allow\"\n");
    let registry = state::with_tickets(fixture.builder().await.expect("bootstraps")).build().expect("builds");
    let tool = registry.get("take_ticket").expect("registered");
    assert_eq!(tool.decl().parameters.as_value()["properties"], json!({}));
    let calls = (0..CALLS).map(|_| CallOutcome::run(&registry, "take_ticket", json!({})));
    let tickets: BTreeSet<String> = join_all(calls).await.iter().map(CallOutcome::text).collect();
    assert_eq!(tickets, (1..=CALLS).map(|number| format!("ticket {number}")).collect());
    let row = fixture.rows().pop().expect("a row");
    assert!(row.subjects.is_empty(), "{row:?}");
}

#[tokio::test]
async fn a_registry_is_not_built_without_the_states_of_its_tools() {
    let fixture = Fixture::new();
    let error_of = |builder: RegistryBuilder| match builder.state(fixture.state()).build() {
        Err(BootstrapError::Registry(error)) => error,
        other => panic!("{other:?}"),
    };
    let missing = error_of(ToolRegistry::builder().tool(state::take_ticket_tool()));
    let ty = std::any::type_name::<state::Tickets>();
    assert_eq!(
        missing.to_string(),
        format!(
            "tool `take_ticket` takes `&State<{ty}>`, and the registry has no such state; give it by \
             `.tool_state(…)`"
        )
    );
    let other_type = ToolRegistry::builder().tool(state::take_ticket_tool()).tool_state(1_u8);
    assert!(
        matches!(error_of(other_type), RegistryError::StateMissing { tool, .. } if tool == "take_ticket")
    );
    let twice = state::with_tickets(ToolRegistry::builder()).tool_state(state::Tickets::default());
    assert!(matches!(error_of(twice), RegistryError::StateGivenTwice { ty: twice } if twice == ty));

    let registry = ToolRegistry::builder().state(fixture.state()).build().expect("builds");
    let error = registry.add_tool(Arc::new(state::take_ticket_tool())).expect_err("no state");
    assert!(matches!(error, RegistryError::StateMissing { .. }), "{error:?}");
    assert!(registry.get("take_ticket").is_none());
}
