//! Modules that no compiler emits: several memories, tables, misused host calls, false descriptions.

use futures_util::future::join_all;
use portcullis_testing::{CallOutcome, Fixture, TEST_TIMEOUT};
use portcullis_tools::{
    BootstrapError, RegistryError,
    policy::ToolOrigin,
    sandbox::{MAX_MODULE_BYTES, WasmError},
};
use portcullis_types::ToolErrorKind;
use portcullis_types::ToolErrorKind::{Failed, ResourceLimit, Timeout};
use serde_json::json;

use super::{
    entry, posture,
    wat_guest::{WatGuest, load},
};

/// Calls the guest's tool `bomb` and asserts its error, eight times, with a file read after each.
async fn check_call(guest: &WatGuest, timeout: &str, kind: ToolErrorKind, code: &str) {
    let fixture = Fixture::new().with_policy(&entry("bomb", "Nothing", timeout));
    fixture.put("README.md", "still here\n");
    let registry = guest.registry(&fixture).await;
    for _ in 0..8 {
        let answer = tokio::time::timeout(TEST_TIMEOUT, CallOutcome::run(&registry, "bomb", json!({}))).await;
        answer.expect("the call ends by itself").assert_refused(kind, code);
        posture::assert_confined(fixture.rows().last().expect("a row"));
        let read = CallOutcome::run(&registry, "file_read", json!({"path": "/shared/README.md"})).await;
        assert_eq!(read.text(), "still here\n");
    }
    let peaks = fixture.rows().into_iter().filter_map(|row| row.peak_memory);
    assert!(peaks.max().is_some_and(|peak| peak <= 64 << 20));
}

#[tokio::test]
async fn a_handwritten_module_is_served() {
    let fixture = Fixture::new().with_policy(&entry("bomb", "Nothing", "15s"));
    let registry = WatGuest::new("bomb").registry(&fixture).await;
    assert_eq!(CallOutcome::run(&registry, "bomb", json!({})).await.text(), "done");
}

#[tokio::test]
async fn several_memories_share_one_limit() {
    let guest = WatGuest {
        fields: "(memory $b 0) (memory $c 0) (memory $d 0)".to_owned(),
        call: r"(loop $on
            (br_if $on (i32.or
                (i32.ne (memory.grow 0 (i32.const 1)) (i32.const -1))
                (i32.or
                    (i32.ne (memory.grow $b (i32.const 1)) (i32.const -1))
                    (i32.or
                        (i32.ne (memory.grow $c (i32.const 1)) (i32.const -1))
                        (i32.ne (memory.grow $d (i32.const 1)) (i32.const -1))))))
            unreachable)"
            .to_owned(),
        ..WatGuest::new("bomb")
    };
    check_call(&guest, "15s", ResourceLimit, "memory_limit").await;
}

#[tokio::test]
async fn a_memory_that_starts_beyond_the_limit_is_refused() {
    let fixture = Fixture::new().with_policy(&entry("bomb", "Nothing", "15s"));
    let guest = WatGuest { memory: "(memory (export \"memory\") 1025)".to_owned(), ..WatGuest::new("bomb") };
    let error = guest.try_registry(&fixture).await.expect_err("it cannot even describe itself");
    assert!(matches!(error, BootstrapError::Wasm(WasmError::Describe { .. })), "{error:?}");
}

#[tokio::test]
async fn tables_are_bounded() {
    let guest = WatGuest {
        fields: "(table $t 1 funcref)".to_owned(),
        call: r"(loop $on
            (br_if $on (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)))
            unreachable)"
            .to_owned(),
        ..WatGuest::new("bomb")
    };
    check_call(&guest, "15s", ResourceLimit, "table_limit").await;
}

#[tokio::test]
async fn calls_with_the_most_memories_take_nothing_from_others() {
    let fixture = Fixture::new().with_policy(&entry("bomb", "Nothing", "1s"));
    fixture.put("README.md", "still here\n");
    let guest = WatGuest {
        fields: "(memory $b 1) (memory $c 1) (memory $d 1) (table 1 funcref) (table 1 funcref)
            (table 1 funcref) (table 1 funcref)"
            .to_owned(),
        call: "(loop $on (br $on))".to_owned(),
        ..WatGuest::new("bomb")
    };
    let registry = guest.registry(&fixture).await;
    let loops = join_all((0..20).map(|_| CallOutcome::run(&registry, "bomb", json!({}))));
    for answer in loops.await {
        answer.assert_refused(Timeout, "timeout");
    }
}

/// Makes one host call with 1,024 vectors that all point to the same 32 MiB of newlines: 32 GiB of empty
/// lines.
#[tokio::test]
async fn one_endless_write_is_stopped_at_the_deadline() {
    for stream in [1, 2] {
        let guest = WatGuest {
            memory: "(memory (export \"memory\") 600)".to_owned(),
            call: format!(
                r"(local $i i32)
                (memory.fill (i32.const 0x100000) (i32.const 10) (i32.const 0x2000000))
                (loop $fill
                    (i32.store (i32.add (i32.const 0x10000) (local.get $i)) (i32.const 0x100000))
                    (i32.store (i32.add (i32.const 0x10004) (local.get $i)) (i32.const 0x2000000))
                    (local.set $i (i32.add (local.get $i) (i32.const 8)))
                    (br_if $fill (i32.lt_u (local.get $i) (i32.const 8192))))
                (loop $on
                    (drop (call $fd_write
                        (i32.const {stream}) (i32.const 0x10000) (i32.const 1024) (i32.const 8)))
                    (br $on))"
            ),
            ..WatGuest::new("bomb")
        };
        let guest = WatGuest {
            call: "(call $bomb)".to_owned(),
            fields: format!("(func $bomb {})", guest.call),
            ..guest
        };
        check_call(&guest, "300ms", Timeout, "timeout").await;
    }
}

#[tokio::test]
async fn pointers_out_of_memory_are_the_guests_fault() {
    for (import, call) in [
        (
            "(import \"wasi_snapshot_preview1\" \"clock_time_get\"
                (func $f (param i32 i64 i32) (result i32)))",
            "(drop (call $f (i32.const 0) (i64.const 1) (i32.const -8)))",
        ),
        (
            "(import \"wasi_snapshot_preview1\" \"random_get\" (func $f (param i32 i32) (result i32)))",
            "(drop (call $f (i32.const 0) (i32.const -1)))",
        ),
        (
            "(import \"wasi_snapshot_preview1\" \"fd_read\"
                (func $f (param i32 i32 i32 i32) (result i32)))",
            "(drop (call $f (i32.const 0) (i32.const -8) (i32.const 1) (i32.const -4)))",
        ),
        (
            "(import \"wasi_snapshot_preview1\" \"proc_exit\" (func $f (param i32)))",
            "(call $f (i32.const 200))",
        ),
    ] {
        let fixture = Fixture::new().with_policy(&entry("bomb", "Nothing", "15s"));
        let guest = WatGuest { imports: import.to_owned(), call: call.to_owned(), ..WatGuest::new("bomb") };
        let registry = guest.registry(&fixture).await;
        let answer = CallOutcome::run(&registry, "bomb", json!({})).await;
        assert_eq!(answer.error().kind(), Failed, "{call}: {:?}", answer.error());
        posture::assert_confined(fixture.rows().last().expect("a row"));
    }
}

#[tokio::test]
async fn bad_numbers_to_our_own_host_functions_are_errors_not_faults() {
    for (import, call) in [
        ("", "(drop (call $fd_write (i32.const 1) (i32.const -8) (i32.const 1024) (i32.const -4)))"),
        ("", "(drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const -1) (i32.const 0)))"),
        ("", "(drop (call $fd_write (i32.const 99) (i32.const 0) (i32.const 1) (i32.const 8)))"),
        (
            "(import \"wasi_snapshot_preview1\" \"poll_oneoff\"
                (func $f (param i32 i32 i32 i32) (result i32)))",
            "(drop (call $f (i32.const -1) (i32.const -1) (i32.const -1) (i32.const -1)))",
        ),
        (
            "(import \"wasi_snapshot_preview1\" \"fd_readdir\"
                (func $f (param i32 i32 i32 i64 i32) (result i32)))",
            "(drop (call $f (i32.const 3) (i32.const -1) (i32.const -1) (i64.const -1) (i32.const -1)))",
        ),
        (
            "(import \"wasi_snapshot_preview1\" \"fd_renumber\" (func $f (param i32 i32) (result i32)))",
            "(drop (call $f (i32.const 3) (i32.const 3))) (drop (call $f (i32.const 3) (i32.const -1)))",
        ),
    ] {
        let fixture = Fixture::new().with_policy(&entry("bomb", "WorkspaceRead", "15s"));
        let guest = WatGuest {
            imports: import.to_owned(),
            call: format!("{call} (call $answer)"),
            ..WatGuest::new("bomb")
        };
        let registry = guest.registry(&fixture).await;
        assert_eq!(CallOutcome::run(&registry, "bomb", json!({})).await.text(), "done", "{call}");
    }
}

/// The reason for refusing to load a module.
#[derive(Debug, PartialEq)]
enum RefusalReason {
    Describe,
    Compile,
    Link,
    TooLarge,
    Name,
    Taken,
    Schema,
}

#[track_caller]
fn classify_refusal(error: &BootstrapError) -> RefusalReason {
    match error {
        BootstrapError::Wasm(WasmError::Describe { .. }) => RefusalReason::Describe,
        BootstrapError::Wasm(WasmError::Compile { .. }) => RefusalReason::Compile,
        BootstrapError::Wasm(WasmError::Link { .. }) => RefusalReason::Link,
        BootstrapError::Wasm(WasmError::ModuleTooLarge { .. }) => RefusalReason::TooLarge,
        BootstrapError::Registry(RegistryError::Name { .. }) => RefusalReason::Name,
        BootstrapError::Registry(RegistryError::Taken { .. } | RegistryError::LookAlike { .. }) => {
            RefusalReason::Taken
        }
        BootstrapError::Registry(RegistryError::Schema { .. }) => RefusalReason::Schema,
        other => panic!("not one of the errors that a module may cause: {other:?}"),
    }
}

async fn check_refused(module: &[u8], expected: RefusalReason) {
    let fixture = Fixture::new();
    let text = || String::from_utf8_lossy(&module[..module.len().min(2000)]).into_owned();
    match tokio::time::timeout(TEST_TIMEOUT, load(&fixture, module)).await.expect("it ends") {
        Ok(_) => panic!("{expected:?} expected of {}", text()),
        Err(error) => assert_eq!(classify_refusal(&error), expected, "{error:?} of {}", text()),
    }
}

#[tokio::test]
async fn a_description_that_is_not_right_is_refused() {
    let tool = |rest: &str| format!("{{\"v\":1,\"tools\":[{{{rest}}}]}}");
    let object = "\"parameters\":{\"type\":\"object\"}";
    for (describe, expected) in [
        (format!("{{\"v\":2,\"tools\":[{{\"name\":\"a\",{object}}}]}}"), RefusalReason::Describe),
        ("{\"v\":1,\"tools\":[]}".to_owned(), RefusalReason::Describe),
        ("{\"v\":1}".to_owned(), RefusalReason::Describe),
        ("hello".to_owned(), RefusalReason::Describe),
        (String::new(), RefusalReason::Describe),
        ("{\"v\":1,\"tools\":[".to_owned(), RefusalReason::Describe),
        ("[".repeat(20_000), RefusalReason::Describe),
        (tool(&format!("\"name\":\"Big Name\",{object}")), RefusalReason::Describe),
        (tool(&format!("\"name\":\"\",{object}")), RefusalReason::Describe),
        (tool(&format!("\"name\":\"fil\u{435}_read\",{object}")), RefusalReason::Describe),
        (tool(&format!("\"name\":\"FILE_READ\",{object}")), RefusalReason::Taken),
        (tool(&format!("\"name\":\"{}\",{object}", "a".repeat(65))), RefusalReason::Describe),
        (tool("\"name\":\"a\""), RefusalReason::Describe),
        (tool(&format!("\"name\":\"a\",\"power\":\"all\",{object}")), RefusalReason::Describe),
        (tool(&format!("\"name\":\"a\",\"tier\":\"harmless\",{object}")), RefusalReason::Describe),
        (
            tool(&format!(
                "\"name\":\"a\",{object},\"roles\":[{{\"argument\":\"path\",\"role\":{{\"path\":\"read\"}}}}]"
            )),
            RefusalReason::Describe,
        ),
        (tool("\"name\":\"a\",\"parameters\":{\"type\":17}"), RefusalReason::Schema),
        (tool("\"name\":\"a\",\"parameters\":{\"$ref\":\"http://127.0.0.1/schema\"}"), RefusalReason::Schema),
        (tool(&format!("\"name\":\"file_read\",{object}")), RefusalReason::Taken),
        (tool(&format!("\"name\":\"echo\",{object}")), RefusalReason::Taken),
        (
            format!("{{\"v\":1,\"tools\":[{{\"name\":\"a\",{object}}},{{\"name\":\"a\",{object}}}]}}"),
            RefusalReason::Taken,
        ),
    ] {
        check_refused(&WatGuest::describing(&describe).bytes(), expected).await;
    }
}

#[tokio::test]
async fn invalid_module_is_refused() {
    let mut padded = WatGuest::new("bomb").bytes();
    padded.resize(MAX_MODULE_BYTES + (1 << 20), 0);
    check_refused(&padded, RefusalReason::TooLarge).await;
    check_refused(b"", RefusalReason::Compile).await;
    check_refused(b"\0asm\x01\0\0", RefusalReason::Compile).await;
    check_refused(b"#!/bin/sh\n", RefusalReason::Compile).await;
    let unknown = WatGuest {
        imports: "(import \"env\" \"system\" (func $f (param i32) (result i32)))".to_owned(),
        ..WatGuest::new("bomb")
    };
    check_refused(&unknown.bytes(), RefusalReason::Link).await;
    let other_type = WatGuest {
        imports: "(import \"wasi_snapshot_preview1\" \"random_get\" (func $f (param i64)))".to_owned(),
        ..WatGuest::new("bomb")
    };
    check_refused(&other_type.bytes(), RefusalReason::Link).await;
    let hidden = WatGuest { memory: "(memory 2)".to_owned(), ..WatGuest::new("bomb") };
    check_refused(&hidden.bytes(), RefusalReason::Describe).await;
    let no_entry = wat::parse_str("(module (memory (export \"memory\") 1))").expect("parses");
    check_refused(&no_entry, RefusalReason::Describe).await;
    let loops = wat::parse_str(
        "(module (memory (export \"memory\") 1) (func (export \"_start\") (loop $on (br $on))))",
    );
    check_refused(&loops.expect("parses"), RefusalReason::Describe).await;
    let starts = wat::parse_str(
        "(module (memory (export \"memory\") 1) (func $s (loop $on (br $on))) (start $s) (func (export \"_start\")))",
    );
    check_refused(&starts.expect("parses"), RefusalReason::Describe).await;
}

#[tokio::test]
async fn a_second_module_cannot_take_the_name_of_the_first() {
    let fixture = Fixture::new();
    let bytes = WatGuest::new("mine").bytes();
    let other = WatGuest { fields: "(func)".to_owned(), ..WatGuest::new("mine") }.bytes();
    let builder = fixture.builder().await.expect("bootstraps");
    let builder = builder.module("one", &bytes, ToolOrigin::ForeignModule).await.expect("describes");
    let builder = builder.module("two", &other, ToolOrigin::ForeignModule).await.expect("describes");
    assert_eq!(classify_refusal(&builder.build().expect_err("taken")), RefusalReason::Taken);
}
