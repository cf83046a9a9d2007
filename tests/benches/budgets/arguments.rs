//! Decoding and checking large arguments.

use std::time::{Duration, Instant};

use portcullis_sdk::{DeclaredTool, args, testing, tool};
use portcullis_tools::arguments::{ArgumentSchema, Repairs};
use serde_json::{Value, json};

use crate::{report::Report, sample::median_us};

const ARGUMENT_BYTES: usize = 100 << 10;
const ROUNDS: usize = 201;

/// One entry of a long list.
#[args]
struct Entry {
    /// A name.
    name: String,
    /// Some numbers.
    numbers: Vec<u32>,
    /// A note.
    note: Option<String>,
}

/// Takes a long text.
#[tool]
async fn take_text(text: String) {
    drop(text);
}

/// Takes a long list.
#[tool]
async fn take_list(list: Vec<Entry>) {
    drop(list.into_iter().map(|entry| (entry.name, entry.numbers, entry.note)).collect::<Vec<_>>());
}

pub(crate) fn decoding(report: &mut Report) {
    let line = "a line of \"text\" with\ttabs and ünïcode\n";
    let text = line.repeat(ARGUMENT_BYTES / line.len());
    let entry = json!({"name": "some name", "numbers": [1, 22, 333, 4444], "note": "a note on it"});
    let list = vec![entry.clone(); ARGUMENT_BYTES / entry.to_string().len()];
    for (name, tool, arguments) in [
        ("a text", &TakeText as &dyn DeclaredTool, json!({ "text": text })),
        ("a list of objects", &TakeList, json!({ "list": list })),
    ] {
        let time = decode(tool, &arguments);
        report.at_most(&format!("decoding 100 KiB of arguments, {name}, p50"), time, 1.0, "ms");
    }
}

/// What the pipeline and the tool do with the text of arguments, in milliseconds.
fn decode(tool: &dyn DeclaredTool, arguments: &Value) -> f64 {
    let schema = ArgumentSchema::compile(&tool.spec().parameters()).expect("a schema");
    let text = arguments.to_string();
    let mut samples: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let checked = schema.check(&text, Repairs::Allowed).expect("fits");
            testing::call(tool, checked.args.text()).expect("decodes");
            start.elapsed()
        })
        .collect();
    median_us(&mut samples) / 1000.0
}
