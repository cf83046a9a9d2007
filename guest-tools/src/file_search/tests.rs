//! Tests of `file_search` as native code, on a folder in place of the mounts.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use grep_matcher::Matcher;
use portcullis_sdk::{
    ToolError, ToolErrorKind,
    serde_json::{Value, json},
    testing,
};
use proptest::prelude::*;

use super::*;

fn output(root: &Path, arguments: &Value) -> Result<ToolOutput, ToolError> {
    testing::with_root(root, || testing::call(&file_search_tool(), &arguments.to_string()))
}

fn search(root: &Path, arguments: &Value) -> Result<String, ToolError> {
    output(root, arguments).map(|output| output.joined_text())
}

fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).expect("a mount");
    for (name, content) in files {
        let path = shared.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, content).expect("a file");
    }
    folder
}

/// Checks the answer to a search in these files, with paths below the mount.
#[track_caller]
fn check(files: &[(&str, &[u8])], arguments: &Value, expected_answer: &str) {
    let folder = folder(files);
    assert_eq!(search(folder.path(), arguments).expect("searches"), expected_answer);
}

/// Checks which files have a match, with paths below the mount.
#[track_caller]
fn check_files(files: &[&str], rules: &[(&str, &str)], arguments: &Value, found: &[&str]) {
    let mut all: Vec<(&str, &[u8])> = files.iter().map(|file| (*file, &b"x"[..])).collect();
    all.extend(rules.iter().map(|(file, text)| (*file, text.as_bytes())));
    let folder = folder(&all);
    let mut arguments = arguments.clone();
    arguments["query"] = json!("x");
    let answer = search(folder.path(), &arguments).expect("searches");
    let lines = answer.lines().filter_map(|line| line.strip_prefix("/shared/")?.split(':').next());
    assert_eq!(lines.collect::<Vec<_>>(), found, "{answer}");
}

#[track_caller]
fn check_refused(arguments: &Value, kind: ToolErrorKind, message: &str) {
    let folder = folder(&[("a", b"x")]);
    let error = search(folder.path(), arguments).expect_err("refused");
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
}

const TREE: &[(&str, &[u8])] = &[
    ("b.txt", b"one\ntwo\nthree\n"),
    ("a/z.rs", b"let two = 2;\r\nlet three = 3;\r\n"),
    ("a.md", b"Two (2)\n"),
];

#[test]
fn lines_come_with_guest_path_and_number_in_the_order_of_paths() {
    check(TREE, &json!({"query": "two"}), "/shared/a/z.rs:1:let two = 2;\n/shared/b.txt:2:two");
    check(
        TREE,
        &json!({"query": "two", "case_sensitive": false}),
        "/shared/a/z.rs:1:let two = 2;\n/shared/a.md:1:Two (2)\n/shared/b.txt:2:two",
    );
    check(TREE, &json!({"query": "(2)"}), "/shared/a.md:1:Two (2)");
    check(TREE, &json!({"query": "t.*e$", "regex": true}), "/shared/b.txt:3:three");
    check(
        TREE,
        &json!({"query": "=\\s\\d;$", "regex": true, "path": "a"}),
        "/shared/a/z.rs:1:let two = 2;\n/shared/a/z.rs:2:let three = 3;",
    );
    check(TREE, &json!({"query": "two", "path": "/shared/b.txt"}), "/shared/b.txt:2:two");
    let output = output(folder(TREE).path(), &json!({"query": "two"})).expect("searches");
    assert_eq!(output.details, json!({"matching_lines": 2, "files_searched": 3, "complete": true}));
}

#[test]
fn a_text_in_any_case_is_found_in_other_alphabets_too() {
    let files: &[(&str, &[u8])] = &[("a", "aſ\u{212a} q\nASK\nas k\nÉCOLE\n".as_bytes())];
    let answer = "/shared/a:1:aſ\u{212a} q\n/shared/a:2:ASK";
    check(files, &json!({"query": "ask", "case_sensitive": false}), answer);
    check(files, &json!({"query": "SK", "case_sensitive": false}), answer);
    check(files, &json!({"query": "K Q", "case_sensitive": false}), "/shared/a:1:aſ\u{212a} q");
    check(files, &json!({"query": "école", "case_sensitive": false}), "/shared/a:4:ÉCOLE");
}

#[test]
fn lines_around_a_match_have_other_marks() {
    check(
        &[("a", b"1\n2\nx\n4\nx\n6\n7\n8\n9\nx\n"), ("b", b"x\n2\n")],
        &json!({"query": "x", "context": 1}),
        "/shared/a-2-2\n/shared/a:3:x\n/shared/a-4-4\n/shared/a:5:x\n/shared/a-6-6\n--\n/shared/a-9-9\n\
         /shared/a:10:x\n--\n/shared/b:1:x\n/shared/b-2-2",
    );
}

#[test]
fn empty_result_names_the_skipped_files() {
    check(&[("a", b"1"), ("b", b"2")], &json!({"query": "x"}), "no matches in 2 files");
    check(
        &[
            ("a", b"1"),
            ("b.bin", b"x\0"),
            (".hidden/x", b"x"),
            (".gitignore", b"*.log\n"),
            ("x.log", b"x"),
            (".git/config", b"x"),
        ],
        &json!({"query": "x"}),
        "no matches in 1 file (skipped: 1 binary, 2 hidden, 1 ignored)",
    );
    check(
        &[("a", b"x"), ("b.rs", b"1")],
        &json!({"query": "x", "glob": "*.rs"}),
        "no matches in 1 file (skipped: 1 not in 'glob')",
    );
    check(&[], &json!({"query": "x"}), "no matches in 0 files");
}

#[test]
fn more_lines_than_wanted_are_cut_with_advice() {
    let more = |max: u32| {
        format!(
            "[more than {max} matching lines: narrow the search with 'path', 'glob' or a longer 'query', or \
             raise 'max_results']"
        )
    };
    let files: &[(&str, &[u8])] = &[("a", b"x1\nx2\n-\n-\nx3\n"), ("b", b"x4\n")];
    let all = "/shared/a:1:x1\n/shared/a:2:x2\n/shared/a:5:x3\n/shared/b:1:x4";
    check(files, &json!({"query": "x", "max_results": 4}), all);
    let three = "/shared/a:1:x1\n/shared/a:2:x2\n/shared/a:5:x3";
    check(files, &json!({"query": "x", "max_results": 3}), &format!("{three}\n{}", more(3)));
    // After the last counted match, its context is shown, but not the context before the next match.
    check(
        files,
        &json!({"query": "x", "max_results": 2, "context": 1}),
        &format!("/shared/a:1:x1\n/shared/a:2:x2\n/shared/a-3--\n{}", more(2)),
    );
}

#[test]
fn a_whole_result_fits_its_frame() {
    let line = format!("x{}\n", "\u{1}".repeat(480));
    let folder = folder(&[("a", line.repeat(9000).as_bytes())]);
    let output = output(folder.path(), &json!({"query": "x", "max_results": 10000})).expect("searches");
    assert!(serde_json::to_vec(&output).expect("encodes").len() < 8 << 20);
    let text = output.joined_text();
    assert!(text.ends_with(
        "[more lines than one result holds: narrow the search with 'path', 'glob' or a longer 'query']"
    ));
    assert_eq!(output.details["complete"], false);
}

#[test]
fn ignore_files_hold_below_their_directory_and_the_deeper_wins() {
    let files = &["a.log", "src/a.log", "src/keep.log", "src/deep/a.tmp", "target/out", "other/target/out"];
    check_files(
        files,
        &[(".gitignore", "*.log\n/target/\n")],
        &json!({}),
        &["other/target/out", "src/deep/a.tmp"],
    );
    check_files(
        files,
        &[(".gitignore", "*.log\ntarget"), ("src/.gitignore", "!keep.log\n*.tmp")],
        &json!({}),
        &["src/keep.log"],
    );
    // `.ignore` takes precedence, at any depth.
    check_files(
        files,
        &[(".ignore", "!a.log\ntarget"), ("src/.gitignore", "a.log\n*.tmp")],
        &json!({}),
        &["a.log", "src/a.log", "src/keep.log"],
    );
}

#[test]
fn ignore_files_above_the_searched_directory_hold_too() {
    let rules = &[(".gitignore", "*.log\n/src/deep/b\n"), ("src/.ignore", "c\n")];
    let files = &["src/deep/a.log", "src/deep/a", "src/deep/b", "src/deep/c"];
    check_files(files, rules, &json!({"path": "src/deep"}), &["src/deep/a"]);
    // A file that the call names is searched even if it is ignored.
    check_files(files, rules, &json!({"path": "src/deep/a.log"}), &["src/deep/a.log"]);
    check_files(
        files,
        rules,
        &json!({"path": "src/deep/../deep/"}),
        &["src/deep/../deep/a", "src/deep/../deep/a.log", "src/deep/../deep/b", "src/deep/../deep/c"],
    );
}

#[test]
fn hidden_files_are_searched_only_if_asked_for() {
    let files = &[".hidden", ".github/ci.yml", ".git/config", "src/.env", "a", "sub/.git/HEAD"];
    check_files(files, &[], &json!({}), &["a"]);
    check_files(files, &[(".gitignore", "!.github\n")], &json!({}), &[".github/ci.yml", "a"]);
    check_files(files, &[], &json!({"path": ".github"}), &[".github/ci.yml"]);
    check_files(files, &[], &json!({"path": ".git"}), &[".git/config"]);
    check_files(files, &[], &json!({"glob": ".env"}), &["src/.env"]);
    check_files(files, &[], &json!({"glob": ".git"}), &[]);
}

#[test]
fn a_glob_chooses_whatever_ignore_files_say() {
    let files = &["a.rs", "b.ts", "src/c.rs", "src/d.log", "src/deep/e.tsx"];
    let rules = &[(".gitignore", "*.log\n")];
    check_files(files, rules, &json!({"glob": "*.rs"}), &["a.rs", "src/c.rs"]);
    check_files(files, rules, &json!({"glob": "/*.rs"}), &["a.rs"]);
    check_files(files, rules, &json!({"glob": "src/**/*.{rs,tsx}"}), &["src/c.rs", "src/deep/e.tsx"]);
    check_files(files, rules, &json!({"glob": "*.log"}), &["src/d.log"]);
    check_files(files, rules, &json!({"glob": "!*.rs"}), &["b.ts", "src/deep/e.tsx"]);
    check_files(files, rules, &json!({"glob": "!src"}), &["a.rs", "b.ts"]);
    check_files(files, rules, &json!({"glob": "deep/*", "path": "src"}), &["src/deep/e.tsx"]);
    check_files(files, rules, &json!({"glob": ""}), &["a.rs", "b.ts", "src/c.rs", "src/deep/e.tsx"]);
}

#[test]
fn hostile_ignore_files_hinder_nothing() {
    let files = &["a", "sub/b"];
    check_files(
        files,
        &[(".gitignore", "{\n[z-a]\n\\\n**a**b\n!\n/\n//\n"), ("sub/.ignore", "{{{{")],
        &json!({}),
        files,
    );
    let folder = folder(&[("a", b"x"), (".gitignore", &b"a\n".repeat(1 << 20))]);
    assert_eq!(
        search(folder.path(), &json!({"query": "x"})).expect("searches"),
        "/shared/a:1:x\n[ignore files skipped because they are too large: 1]"
    );
    let binary: Vec<u8> = (0..=255).cycle().take(60_000).collect();
    check(
        &[("a", b"x"), (".gitignore", &binary), ("s/.ignore", b"\xff\xfe\0")],
        &json!({"query": "x"}),
        "/shared/a:1:x",
    );
}

#[test]
fn text_of_other_encodings_is_found() {
    let utf16 = |big: bool| {
        let bytes = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        "\u{feff}é x\r\n".encode_utf16().flat_map(bytes).collect::<Vec<u8>>()
    };
    check(
        &[("le", &utf16(false)), ("be", &utf16(true))],
        &json!({"query": "é x"}),
        "/shared/be:1:é x\n/shared/le:1:é x",
    );
    check(&[("a", b"caf\xe9 x\n")], &json!({"query": "x"}), "/shared/a:1:caf\u{fffd} x");
    check(&[("a", "\u{feff}x\n".as_bytes())], &json!({"query": "^x$", "regex": true}), "/shared/a:1:x");
}

#[test]
fn a_binary_file_is_skipped_or_only_reported() {
    let files: &[(&str, &[u8])] = &[("a", b"x\0x\n"), ("b", b"x\n")];
    check(files, &json!({"query": "x"}), "/shared/b:1:x");
    check(files, &json!({"query": "x", "path": "a"}), "/shared/a: binary file matches (NUL byte at 1)");
    check(files, &json!({"query": "y", "path": "a"}), "no matches in 1 file");
    // If the NUL byte comes late, the lines before it are already shown.
    let mut late = b"x\n".to_vec();
    late.extend_from_slice(&b"text\n".repeat(100_000));
    late.extend_from_slice(b"x\0x\n");
    check(
        &[("a", &late)],
        &json!({"query": "x", "max_results": 1}),
        "/shared/a:1:x\n[more than 1 matching lines: narrow the search with 'path', 'glob' or a longer 'query', or raise 'max_results']",
    );
}

#[test]
fn a_line_that_does_not_fit_ends_the_search_of_its_file_alone() {
    let mut huge = b"x before\n".to_vec();
    huge.resize(24 << 20, b'-');
    let folder = folder(&[("huge", &huge), ("next", b"x\n")]);
    assert_eq!(
        search(folder.path(), &json!({"query": "x"})).expect("searches"),
        "/shared/huge:1:x before\n/shared/next:1:x\n[1 file searched only up to a line of over 8 MiB]"
    );
}

#[test]
fn a_long_file_streams() {
    let folder = folder(&[]);
    let mut text = "line\n".repeat(1 << 20);
    text.push_str("needle\nx\n");
    fs::write(folder.path().join("shared/a"), &text).expect("a file");
    assert_eq!(
        search(folder.path(), &json!({"query": "needle", "context": 1})).expect("searches"),
        "/shared/a-1048576-line\n/shared/a:1048577:needle\n/shared/a-1048578-x"
    );
}

#[test]
fn special_files_are_skipped_and_unreadable_ones_are_counted() {
    let folder = folder(&[("real/a", b"x\n"), ("locked", b"x\n"), ("locked.d/x", b"x\n")]);
    let shared = folder.path().join("shared");
    symlink("real", shared.join("link")).expect("a link");
    symlink("..", shared.join("real/loop")).expect("a link");
    symlink("nowhere", shared.join("dangling")).expect("a link");
    symlink("/etc/passwd", shared.join("passwd")).expect("a link");
    drop(std::os::unix::net::UnixListener::bind(shared.join("socket")).expect("a socket"));
    make_fifo(&shared.join("fifo"));
    assert_eq!(
        search(folder.path(), &json!({"query": "x"})).expect("searches"),
        "/shared/locked:1:x\n/shared/locked.d/x:1:x\n/shared/real/a:1:x"
    );
    assert_eq!(
        search(folder.path(), &json!({"query": "x", "path": "link"})).expect("searches"),
        "/shared/link/a:1:x"
    );
    for path in ["fifo", "socket"] {
        let error = search(folder.path(), &json!({"query": "x", "path": path})).expect_err("refused");
        assert_eq!(error.to_string(), format!("cannot search `/shared/{path}`: it is not a regular file"));
    }
    for path in ["locked", "locked.d"] {
        fs::set_permissions(shared.join(path), fs::Permissions::from_mode(0o000)).expect("a mode");
    }
    if fs::read(shared.join("locked")).is_ok() {
        println!("skipped: this user may read anything");
        return;
    }
    assert_eq!(
        search(folder.path(), &json!({"query": "x"})).expect("searches"),
        "/shared/real/a:1:x\n[1 file could not be read: /shared/locked]\n[1 directory or entry could not be read]"
    );
    fs::set_permissions(shared.join("locked.d"), fs::Permissions::from_mode(0o700)).expect("a mode");
}

#[expect(clippy::disallowed_methods, reason = "a test; the standard library makes no pipes with names")]
fn make_fifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

#[test]
fn deep_directories_are_searched() {
    let folder = folder(&[]);
    let mut deep = folder.path().join("shared");
    for _ in 0..1500 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).expect("directories");
    fs::write(deep.join("a"), "x").expect("a file");
    let answer = search(folder.path(), &json!({"query": "x"})).expect("searches");
    assert_eq!(answer, format!("/shared{}/a:1:x", "/d".repeat(1500)));
}

#[test]
fn a_search_without_time_says_so() {
    let folder = folder(&[("a", b"x\n"), ("b", b"x\n")]);
    let mut ctx = ToolContext::detached("file_search");
    ctx.deadline = Some(std::time::Instant::now() + MARGIN / 2);
    let tool = file_search_tool();
    let output = testing::with_root(folder.path(), || {
        let mut future = portcullis_sdk::DeclaredTool::run(&tool, &ctx, r#"{"query":"x"}"#);
        match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => output.expect("searches"),
            std::task::Poll::Pending => panic!("nothing to wait for"),
        }
    });
    assert_eq!(
        output.joined_text(),
        "/shared/a:1:x\n[stopped after 1 file, before the time was up: narrow the search with 'path', 'glob' \
         or a longer 'query']"
    );
}

#[test]
fn search_error_names_the_guest_path() {
    use ToolErrorKind as Kind;
    check_refused(&json!({"query": "x", "path": "q"}), Kind::NotFound, "no such file `/shared/q`");
    check_refused(
        &json!({"query": "x", "path": "../../q"}),
        Kind::Denied,
        "`/shared/../../q` leads out of its mount",
    );
    check_refused(
        &json!({"query": "x", "path": "/"}),
        Kind::InvalidArguments,
        "field 'path': `/` is not a mount; search `/shared` or another one",
    );
    check_refused(&json!({"query": ""}), Kind::InvalidArguments, "field 'query': it is empty");
    check_refused(
        &json!({"query": "x", "glob": "{a"}),
        Kind::InvalidArguments,
        "field 'glob': error parsing glob '{a': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
    );
    check_refused(
        &json!({"query": "x(", "regex": true}),
        Kind::InvalidArguments,
        "field 'query': not a regular expression: regex parse error:\n    x(\n     ^\nerror: unclosed group",
    );
}

/// The expected lines: all lines of a tree that satisfy a predicate, in the form of `file_search`.
fn naive(tree: &[(String, String)], matches: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut files: Vec<_> =
        tree.iter().map(|(path, text)| (path.split('/').collect::<Vec<_>>(), text)).collect();
    files.sort();
    for (path, text) in files {
        for (index, line) in text.lines().enumerate() {
            if matches(line) {
                found.push(format!("/shared/{}:{}:{line}", path.join("/"), index + 1));
            }
        }
    }
    found
}

/// A tree of a few files. No name is both a file and a directory.
fn trees() -> impl Strategy<Value = Vec<(String, String)>> {
    let path = prop_oneof!["[ab]", "d/[ab]", "d/e/[ab]"];
    let text = "([ab.c ]{0,4}(\r\n|\n)){0,6}[ab]{0,2}";
    prop::collection::btree_map(path, text, 0..5).prop_map(|tree| tree.into_iter().collect())
}

fn found(tree: &[(String, String)], arguments: &Value) -> Vec<String> {
    let files: Vec<(&str, &[u8])> =
        tree.iter().map(|(path, text)| (path.as_str(), text.as_bytes())).collect();
    let folder = folder(&files);
    let answer = search(folder.path(), arguments).expect("searches");
    if answer.starts_with("no matches") {
        assert_eq!(answer, format!("no matches in {}", count_with_noun(tree.len(), "file", "files")));
        return Vec::new();
    }
    answer.lines().map(str::to_owned).collect()
}

proptest! {
    #[test]
    fn a_text_is_found_where_a_naive_search_finds_it(tree in trees(), query in "[ab.]{1,3}", exact: bool) {
        let arguments = json!({"query": query.to_uppercase(), "case_sensitive": exact});
        let upper = query.to_uppercase();
        let expected = naive(&tree, |line| {
            if exact { line.contains(&upper) } else { line.to_uppercase().contains(&upper) }
        });
        prop_assert_eq!(found(&tree, &arguments), expected);
        prop_assert_eq!(found(&tree, &json!({"query": query})), naive(&tree, |line| line.contains(&query)));
    }

    #[test]
    fn an_expression_is_found_where_each_line_by_itself_has_it(
        tree in trees(),
        query in r"\^?([ab.c]|\[ab\]|\\s|\\b|(a|b)\{2\}|a\*|b\+|(a|bc)\?){1,4}\$?",
        exact: bool,
    ) {
        let query = if exact { query } else { query.replace('a', "A").replace("bc", "Bc") };
        let regex = grep_regex::RegexMatcherBuilder::new().case_insensitive(!exact).build(&query);
        let regex = regex.expect("an expression");
        let arguments = json!({"query": query, "regex": true, "case_sensitive": exact});
        prop_assert_eq!(found(&tree, &arguments), naive(&tree, |line| {
            regex.is_match(line.as_bytes()).expect("matches")
        }));
    }

    #[test]
    fn context_shows_each_line_once_and_all_that_are_near(text in "([ax]\n){0,20}", context in 0_usize..4) {
        let tree = [("f".to_owned(), text.clone())];
        let lines: Vec<&str> = text.lines().collect();
        let near = |at: usize| {
            (at.saturating_sub(context)..=at + context).any(|near| lines.get(near) == Some(&"x"))
        };
        let expected: BTreeSet<usize> = (0..lines.len()).filter(|at| near(*at)).collect();
        let matches = found(&tree, &json!({"query": "x", "context": context}));
        let numbers = matches.iter().filter_map(|line| {
            line.strip_prefix("/shared/f")?[1..].split([':', '-']).next()?.parse::<usize>().ok()
        });
        let numbers: Vec<usize> = numbers.map(|number| number - 1).collect();
        prop_assert_eq!(numbers, expected.into_iter().collect::<Vec<_>>());
    }
}
