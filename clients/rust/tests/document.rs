//! Checks that the gateway's document shows the example.

#[test]
fn the_document_shows_a_part_of_the_example() {
    let document = include_str!("../../../docs/gateway.md");
    let example = include_str!("../examples/answer.rs");
    let blocks: Vec<&str> =
        document.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 1);
    assert!(example.contains(blocks[0]), "{}", blocks[0]);
    assert!(document.contains("(../clients/rust/examples/answer.rs)"), "a link to the whole");
}
