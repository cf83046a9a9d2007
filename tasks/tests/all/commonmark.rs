//! The examples of the CommonMark specification as task files.
//!
//! They come with the sources of the Markdown parser, which cargo has unpacked to build it.

use std::{path::PathBuf, sync::Arc};

use crate::world::{Runner, World, call};

#[tokio::test]
async fn a_call_below_any_example_runs_at_most_once_and_loses_no_line() {
    let world = World::new();
    let examples = examples();
    assert!(examples.len() > 600, "{}", examples.len());
    for (number, example) in examples.iter().enumerate() {
        world.write(
            &format!("01_Inbox/{number:03}.md"),
            &format!("{example}\n\n{}", call("a", &number.to_string())),
        );
    }
    let runner = Arc::new(Runner::new(|_call| Ok(portcullis_types::ToolOutput::text(call("evil", "x")))));
    world.run(&runner).await;
    world.run(&runner).await;
    let mut effects = runner.effects();
    let count = effects.len();
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), count, "no call runs twice");
    // An example that leaves a block open swallows the call.
    assert!(count > 600, "{count}");
    assert!(effects.iter().all(|effect| effect.starts_with("a ")));
    for (number, example) in examples.iter().enumerate() {
        let states = ["01_Inbox", "07_Done"];
        let state =
            states.into_iter().find(|state| world.has(&format!("{state}/{number:03}.md"))).expect("a state");
        let text = world.read(&format!("{state}/{number:03}.md"));
        // `---` at the start of a file begins a front matter, which is edited.
        let is_kept = text.contains(example.as_str()) || example.starts_with("---");
        assert!(is_kept, "example {number}: {text:?}");
    }
}

#[tokio::test]
async fn a_call_inside_a_block_of_an_example_does_not_run() {
    let world = World::new();
    // These examples end in an open fenced block or comment, so a call after them is part of its content.
    for (number, open) in ["~~~\n", "````\naaa\n", "<!-- \n", "<script>\n", "> x\n\n````"].iter().enumerate()
    {
        world.write(&format!("01_Inbox/{number}.md"), &format!("{open}\n{}", call("a", "1")));
    }
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    assert!(runner.effects().is_empty(), "{:?}", runner.effects());
}

/// Returns the inputs of the examples: the raw strings `original` in the parser's own test of the
/// specification.
fn examples() -> Vec<String> {
    let file = parser_sources().join("tests/suite/spec.rs");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut rest = &*text;
    let mut examples = Vec::new();
    while let Some(start) = rest.find("let original = r##\"") {
        rest = &rest[start + "let original = r##\"".len()..];
        let end = rest.find("\"##;").expect("the string ends");
        examples.push(rest[..end].to_owned());
        rest = &rest[end..];
    }
    examples
}

/// Returns the folder into which cargo has unpacked the parser. The list of packages is restricted to this
/// platform. For all platforms, cargo would need every package of the lock file, and a machine has only those
/// that it compiles.
fn parser_sources() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "a test asks cargo where it has unpacked a dependency")]
    let output = std::process::Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            "host-tuple",
            "--manifest-path",
        ])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let packages = metadata["packages"].as_array().expect("packages");
    let parser = packages.iter().find(|package| package["name"] == "pulldown-cmark").expect("the parser");
    let manifest = PathBuf::from(parser["manifest_path"].as_str().expect("a path"));
    manifest.parent().expect("a folder").to_owned()
}
