//! The posture of the thread that served a call, as the audit row shows it.

use portcullis_testing::{Fixture, kernel_or_skip};
use portcullis_tools::{audit::Row, confine};
use serde_json::json;

use super::{Trial, entry};

/// Returns whether this kernel has both layers.
fn has_layers() -> bool {
    let kernel = confine::probe_kernel();
    let has = |layer| kernel.missing(layer).is_none();
    kernel_or_skip("Landlock and seccomp", has(confine::Layer::Landlock) && has(confine::Layer::Seccomp))
}

/// Asserts that both layers were proven on the thread that served the call.
#[track_caller]
pub(super) fn assert_confined(row: &Row) {
    if has_layers() {
        let posture = row.posture.as_deref().expect("a posture");
        let landlock =
            posture.starts_with("landlock=enforced(abi ") || posture.starts_with("landlock=partial(abi ");
        assert!(landlock && posture.ends_with(",seccomp=enforced"), "{posture}");
    }
}

#[tokio::test]
async fn the_row_shows_both_layers_enforced_on_the_serving_thread() {
    // Three guests: one works, one fails, and one is stopped.
    for (guest, timeout) in [("state_left_in_memory", "15s"), ("panics", "15s"), ("loop_forever", "300ms")] {
        for profile in ["Nothing", "WorkspaceRead", "FileReadWrite", "VaultRead"] {
            let trial = Trial::with_profile(guest, profile, timeout).await;
            trial.call(json!({})).await;
            assert_confined(&trial.row());
        }
    }
}

#[tokio::test]
async fn the_row_says_which_layers_were_waived() {
    for (require, expected) in [
        ("require = []", ["landlock=waived", "seccomp=waived"]),
        ("require = [\"landlock\"]", ["landlock=", "seccomp=waived"]),
        ("require = [\"seccomp\"]", ["landlock=waived", "seccomp=enforced"]),
    ] {
        if !has_layers() {
            return;
        }
        let fixture = Fixture::new()
            .with_policy_edit("require = [\"landlock\", \"seccomp\"]", require)
            .with_policy(&entry("state_left_in_memory", "WorkspaceRead", "15s"));
        let trial = Trial::in_fixture(fixture, "state_left_in_memory").await;
        assert_eq!(trial.call(json!({})).await.text(), "0");
        let posture = trial.row().posture.expect("a posture");
        for part in expected {
            assert!(posture.contains(part), "{require}: {posture}");
        }
    }
}

#[tokio::test]
async fn without_landlock_and_seccomp_a_guest_stays_in_its_mount() {
    let fixture = Fixture::new()
        .with_policy_edit("require = [\"landlock\", \"seccomp\"]", "require = []")
        .with_policy(&entry("raw_path", "FileReadWrite", "15s"));
    let trial = Trial::in_fixture(fixture, "raw_path").await;
    for path in ["../vault", "/etc/passwd", "../../policy.toml"] {
        trial
            .call(json!({"op": "read", "path": path}))
            .await
            .assert_refused(portcullis_types::ToolErrorKind::Denied, "path_escapes_mount");
    }
}
