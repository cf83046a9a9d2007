//! Mistakes of authors that appear while a tool runs, and the messages about them.

use std::fs;

use serde_json::Value;

use super::Author;

const PROGRAM: &str = r##"//! Tools that go wrong.
use portcullis_sdk::{ToolError, args, export_tools, tool};

/// Panics.
#[tool(tier = ReadOnly)]
async fn panics() -> String {
    eprintln!("before\u{1b}[2J\u{202e}\rresult   ok");
    panic!("the very words")
}

/// Opens what is not there.
#[tool(tier = ReadOnly)]
async fn opens() -> Result<String, ToolError> {
    Ok(std::fs::read_to_string("/shared/none.txt")?)
}

/// Prints a line.
#[tool(tier = ReadOnly)]
async fn prints_a_line() -> &'static str {
    println!("looking into it");
    "never read"
}

/// Prints a word.
#[tool(tier = ReadOnly)]
async fn prints_a_word() -> &'static str {
    print!("looking");
    "never read"
}

/// Prints no text.
#[tool(tier = ReadOnly)]
async fn prints_bytes() -> &'static str {
    use std::io::Write as _;
    std::io::stdout().write_all(b"caf\xe9\n").unwrap();
    "never read"
}

/// Logs without end, and then panics.
#[tool(tier = ReadOnly)]
async fn chatters() -> String {
    for line in 0..20_000 {
        eprintln!("line {line}");
    }
    panic!("at last")
}

/// Statistics.
#[args]
struct Stats {
    /// How many.
    rows: u64,
}

/// Counts.
#[tool(tier = ReadOnly)]
async fn counts() -> Result<Stats, ToolError> {
    Ok(Stats { rows: 3 })
}

export_tools![panics, opens, prints_a_line, prints_a_word, prints_bytes, chatters, counts];

#[cfg(test)]
mod tests {
    use portcullis_sdk::{ToolErrorKind, serde_json::json, testing::Case};

    use super::{counts_tool, opens_tool};

    #[test]
    fn structured() {
        Case::new(&counts_tool(), json!({})).expect_structured(json!({"rows": 4})); // here: structured
    }

    #[test]
    fn text() {
        Case::new(&counts_tool(), json!({})).expect_text("4"); // here: text
    }

    #[test]
    fn error() {
        Case::new(&counts_tool(), json!({})).expect_error(ToolErrorKind::Failed); // here: error
    }

    #[test]
    fn cause() {
        Case::new(&opens_tool(), json!({})).reads("shared").expect_text("4"); // here: cause
    }

    #[test]
    fn place() {
        let _ = Case::new(&counts_tool(), json!({})).file("/nowhere", ""); // here: place
    }

    #[test]
    fn left() {
        Case::new(&counts_tool(), json!({})).writes("shared").leaves("/shared/x", "y").check(|_, _| {}); // here: left
    }
}
"##;

fn author() -> Author {
    let author = Author::with_crate("mishaps", Some(PROGRAM));
    let entries = ["panics", "opens", "prints_a_line", "prints_a_word", "prints_bytes", "chatters", "counts"];
    let entries = entries.map(|tool| format!("[tools.{tool}]\nprofile = \"WorkspaceRead\"\n"));
    author.write_policy(&entries.join(""));
    author
}

#[test]
fn an_author_sees_why_a_tool_broke_and_a_model_does_not() {
    let author = author();
    let (answer, stderr_text) = author.try_tool(1, "panics", "{}", &[]);
    assert_eq!(answer, "");
    assert!(stderr_text.contains("\nstderr   the tool wrote:\n  | before"), "{stderr_text}");
    assert!(
        stderr_text.contains("src/main.rs:8:") && stderr_text.contains("\n  | the very words\n"),
        "{stderr_text}"
    );
    // The tool's output stays behind its margin, and its control characters have no effect.
    assert!(
        !stderr_text.contains('\u{1b}') && !stderr_text.contains('\u{202e}') && !stderr_text.contains('\r'),
        "{stderr_text:?}"
    );
    assert!(!stderr_text.lines().any(|line| line == "result   ok"), "{stderr_text}");

    let (_, stderr_text) = author.try_tool(1, "opens", "{}", &[]);
    assert!(stderr_text.contains("An internal error occurred"), "{stderr_text}");
    assert!(stderr_text.contains("\n  | No such file or directory"), "{stderr_text}");

    let (_, stderr_text) = author.try_tool(1, "chatters", "{}", &[]);
    assert!(stderr_text.contains("\n  | at last\n") && stderr_text.len() < 40_000, "{}", stderr_text.len());

    let (answer, _) = author.try_tool(1, "opens", "{}", &["--json"]);
    let mut answer: Value = serde_json::from_str(&answer).expect("JSON");
    let stderr_text = answer["stderr"].take();
    assert!(stderr_text.as_str().expect("said").starts_with("No such file or directory"), "{stderr_text}");
    assert!(!answer.to_string().contains("No such file"), "the rest is what a model gets: {answer}");

    // Other commands show the tool's standard error only on request.
    let module = super::target().join("wasm32-wasip1/release/tool-mishaps.wasm");
    let module = module.to_str().expect("the path is UTF-8");
    let call = ["call", "opens", "{}", "--approve", "--policy", "policy.toml", "--module", module];
    let (_, stderr_text) = author.run_expecting(1, &call);
    assert!(!stderr_text.contains("No such file"), "{stderr_text}");
    let (_, stderr_text) = author.run_expecting(1, &[&call[..], &["--stderr"]].concat());
    assert!(stderr_text.contains("\n  | No such file or directory"), "{stderr_text}");
}

#[test]
fn a_stray_print_is_called_by_its_name() {
    let author = author();
    for (tool, what) in [
        ("prints_a_line", "text, `looking into it`"),
        ("prints_a_word", "text before a frame, `looking{"),
        ("prints_bytes", "it is not UTF-8"),
    ] {
        for more in [&[][..], &["--native"]] {
            let (answer, stderr_text) = author.try_tool(1, tool, "{}", more);
            assert_eq!(answer, "");
            assert!(stderr_text.contains("code     malformed_frame"), "{stderr_text}");
            assert!(stderr_text.contains("no `println!` in a tool: write with `eprintln!`"), "{stderr_text}");
            assert!(stderr_text.contains(what) || !more.is_empty(), "{stderr_text}");
        }
    }
}

#[test]
fn described_data_has_its_schema_with_or_without_json() {
    let author = author();
    author.run_successfully(&["tool", "build", "--dir", "crate"]);
    let module = super::target().join("wasm32-wasip1/release/tool-mishaps.wasm");
    let (listed, _) = author.run_successfully(&[
        "tools",
        "--json",
        "--module",
        module.to_str().expect("the path is UTF-8"),
    ]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let tools = listed["tools"].as_array().or_else(|| listed.as_array()).expect("tools");
    let schema = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).expect("listed");
        tool["output_schema"].clone()
    };
    assert_eq!(schema("counts")["properties"]["rows"]["description"], "How many.");
    assert_eq!(schema("opens"), Value::Null, "a text promises no data");
}

#[test]
fn an_expectation_fails_at_the_authors_line_in_both_halves() {
    let author = author();
    let lines: Vec<(usize, &str)> = PROGRAM
        .lines()
        .enumerate()
        .filter_map(|(number, line)| Some((number + 1, line.split_once("// here: ")?.1)))
        .collect();
    assert_eq!(lines.len(), 6);
    let (_, stderr_text) = author.run_expecting(1, &["tool", "test", "--dir", "crate"]);
    for (number, test) in &lines {
        assert!(stderr_text.contains(&format!("panicked at src/main.rs:{number}:")), "{test}: {stderr_text}");
    }
    assert!(stderr_text.contains("(cause: No such file or directory"), "{stderr_text}");
    // A case that holds natively and fails in the sandbox reports the same lines.
    let source = author.path("crate/src/main.rs");
    let native_only = "Ok(Stats { rows: if cfg!(target_family = \"wasm\") { 3 } else { 4 } })";
    fs::write(&source, PROGRAM.replace("Ok(Stats { rows: 3 })", native_only)).expect("written");
    let (_, stderr_text) = author.run_expecting(1, &["tool", "test", "--dir", "crate"]);
    let (number, _) = lines[0];
    assert!(stderr_text.contains(&format!("panicked at src/main.rs:{number}:")), "{stderr_text}");
    assert!(stderr_text.contains("in the sandbox"), "{stderr_text}");
}
