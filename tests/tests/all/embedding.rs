//! Programs that link Portcullis: the code that they write, and effects that linking must not have on them.

#[expect(unreachable_pub, reason = "as it stands in the document, where it is a program's")]
mod program;

use portcullis_testing::World;

/// Cargo unifies the features of a crate over a whole program, so our choice of reqwest features would be
/// theirs.
#[test]
fn an_embedders_own_http_client_is_made_as_without_us() {
    // The crates are linked, but none of their code runs before the client is made.
    let ours = portcullis_agent::ProviderKind::ALL;
    reqwest::Client::new();
    assert!(!ours.is_empty());
}

#[tokio::test]
async fn the_program_of_the_document_answers_as_it_says() {
    let world = World::new();
    let read = program::run(world.workspace(), world.state()).await.expect("runs");
    assert_eq!(read[0], "ticket 1");
    assert!(!read[1].starts_with("Tool execution failed"), "{read:?}");
    assert!(read[2].starts_with("Tool execution failed: "), "{read:?}");
    assert_eq!(std::fs::read_to_string(world.shared("notes.md")).expect("written"), "Hello!");
    let rows = world.rows();
    assert!(rows.iter().all(|row| row.agent.as_deref() == Some("my-agent")), "{rows:?}");
}

#[test]
fn the_document_shows_the_program_that_is_tested() {
    let document = include_str!("../../../docs/embedding.md");
    let shown = document.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    let program = include_str!("embedding/program.rs");
    let program = program.split_once("\n\n").expect("its header").1;
    assert_eq!(shown, Some(program));
}
