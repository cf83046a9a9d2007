//! Tests of the namespaces that a single thread can enter. The shell sidecar's tests cover process and mount namespaces
//! with whole sessions.

use super::*;
use crate::{
    file_tree::TreeStep,
    testing::{ConfineFixture, enter_stock_container, run_on_new_thread},
};

const THREAD_LAYERS: [Layer; 3] = [Layer::IpcNamespace, Layer::UtsNamespace, Layer::NetNamespace];

fn may_enter() -> bool {
    rustix::thread::capabilities(None)
        .is_ok_and(|capabilities| capabilities.effective.contains(CapabilitySet::SYS_ADMIN))
}

fn tree() -> FileTree {
    FileTree {
        files: Vec::new(),
        mounts: Vec::new(),
        system: Vec::new(),
        toolchain: Vec::new(),
        read_only: Vec::new(),
        pinned: Vec::new(),
        covered: Vec::new(),
        symlinks: Vec::new(),
        home: "/".into(),
        user: None,
    }
}

/// Preparations for these namespaces, as if the outer process had found no process namespace.
fn request_namespaces(layers: &[Layer]) -> Namespaces {
    let mut namespaces = Namespaces { reports: Vec::new(), ..Namespaces::absent(&LayerStatus::Waived) };
    namespaces.requested = layers.to_vec();
    for layer in Layer::NAMESPACES {
        if !layers.contains(&layer) {
            namespaces.report(layer, LayerStatus::Waived, Vec::new());
        }
    }
    namespaces
}

fn status(process: &NamespacedProcess, layer: Layer) -> &LayerStatus {
    &process.reports.iter().find(|report| report.layer == layer).unwrap().status
}

#[test]
fn namespace_evidence_worked_before_entry() {
    if !may_enter() {
        return;
    }
    let fixture = ConfineFixture::new();
    let enter = || {
        request_namespaces(&THREAD_LAYERS).enter(&SingleThreaded::pretend(), &fixture.canary(), &tree(), None)
    };
    let process = run_on_new_thread(|| enter().unwrap());
    assert_eq!(process.reports.iter().map(|report| report.layer).collect::<Vec<_>>(), Layer::NAMESPACES);
    for report in process.reports.iter().filter(|report| THREAD_LAYERS.contains(&report.layer)) {
        assert_eq!(report.status, LayerStatus::Enforced, "{report:?}");
        assert!(!report.evidence.is_empty(), "{report:?}");
        for evidence in &report.evidence {
            assert_eq!(evidence.before, SyscallOutcome::Succeeded, "{report:?}");
            assert!(matches!(evidence.after, SyscallOutcome::Failed(_)), "{report:?}");
        }
    }
    assert!(process.tree.is_none());
}

#[test]
fn namespaces_a_container_refuses_are_missing_with_a_remedy() {
    if !may_enter() {
        return;
    }
    let fixture = ConfineFixture::new();
    let process = run_on_new_thread(|| {
        enter_stock_container();
        let prepared =
            Namespaces::prepare(&SingleThreaded::pretend(), &[Layer::UtsNamespace], None, None).unwrap();
        prepared.enter(&SingleThreaded::pretend(), &fixture.canary(), &tree(), None).unwrap()
    });
    assert_eq!(status(&process, Layer::UtsNamespace), &LayerStatus::Waived);
    for (layer, word) in [
        (Layer::PidNamespace, "--security-opt seccomp=FILE"),
        (Layer::IpcNamespace, "--security-opt seccomp=FILE"),
        (Layer::NetNamespace, "--security-opt seccomp=FILE"),
        (Layer::MountNamespace, "process namespace"),
    ] {
        let LayerStatus::Missing { reason } = status(&process, layer) else {
            panic!("{layer}: {process:?}");
        };
        assert!(reason.contains(word), "{layer}: {reason}");
    }
}

#[test]
fn attempt_that_still_works_in_a_namespace_is_an_error() {
    for layer in THREAD_LAYERS {
        for attempt in NamespaceProbe::for_layer(layer).unwrap() {
            let proof = attempt.proof(layer, attempt.run());
            assert!(matches!(proof, Err(ConfineError::NotRefused { .. })), "{proof:?}");
        }
    }
    // No namespace was entered, so the attempt still works.
    let refused = run_on_new_thread(|| {
        request_namespaces(&THREAD_LAYERS).enter_layer(Layer::NetNamespace, || Ok(())).map(drop)
    });
    assert!(
        matches!(refused, Err(ConfineError::NotRefused { layer: Layer::NetNamespace, .. })),
        "{refused:?}"
    );
}

#[test]
fn namespaces_left_out_are_reported_with_the_status() {
    let fixture = ConfineFixture::new();
    let reason = LayerStatus::Missing { reason: "said so".to_owned() };
    let process = run_on_new_thread(|| {
        Namespaces::absent(&reason)
            .enter(&SingleThreaded::pretend(), &fixture.canary(), &tree(), None)
            .unwrap()
    });
    assert_eq!(process.reports.len(), Layer::NAMESPACES.len());
    assert!(process.reports.iter().all(|report| report.status == reason));
}

#[track_caller]
fn check_advice(text: &str, word: &str) {
    assert!(text.contains(word), "{text}");
}

#[test]
fn advice_names_the_remedy() {
    let error = |errno| io::Error::from_raw_os_error(errno);
    check_advice(&advice::user_namespace(error(libc::EINVAL)).to_string(), "CONFIG_USER_NS");
    check_advice(&advice::user_namespace(error(libc::ENOSPC)).to_string(), "user.max_user_namespaces");
    check_advice(&advice::namespace(Layer::NetNamespace, &error(libc::EINVAL)), "CONFIG_NET_NS");
    check_advice(&advice::namespace(Layer::NetNamespace, &error(libc::EPERM)), "seccomp=FILE");
    check_advice(&advice::tree(TreeStep::MountProc, &error(libc::EPERM)), "unmask=ALL");
    check_advice(&advice::tree(TreeStep::CopyMount, &error(libc::ENOSYS)), "Linux 5.12");
}
