//! Decoding and checking large arguments.

use std::time::{Duration, Instant};

use portcullis_sdk::{DeclaredTool, args, testing, tool};
use portcullis_tools::arguments::{ArgumentSchema, Repairs};
use serde_json::{Value, json};

use crate::{
    report::{Report, Slowness},
    sample::median_us,
};

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
    let list = long_list();
    let line = "a line of \"text\" with\ttabs and ünïcode\n";
    let text = line.repeat(ARGUMENT_BYTES / line.len());
    let mut parsing = Vec::with_capacity(ROUNDS);
    let text_time = decode(&TakeText, &json!({ "text": text }), &mut Vec::new());
    let list_time = decode(&TakeList, &list, &mut parsing);
    let parsing = median_us(&mut parsing) / 1000.0;
    let slowness = Slowness::from_parse_time(parsing);
    report.add_reference("`serde_json` reads 100 KiB, a list of objects, into a value, p50", parsing, "ms");
    report.check_at_most_scaled("decoding 100 KiB of arguments, a text, p50", text_time, 1.0, "ms", slowness);
    report.check_at_most_scaled(
        "decoding 100 KiB of arguments, a list of objects, p50",
        list_time,
        1.0,
        "ms",
        slowness,
    );
}

/// The arguments whose parsing [`Slowness::from_parse_time`] compares.
fn long_list() -> Value {
    let entry = json!({"name": "some name", "numbers": [1, 22, 333, 4444], "note": "a note on it"});
    let list = vec![entry.clone(); ARGUMENT_BYTES / entry.to_string().len()];
    json!({ "list": list })
}

fn parse_time(text: &str) -> Duration {
    let start = Instant::now();
    let value: Value = serde_json::from_str(text).expect("JSON");
    let time = start.elapsed();
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(1));
    time
}

/// Measures how slowly this machine parses, for a measurement whose bottleneck is the processor.
pub(crate) fn parsing_slowness() -> Slowness {
    let text = long_list().to_string();
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| parse_time(&text)).collect();
    Slowness::from_parse_time(median_us(&mut times) / 1000.0)
}

/// Measures how long the pipeline and the tool take to process the arguments' text, in milliseconds. Before
/// each measurement, measures only the parsing of the text, and appends that time to `parsing`.
fn decode(tool: &dyn DeclaredTool, arguments: &Value, parsing: &mut Vec<Duration>) -> f64 {
    let schema = ArgumentSchema::compile(&tool.spec().parameters()).expect("a schema");
    let text = arguments.to_string();
    let mut samples: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            parsing.push(parse_time(&text));
            let start = Instant::now();
            let checked = schema.check(&text, Repairs::Allowed).expect("fits");
            testing::call(tool, checked.args.text()).expect("decodes");
            start.elapsed()
        })
        .collect();
    median_us(&mut samples) / 1000.0
}
