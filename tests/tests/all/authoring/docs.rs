//! Checks `docs/authoring.md`: its commands run in order and print the shown output, its compile errors are
//! the compiler's, and its program is the template's.

use std::{fs, path::Path};

use portcullis_testing::Fixture;
use portcullis_types::{CallFrame, FRAME_VERSION, GuestFrame, HttpRequestHead, HttpResult};

use super::{Author, sdk};

/// A placeholder in the document for text that differs from run to run: times, sizes, digests, local folders.
const PLACEHOLDER: char = '…';

fn document() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/authoring.md")).expect("readable")
}

/// Returns the fenced blocks of one kind, in order.
fn blocks(text: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(opened) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if line == fence || (kind.is_empty() && opened.is_empty()) {
                blocks.push(block.join("\n"));
            }
        }
    }
    blocks
}

/// Returns whether a line of the document matches a printed line.
fn matches_line(documented: &str, printed: &str) -> bool {
    let mut parts = documented.split(PLACEHOLDER);
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut ends_with_any = false;
    for part in parts {
        let Some(position) = rest.find(part) else { return false };
        rest = &rest[position + part.len()..];
        ends_with_any = part.is_empty();
    }
    rest.is_empty() || ends_with_any
}

/// Compares the document's lines with both streams: each line is the next line of either stream, and no line is left
/// over.
#[track_caller]
fn compare_streams(command: &str, documented: &[&str], answer: &str, stderr_text: &str) {
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let mut streams = [lines(answer).into_iter().peekable(), lines(stderr_text).into_iter().peekable()];
    for line in documented.iter().filter(|line| !line.is_empty()) {
        let mut streams = streams.iter_mut();
        match streams.find_map(|stream| stream.next_if(|next| matches_line(line, next))) {
            Some(_) => {}
            None => panic!("`{command}` does not print `{line}`, but\n{answer}\n{stderr_text}"),
        }
    }
    let undocumented: Vec<String> = streams.into_iter().flatten().collect();
    assert!(undocumented.is_empty(), "`{command}` prints more than is shown: {undocumented:#?}");
}

#[test]
fn the_commands_of_the_document_answer_as_it_says() {
    let author = Author::new();
    std::os::unix::fs::symlink(sdk(), author.path("sdk")).expect("links");
    fs::create_dir(author.path("bin")).expect("the folder can be made");
    std::os::unix::fs::symlink(portcullis_testing::binary(), author.path("bin/portcullis")).expect("links");
    let path = format!("{}:{}", author.path("bin").display(), std::env::var("PATH").expect("a path"));
    let mut folder = author.root.path().to_owned();
    let mut commands = 0;
    for block in blocks(&document(), "console") {
        let mut lines = block.lines().peekable();
        while let Some(line) = lines.next() {
            let command = line.strip_prefix("$ ").unwrap_or_else(|| panic!("`{line}` is not a command"));
            let mut documented = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("$ ")) {
                documented.push(line);
            }
            commands += 1;
            if let Some(below) = command.strip_prefix("cd ") {
                folder.push(below);
                continue;
            }
            let output = author
                .command(Path::new("sh"))
                .args(["-c", command])
                .current_dir(&folder)
                .env("PATH", &path)
                .output()
                .expect("starts");
            compare_streams(command, &documented, &super::text(&output.stdout), &super::text(&output.stderr));
        }
    }
    assert!(commands >= 8, "only {commands} commands were found");
}

#[test]
fn the_compile_errors_of_the_document_are_the_compilers() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/ui/tests/ui/fail");
    let mut output_text = String::new();
    for entry in fs::read_dir(goldens).expect("readable") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|ending| ending == "stderr") {
            output_text.push_str(&fs::read_to_string(path).expect("readable"));
        }
    }
    let document = document();
    let (_, section) = document.split_once("\n## Compile errors\n").expect("the section");
    let section = section.split("\n## ").next().expect("its text");
    let errors = blocks(section, "");
    for error in &errors {
        assert!(output_text.contains(&format!("{error}\n")), "no golden has\n{error}");
    }
    assert_eq!(errors.len(), 10);
}

#[test]
fn the_program_of_the_document_is_what_is_made() {
    let template = include_str!("../../../../runtime/src/command/author/new/template/src/main.rs");
    let (program, _) = template.split_once("\n#[cfg(test)]").expect("a test");
    let filled_in = program.replace("TEMPLATE_FUNCTION", "line_count").replace("TEMPLATE_TOOL", "line_count");
    let code_blocks = blocks(&document(), "rust");
    assert_eq!(code_blocks.first().map(|block| block.trim()), Some(filled_in.trim()));
}

/// The test that `tool test` runs in a new crate, in [`super`].
#[test]
fn the_test_of_the_document_is_what_is_made() {
    let template = include_str!("../../../../runtime/src/command/author/new/template/src/main.rs");
    let (_, test) = template.split_once("mod tests {\n").expect("a test");
    let test = test.trim_end().strip_suffix('}').expect("its end").replace("TEMPLATE_FUNCTION", "line_count");
    let test: Vec<&str> =
        test.trim_end().lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    assert!(
        blocks(&document(), "rust").contains(&test.join("\n")),
        "the document lacks\n{}",
        test.join("\n")
    );
}

/// The program of the section about embedding is compiled as a doc example of the crate.
#[test]
fn the_embedding_of_the_document_is_the_crates() {
    let crate_docs = include_str!("../../../../tools/src/lib.rs");
    let compiled: Vec<&str> = crate_docs.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    let code_blocks = blocks(&document(), "rust");
    let embedding = code_blocks.iter().find(|block| block.contains("runtime_builder")).expect("shown");
    for line in embedding.lines().filter(|line| !line.is_empty()) {
        assert!(compiled.contains(&line), "the crate's documentation lacks `{line}`");
    }
}

#[test]
fn the_frames_of_the_document_are_frames() {
    let (mut calls, mut frames) = (0, 0);
    for line in blocks(&document(), "json").iter().flat_map(|block| block.lines()) {
        if line.contains("call_id") {
            let call: CallFrame = serde_json::from_str(line).expect(line);
            assert_eq!((call.v, call.tool.as_str()), (FRAME_VERSION, "line_count"));
            calls += 1;
        } else {
            serde_json::from_str::<GuestFrame>(line).expect(line);
            frames += 1;
        }
    }
    assert_eq!((calls, frames), (1, 5));
}

/// The program is compiled and run as a doc example of the SDK.
#[test]
fn the_requests_of_the_document_are_the_sdks() {
    let docs = include_str!("../../../../sdk/src/http.rs");
    let compiled: Vec<&str> = docs.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    let code_blocks = blocks(&document(), "rust");
    let program = code_blocks.iter().find(|block| block.contains("http::get")).expect("shown");
    for line in program.lines().filter(|line| !line.is_empty()) {
        assert!(compiled.contains(&line), "the SDK's documentation lacks `{line}`");
    }
    let document = document();
    let request = blocks(&document, "json request").join("\n");
    serde_json::from_str::<HttpRequestHead>(&request).expect("a request");
    let answers = blocks(&document, "json answer").join("\n");
    let answers: Vec<HttpResult> =
        answers.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(matches!(answers[..], [HttpResult::Ok(_), HttpResult::Error(_)]), "{answers:?}");
}

/// The program is compiled and run as a doc example of the SDK.
#[test]
fn the_lock_of_the_document_is_the_sdks() {
    let docs = include_str!("../../../../sdk/src/fs/lock.rs");
    let compiled: Vec<&str> = docs.lines().filter_map(|line| line.strip_prefix("/// ")).collect();
    let code_blocks = blocks(&document(), "rust");
    let program = code_blocks.iter().find(|block| block.contains("fs::lock")).expect("shown");
    for line in program.lines().filter(|line| !line.is_empty()) {
        assert!(compiled.contains(&line), "the SDK's documentation lacks `{line}`");
    }
}

/// A module with the document's imports can be linked, and a module with other imports cannot.
#[tokio::test]
async fn the_imports_of_the_document_are_the_hosts() {
    let imports = blocks(&document(), "wat").join("\n");
    let module = |imports: &str| {
        let text = format!("(module {imports} (memory (export \"memory\") 1) (func (export \"_start\")))");
        wat::parse_str(text).expect("a module")
    };
    let registry = Fixture::new().registry().await;
    let runner = registry.runner().expect("guests can run");
    runner.load(&module(&imports)).expect("links");
    assert_eq!(imports.matches("(import \"portcullis_http\"").count(), 4);
    assert_eq!(imports.matches("(import \"portcullis_fs\"").count(), 2);
    let changes = [
        ("\"close\"", "\"end\""),
        ("(param $len i32)", "(param $len i64)"),
        ("(param $number i32)", "(param $number i64)"),
    ];
    for (text, other) in changes {
        runner.load(&module(&imports.replace(text, other))).expect_err("no such function");
    }
}

#[test]
fn an_ellipsis_matches_varying_output() {
    for (documented, printed, expected) in [
        ("a … b", "a 12 ms b", true),
        ("a …", "a 12", true),
        ("a", "a 12", false),
        ("… b", "a c", false),
        ("a", "a", true),
    ] {
        assert_eq!(matches_line(documented, printed), expected, "{documented}");
    }
}
