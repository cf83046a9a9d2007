//! The posture that a session gets, the posture's proof, and the errors if a posture is not available.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use portcullis_confine::{GroupLimits, Layer, LayerStatus, SyscallOutcome};
use portcullis_shell_daemon::{Ending, PostureChoice, ShellError, ShellSession};
use portcullis_types::ShellPosture;

use crate::fixture::{Fixture, Session};

#[track_caller]
fn assert_proven(session: &Session, layer: Layer) {
    let posture = session.0.posture();
    let report = posture.layers().iter().find(|report| report.layer == layer).unwrap();
    assert!(matches!(report.status, LayerStatus::Enforced | LayerStatus::Partial { .. }), "{report:?}");
    assert!(!report.evidence.is_empty(), "{report:?}");
    assert!(report.evidence.iter().all(|seen| seen.after != SyscallOutcome::Succeeded), "{report:?}");
}

#[test]
fn each_layer_was_seen_to_refuse() {
    Fixture::for_each_confined_posture(|fixture| {
        let session = fixture.session();
        for layer in Layer::PROCESS {
            assert_proven(&session, layer);
        }
        if fixture.has_tree() {
            for layer in Layer::NAMESPACES {
                assert_proven(&session, layer);
            }
        }
    });
}

#[test]
fn the_namespaces_refuse_what_worked_before() {
    Fixture::strong().iter().for_each(|fixture| {
        let session = fixture.session();
        for report in session.0.posture().layers() {
            if Layer::NAMESPACES.contains(&report.layer) {
                assert!(
                    report.evidence.iter().all(|seen| seen.before == SyscallOutcome::Succeeded),
                    "{report:?}"
                );
            }
        }
    });
}

#[test]
fn the_strongest_that_works_is_chosen() {
    let Some(strong) = Fixture::strong() else { return };
    for least in [ShellPosture::Minimal, ShellPosture::Contained, ShellPosture::Strong, ShellPosture::None] {
        let mut spec = strong.spec();
        spec.posture = PostureChoice::AtLeast(least);
        let session = ShellSession::start(&spec).unwrap();
        assert_eq!(session.posture().level(), ShellPosture::Strong);
        assert!(session.has_own_tree());
        let summary = session.posture().summary();
        let begin = "strong(limits=enforced,privileges=enforced,pid_ns=enforced,ipc_ns=enforced,uts_ns=enforced,\
                     net_ns=enforced,mount_ns=enforced,cgroup=waived,landlock=";
        assert!(summary.starts_with(begin) && summary.ends_with(",seccomp=enforced)"), "{summary}");
    }
}

#[test]
fn exactly_one_posture_is_that_one() {
    if Fixture::new().is_none() {
        return;
    }
    for level in ShellPosture::ALL {
        if level == ShellPosture::Strong && Fixture::strong().is_none() {
            continue;
        }
        let fixture = Fixture::make(PostureChoice::Exactly(level));
        let mut session = fixture.session();
        assert_eq!(session.0.posture().level(), level);
        assert_eq!(session.output("echo on"), "on\n");
        assert_eq!(session.0.has_own_tree(), level == ShellPosture::Strong);
    }
}

#[test]
fn posture_none_is_the_unconfined_host_shell() {
    let fixture = Fixture::make(PostureChoice::Exactly(ShellPosture::None));
    let mut session = fixture.session();
    assert_eq!(session.0.posture().summary(), "none");
    assert!(session.0.posture().layers().is_empty());
    assert_eq!(session.0.user(), None);
    let secret = fixture.path("vault/secret");
    assert_eq!(session.output(&format!("cat {}; cd; echo x > file", secret.display())), "vault/secret");
    session.output(&format!("kill -0 {}", std::process::id()));
    assert!(fixture.path("shared/file").exists());
}

#[test]
fn minimal_uses_what_works_and_is_never_the_default() {
    let Some(fixture) = Fixture::new() else { return };
    let mut spec = fixture.spec();
    spec.posture = PostureChoice::Exactly(ShellPosture::Minimal);
    let session = Session(ShellSession::start(&spec).unwrap());
    for layer in Layer::PROCESS {
        assert_proven(&session, layer);
    }
    // Without Landlock, `minimal` is the strongest posture. A client that asks for a stronger posture gets no session.
    spec.waived = vec![Layer::Landlock];
    spec.posture = PostureChoice::AtLeast(ShellPosture::Minimal);
    let posture = ShellSession::start(&spec).unwrap().posture().clone();
    assert_eq!(posture.level(), ShellPosture::Minimal);
    assert_eq!(posture.layer(Layer::Landlock), Some(&LayerStatus::Waived));
    for choice in [
        PostureChoice::AtLeast(ShellPosture::Contained),
        PostureChoice::AtLeast(ShellPosture::Strong),
        PostureChoice::Exactly(ShellPosture::Contained),
    ] {
        spec.posture = choice;
        let refused = ShellSession::start(&spec);
        let Err(ShellError::PostureUnavailable { reached: ShellPosture::Minimal, lacking, .. }) = refused
        else {
            panic!("{choice:?}: {refused:?}");
        };
        assert!(lacking.iter().any(|(layer, _)| *layer == Layer::Landlock), "{lacking:?}");
    }
}

#[test]
fn each_namespace_that_is_left_out_makes_it_less_than_strong() {
    for layer in Layer::NAMESPACES {
        let Some(fixture) = Fixture::without(&[layer]) else { return };
        let mut session = fixture.session();
        let posture = session.0.posture().clone();
        assert_eq!(posture.level(), ShellPosture::Contained, "{posture}");
        assert_eq!(posture.layer(layer), Some(&LayerStatus::Waived));
        for other in Layer::NAMESPACES {
            // A separate file tree needs a process namespace, for its `/proc`.
            let is_lost = layer == Layer::PidNamespace && other == Layer::MountNamespace;
            if other != layer && !is_lost {
                assert_proven(&session, other);
            }
        }
        assert_eq!(session.run("exit 7").end.ending, Ending::Code(7));
        let mut spec = fixture.spec();
        spec.posture = PostureChoice::AtLeast(ShellPosture::Strong);
        let refused = ShellSession::start(&spec).unwrap_err();
        assert!(matches!(refused, ShellError::PostureUnavailable { .. }), "{refused:?}");
        assert!(refused.to_string().contains(layer.as_str()), "{refused}");
    }
}

/// Where a control group can be made, it holds. Elsewhere the report gives the remedy. No posture needs a control
/// group.
#[test]
fn a_control_group_holds_or_is_missing_with_a_reason() {
    Fixture::for_each_confined_posture(|fixture| {
        let mut spec = fixture.spec();
        spec.group = Some(GroupLimits { memory_bytes: 1 << 30, processes: 100, cpu_percent: Some(100) });
        let mut session = Session(ShellSession::start(&spec).unwrap());
        match session.0.posture().layer(Layer::Cgroup).unwrap() {
            LayerStatus::Missing { reason } => assert!(reason.contains("Delegate=yes"), "{reason}"),
            LayerStatus::Enforced | LayerStatus::Partial { .. } => assert_proven(&session, Layer::Cgroup),
            other => panic!("{other:?}"),
        }
        assert_eq!(session.output("echo on"), "on\n");
        session.0.end().unwrap();
    });
}

#[test]
fn a_mount_is_called_as_a_folder_can_be() {
    let Some(fixture) = Fixture::new() else { return };
    for name in ["", "usr", "proc", "a/b", "..", "Shared", "a b", "é", &"x".repeat(65)] {
        let mut spec = fixture.spec();
        spec.mounts[2].name = name.to_owned();
        let refused = ShellSession::start(&spec);
        assert!(matches!(refused, Err(ShellError::MountName { .. })), "{name}: {refused:?}");
    }
}
