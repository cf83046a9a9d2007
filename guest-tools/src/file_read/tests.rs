//! `file_read` run natively, on a folder that stands for the mounts.

use std::path::Path;

use portcullis_sdk::{ToolError, ToolErrorKind, ToolOutput, testing};

use super::*;

fn read(root: &Path, arguments: &str) -> Result<ToolOutput, ToolError> {
    testing::with_root(root, || testing::call(&file_read_tool(), arguments))
}

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("shared")).expect("a mount");
    for (name, bytes) in files {
        std::fs::write(folder.path().join("shared").join(name), bytes).expect("a file");
    }
    folder
}

#[track_caller]
fn check(file: &str, arguments: &str, text: &str) {
    let folder = folder(&[("a", file.as_bytes())]);
    let output = read(folder.path(), arguments).expect("reads");
    assert_eq!(output.joined_text(), text);
    assert!(output.details.is_null());
}

#[track_caller]
fn refused(arguments: &str, kind: ToolErrorKind, message: &str) {
    let folder = folder(&[("a", b"1\n2\n3"), ("bytes", b"ab\xff\xfe"), ("empty", b"")]);
    std::fs::create_dir(folder.path().join("shared/d")).expect("a directory");
    let error = read(folder.path(), arguments).expect_err("refused");
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
}

#[test]
fn the_text_is_exact() {
    check("", r#"{"path":"a"}"#, "");
    check("x", r#"{"path":"/shared/a"}"#, "x");
    check("\u{feff}1\r\n\0é\n\n", r#"{"path":"./a"}"#, "\u{feff}1\r\n\0é\n\n");
}

#[test]
fn lines_are_counted_from_one_and_keep_their_breaks() {
    check("1\n2\n3\n", r#"{"path":"a","offset":2}"#, "2\n3\n");
    check("1\n2\n3\n", r#"{"path":"a","limit":2}"#, "1\n2\n");
    check("1\n2\n3", r#"{"path":"a","offset":2,"limit":1}"#, "2\n");
    check("1\n2\n3", r#"{"path":"a","offset":3}"#, "3");
    check("1\n2\n3", r#"{"path":"a","offset":3,"limit":9}"#, "3");
    check("\n\n\n", r#"{"path":"a","offset":2,"limit":1}"#, "\n");
    check("", r#"{"path":"a","offset":1,"limit":1}"#, "");
}

#[test]
fn lines_are_found_across_chunks() {
    let lines: Vec<String> = (1..=40_000).map(|n| format!("line {n}\n")).collect();
    let text = lines.concat();
    check(&text, r#"{"path":"a","offset":30001,"limit":2}"#, &lines[30_000..30_002].concat());
    check(&text, r#"{"path":"a","offset":2,"limit":39998}"#, &lines[1..39_999].concat());
    check(&text, r#"{"path":"a","offset":40000}"#, &lines[39_999]);
    let long = format!("{}\nend", "é".repeat(100_000));
    check(&long, r#"{"path":"a","offset":2}"#, "end");
    check(&long, r#"{"path":"a","limit":1}"#, &long[..200_001]);
}

#[test]
fn a_byte_offset_moves_on_to_the_next_character() {
    check("aé€b", r#"{"path":"a","byte_offset":0}"#, "aé€b");
    check("aé€b", r#"{"path":"a","byte_offset":2}"#, "€b");
    check("aé€b", r#"{"path":"a","byte_offset":4}"#, "b");
    check("aé€b", r#"{"path":"a","byte_offset":7}"#, "");
    check("x😀", r#"{"path":"a","byte_offset":2}"#, "");
}

#[test]
fn a_long_text_is_cut_on_a_character_and_says_where_it_goes_on() {
    let text = format!("a{}", "é".repeat(3 << 20));
    let folder = folder(&[("a", text.as_bytes())]);
    let mut whole = String::new();
    let mut next = 0;
    loop {
        let output = read(folder.path(), &format!(r#"{{"path":"a","byte_offset":{next}}}"#)).expect("reads");
        whole.push_str(&output.joined_text());
        if output.details.is_null() {
            break;
        }
        assert_eq!(output.details["total_bytes"], text.len());
        next = output.details["next_byte_offset"].as_u64().expect("a number");
        assert_eq!(next, whole.len() as u64);
    }
    assert!(whole == text);
    let output = read(folder.path(), r#"{"path":"a"}"#).expect("reads");
    assert_eq!(output.joined_text().len(), MAX_TEXT_BYTES - 1);
}

#[test]
fn a_text_of_control_characters_fits_its_frame() {
    let folder = folder(&[("a", &[1; 4 << 20])]);
    let output = read(folder.path(), r#"{"path":"a"}"#).expect("reads");
    assert!(serde_json::to_vec(&output).expect("encodes").len() < 8 << 20);
    assert_eq!(output.details["next_byte_offset"], 1 << 20);
}

#[test]
fn what_cannot_be_read_is_said_with_the_guest_path() {
    use ToolErrorKind as Kind;
    refused(r#"{"path":"x"}"#, Kind::NotFound, "no such file `/shared/x`");
    refused(r#"{"path":"d"}"#, Kind::Failed, "`/shared/d` is a directory: use file_list");
    refused(r#"{"path":"a/b"}"#, Kind::Failed, "cannot read `/shared/a/b`: a part of it is a file");
    refused(r#"{"path":"bytes"}"#, Kind::Failed, "`/shared/bytes` is not UTF-8 text (4 bytes)");
    refused(r#"{"path":"../../x"}"#, Kind::Denied, "`/shared/../../x` leads out of its mount");
    refused(r#"{"path":""}"#, Kind::InvalidArguments, "field 'path': the path is empty");
}

#[test]
fn impossible_parts_are_refused() {
    let kind = ToolErrorKind::InvalidArguments;
    refused(r#"{"path":"a","offset":0}"#, kind, "field 'offset': 0 is less than the minimum of 1");
    refused(r#"{"path":"a","limit":0}"#, kind, "field 'limit': 0 is less than the minimum of 1");
    refused(r#"{"path":"a","offset":4}"#, kind, "field 'offset': 4 is past the end, `/shared/a` has 3 lines");
    refused(
        r#"{"path":"empty","offset":2}"#,
        kind,
        "field 'offset': 2 is past the end, `/shared/empty` has 0 lines",
    );
    refused(
        r#"{"path":"a","byte_offset":9}"#,
        kind,
        "field 'byte_offset': 9 is past the end, `/shared/a` has 5 bytes",
    );
    refused(
        r#"{"path":"a","byte_offset":1,"limit":1}"#,
        kind,
        "field 'byte_offset': give it alone, without 'offset' and 'limit'",
    );
    refused(
        r#"{"path":"a","line":1}"#,
        kind,
        "unknown field 'line' in arguments (fields: 'path', 'offset', 'limit', 'byte_offset')",
    );
}
