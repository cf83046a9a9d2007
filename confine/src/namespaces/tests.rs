//! Namespaces that a thread can enter alone. Those of processes and of files are tested with whole sessions,
//! in the tests of the shell daemon.

use super::*;
use crate::testing::{World, enter_stock_container, on_fresh_thread};

const OF_THREADS: [Layer; 3] = [Layer::IpcNamespace, Layer::UtsNamespace, Layer::NetNamespace];

fn may_enter() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|capabilities| capabilities.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn tree() -> FileTree {
    FileTree {
        files: Vec::new(),
        mounts: Vec::new(),
        system: Vec::new(),
        read_only: Vec::new(),
        fixed: Vec::new(),
        home: "/".into(),
        user: None,
    }
}

/// As if the outer process had found that there is no process namespace.
fn wanted(layers: &[Layer]) -> Namespaces {
    let mut namespaces = Namespaces { reports: Vec::new(), ..Namespaces::none(&LayerStatus::Waived) };
    namespaces.wanted = layers.to_vec();
    for layer in Layer::NAMESPACES {
        if !layers.contains(&layer) {
            namespaces.report(layer, LayerStatus::Waived, Vec::new());
        }
    }
    namespaces
}

fn status(inside: &NamespacedProcess, layer: Layer) -> &LayerStatus {
    &inside.reports.iter().find(|report| report.layer == layer).unwrap().status
}

#[test]
fn namespace_evidence_worked_before_entry() {
    if !may_enter() {
        return;
    }
    let world = World::new();
    let enter = || wanted(&OF_THREADS).enter(&SingleThreaded::pretend(), &world.canary(), &tree(), None);
    let inside = on_fresh_thread(|| enter().unwrap());
    assert_eq!(inside.reports.iter().map(|report| report.layer).collect::<Vec<_>>(), Layer::NAMESPACES);
    for report in inside.reports.iter().filter(|report| OF_THREADS.contains(&report.layer)) {
        assert_eq!(report.status, LayerStatus::Enforced, "{report:?}");
        assert!(!report.evidence.is_empty(), "{report:?}");
        for evidence in &report.evidence {
            assert_eq!(evidence.before, SyscallOutcome::Succeeded, "{report:?}");
            assert!(matches!(evidence.after, SyscallOutcome::Failed(_)), "{report:?}");
        }
    }
    assert!(inside.tree.is_none());
}

#[test]
fn namespaces_a_container_refuses_are_missing_with_a_remedy() {
    if !may_enter() {
        return;
    }
    let world = World::new();
    let inside = on_fresh_thread(|| {
        enter_stock_container();
        let prepared =
            Namespaces::prepare(&SingleThreaded::pretend(), &[Layer::UtsNamespace], None, None).unwrap();
        prepared.enter(&SingleThreaded::pretend(), &world.canary(), &tree(), None).unwrap()
    });
    assert_eq!(status(&inside, Layer::UtsNamespace), &LayerStatus::Waived);
    for (layer, word) in [
        (Layer::PidNamespace, "--security-opt seccomp=FILE"),
        (Layer::IpcNamespace, "--security-opt seccomp=FILE"),
        (Layer::NetNamespace, "--security-opt seccomp=FILE"),
        (Layer::MountNamespace, "process namespace"),
    ] {
        let LayerStatus::Missing { reason } = status(&inside, layer) else {
            panic!("{layer}: {inside:?}");
        };
        assert!(reason.contains(word), "{layer}: {reason}");
    }
}

#[test]
fn attempt_that_still_works_in_a_namespace_is_an_error() {
    for layer in OF_THREADS {
        for attempt in NamespaceAttempt::all(layer).unwrap() {
            let proof = attempt.proof(layer, attempt.make());
            assert!(matches!(proof, Err(ConfineError::NotRefused { .. })), "{proof:?}");
        }
    }
    // No namespace was entered, so the attempt still works.
    let refused = on_fresh_thread(|| wanted(&OF_THREADS).enter_one(Layer::NetNamespace, || Ok(())).map(drop));
    assert!(
        matches!(refused, Err(ConfineError::NotRefused { layer: Layer::NetNamespace, .. })),
        "{refused:?}"
    );
}

#[test]
fn left_out_ones_are_reported_as_said() {
    let world = World::new();
    let reason = LayerStatus::Missing { reason: "said so".to_owned() };
    let inside = on_fresh_thread(|| {
        Namespaces::none(&reason).enter(&SingleThreaded::pretend(), &world.canary(), &tree(), None).unwrap()
    });
    assert_eq!(inside.reports.len(), Layer::NAMESPACES.len());
    assert!(inside.reports.iter().all(|report| report.status == reason));
}

#[track_caller]
fn check_advice(text: &str, word: &str) {
    assert!(text.contains(word), "{text}");
}

#[test]
fn advice_names_what_is_to_be_done() {
    let error = |errno| io::Error::from_raw_os_error(errno);
    check_advice(&advice::user_namespace(&error(libc::EINVAL)), "CONFIG_USER_NS");
    check_advice(&advice::user_namespace(&error(libc::ENOSPC)), "user.max_user_namespaces");
    check_advice(&advice::namespace(Layer::NetNamespace, &error(libc::EINVAL)), "CONFIG_NET_NS");
    check_advice(&advice::namespace(Layer::NetNamespace, &error(libc::EPERM)), "seccomp=FILE");
    check_advice(&advice::tree("mount a /proc of its own", &error(libc::EPERM)), "unmask=ALL");
    check_advice(&advice::tree("copy a mount", &error(libc::ENOSYS)), "Linux 5.12");
}
