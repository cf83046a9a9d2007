//! Refused starts: a policy with a fault, a mount that is not a plain folder.

use std::{error::Error, fs, os::unix::fs::symlink};

use portcullis_testing::World;
use portcullis_tools::{BootstrapError, ToolRegistry, sandbox::mounts::MountError};

use super::overlay;

async fn start(world: &World) -> Result<ToolRegistry, BootstrapError> {
    world.builder().await?.build()
}

/// The faults of a world's policy, without the folder before the file's name.
async fn faults(world: &World) -> Vec<String> {
    match start(world).await {
        Err(BootstrapError::Policy(error)) => {
            let root = format!("{}/", world.root().display());
            error.to_string().replace(&root, "").lines().map(str::to_owned).collect()
        }
        other => panic!("expected faults, got {other:?}"),
    }
}

#[tokio::test]
async fn a_policy_with_a_fault_is_refused_with_file_line_and_key() {
    for (policy, place, words) in [
        ("mouts = 1", "mouts", "did you mean"),
        ("[profile.X]", "profile", "did you mean `profiles`"),
        ("[tools.file_raed]\nprofil = \"Nothing\"", "tools.file_raed.profil", "did you mean `profile`"),
        ("[tools.x]\nprofile = \"Nobody\"", "tools.x.profile", "unknown profile; known are"),
        ("[tools.x]\napproval = \"perhaps\"", "tools.x.approval", "perhaps"),
        ("[tools.x]\ntimeout = 5", "tools.x.timeout", "unit"),
        ("[tools.x]\nnetwork = true", "tools.x.network", "unknown key"),
        ("[profiles.P]\nmounts = { nowhere = \"read\" }", "profiles.P.mounts.nowhere", "nowhere"),
        ("[profiles.P]\nmounts = { vault = \"read\", shared = \"write\" }", "profiles.P", "vault"),
        ("[profiles.P]\nmounts = { vault = \"write\" }", "profiles.P.mounts.vault", "never writable"),
        ("[profiles.P]\nnetwork = [\"*\"]", "profiles.P.network", "unknown key"),
        (
            "[[flow]]\nafter = [\"vault\"]\nthen = [\"shell\"]\napproval = \"ask\"\nalways = true",
            "flow[3].always",
            "unknown key",
        ),
        ("[sandbox.container.mounts]\nx = \"x\"", "sandbox.container.mounts", "unknown key"),
    ] {
        // A top-level key is inserted at the top: appended to the file, it would belong to the last table.
        let world = match policy.split_once('=') {
            Some((key, _)) if !policy.starts_with('[') => {
                World::new().with_policy_edit("version = 1", &format!("version = 1\n{key}= 1"))
            }
            _ => World::new().with_policy(policy),
        };
        let faults = faults(&world).await;
        assert!(!world.state().exists(), "nothing was made");
        let fault = faults.first().expect("a fault");
        let (file, rest) = fault.split_once(':').expect("a file");
        let line: usize = rest.split(':').next().and_then(|line| line.parse().ok()).expect("a line");
        assert_eq!(file, "policy.toml", "{fault}");
        let text = fs::read_to_string(world.policy_file()).expect("readable");
        let last_key = place.rsplit('.').next().expect("a key");
        assert!(text.lines().nth(line - 1).is_some_and(|line| line.contains(last_key)), "{fault}");
        assert!(fault.contains(&format!(" {place}: ")) && fault.contains(words), "{fault}");
    }
}

#[tokio::test]
async fn a_layer_that_nobody_knows_is_refused() {
    let world = World::new().with_policy_edit("[\"landlock\", \"seccomp\"]", "[\"landlock\", \"selinux\"]");
    let faults = faults(&world).await;
    assert!(faults[0].contains("require") && faults[0].contains("selinux"), "{faults:?}");
}

#[tokio::test]
async fn a_mount_that_is_a_link_or_below_one_is_refused() {
    for link in ["shared", "vault"] {
        let world = World::new();
        let outside = world.root().join("outside");
        fs::create_dir(&outside).expect("a folder");
        fs::remove_dir(world.workspace().join(link)).expect("empty");
        symlink(&outside, world.workspace().join(link)).expect("a link");
        let error = start(&world).await.expect_err("a link");
        assert!(matches!(error, BootstrapError::Mount(MountError::Open { .. })), "{error:?}");
    }
    let world = World::new().with_policy_edit("shared = \"shared\"", "shared = \"via/shared\"");
    symlink(world.root(), world.workspace().join("via")).expect("a link");
    let error = start(&world).await.expect_err("below a link");
    assert!(matches!(error, BootstrapError::Mount(MountError::Open { .. })), "{error:?}");
    assert!(!world.root().join("shared").exists(), "nothing was made behind the link");
}

#[tokio::test]
async fn a_mount_that_touches_state_or_policy_is_refused() {
    let world = World::new();
    let inside = world.workspace().join("tmp/state");
    let link = world.root().join("link");
    symlink(world.workspace().join("shared"), &link).expect("a link");
    for state in [inside, world.workspace().join("shared"), world.workspace(), link.join("state")] {
        let mut envelope = world.envelope();
        envelope.state.clone_from(&state);
        let result = portcullis_tools::bootstrap_runtime_tools(&envelope).await;
        let error = result.expect_err("they touch");
        assert!(
            matches!(error, BootstrapError::Mount(MountError::Overlap { .. })),
            "{}: {error:?}",
            state.display()
        );
    }
    let mut envelope = world.envelope();
    let policy = world.shared("policy.toml");
    fs::copy(world.policy_file(), &policy).expect("a copy");
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
        let world = World::new().with_policy_edit("tmp    = \"tmp\"", &format!("tmp = {tmp}"));
        let faults = faults(&world).await;
        assert!(faults[0].contains(words), "{faults:?}");
    }
}

#[tokio::test]
async fn a_policy_file_that_cannot_be_read_stops_the_start() {
    let world = World::new();
    let missing = world.root().join("none.toml");
    let folder = world.root().join("folder.toml");
    fs::create_dir(&folder).expect("a folder");
    let pipe = world.root().join("pipe.toml");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let binary = world.root().join("binary.toml");
    fs::write(&binary, b"version = 1\n\xff").expect("writable");
    let huge = world.root().join("huge.toml");
    fs::write(&huge, format!("version = 1\n{}", "# x\n".repeat(1 << 19))).expect("writable");
    for path in [missing, folder, pipe, binary, huge] {
        let mut envelope = world.envelope();
        envelope.policy = Some(path.clone());
        let error = portcullis_tools::bootstrap_runtime_tools(&envelope).await.expect_err("unreadable");
        assert!(matches!(error, BootstrapError::PolicyFile { .. }), "{}: {error:?}", path.display());
        assert!(error.source().is_some(), "the cause is told once, as a source");
    }
}

#[tokio::test]
async fn an_overlay_that_would_widen_is_refused_with_both_values() {
    for (text, place, words) in [
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
        let world = World::new();
        overlay(&world, &format!("version = 1\n{text}"));
        match start(&world).await {
            // Requiring no further layer restricts nothing, and is allowed.
            Ok(registry) if text == "require = []" => {
                assert_eq!(registry.policy().required_layers().count(), 2);
            }
            Err(BootstrapError::Policy(error)) => {
                let fault = error.to_string();
                assert!(fault.contains("workspace/portcullis.toml:"), "{fault}");
                assert!(fault.contains(place) && fault.contains(words), "{text}: {fault}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}
