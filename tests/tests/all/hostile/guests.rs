//! One test for each hostile guest, with the guest's name. If a test is missing, this file does not compile.

use std::{collections::BTreeSet, fs};

use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::new_call;
use portcullis_types::ToolErrorKind::{
    Denied, Failed, InvalidArguments, NotFound, ResourceLimit, Timeout, Unavailable,
};
use serde_json::json;

use super::{Trial, alone::run_in_separate_process, entry};

macro_rules! assert_test_exists {
    ($name:ident) => {
        #[expect(unused_imports, reason = "it is here to show that the test exists")]
        use self::$name as _;
    };
}

portcullis_testing::foreach_hostile_guest!(assert_test_exists);

/// Asserts that the guest is stopped at its deadline each time.
async fn check_stopped_at_the_deadline(guest: &'static str) {
    let trial = Trial::with_profile(guest, "Nothing", "300ms").await;
    let message = trial.check(json!({}), Timeout, "timeout").await;
    assert_eq!(message, "the tool did not finish within 300ms");
    let row = trial.row();
    assert!(row.duration_us.is_some_and(|took| took >= 300_000), "{row:#?}");
    assert!(row.cpu_us.is_some(), "the worker itself reported, it was not written off: {row:#?}");
}

#[tokio::test]
async fn loop_forever() {
    check_stopped_at_the_deadline("loop_forever").await;
}

#[tokio::test]
async fn loop_in_host_calls() {
    check_stopped_at_the_deadline("loop_in_host_calls").await;
}

#[tokio::test]
async fn sleep_for_an_hour() {
    check_stopped_at_the_deadline("sleep_for_an_hour").await;
}

#[tokio::test]
async fn frame_then_loop() {
    check_stopped_at_the_deadline("frame_then_loop").await;
}

#[tokio::test]
async fn memory_bomb() {
    let trial = Trial::new("memory_bomb").await;
    let message = trial.check(json!({"then": "abort"}), ResourceLimit, "memory_limit").await;
    assert!(message.contains("67108864 bytes"), "{message}");
    let row = trial.row();
    assert!(row.peak_memory.is_some_and(|peak| (32 << 20..=64 << 20).contains(&peak)), "{row:#?}");
    // A guest may handle a refused allocation and continue.
    let text = trial.call(json!({"then": "report"})).await.text();
    let mib: u32 = text.strip_suffix(" MiB").expect("MiB").parse().expect("a number");
    assert!((16..64).contains(&mib), "{text}");
}

#[tokio::test]
async fn deep_recursion() {
    Trial::new("deep_recursion").await.check(json!({}), ResourceLimit, "stack_overflow").await;
}

#[tokio::test]
async fn stdout_flood() {
    Trial::new("stdout_flood").await.check(json!({}), ResourceLimit, "frame_too_large").await;
}

#[tokio::test]
async fn stderr_flood() {
    let trial = Trial::new("stderr_flood").await;
    assert_eq!(trial.call(json!({})).await.text(), "wrote 1073741824 bytes");
    trial.assert_others_are_served().await;
}

#[tokio::test]
async fn exit_without_frame() {
    Trial::new("exit_without_frame").await.check(json!({}), Failed, "no_final_frame").await;
}

#[tokio::test]
async fn exit_nonzero() {
    let trial = Trial::new("exit_nonzero").await;
    // WASI has no exit codes above 125. A higher code counts as an ordinary error of the guest.
    for code in [1, 7, 125, 126, 134, 255, -1] {
        trial.check(json!({"code": code}), Failed, "guest_exit").await;
    }
}

#[tokio::test]
async fn two_final_frames() {
    Trial::new("two_final_frames").await.check(json!({}), Failed, "output_after_final_frame").await;
}

#[tokio::test]
async fn sends_a_chunk() {
    Trial::new("sends_a_chunk").await.check(json!({}), Failed, "unwanted_chunk").await;
}

#[tokio::test]
async fn deep_frame() {
    Trial::new("deep_frame").await.check(json!({"depth": 100_000}), Failed, "malformed_frame").await;
}

#[tokio::test]
async fn malformed_frame() {
    let trial = Trial::new("malformed_frame").await;
    for line in
        ["{\"ok\":\"unfinished", "hello", "[]", "{}", "null", "{\"ok\":1}", "{\"ok\":\"a\",\"ok\":\"b\"}"]
    {
        trial.check(json!({"line": line}), Failed, "malformed_frame").await;
    }
}

#[tokio::test]
async fn invalid_utf8() {
    Trial::new("invalid_utf8").await.check(json!({}), Failed, "malformed_frame").await;
}

#[tokio::test]
async fn oversized_progress() {
    let message =
        Trial::new("oversized_progress").await.check(json!({}), ResourceLimit, "frame_too_large").await;
    assert!(message.contains("1048576 bytes"), "{message}");
}

#[tokio::test]
async fn oversized_result() {
    let message =
        Trial::new("oversized_result").await.check(json!({}), ResourceLimit, "frame_too_large").await;
    assert!(message.contains("8388608 bytes"), "{message}");
}

#[tokio::test]
async fn progress_flood() {
    Trial::new("progress_flood").await.check(json!({}), ResourceLimit, "too_many_frames").await;
}

#[tokio::test]
async fn tells_early() {
    let trial = Trial::with_profile("tells_early", "WorkspaceRead", "300ms").await;
    trial.check(json!({"path": "/shared/a"}), Timeout, "timeout").await;
}

#[tokio::test]
async fn claims_timeout() {
    let trial = Trial::new("claims_timeout").await;
    for kind in ["timeout", "internal", "cancelled", "resource_limit", "rate_limited", "Failed", ""] {
        trial.check(json!({"kind": kind}), Failed, "malformed_frame").await;
    }
}

#[tokio::test]
async fn panics() {
    let trial = Trial::new("panics").await;
    let message = trial.check(json!({"message": "secret of the guest"}), Failed, "guest_trap").await;
    assert!(!message.contains("secret"), "a panic's text is the operator's: {message}");
}

/// Tests the guest without a grant; `guest_http.rs` tests it with one.
#[tokio::test]
async fn requests() {
    let trial = Trial::new("requests").await;
    let answer = trial.call(json!({"url": "https://api.weather.example/", "times": 2})).await;
    assert_eq!(answer.text().matches("egress_not_granted").count(), 2, "{}", answer.text());
}

#[tokio::test]
async fn echo_error() {
    let trial = Trial::new("echo_error").await;
    let words = [
        "no such file",
        "",
        "two\nlines\r\n\tand a tab",
        "\"quoted\" 'and' \\back\\slashed",
        "ünïcödé 漢字 🦀 \u{202e}turned\u{202c} \u{1b}[31mred\u{0}nul\u{feff}",
        "{\"ok\":\"not a frame\"}",
    ];
    let kinds = [
        ("invalid_arguments", InvalidArguments),
        ("not_found", NotFound),
        ("denied", Denied),
        ("unavailable", Unavailable),
        ("failed", Failed),
    ];
    for message in words {
        for (name, kind) in kinds {
            let answer = trial.call(json!({"kind": name, "message": message})).await;
            assert_eq!((answer.error().kind(), answer.error().message()), (kind, message));
            assert_eq!(answer.0.model_text(), format!("Tool execution failed: {message}"));
        }
    }
}

#[tokio::test]
async fn progress_then_ok() {
    let trial = Trial::new("progress_then_ok").await;
    let reports = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut caller = approving_caller();
    let sink = std::sync::Arc::clone(&reports);
    caller.on_progress = Some(std::sync::Arc::new(move |text| sink.lock().expect("whole").push(text)));
    let sink = std::sync::Arc::clone(&reports);
    caller.on_update =
        Some(std::sync::Arc::new(move |part| sink.lock().expect("whole").push(part.joined_text())));
    let call = new_call("progress_then_ok", "{}");
    let answer = CallOutcome(trial.registry.execute_with_policy(call, &caller).await);
    assert_eq!(answer.text(), "whole");
    assert_eq!(*reports.lock().expect("whole"), ["step 1", "part 1", "step 2", "part 2", "step 3"]);
}

#[tokio::test]
async fn state_left_in_memory() {
    let trial = Trial::new("state_left_in_memory").await;
    for _ in 0..20 {
        assert_eq!(trial.call(json!({})).await.text(), "0");
    }
}

#[tokio::test]
async fn probe_environment() {
    let directory = 3;
    for (profile, preopens) in
        [("Nothing", &[][..]), ("WorkspaceRead", &["/shared", "/tmp"]), ("VaultRead", &["/vault"])]
    {
        let reported_lines =
            Trial::with_profile("probe_environment", profile, "15s").await.call(json!({})).await.text();
        let reported_lines: BTreeSet<&str> = reported_lines.lines().collect();
        let mut expected: BTreeSet<String> = ["arg 0: tool".to_owned(), "arg 1: call".to_owned()].into();
        for (fd, name) in (3..).zip(preopens) {
            expected.insert(format!("fd {fd}: type {directory}"));
            expected.insert(format!("preopen {fd}: {name}"));
        }
        let streams = |line: &&&str| ["fd 0: ", "fd 1: ", "fd 2: "].iter().any(|fd| line.starts_with(fd));
        assert_eq!(reported_lines.iter().filter(streams).count(), 3, "{reported_lines:#?}");
        let other_lines: BTreeSet<String> =
            reported_lines.iter().filter(|line| !streams(line)).map(|line| (*line).to_owned()).collect();
        assert_eq!(other_lines, expected, "with {profile}");
    }
}

#[tokio::test]
async fn huge_directory() {
    let trial = Trial::with_profile("huge_directory", "WorkspaceRead", "15s").await;
    fs::create_dir(trial.fixture.shared("many")).expect("the folder can be made");
    for number in 0..50_000 {
        fs::File::create(trial.fixture.shared(&format!("many/{number:06}.txt")))
            .expect("the file can be made");
    }
    assert_eq!(trial.call(json!({"path": "/shared/many"})).await.text(), "50000");
    assert!(trial.row().peak_memory.is_some_and(|peak| peak < 8 << 20));
    let endless_arguments = json!({"path": "/shared/many", "times": 4_000_000_000_u32});
    let fixture = Fixture::new().with_policy(&entry("huge_directory", "WorkspaceRead", "300ms"));
    let impatient_trial = Trial::in_fixture(fixture, "huge_directory").await;
    impatient_trial.fixture.put("many/x", "");
    impatient_trial.check(endless_arguments, Timeout, "timeout").await;
}

/// The limit of open descriptors is tested in [`super::descriptors`].
#[test]
fn opens_files() {
    run_in_separate_process("hostile::guests::opens_files", async {
        let trial = Trial::with_profile("opens_files", "WorkspaceRead", "15s").await;
        let call = || async {
            let text = trial.call(json!({"path": "/shared/README.md"})).await.text();
            assert!(text.contains(" open, then: "), "there is a limit: {text}");
            fs::read_dir("/proc/self/fd").expect("readable").count()
        };
        let first = call().await;
        for _ in 0..10 {
            assert_eq!(call().await, first, "a guest's descriptors end with its call");
        }
        trial.assert_others_are_served().await;
    });
}

#[tokio::test]
async fn reads_fifo() {
    let trial = Trial::with_profile("reads_fifo", "WorkspaceRead", "15s").await;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = trial.fixture.shared("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0)
        .expect("the FIFO can be made");
    std::os::unix::fs::symlink("fifo", trial.fixture.shared("link")).expect("the link can be made");
    let _socket = std::os::unix::net::UnixListener::bind(trial.fixture.shared("socket")).expect("bound");
    for name in ["fifo", "link", "socket"] {
        let answer = trial.call(json!({"path": format!("/shared/{name}")})).await.text();
        assert!(answer.starts_with("error: "), "{name}: {answer}");
        let row = trial.row();
        assert!(row.duration_us.is_some_and(|took| took < 5_000_000), "{row:#?}");
    }
    trial.assert_others_are_served().await;
}

/// [`super::escapes`] and [`super::protected`] test what the guest can reach.
#[tokio::test]
async fn probe_path() {
    let trial = Trial::with_profile("probe_path", "WorkspaceRead", "15s").await;
    let arguments = json!({"op": "read", "path": "/shared/README.md"});
    assert_eq!(trial.call(arguments).await.text(), "ok: still here\n");
    assert_eq!(trial.row().mounts_used, ["shared".into()]);
}

/// [`super::escapes`] and [`super::protected`] test what the guest can reach.
#[tokio::test]
async fn raw_path() {
    let trial = Trial::with_profile("raw_path", "WorkspaceRead", "15s").await;
    assert_eq!(trial.call(json!({"op": "read", "path": "README.md"})).await.text(), "ok still here\n");
    assert_eq!(trial.call(json!({"op": "stat", "path": "README.md"})).await.text(), "ok 11 bytes");
}

/// [`super::locks`] tests how the guest ends while it has a lock.
#[tokio::test]
async fn lock_path() {
    let trial = Trial::with_profile("lock_path", "FileReadWrite", "15s").await;
    assert_eq!(trial.call(json!({"path": "new/count"})).await.text(), "1");
    assert_eq!(trial.row().mounts_used, ["shared".into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_modify_write() {
    let trial = Trial::with_profile("read_modify_write", "FileReadWrite", "60s").await;
    let calls = (0..40).map(|number| {
        // Each call has another agent, to show that calls of several callers are serialized too.
        let mut caller = approving_caller();
        caller.agent_id = format!("agent {number}");
        let arguments = json!({"path": "/shared/README.md", "line": format!("item {number}")});
        let call = new_call("read_modify_write", arguments.to_string());
        let registry = &trial.registry;
        async move { registry.execute_with_policy(call, &caller).await }
    });
    for result in futures_util::future::join_all(calls).await {
        result.into_result().expect("each has its turn");
    }
    let text = fs::read_to_string(trial.fixture.shared("README.md")).expect("readable");
    assert_eq!(text.lines().collect::<BTreeSet<_>>().len(), 41, "{text}");
}
