//! Tests of a thread's layers that are required, waived, missing, or only claimed.

use std::sync::mpsc;

use rustix::fs::OFlags;

use super::*;
use crate::{
    MountAccess, MountRule, NetworkRules,
    testing::{ConfineFixture, confined, enter_stock_container, kernel_has_layers, open, run_on_new_thread},
};

#[test]
fn both_layers_are_proven_on_the_thread() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let posture = confined(&fixture.rules(), |proven| proven.posture().clone());
    assert_eq!(*posture.seccomp(), LayerStatus::Enforced);
    assert!(
        matches!(posture.landlock(), LayerStatus::Enforced | LayerStatus::Partial { .. }),
        "{}",
        posture.summary()
    );
    assert_eq!(posture.evidence().len(), Probe::ALL.len());
    // Skip `clone3`, because a container's profile may answer it like this crate's filter.
    for evidence in posture.evidence().iter().filter(|evidence| evidence.probe != Probe::Clone.describe()) {
        assert_ne!(evidence.before, evidence.after, "{evidence:?}");
    }
    assert_eq!(prove_on_scratch_thread(&fixture.rules()).unwrap(), posture);
    let value = serde_json::to_value(&posture).unwrap();
    assert_eq!(value["seccomp"], serde_json::json!({ "status": "enforced" }));
    assert_eq!(value["evidence"][0]["before"], "ok");
    assert_eq!(value["evidence"][0]["after"], "EACCES");
    assert_eq!(value["summary"], posture.summary());
}

fn rules_with_network(fixture: &ConfineFixture) -> ThreadConfinement {
    let network = Some(NetworkRules { ports: [53, 443].into_iter().collect() });
    ThreadConfinement { mounts: Vec::new(), network, ..fixture.rules() }
}

#[test]
fn every_bypass_of_the_port_rule_is_refused() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let posture = confined(&rules_with_network(&fixture), |proven| proven.posture().clone());
    assert!(posture.summary().contains(" tcp 53+443"), "{posture}");
    assert_eq!(posture.network().map(|ports| ports.len()), Some(2));
    for (canary, after) in [
        ("open a file of the state folder for reading", libc::EACCES),
        ("connect to a port that is not named", libc::EACCES),
        ("connect by a first message (MSG_FASTOPEN)", libc::EPERM),
        ("make a netlink socket", libc::EPERM),
        ("make an MPTCP socket", libc::EPERM),
        ("make a UDP socket", libc::EPERM),
        ("make a unix socket", libc::EPERM),
        ("bind a socket to a port", libc::EPERM),
        ("listen on a socket", libc::EPERM),
    ] {
        let evidence = posture.evidence().iter().find(|evidence| evidence.probe == canary);
        let evidence = evidence.unwrap_or_else(|| panic!("no attempt to {canary}"));
        assert_eq!(evidence.after, SyscallOutcome::Failed(after), "{canary}");
        assert!(evidence.is_proof(), "{evidence:?}");
    }
    assert_eq!(prove_on_scratch_thread(&rules_with_network(&fixture)).unwrap(), posture);
}

#[test]
fn an_old_landlock_says_that_ports_are_open() {
    if !kernel_has_layers() {
        return;
    }
    let posture = Posture::new(
        LayerStatus::Partial { missing: vec!["net_connect_tcp".to_owned()] },
        Some(3),
        LayerStatus::Enforced,
        Some([443].into_iter().collect()),
        Vec::new(),
    );
    assert_eq!(posture.summary(), "landlock=partial(abi 3 missing net_connect_tcp),seccomp=enforced");
    let probes = Probe::network_probes(1, 3);
    assert!(probes.iter().all(|probe| probe.describe() != "connect to a port that is not named"));
}

#[test]
fn a_network_and_mounts_exclude_each_other() {
    let fixture = ConfineFixture::new();
    let rules = ThreadConfinement { mounts: fixture.rules().mounts, ..rules_with_network(&fixture) };
    let error = prove_on_scratch_thread(&rules).unwrap_err();
    // On a kernel that lacks a layer, the missing layer is the first error.
    assert!(
        matches!(error, ConfineError::MountsWithNetwork { mounts: 2 } | ConfineError::LayerMissing { .. }),
        "{error}"
    );
}

#[test]
fn call_refused_before_confinement_is_not_a_proof() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let posture = run_on_new_thread(|| {
        enter_stock_container();
        confine_current_thread(&fixture.rules()).unwrap().posture().clone()
    });
    let is_proof = |probe: Probe| {
        let evidence = posture.evidence().iter().find(|evidence| evidence.probe == probe.describe());
        evidence.unwrap().is_proof()
    };
    assert!(!is_proof(Probe::Clone) && is_proof(Probe::Socket) && is_proof(Probe::ReadState));
}

#[test]
fn each_layer_holds_alone() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let status = |layer| confined(&fixture.rules_with_only(layer), |proven| proven.posture().clone());

    let landlock = status(Layer::Landlock);
    assert_eq!(*landlock.seccomp(), LayerStatus::Waived);
    assert!(landlock.evidence().iter().all(|evidence| evidence.layer == Layer::Landlock));
    confined(&fixture.rules_with_only(Layer::Landlock), |_| {
        assert_eq!(fixture.canary().attempt(Probe::Socket), SyscallOutcome::Succeeded);
        assert_eq!(fixture.canary().attempt(Probe::ReadState), Probe::ReadState.refusal());
    });

    let seccomp = status(Layer::Seccomp);
    assert_eq!(seccomp.summary(), "landlock=waived,seccomp=enforced");
    assert!(seccomp.evidence().iter().all(|evidence| evidence.layer == Layer::Seccomp));
    confined(&fixture.rules_with_only(Layer::Seccomp), |_| {
        assert_eq!(fixture.canary().attempt(Probe::Socket), Probe::Socket.refusal());
        open("/etc/passwd", OFlags::RDONLY).unwrap();
    });
}

#[test]
fn waiving_both_confines_nothing_and_says_so() {
    let fixture = ConfineFixture::new();
    let mut rules = fixture.rules();
    (rules.landlock, rules.seccomp) = (Requirement::Waived, Requirement::Waived);
    let posture = prove_on_scratch_thread(&rules).unwrap();
    assert_eq!(posture.summary(), "landlock=waived,seccomp=waived");
    assert_eq!(posture.evidence(), []);
}

#[test]
fn a_required_layer_that_is_missing_is_an_error() {
    let fixture = ConfineFixture::new();
    for (missing, kernel) in [
        (
            Layer::Landlock,
            KernelSupport {
                landlock_abi: None,
                landlock_reason: Some("it is off".into()),
                seccomp: true,
                seccomp_reason: None,
            },
        ),
        (
            Layer::Seccomp,
            KernelSupport {
                landlock_abi: Some(9),
                landlock_reason: None,
                seccomp: false,
                seccomp_reason: Some("it is off".into()),
            },
        ),
    ] {
        let error = run_on_new_thread(|| {
            let error = confine_with(&kernel, &fixture.rules()).map(drop).unwrap_err();
            // The confinement failed before it changed anything.
            open("/etc/passwd", OFlags::RDONLY).unwrap();
            error
        });
        assert_eq!(error.to_string(), format!("{missing} is required, but it is off"));
        assert!(matches!(error, ConfineError::LayerMissing { layer, .. } if layer == missing));
    }
}

#[test]
fn a_missing_layer_may_be_waived() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let kernel =
        KernelSupport { landlock_abi: None, landlock_reason: Some("it is off".into()), ..probe_kernel() };
    let rules = fixture.rules_with_only(Layer::Seccomp);
    let summary = run_on_new_thread(|| confine_with(&kernel, &rules).unwrap().posture().summary().to_owned());
    assert_eq!(summary, "landlock=waived,seccomp=enforced");
}

#[test]
fn a_kernel_that_promises_more_than_it_enforces_is_not_believed() {
    if !kernel_has_layers() || probe_kernel().landlock_abi >= Some(9) {
        return;
    }
    let fixture = ConfineFixture::new();
    let kernel = KernelSupport { landlock_abi: Some(9), ..probe_kernel() };
    let error = run_on_new_thread(|| confine_with(&kernel, &fixture.rules()).map(drop).unwrap_err());
    assert!(matches!(error, ConfineError::LandlockDegraded { abi: 9 }), "{error}");
}

#[test]
fn a_mount_that_contains_the_state_folder_is_noticed() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    for (dir, access) in [("state", MountAccess::Read), ("", MountAccess::Write)] {
        let mut rules = fixture.rules();
        rules.mounts.push(MountRule { dir: fixture.dir(dir), access });
        let error = run_on_new_thread(|| confine_current_thread(&rules).map(drop).unwrap_err());
        assert!(
            matches!(
                error,
                ConfineError::NotRefused { layer: Layer::Landlock, observed: SyscallOutcome::Succeeded, .. }
            ),
            "{error}"
        );
    }
}

#[test]
fn a_thread_cannot_be_confined_twice() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    for rules in
        [fixture.rules(), fixture.rules_with_only(Layer::Landlock), fixture.rules_with_only(Layer::Seccomp)]
    {
        let error = run_on_new_thread(|| {
            confine_current_thread(&rules).unwrap();
            confine_current_thread(&rules).map(drop).unwrap_err()
        });
        // Seccomp also refuses the probe of the kernel, which is an error as well.
        assert!(
            matches!(error, ConfineError::NegativeControl { .. } | ConfineError::LayerMissing { .. }),
            "{error}"
        );
    }
}

#[test]
fn a_removed_canary_stops_the_thread() {
    if !kernel_has_layers() {
        return;
    }
    let fixture = ConfineFixture::new();
    let (ready, is_ready) = mpsc::channel();
    let (removed, is_removed) = mpsc::channel::<()>();
    let rules = fixture.rules();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let proven = confine_current_thread(&rules).unwrap();
            proven.reprove().unwrap();
            ready.send(()).unwrap();
            is_removed.recv().unwrap();
            proven.reprove().unwrap_err()
        });
        is_ready.recv().unwrap();
        std::fs::remove_file(fixture.path("state/canary")).unwrap();
        removed.send(()).unwrap();
        let error = worker.join().unwrap();
        let absent = SyscallOutcome::Failed(libc::ENOENT);
        assert!(matches!(error, ConfineError::NotRefused { observed, .. } if observed == absent), "{error}");
    });
}
