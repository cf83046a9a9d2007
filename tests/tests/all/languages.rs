//! Tools in other languages: the examples are built with the installed compilers, loaded as foreign modules,
//! and called.
//!
//! A test whose compiler is missing prints that and skips. With `PORTCULLIS_REQUIRE_LANGUAGES` set, as
//! `.ci/run` sets it, a missing compiler is a failure. `.ci/other-languages` installs the compilers.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_types::{
    SafetyTier,
    ToolErrorKind::{Denied, Failed, InvalidArguments, NotFound},
};
use serde_json::{Value, json};

use crate::hostile::wat_guest::load;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name)
}

/// Builds an example. Returns `None` if its compiler is missing and not required.
#[expect(clippy::print_stdout, reason = "a test that skips says why")]
fn build(name: &str, compiler: &[&str], variables: &[(&str, PathBuf)], out: &Path) -> Option<Vec<u8>> {
    let run = |program: &Path, arguments: &[&str]| -> Option<Output> {
        #[expect(clippy::disallowed_methods, reason = "compilers of the examples")]
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().cloned());
        command.output().ok()
    };
    let is_here = run(Path::new(compiler[0]), &compiler[1..]).is_some_and(|output| output.status.success());
    if !is_here {
        assert!(env::var_os("PORTCULLIS_REQUIRE_LANGUAGES").is_none(), "{name}: there is no {compiler:?}");
        println!("skipped: there is no {compiler:?}, which builds {name}");
        return None;
    }
    let module = out.join(format!("{name}.wasm"));
    let output =
        run(&example(name).join("build"), &[module.to_str().expect("the path is UTF-8")]).expect("starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(fs::read(module).expect("built"))
}

fn fixture(tool: &str) -> Fixture {
    Fixture::new().with_policy(&format!("[tools.{tool}]\nprofile = \"WorkspaceRead\"\n"))
}

fn structured(answer: &CallOutcome) -> Value {
    answer.0.outcome.output().expect("a result").structured.clone().expect("data")
}

#[tokio::test]
async fn a_tool_in_c_answers_refuses_and_reads_what_json_says() {
    let out = tempfile::tempdir().expect("a folder");
    let Some(module) = build("c-word-count", &["clang", "--version"], &[], out.path()) else { return };
    let fixture = fixture("c_word_count");
    fixture.put("notes.md", "one two\tthree\n four\n");
    fixture.put("empty", "");
    fixture.put("\u{1f600} \"ä\" \\.txt", "smile\n");
    fs::create_dir(fixture.shared("folder")).expect("the folder can be made");
    let registry = load(&fixture, &module).await.expect("loads");
    let tool = registry.get("c_word_count").expect("declared");
    assert_eq!(tool.descriptor().declared_tier, Some(SafetyTier::ReadOnly));
    let call = async |path: &str| CallOutcome::run(&registry, "c_word_count", json!({"path": path})).await;
    let answer = call("/shared/notes.md").await;
    assert_eq!(answer.text(), "4 words, 2 lines, 20 bytes");
    assert_eq!(structured(&answer), json!({"words": 4, "lines": 2, "bytes": 20}));
    assert_eq!(call("notes.md").await.text(), "4 words, 2 lines, 20 bytes", "relative to /shared");
    assert_eq!(call("empty").await.text(), "0 words, 0 lines, 0 bytes");
    assert_eq!(call("\u{1f600} \"ä\" \\.txt").await.text(), "1 words, 1 lines, 6 bytes");

    let missing = call("/shared/no \"such\" one").await.assert_refused(NotFound, "not_found");
    assert_eq!(missing, "no such file `/shared/no \"such\" one`");
    call("/shared/folder").await.assert_refused(Failed, "failed");
    call("").await.assert_refused(InvalidArguments, "invalid_arguments");
    call(&"x".repeat(5000)).await.assert_refused(InvalidArguments, "invalid_arguments");
    call("/vault/secret").await.assert_refused(Denied, "mount_not_granted");
    call("/shared/../../etc/passwd").await.assert_refused(Denied, "path_escapes_mount");
    let without = CallOutcome::run(&registry, "c_word_count", json!({})).await;
    without.assert_refused(InvalidArguments, "invalid_arguments");
}

#[test]
fn the_json_reader_in_c_takes_json_and_nothing_else() {
    let out = tempfile::tempdir().expect("a folder");
    let Some(module) = build("c-word-count", &["clang", "--version"], &[], out.path()) else { return };
    drop(module);
    // The same source, compiled natively, gets input that the host would never send.
    let program = out.path().join("native");
    #[expect(clippy::disallowed_methods, reason = "the compiler of the example")]
    let compiled = Command::new("clang")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsanitize=undefined",
            "-fsanitize-trap=undefined",
        ])
        .args(["-DENOTCAPABLE=76", "-o"])
        .arg(&program)
        .arg(example("c-word-count").join("word_count.c"))
        .output()
        .expect("starts");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let file = out.path().join("a.txt");
    fs::write(&file, "a b\n").expect("written");
    let path = json!(file).to_string();
    let frame = |arguments: &str| {
        format!(
            "{{\"v\":1,\"tool\":\"c_word_count\",\"call_id\":\"c\",\"arguments\":{arguments},\"deadline_ms\":1}}"
        )
    };
    let good = frame(&format!("{{\"path\":{path}}}"));
    for (text, expected) in [
        (good.clone(), "{\"ok\":"),
        (format!(" \n{good}\t"), "{\"ok\":"),
        (frame("{}"), "invalid_arguments"),
        (frame("[]"), "invalid_arguments"),
        (frame("{\"path\":1}"), "invalid_arguments"),
        (frame("{\"path\":\"\"}"), "invalid_arguments"),
        (frame("{\"path\":\"a\",\"path\":\"b\"}"), "invalid_arguments"),
        (frame("{\"path\":\"a\",\"more\":[1,{\"x\":null}]}"), "invalid_arguments"),
        (good.replace("c_word_count", "other"), "not_found"),
        (good.replace("\"v\":1", "\"v\":2"), ""),
        (good.replace("\"v\":1", "\"v\":01"), ""),
        (format!("{good}{good}"), ""),
        (good[..good.len() - 1].to_owned(), ""),
        (frame("{\"path\":\"\\ud800\"}"), ""),
        (frame("{\"path\":\"\\udc00\\ud800\"}"), ""),
        (frame("{\"path\":\"\\u0000\"}"), ""),
        (frame("{\"path\":\"\\x\"}"), ""),
        (frame("{\"path\":\"a\nb\"}"), ""),
        (frame("{\"path\":tru}"), ""),
        (frame("{\"path\":1.}"), ""),
        (frame("{\"path\":}"), ""),
        (frame(&"[".repeat(200)), ""),
        (frame(&format!("{}{}", "[".repeat(200), "]".repeat(200))), ""),
        (String::new(), ""),
        ("{}".to_owned(), ""),
        ("null".to_owned(), ""),
    ] {
        let input = out.path().join("frame");
        fs::write(&input, &text).expect("written");
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let output = Command::new(&program)
            .arg("call")
            .stdin(fs::File::open(&input).expect("the file can be opened"))
            .output()
            .expect("starts");
        let stdout_text = String::from_utf8_lossy(&output.stdout).into_owned();
        let code = if expected.is_empty() { 2 } else { 0 };
        assert_eq!(output.status.code(), Some(code), "{text}: {stdout_text}");
        assert!(
            stdout_text.contains(expected) && (code == 0 || stdout_text.is_empty()),
            "{text}: {stdout_text}"
        );
        if code == 0 {
            let _: Value = serde_json::from_str(&stdout_text).expect("a frame");
        }
    }
}

#[tokio::test]
async fn a_tool_in_zig_answers_with_data_and_refuses() {
    let out = tempfile::tempdir().expect("a folder");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zig");
    let zig = env::var("ZIG").unwrap_or_else(|_| "zig".to_owned());
    let mut words: Vec<&str> = zig.split_whitespace().collect();
    words.push("version");
    let variables = ["ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"].map(|name| (name, cache.clone()));
    let Some(module) = build("zig-csv-sum", &words, &variables, out.path()) else { return };
    let fixture = fixture("csv_sum");
    fixture.put("costs.csv", "name,amount\r\n\"Tea, green\",2.5\r\nCups,4\r\n");
    fixture.put("bad.csv", "name,amount\nTea,much\n");
    fixture.put("open.csv", "name,amount\nTea,\"1\n");
    let registry = load(&fixture, &module).await.expect("loads");
    let call = async |path: &str, column: &str| {
        CallOutcome::run(&registry, "csv_sum", json!({"path": path, "column": column})).await
    };
    let answer = call("/shared/costs.csv", "amount").await;
    assert_eq!(answer.text(), "6.5 in 2 rows");
    let data = structured(&answer);
    assert_eq!((data["sum"].as_f64(), data["rows"].as_u64()), (Some(6.5), Some(2)));
    let message = call("/shared/bad.csv", "amount").await.assert_refused(Failed, "failed");
    assert_eq!(message, "line 2: `much` is not a number");
    assert!(
        call("open.csv", "amount").await.assert_refused(Failed, "failed").contains("quote is not closed")
    );
    call("costs.csv", "price").await.assert_refused(NotFound, "not_found");
    call("/shared/none.csv", "amount").await.assert_refused(NotFound, "not_found");
    call("/vault/costs.csv", "amount").await.assert_refused(Denied, "mount_not_granted");
}
