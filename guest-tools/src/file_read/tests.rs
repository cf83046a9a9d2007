//! Tests of `file_read` as native code, on a folder in place of the mounts.

use std::{fs::OpenOptions, path::Path};

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
fn check_refused(arguments: &str, kind: ToolErrorKind, message: &str) {
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
fn a_long_text_is_cut_at_a_character_with_the_next_offset() {
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
fn read_error_names_the_guest_path() {
    use ToolErrorKind as Kind;
    check_refused(r#"{"path":"x"}"#, Kind::NotFound, "no such file `/shared/x`");
    check_refused(r#"{"path":"d"}"#, Kind::Failed, "`/shared/d` is a directory: use file_list");
    check_refused(r#"{"path":"a/b"}"#, Kind::Failed, "cannot read `/shared/a/b`: a part of it is a file");
    check_refused(r#"{"path":"bytes"}"#, Kind::Failed, "`/shared/bytes` is not UTF-8 text (4 bytes)");
    check_refused(r#"{"path":"../../x"}"#, Kind::Denied, "`/shared/../../x` leads out of its mount");
    check_refused(r#"{"path":""}"#, Kind::InvalidArguments, "field 'path': the path is empty");
}

#[test]
fn impossible_parts_are_refused() {
    let kind = ToolErrorKind::InvalidArguments;
    check_refused(r#"{"path":"a","offset":0}"#, kind, "field 'offset': 0 is less than the minimum of 1");
    check_refused(r#"{"path":"a","limit":0}"#, kind, "field 'limit': 0 is less than the minimum of 1");
    check_refused(
        r#"{"path":"a","offset":4}"#,
        kind,
        "field 'offset': 4 is past the end, `/shared/a` has 3 lines",
    );
    check_refused(
        r#"{"path":"empty","offset":2}"#,
        kind,
        "field 'offset': 2 is past the end, `/shared/empty` has 0 lines",
    );
    check_refused(
        r#"{"path":"a","byte_offset":9}"#,
        kind,
        "field 'byte_offset': 9 is past the end, `/shared/a` has 5 bytes",
    );
    check_refused(
        r#"{"path":"a","byte_offset":1,"limit":1}"#,
        kind,
        "field 'byte_offset': give it without 'offset' and 'limit'",
    );
    check_refused(
        r#"{"path":"a","line":1}"#,
        kind,
        "unknown field 'line' in arguments (fields: 'path', 'offset', 'limit', 'byte_offset')",
    );
}

/// A sparse file of 1 GiB, which takes no space on the disk.
fn sparse(folder: &tempfile::TempDir) -> File {
    let file = File::create(folder.path().join("shared/a")).expect("a file");
    file.set_len(1 << 30).expect("a sparse file");
    file
}

#[test]
fn a_file_larger_than_the_memory_of_a_guest_is_read_by_bytes() {
    let folder = folder(&[]);
    sparse(&folder);
    let output = read(folder.path(), r#"{"path":"a","byte_offset":1073741822}"#).expect("reads");
    assert_eq!((output.joined_text().as_str(), output.details.is_null()), ("\0\0", true));
    for arguments in [r#"{"path":"a"}"#, r#"{"path":"a","limit":1}"#] {
        let output = read(folder.path(), arguments).expect("reads");
        assert_eq!(output.joined_text().len(), 1 << 20);
        assert_eq!(output.details, json!({"next_byte_offset": 1 << 20, "total_bytes": 1 << 30}));
    }
}

#[test]
fn a_part_takes_little_memory_however_long_its_lines_are() {
    let folder = folder(&[]);
    drop(sparse(&folder));
    let path = GuestPath::parse("a").expect("a path");
    let file = folder.path().join("shared/a");
    let source = || FileSource { file: File::open(&file).expect("opens"), bytes: 1 << 30, position: 0 };
    let parts = [
        source().lines(1, None, &path),
        source().lines(1, Some(1), &path),
        source().text_from_byte(1 << 29, &path),
    ];
    for part in parts {
        let Ok(part) = part else { panic!("not read") };
        assert!(!part.is_complete && part.bytes.capacity() <= 2 * MAX_TEXT_BYTES + CHUNK_BYTES);
    }
}

#[test]
fn a_line_of_100_mb_is_passed_over_in_chunks() {
    let folder = folder(&[]);
    let path = folder.path().join("shared/a");
    let file = File::create(&path).expect("a file");
    file.set_len(100 << 20).expect("a sparse file");
    std::io::Write::write_all(&mut OpenOptions::new().append(true).open(&path).expect("opens"), b"\nlast\n")
        .expect("writes");
    let path = GuestPath::parse("a").expect("a path");
    let mut source = FileSource {
        file: File::open(folder.path().join("shared/a")).expect("opens"),
        bytes: (100 << 20) + 6,
        position: 0,
    };
    let Ok(part) = source.lines(2, None, &path) else { panic!("not read") };
    assert_eq!(
        (part.begin, part.bytes.as_slice(), part.is_complete),
        ((100 << 20) + 1, &b"last\n"[..], true)
    );
    assert!(part.bytes.capacity() <= 2 * CHUNK_BYTES);
}
