//! Machines that each lack one layer: session and row report the missing layer, and no command runs if the
//! policy requires it.

use portcullis_testing::{Fixture, kernel_environment::KernelEnvironment};
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::{
    Shell,
    machine::{WITHOUT_LANDLOCK, WITHOUT_LIMITS, WITHOUT_SECCOMP, shell_on},
};

/// Creates a fixture with the shipped policy, which requires `contained`, but with another required posture.
fn fixture(posture: &str) -> Fixture {
    Fixture::new().with_policy_key("shell.posture", &format!("\"{posture}\""))
}

/// Runs a command, and returns the session's posture from its row.
async fn posture(shell: &Shell) -> String {
    assert_eq!(shell.text("echo ran").await, "ran\n");
    shell.last_row().posture.expect("a posture").to_string()
}

/// Asserts that no command runs because the session lacks the required posture. Returns the error's code and its detail
/// for the operator.
async fn assert_no_command_runs(shell: &Shell) -> (String, String) {
    let is_offered = || shell.registry.offered().iter().any(|tool| tool.decl().name == "shell_exec");
    assert!(is_offered(), "nobody knows yet");
    let answer = shell.call(json!({"command": "echo > made"})).await;
    assert!(!shell.fixture.shared("made").exists());
    assert!(!shell.last_row().posture.is_some_and(|posture| posture.contains("enforced")));
    let error = answer.0.into_result().expect_err("refused");
    assert_eq!(error.kind(), ToolErrorKind::Unavailable, "{error}");
    // If the machine cannot confine the shell, the tool is not offered after the first call, because each
    // further call would fail.
    assert_eq!(is_offered(), error.code() != "not_confined", "{error}");
    (error.code().to_owned(), error.operator_detail().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_whole_machine_gives_the_strongest() {
    let posture = posture(&shell_on(KernelEnvironment::Nothing, fixture("strong")).await).await;
    for layer in [
        "strong(limits=enforced",
        "pid_ns=enforced",
        "ipc_ns=enforced",
        "uts_ns=enforced",
        "net_ns=enforced",
        "mount_ns=enforced",
        "seccomp=enforced",
    ] {
        assert!(posture.contains(layer), "{posture}");
    }
}

#[tokio::test]
async fn without_namespaces_the_row_of_a_session_says_contained() {
    let shell = shell_on(KernelEnvironment::StockContainer, fixture("contained")).await;
    let posture = posture(&shell).await;
    assert!(posture.starts_with("contained(limits=enforced,privileges=enforced,"), "{posture}");
    assert!(posture.contains("seccomp=enforced") && !posture.contains("_ns=enforced"), "{posture}");
}

#[tokio::test]
async fn without_namespaces_no_command_runs_where_strong_is_wanted() {
    let (code, detail) =
        assert_no_command_runs(&shell_on(KernelEnvironment::StockContainer, fixture("strong")).await).await;
    assert_eq!(code, "not_confined");
    assert!(detail.contains("strong") && detail.contains("namespace"), "{detail}");
}

#[tokio::test]
async fn without_landlock_commands_run_in_a_minimal_session_only() {
    let (code, detail) =
        assert_no_command_runs(&shell_on(WITHOUT_LANDLOCK, fixture("contained")).await).await;
    assert_eq!(code, "not_confined");
    assert!(detail.to_lowercase().contains("landlock"), "{detail}");
    let posture = posture(&shell_on(WITHOUT_LANDLOCK, fixture("minimal")).await).await;
    assert!(posture.starts_with("minimal(") && !posture.contains("landlock=enforced"), "{posture}");
    assert!(posture.contains("seccomp=enforced"), "{posture}");
}

#[tokio::test]
async fn without_seccomp_commands_run_in_a_minimal_session_only() {
    let (code, detail) = assert_no_command_runs(&shell_on(WITHOUT_SECCOMP, fixture("contained")).await).await;
    assert_eq!(code, "not_confined");
    assert!(detail.to_lowercase().contains("seccomp"), "{detail}");
    let posture = posture(&shell_on(WITHOUT_SECCOMP, fixture("minimal")).await).await;
    assert!(posture.starts_with("minimal(") && !posture.contains("seccomp=enforced"), "{posture}");
}

#[tokio::test]
async fn without_limits_no_command_runs_at_all() {
    for posture in ["contained", "minimal"] {
        // There is no session at all instead of a weaker session.
        let (_, detail) = assert_no_command_runs(&shell_on(WITHOUT_LIMITS, fixture(posture)).await).await;
        assert!(detail.contains("limit"), "{detail}");
    }
}

#[tokio::test]
async fn a_contained_session_keeps_what_the_pipeline_promises() {
    let shell = shell_on(KernelEnvironment::StockContainer, fixture("contained")).await;
    shell.fixture.put("note", "seen");
    std::fs::write(shell.fixture.workspace().join("vault/key"), "secret").expect("writable");
    assert_eq!(shell.text("cd; cat note; export kept=yes; false").await, "seen\n[exit code: 1]");
    assert_eq!(
        shell.text("echo $kept > \"$PORTCULLIS_TMP/out\"; cat \"$PORTCULLIS_TMP/out\"").await,
        "yes\n"
    );
    let vault = shell.fixture.workspace().join("vault/key");
    let state = shell.fixture.state().join("audit.jsonl");
    for path in [&vault, &state] {
        let text = shell.text(&format!("cat {} 2>/dev/null || echo refused", path.display())).await;
        assert_eq!(text, "refused\n");
        let text = shell.text(&format!("(echo x >> {}) 2>/dev/null || echo refused", path.display())).await;
        assert_eq!(text, "refused\n");
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("set");
    let port = listener.local_addr().expect("bound").port();
    let connect = format!("(echo x > /dev/tcp/127.0.0.1/{port}) 2>/dev/null || echo refused");
    assert_eq!(shell.text(&connect).await, "refused\n");
    listener.accept().expect_err("nobody came");
    let answer = shell.call(json!({"command": "sleep 100 & setsid sleep 100; wait", "timeout": 1})).await;
    answer.assert_refused(ToolErrorKind::Timeout, "timeout");
    assert_eq!(shell.text("echo $kept").await, "yes\n");
}

/// The proof of the limits has a control even under a low hard limit of the machine: the attempt that is
/// refused at the end has succeeded before.
#[test]
#[expect(clippy::disallowed_methods, reason = "a shell lowers the limit, and then becomes the program")]
fn limits_are_proven_below_a_hard_limit() {
    let fixture = Fixture::new();
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 300 && exec \"$0\" \"$@\""])
        .arg(portcullis_testing::binary())
        .arg("doctor")
        .args(fixture.options())
        .arg("--json")
        .output()
        .expect("starts");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut attempts = Vec::new();
    collect_attempts(&report, &mut attempts);
    let raise = attempts.iter().find(|attempt| attempt["attempt"] == "allow itself one descriptor more");
    let raise = raise.unwrap_or_else(|| panic!("no attempt at a limit: {report}"));
    assert_eq!((&raise["before"], &raise["after"]), (&json!("ok"), &json!("EPERM")), "{report}");
}

/// Collects all attempts of a report, at any depth.
fn collect_attempts(value: &serde_json::Value, attempts: &mut Vec<serde_json::Value>) {
    match value {
        serde_json::Value::Object(fields) if fields.contains_key("attempt") => attempts.push(value.clone()),
        serde_json::Value::Object(fields) => {
            fields.values().for_each(|inner| collect_attempts(inner, attempts));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|inner| collect_attempts(inner, attempts)),
        _ => {}
    }
}
