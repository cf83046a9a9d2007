//! Descriptors that a guest opens: their number is bounded, and all checks apply to each of them.

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_types::ToolErrorKind::Failed;
use serde_json::json;

use super::{Trial, entry, wat_guest::WatGuest};

/// The maximum number of a guest's open descriptors: its streams, its two preopens, and the descriptors that it opened.
const MAX_OPEN: usize = 128;

const IMPORTS: &str = r#"
    (import "wasi_snapshot_preview1" "path_open"
        (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_renumber" (func $fd_renumber (param i32 i32) (result i32)))"#;

/// Opens the directory of `/shared` again, and stores the descriptor at address 8.
const OPEN: &str = r#"(data (i32.const 2048) ".")
    (func $open (result i32)
        (call $path_open (i32.const 3) (i32.const 0) (i32.const 2048) (i32.const 1) (i32.const 2)
            (i64.const 16384) (i64.const 0) (i32.const 0) (i32.const 8)))"#;

/// Runs a guest with this code and the descriptors of `/shared` and `/tmp`, and returns its answer.
async fn answer(fixture: &Fixture, functions: &str, call: &str) -> CallOutcome {
    CallOutcome::run(&guest(functions, call).registry(fixture).await, "bomb", json!({})).await
}

fn guest(functions: &str, call: &str) -> WatGuest {
    WatGuest {
        imports: IMPORTS.to_owned(),
        fields: format!("{OPEN} {functions} (func $bomb {call})"),
        call: "(call $bomb)".to_owned(),
        ..WatGuest::new("bomb")
    }
}

fn fixture() -> Fixture {
    Fixture::new().with_policy(&entry("bomb", "FileReadWrite", "15s"))
}

#[tokio::test]
async fn endless_opens_of_a_guest_are_bounded_and_affect_no_other() {
    let trial = Trial::with_profile("opens_files", "WorkspaceRead", "15s").await;
    let answer = trial.call(json!({"path": "/shared/README.md", "times": 100_000})).await.text();
    assert!(answer.starts_with(&format!("{} open, then: ", MAX_OPEN - 5)), "{answer}");
    assert!(answer.contains("os error 33"), "`mfile`: {answer}");
    trial.assert_others_are_served().await;
}

#[tokio::test]
async fn closed_or_replaced_descriptor_frees_one_place() {
    let open_all_but = |free_places: usize| {
        format!(
            "(loop $on
                (br_if $on (i32.eqz (call $open)))
                (if (i32.ne (i32.load (i32.const 8)) (i32.const {})) (then unreachable)))",
            MAX_OPEN - free_places
        )
    };
    // Descriptors are numbered in order, so the last number shows how many are in use.
    let open_last_place = open_all_but(1);
    let repeat_1000_times = |what: &str| {
        format!(
            "(local.set $left (i32.const 1000))
             (loop $again
                {what}
                (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                (br_if $again (local.get $left)))"
        )
    };
    let trap_if = |what: &str| format!("(if {what} (then unreachable))");
    let closes =
        format!("{} {}", trap_if("(call $open)"), trap_if("(call $fd_close (i32.load (i32.const 8)))"));
    let replaces = format!(
        "{} {}",
        trap_if("(call $open)"),
        trap_if("(call $fd_renumber (i32.load (i32.const 8)) (i32.const 4))")
    );
    let fails = "(if (i32.eqz (call $fd_renumber (i32.const 3) (i32.const 9999))) (then unreachable))
        (if (i32.eqz (call $fd_close (i32.const 9999))) (then unreachable))
        (if (call $fd_renumber (i32.const 3) (i32.const 3)) (then unreachable))";
    let call = format!(
        "(local $left i32) {} {} {} {open_last_place} (call $answer)",
        repeat_1000_times(&closes),
        repeat_1000_times(&replaces),
        repeat_1000_times(fails)
    );
    assert_eq!(answer(&fixture(), "", &call).await.text(), "done");
}

/// The inherited limit on open files may be too low for one guest's descriptors.
#[tokio::test]
async fn the_program_has_room_for_what_guests_may_open() {
    let fixture = fixture();
    let module = fixture.root().join("bomb.wasm");
    let opens = format!(
        "(loop $on (br_if $on (i32.eqz (call $open))))
         (if (i32.ne (i32.load (i32.const 8)) (i32.const {})) (then unreachable))
         (call $answer)",
        MAX_OPEN - 1
    );
    std::fs::write(&module, guest("", &opens).bytes()).expect("writable");
    #[expect(
        clippy::disallowed_methods,
        reason = "the program under test, started by a shell that sets limits"
    )]
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -S -n 64; exec \"$0\" \"$@\""])
        .arg(portcullis_testing::binary())
        .args(fixture.options())
        .args(["call", "bomb", "{}", "--approve", "--module"])
        .arg(&module)
        .output()
        .expect("starts");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "done",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// If the host cannot write a new descriptor's number to the guest, the guest could still guess the number and use
/// the descriptor.
#[tokio::test]
async fn a_descriptor_with_no_address_for_its_number_ends_the_call() {
    let fixture = fixture();
    fixture.put("repo/.git/hooks/sample", "good");
    let functions = r#"(data (i32.const 2056) "repo/.git") (data (i32.const 2072) "hooks/pre-commit")"#;
    let call = "(local $fd i32)
        (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 2056) (i32.const 9) (i32.const 2)
            (i64.const 16384) (i64.const 0) (i32.const 0) (i32.const -2)))
        (local.set $fd (i32.const 4))
        (loop $next
            (drop (call $path_open (local.get $fd) (i32.const 0) (i32.const 2072) (i32.const 16) (i32.const 1)
                (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 8)))
            (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $fd) (i32.const 16))))
        (call $answer)";
    answer(&fixture, functions, call).await.assert_refused(Failed, "guest_trap");
    assert!(!fixture.shared("repo/.git/hooks/pre-commit").exists());
}
