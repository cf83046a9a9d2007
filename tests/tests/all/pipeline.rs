//! The way of a call, step by step.

use portcullis_tests::{Answer, World};
use serde_json::json;

#[tokio::test]
async fn a_guest_reads_a_file_behind_the_whole_pipeline_and_leaves_a_row() {
    let world = World::new();
    world.put("README.md", "hello, guest\n");
    let registry = world.registry().await;
    let answer = Answer::of(&registry, "file_read", json!({"path": "/shared/README.md"})).await;
    assert_eq!(answer.text(), "hello, guest\n");
    let rows = world.rows();
    assert_eq!(rows.len(), 1, "{rows:#?}");
    println!("{:#?}", rows[0]);
}
