//! Leaks between calls, and from a guest to the host's output.

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::{Trial, alone::run_in_separate_process, entry};

#[test]
fn nothing_that_a_guest_writes_reaches_the_output_of_the_host() {
    const MARK: &str = "written-by-the-guest";
    let printed = run_in_separate_process(
        "hostile::isolation::nothing_that_a_guest_writes_reaches_the_output_of_the_host",
        async {
            let trial = Trial::new("malformed_frame").await;
            let ok = format!("{{\"ok\":\"{MARK}\"}}");
            assert_eq!(trial.call(json!({"line": ok})).await.text(), MARK);
            trial.call(json!({"line": MARK})).await.assert_refused(ToolErrorKind::Failed, "malformed_frame");
            let trial = Trial::new("panics").await;
            trial.call(json!({"message": MARK})).await.assert_refused(ToolErrorKind::Failed, "guest_trap");
            for flood in ["stdout_flood", "stderr_flood"] {
                Trial::new(flood).await.call(json!({"bytes": 1 << 20})).await;
            }
        },
    );
    if let Some(printed) = printed {
        for stream in [&printed.stdout, &printed.stderr] {
            let text = String::from_utf8_lossy(stream);
            assert!(!text.contains(MARK) && !text.contains("xxxxxxxx"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_module_without_an_entry_gets_nothing_and_is_asked_about() {
    let fixture = Fixture::new();
    let registry = fixture.registry_with(&["probe_environment"]).await;
    let call = portcullis_tools::new_call("probe_environment", "{}");
    let nobody_to_ask = portcullis_tools::Caller::new("tester", "run");
    let answer = CallOutcome(registry.execute_with_policy(call, &nobody_to_ask).await);
    answer.assert_refused(ToolErrorKind::Denied, "approval_unavailable");
    let row = fixture.rows().pop().expect("a row");
    assert_eq!((row.profile.as_deref(), row.duration_us.is_some()), (Some("Nothing"), true));
    assert_eq!((row.peak_memory, row.posture), (None, None), "the guest never ran");

    let environment_text = CallOutcome::run(&registry, "probe_environment", json!({})).await.text();
    assert!(!environment_text.contains("preopen"), "{environment_text}");
    let row = fixture.rows().pop().expect("a row");
    assert_eq!((row.approval.as_deref(), row.mounts.len()), (Some("approved"), 0));
}

#[tokio::test]
async fn a_guest_sees_the_mounts_of_its_profile_and_no_others() {
    for (profile, path, is_there) in [
        ("Nothing", "/shared", false),
        ("WorkspaceRead", "/shared", true),
        ("WorkspaceRead", "/vault", false),
        ("FileReadWrite", "/vault", false),
        ("VaultRead", "/vault", true),
        ("VaultRead", "/shared", false),
    ] {
        let fixture = Fixture::new().with_policy(&entry("probe_path", profile, "15s"));
        let trial = Trial::in_fixture(fixture, "probe_path").await;
        let text = trial.call(json!({"op": "list", "path": path})).await.text();
        assert_eq!(text.starts_with("ok: "), is_there, "{path} with {profile}: {text}");
    }
}
