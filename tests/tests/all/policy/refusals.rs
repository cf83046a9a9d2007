//! Refused starts: a policy with a fault, or a mount that is not a plain folder.

use std::{error::Error, fs, os::unix::fs::symlink};

use portcullis_testing::Fixture;
use portcullis_tools::{BootstrapError, ToolRegistry, sandbox::mounts::MountError};

use super::write_overlay;

async fn start(fixture: &Fixture) -> Result<ToolRegistry, BootstrapError> {
    fixture.builder().await?.build()
}

/// Returns the faults of a fixture's policy, without the folder before the file's name.
async fn faults(fixture: &Fixture) -> Vec<String> {
    match start(fixture).await {
        Err(BootstrapError::Policy(error)) => {
            let root = format!("{}/", fixture.root().display());
            error.to_string().replace(&root, "").lines().map(str::to_owned).collect()
        }
        other => panic!("expected faults, got {other:?}"),
    }
}

#[tokio::test]
async fn a_policy_with_a_fault_is_refused_with_file_line_and_key() {
    for (policy, location, words) in [
        ("mouts = 1", "mouts", "did you mean"),
        ("[profile.X]", "profile", "did you mean `profiles`"),
        ("[tools.file_raed]\nprofil = \"Nothing\"", "tools.file_raed.profil", "did you mean `profile`"),
        ("[tools.x]\nprofile = \"Nobody\"", "tools.x.profile", "unknown profile; known are"),
        ("[tools.x]\napproval = \"perhaps\"", "tools.x.approval", "perhaps"),
        ("[tools.x]\ntimeout = 5", "tools.x.timeout", "unit"),
        ("[tools.x]\nnetwork = true", "tools.x.network", "unknown key"),
        ("[profiles.P]\nmounts = { nowhere = \"read\" }", "profiles.P.mounts.nowhere", "nowhere"),
        ("[profiles.P]\nmounts = { vault = \"read\", shared = \"write\" }", "profiles.P", "vault"),
        ("[profiles.P]\nmounts = { vault = \"write\" }", "profiles.P.mounts.vault", "cannot be writable"),
        ("[profiles.P]\nnetwork = [\"*\"]", "profiles.P.network", "unknown key"),
        (
            "[[flow]]\nafter = [\"vault\"]\nthen = [\"shell\"]\napproval = \"ask\"\nalways = true",
            "flow[3].always",
            "unknown key",
        ),
        ("[sandbox.container.mounts]\nx = \"x\"", "sandbox.container.mounts", "unknown key"),
    ] {
        // Insert a top-level key at the top: at the end of the file, it would belong to the last table.
        let fixture = match policy.split_once('=') {
            Some((key, _)) if !policy.starts_with('[') => {
                Fixture::new().with_policy_edit("version = 1", &format!("version = 1\n{key}= 1"))
            }
            _ => Fixture::new().with_policy(policy),
        };
        let faults = faults(&fixture).await;
        assert!(!fixture.state().exists(), "nothing was made");
        let fault = faults.first().expect("a fault");
        let (file, rest) = fault.split_once(':').expect("a file");
        let line: usize = rest.split(':').next().and_then(|line| line.parse().ok()).expect("a line");
        assert_eq!(file, "policy.toml", "{fault}");
        let text = fs::read_to_string(fixture.policy_file()).expect("readable");
        let last_key = location.rsplit('.').next().expect("a key");
        assert!(text.lines().nth(line - 1).is_some_and(|line| line.contains(last_key)), "{fault}");
        assert!(fault.contains(&format!(" {location}: ")) && fault.contains(words), "{fault}");
    }
}

#[tokio::test]
async fn an_unknown_layer_is_refused() {
    let fixture =
        Fixture::new().with_policy_edit("[\"landlock\", \"seccomp\"]", "[\"landlock\", \"selinux\"]");
    let faults = faults(&fixture).await;
    assert!(faults[0].contains("require") && faults[0].contains("selinux"), "{faults:?}");
}

#[tokio::test]
async fn a_mount_that_is_a_link_or_below_one_is_refused() {
    for link in ["shared", "vault"] {
        let fixture = Fixture::new();
        let outside = fixture.root().join("outside");
        fs::create_dir(&outside).expect("a folder");
        fs::remove_dir(fixture.workspace().join(link)).expect("empty");
        symlink(&outside, fixture.workspace().join(link)).expect("a link");
        let error = start(&fixture).await.expect_err("a link");
        assert!(matches!(error, BootstrapError::Mount(MountError::Open { .. })), "{error:?}");
    }
    let fixture = Fixture::new().with_policy_edit("shared = \"shared\"", "shared = \"via/shared\"");
    symlink(fixture.root(), fixture.workspace().join("via")).expect("a link");
    let error = start(&fixture).await.expect_err("below a link");
    assert!(matches!(error, BootstrapError::Mount(MountError::Open { .. })), "{error:?}");
    assert!(!fixture.root().join("shared").exists(), "nothing was made behind the link");
}

#[tokio::test]
async fn a_mount_that_touches_state_or_policy_is_refused() {
    let fixture = Fixture::new();
    let inside = fixture.workspace().join("tmp/state");
    let link = fixture.root().join("link");
    symlink(fixture.workspace().join("shared"), &link).expect("a link");
    for state in [inside, fixture.workspace().join("shared"), fixture.workspace(), link.join("state")] {
        let mut envelope = fixture.envelope();
        envelope.state.clone_from(&state);
        let result = portcullis_tools::bootstrap_runtime_tools(&envelope).await;
        let error = result.expect_err("they touch");
        assert!(
            matches!(error, BootstrapError::Mount(MountError::Overlap { .. })),
            "{}: {error:?}",
            state.display()
        );
    }
    let mut envelope = fixture.envelope();
    let policy = fixture.shared("policy.toml");
    fs::copy(fixture.policy_file(), &policy).expect("a copy");
    envelope.policy = Some(policy);
    let error =
        portcullis_tools::bootstrap_runtime_tools(&envelope).await.expect_err("a tool could rewrite it");
    assert!(matches!(error, BootstrapError::Mount(MountError::Overlap { .. })), "{error:?}");
}

#[tokio::test]
async fn mounts_that_overlap_are_refused() {
    for (tmp, words) in
        [("\"shared\"", "overlaps"), ("\"shared/tmp\"", "overlaps"), ("\"../tmp\"", "mounts.tmp")]
    {
        let fixture = Fixture::new().with_policy_key("mounts.tmp", tmp);
        let faults = faults(&fixture).await;
        assert!(faults[0].contains(words), "{faults:?}");
    }
}

#[tokio::test]
async fn a_policy_file_that_cannot_be_read_stops_the_start() {
    let fixture = Fixture::new();
    let missing = fixture.root().join("none.toml");
    let folder = fixture.root().join("folder.toml");
    fs::create_dir(&folder).expect("a folder");
    let pipe = fixture.root().join("pipe.toml");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let binary = fixture.root().join("binary.toml");
    fs::write(&binary, b"version = 1\n\xff").expect("writable");
    let huge = fixture.root().join("huge.toml");
    fs::write(&huge, format!("version = 1\n{}", "# x\n".repeat(1 << 19))).expect("writable");
    for path in [missing, folder, pipe, binary, huge] {
        let mut envelope = fixture.envelope();
        envelope.policy = Some(path.clone());
        let error = portcullis_tools::bootstrap_runtime_tools(&envelope).await.expect_err("unreadable");
        assert!(matches!(error, BootstrapError::PolicyFile { .. }), "{}: {error:?}", path.display());
        assert!(error.source().is_some(), "the cause is told once, as a source");
    }
}

#[tokio::test]
async fn an_overlay_that_would_widen_is_refused_with_both_values() {
    for (text, location, words) in [
        (
            "[profiles.FileReadOnly]\nmounts = { shared = \"write\" }",
            "profiles.FileReadOnly.mounts.shared",
            "`write`",
        ),
        (
            "[profiles.WorkspaceRead]\nmounts = { vault = \"read\" }",
            "profiles.WorkspaceRead.mounts.vault",
            "`read`",
        ),
        ("[tiers.privileged]\napproval = \"allow\"", "tiers.privileged.approval", "`allow`"),
        ("[tools.stranger]\nenabled = true", "tools.stranger.enabled", "only the operator"),
        ("[limits]\nconcurrency = 11", "limits.concurrency", "`11`"),
        ("[limits]\nmax_timeout = \"11m\"", "limits.max_timeout", "11m"),
        ("[mounts]\nextra = \"extra\"", "mounts", "only the operator's policy"),
        ("[audit]\nsync = \"interval\"", "audit", "only the operator's policy"),
        ("require = []", "require", ""),
        ("[tools.file_read]\nprofile = \"FileReadWrite\"", "tools.file_read.profile", "unknown key"),
    ] {
        let fixture = Fixture::new();
        write_overlay(&fixture, &format!("version = 1\n{text}"));
        match start(&fixture).await {
            // Requiring no further layer restricts nothing, and is allowed.
            Ok(registry) if text == "require = []" => {
                assert_eq!(registry.policy().required_layers().count(), 2);
            }
            Err(BootstrapError::Policy(error)) => {
                let fault = error.to_string();
                assert!(fault.contains("workspace/portcullis.toml:"), "{fault}");
                assert!(fault.contains(location) && fault.contains(words), "{text}: {fault}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}
