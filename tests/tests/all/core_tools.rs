//! The core tools, natively and as modules: both give the same results, case by case.

mod changing;
mod writing;

use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, symlink},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use portcullis_guest_tools::{
    file_delete_tool, file_edit_tool, file_list_tool, file_read_tool, file_search_tool, file_write_tool,
    vault_copyto_read_tool, vault_copyto_write_tool,
};
use portcullis_sdk::{DeclaredTool, testing};
use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::{RegisteredTool, new_call};
use portcullis_types::{
    ToolDeclaration,
    ToolErrorKind::{self, Failed, InvalidArguments, NotFound},
    ToolEvent,
};
use serde_json::{Value, json};

use crate::support::snapshot;

/// A tool, its arguments, and the text of its result or the kind and message of its error.
type Case = (&'static str, Value, Result<String, (ToolErrorKind, &'static str)>);

fn ok(text: impl Into<String>) -> Result<String, (ToolErrorKind, &'static str)> {
    Ok(text.into())
}

fn populated_fixture() -> Fixture {
    // The native and the WASM results are compared, so the host must not truncate one of them.
    let fixture = Fixture::new().with_policy_key("limits.max_output_bytes", "\"1MiB\"");
    fixture.put("lines.txt", "one\ntwo\nthree");
    fixture.put("ended.txt", "one\ntwo\n");
    fixture.put("crlf.txt", "\u{feff}one\r\ntwo\r\n");
    fixture.put("wide.txt", "aé€😀z");
    fixture.put("empty.txt", "");
    fixture.put("binary", b"\xff\xfe\x00");
    fixture.put("half.txt", b"fine\nbad \xc3");
    fixture.put("tree/a/b/c.txt", "c");
    fixture.put("tree/B.txt", "b");
    fixture.put("tree/a-1", "");
    fs::create_dir(fixture.shared("tree/none")).expect("a folder");
    symlink("a", fixture.shared("tree/link")).expect("a link");
    symlink("missing", fixture.shared("tree/dangling")).expect("a link");
    fs::write(fixture.workspace().join("vault/key"), "k").expect("writable");
    fixture
}

fn run_natively(
    fixture: &Fixture,
    tool: &str,
    arguments: &Value,
) -> (Result<String, (ToolErrorKind, String)>, Value) {
    let tool: &dyn DeclaredTool = match tool {
        "file_read" => &file_read_tool(),
        "file_list" => &file_list_tool(),
        "file_search" => &file_search_tool(),
        "file_edit" => &file_edit_tool(),
        "file_delete" => &file_delete_tool(),
        _ => &file_write_tool(),
    };
    let arguments = arguments.to_string();
    match testing::with_root(fixture.workspace(), || testing::call(tool, &arguments)) {
        Ok(output) => (Ok(output.joined_text()), output.details),
        Err(error) => (Err((error.kind(), error.to_string())), Value::Null),
    }
}

/// Runs the cases in order in two fixtures, natively in one and through the registry in the other. Both must
/// give the expected results and leave the same files.
async fn check(cases: Vec<Case>) {
    let (native, wasm) = (populated_fixture(), populated_fixture());
    let registry = wasm.registry().await;
    for (tool, arguments, expected) in cases {
        let description = format!("{tool} {arguments}");
        let expected = expected.map_err(|(kind, message)| (kind, message.to_owned()));
        let (result, details) = run_natively(&native, tool, &arguments);
        assert_eq!(result, expected, "natively: {description}");
        let answer = CallOutcome::run(&registry, tool, arguments).await;
        let registry_result = match &answer.0.outcome.clone().into_result() {
            Ok(output) => Ok(output.joined_text()),
            Err(error) => Err((error.kind(), error.to_string())),
        };
        assert_eq!(registry_result, expected, "as a module: {description}");
        let details = if details.is_null() { json!({}) } else { details };
        assert_eq!(answer.0.details, details, "{description}");
        assert!(!answer.0.truncated, "{description}");
    }
    assert_eq!(snapshot(&native.workspace()), snapshot(&wasm.workspace()));
}

#[tokio::test]
async fn file_read_returns_exact_text_lines_and_bytes() {
    let read = |arguments: Value| ("file_read", arguments);
    let case = |(tool, arguments), expected| (tool, arguments, expected);
    check(vec![
        case(read(json!({"path": "/shared/lines.txt"})), ok("one\ntwo\nthree")),
        case(read(json!({"path": "lines.txt", "offset": 1})), ok("one\ntwo\nthree")),
        case(read(json!({"path": "lines.txt", "offset": 2})), ok("two\nthree")),
        case(read(json!({"path": "lines.txt", "offset": 3})), ok("three")),
        case(read(json!({"path": "lines.txt", "limit": 1})), ok("one\n")),
        case(read(json!({"path": "lines.txt", "offset": 2, "limit": 1})), ok("two\n")),
        case(read(json!({"path": "lines.txt", "offset": 2, "limit": 9})), ok("two\nthree")),
        case(read(json!({"path": "lines.txt", "byte_offset": 0})), ok("one\ntwo\nthree")),
        case(read(json!({"path": "lines.txt", "byte_offset": 4})), ok("two\nthree")),
        case(read(json!({"path": "lines.txt", "byte_offset": 13})), ok("")),
        case(read(json!({"path": "lines.txt", "byte_offset": 12})), ok("e")),
        case(read(json!({"path": "ended.txt", "offset": 2})), ok("two\n")),
        case(read(json!({"path": "crlf.txt"})), ok("\u{feff}one\r\ntwo\r\n")),
        case(read(json!({"path": "crlf.txt", "offset": 2})), ok("two\r\n")),
        case(read(json!({"path": "wide.txt", "byte_offset": 2})), ok("€😀z")),
        case(read(json!({"path": "wide.txt", "byte_offset": 7})), ok("z")),
        case(read(json!({"path": "empty.txt"})), ok("")),
        case(read(json!({"path": "half.txt", "limit": 1})), ok("fine\n")),
        case(read(json!({"path": "tree/link/b/c.txt"})), ok("c")),
        case(read(json!({"path": "/vault/key"})), ok("k")),
    ])
    .await;
}

#[tokio::test]
async fn file_read_says_what_it_cannot_read() {
    let case = |arguments: Value, kind, message| ("file_read", arguments, Err((kind, message)));
    check(vec![
        case(json!({"path": "nothing"}), NotFound, "no such file `/shared/nothing`"),
        case(json!({"path": "tree"}), Failed, "`/shared/tree` is a directory: use file_list"),
        case(json!({"path": "binary"}), Failed, "`/shared/binary` is not UTF-8 text (3 bytes)"),
        case(json!({"path": "half.txt"}), Failed, "`/shared/half.txt` is not UTF-8 text (10 bytes)"),
        case(
            json!({"path": "lines.txt/x"}),
            Failed,
            "cannot read `/shared/lines.txt/x`: a part of it is a file",
        ),
        case(
            json!({"path": "lines.txt", "offset": 4}),
            InvalidArguments,
            "field 'offset': 4 is past the end, `/shared/lines.txt` has 3 lines",
        ),
        case(
            json!({"path": "ended.txt", "offset": 3}),
            InvalidArguments,
            "field 'offset': 3 is past the end, `/shared/ended.txt` has 2 lines",
        ),
        case(
            json!({"path": "lines.txt", "byte_offset": 14}),
            InvalidArguments,
            "field 'byte_offset': 14 is past the end, `/shared/lines.txt` has 13 bytes",
        ),
        case(
            json!({"path": "lines.txt", "byte_offset": 1, "limit": 1}),
            InvalidArguments,
            "field 'byte_offset': give it without 'offset' and 'limit'",
        ),
    ])
    .await;
}

#[tokio::test]
async fn file_list_sorts_marks_and_descends() {
    let case = |arguments: Value, text: &str| ("file_list", arguments, ok(text));
    let top = "B.txt\na/\na-1\ndangling@\nlink@\nnone/";
    check(vec![
        case(json!({"path": "tree"}), top),
        case(json!({"path": "/shared/tree/", "depth": 1}), top),
        case(json!({"path": "tree", "depth": 2}), "B.txt\na/\na/b/\na-1\ndangling@\nlink@\nnone/"),
        case(
            json!({"path": "tree", "depth": 16}),
            "B.txt\na/\na/b/\na/b/c.txt\na-1\ndangling@\nlink@\nnone/",
        ),
        case(json!({"path": "tree/link"}), "b/"),
        case(json!({"path": "tree/none"}), "(empty)"),
        case(json!({"path": "/tmp"}), "(empty)"),
        case(json!({"path": "/vault"}), "key"),
        case(json!({}), "binary\ncrlf.txt\nempty.txt\nended.txt\nhalf.txt\nlines.txt\ntree/\nwide.txt"),
    ])
    .await;
}

#[tokio::test]
async fn file_list_says_what_it_cannot_list() {
    let case = |arguments: Value, kind, message| ("file_list", arguments, Err((kind, message)));
    check(vec![
        case(json!({"path": "nothing"}), NotFound, "no such directory `/shared/nothing`"),
        case(json!({"path": "tree/dangling"}), NotFound, "no such directory `/shared/tree/dangling`"),
        case(json!({"path": "lines.txt"}), Failed, "`/shared/lines.txt` is not a directory: use file_read"),
    ])
    .await;
}

#[tokio::test]
async fn file_write_creates_replaces_and_appends_and_makes_parents() {
    let write =
        |path: &str, content: &str, mode: &str| json!({"path": path, "content": content, "mode": mode});
    let done = |arguments: Value, text: &str| ("file_write", arguments, ok(text));
    let failed = |arguments: Value, message| ("file_write", arguments, Err((Failed, message)));
    check(vec![
        done(json!({"path": "new.txt", "content": "é\n"}), "wrote 3 bytes to /shared/new.txt"),
        done(write("new.txt", "shorter", "overwrite"), "wrote 7 bytes to /shared/new.txt"),
        done(write("new.txt", "!", "append"), "appended 1 bytes to /shared/new.txt"),
        failed(write("new.txt", "x", "create"), "`/shared/new.txt` already exists"),
        done(write("p/q/r.txt", "r", "create"), "wrote 1 bytes to /shared/p/q/r.txt"),
        done(write("p/s/t.txt", "t", "append"), "appended 1 bytes to /shared/p/s/t.txt"),
        done(write("/tmp/u/v.txt", "", "overwrite"), "wrote 0 bytes to /tmp/u/v.txt"),
        done(write("tree/link/through.txt", "x", "create"), "wrote 1 bytes to /shared/tree/link/through.txt"),
        done(write("control\u{1}.txt", "\0\u{1b}", "create"), "wrote 2 bytes to /shared/control\u{1}.txt"),
        failed(
            write("tree/link", "x", "overwrite"),
            "cannot write `/shared/tree/link`: it is a symbolic link: write to its target",
        ),
        failed(write("tree", "x", "overwrite"), "cannot write `/shared/tree`: it is a directory"),
    ])
    .await;
}

#[tokio::test]
async fn a_core_tool_refuses_an_unknown_key_with_the_nearest_one() {
    let fixture = populated_fixture();
    let registry = fixture.registry().await;
    for (tool, arguments, message) in [
        (
            "file_read",
            json!({"path": "lines.txt", "lmit": 1}),
            "unknown field 'lmit' in arguments; did you mean 'limit'?",
        ),
        ("file_list", json!({"dept": 1}), "unknown field 'dept' in arguments; did you mean 'depth'?"),
        (
            "file_write",
            json!({"path": "x", "contents": "y", "content": "z"}),
            "unknown field 'contents' in arguments; did you mean 'content'?",
        ),
        (
            "file_write",
            json!({"pth": "x", "content": "z"}),
            "missing required field 'path' in arguments; unknown field 'pth' in arguments; did you mean 'path'?",
        ),
    ] {
        let refusal = CallOutcome::run(&registry, tool, arguments)
            .await
            .assert_refused(InvalidArguments, "invalid_arguments");
        assert_eq!(refusal, message);
    }
    assert!(!fixture.shared("x").exists());
}

/// Asserts that the registry holds for a module's tool exactly what its function declares.
#[track_caller]
fn assert_declared(registered: &RegisteredTool, declaration: &ToolDeclaration) {
    let name = &declaration.name;
    assert_eq!(registered.decl(), &declaration.function_decl(), "{name}");
    assert_eq!(registered.label(), declaration.label.as_deref(), "{name}");
    assert_eq!(registered.output_schema(), declaration.output_schema.as_ref(), "{name}");
    assert_eq!(registered.meta(), &declaration.meta, "{name}");
    let descriptor = registered.descriptor();
    // The policy decides by these properties.
    assert_eq!(descriptor.roles, declaration.roles, "{name}");
    assert_eq!(
        (descriptor.declared_tier, descriptor.declared_policy),
        (declaration.tier, declaration.policy),
        "{name}"
    );
    let timeout = descriptor.declared_timeout.map(|timeout| timeout.as_millis());
    assert_eq!(timeout, declaration.timeout_ms.map(u128::from), "{name}");
    let max_output = descriptor.declared_max_output.map(|bytes| bytes.0);
    assert_eq!(max_output, declaration.meta.output_cap_bytes, "{name}");
}

#[tokio::test]
async fn module_declarations_equal_the_functions() {
    let fixture = Fixture::new();
    let registry = fixture.registry().await;
    let tools: [&dyn DeclaredTool; 6] = [
        &file_read_tool(),
        &file_search_tool(),
        &file_list_tool(),
        &file_write_tool(),
        &file_edit_tool(),
        &file_delete_tool(),
    ];
    for tool in tools {
        let declaration = tool.spec().declaration();
        assert_declared(&registry.get(&declaration.name).expect("registered"), &declaration);
    }
    let operation = registry.get("vault_copyto").expect("registered");
    let steps = operation.steps();
    let functions: [&dyn DeclaredTool; 2] = [&vault_copyto_read_tool(), &vault_copyto_write_tool()];
    for (step, function) in steps.iter().zip(functions) {
        assert_declared(step, &function.spec().declaration());
    }
    assert_eq!(steps.len(), functions.len());
    let tier_and_time = |name: &str| {
        let tool = registry.get(name).expect("registered");
        let descriptor = tool.descriptor();
        (
            descriptor.declared_tier.expect("a tier").as_str(),
            descriptor.declared_timeout.expect("a time").as_secs(),
        )
    };
    assert_eq!(tier_and_time("file_read"), ("read_only", 10));
    assert_eq!(tier_and_time("file_list"), ("read_only", 10));
    assert_eq!(tier_and_time("file_search"), ("read_only", 20));
    assert_eq!(tier_and_time("file_write"), ("side_effecting", 15));
    assert_eq!(tier_and_time("file_edit"), ("side_effecting", 15));
    assert_eq!(tier_and_time("file_delete"), ("side_effecting", 15));
}

/// The first call ever compiles the tool's code. On a busy machine that takes longer than a call may.
#[tokio::test]
async fn the_code_is_there_before_the_time_of_a_call_begins() {
    let fixture = Fixture::new();
    // A state folder that is there already gets no compiled modules from other fixtures.
    fs::DirBuilder::new().mode(0o700).create(fixture.state()).expect("the folder can be made");
    fixture.put("a", "x");
    let registry = fixture.registry().await;
    let modules = fixture.state().join("modules");
    let count = move || fs::read_dir(&modules).expect("listed").count();
    let (before, at_start) = (count(), Arc::new(AtomicUsize::new(0)));
    let mut caller = approving_caller();
    let (counted, count_at_start) = (Arc::clone(&at_start), count.clone());
    caller.on_event = Some(Arc::new(move |event| {
        if matches!(event, ToolEvent::Started { .. }) {
            counted.store(count_at_start(), Ordering::Relaxed);
        }
    }));
    let call = new_call("file_read", json!({ "path": "/shared/a" }).to_string());
    let outcome = CallOutcome(registry.execute_with_policy(call, &caller).await);
    assert_eq!(outcome.text(), "x");
    assert!(before < at_start.load(Ordering::Relaxed), "the first call compiles the code");
    assert_eq!(at_start.load(Ordering::Relaxed), count());
}
