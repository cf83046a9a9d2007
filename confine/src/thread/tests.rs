//! Layers of a thread that are required, waived, missing, or only claimed.

use std::sync::mpsc;

use rustix::fs::OFlags;

use super::*;
use crate::{
    MountAccess, MountRule, NetworkRules,
    testing::{World, confined, enter_stock_container, kernel_has_layers, on_fresh_thread, open},
};

#[test]
fn both_layers_are_proven_on_the_thread() {
    if !kernel_has_layers() {
        return;
    }
    let world = World::new();
    let posture = confined(&world.rules(), |proven| proven.posture().clone());
    assert_eq!(*posture.seccomp(), LayerStatus::Enforced);
    assert!(
        matches!(posture.landlock(), LayerStatus::Enforced | LayerStatus::Partial { .. }),
        "{}",
        posture.summary()
    );
    assert_eq!(posture.evidence().len(), Probe::ALL.len());
    // Skipped: a container's profile may answer `clone3` as ours does.
    for evidence in posture.evidence().iter().filter(|evidence| evidence.canary != Probe::Clone.describe()) {
        assert_ne!(evidence.before, evidence.after, "{evidence:?}");
    }
    assert_eq!(prove_on_scratch_thread(&world.rules()).unwrap(), posture);
    let value = serde_json::to_value(&posture).unwrap();
    assert_eq!(value["seccomp"], serde_json::json!({ "status": "enforced" }));
    assert_eq!(value["evidence"][0]["before"], "ok");
    assert_eq!(value["evidence"][0]["after"], "EACCES");
    assert_eq!(value["summary"], posture.summary());
}

fn with_network(world: &World) -> ThreadConfinement {
    let network = Some(NetworkRules { ports: [53, 443].into_iter().collect() });
    ThreadConfinement { mounts: Vec::new(), network, ..world.rules() }
}

#[test]
fn each_way_round_the_ports_is_proven_shut() {
    if !kernel_has_layers() {
        return;
    }
    let world = World::new();
    let posture = confined(&with_network(&world), |proven| proven.posture().clone());
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
        let evidence = posture.evidence().iter().find(|evidence| evidence.canary == canary);
        let evidence = evidence.unwrap_or_else(|| panic!("no attempt to {canary}"));
        assert_eq!(evidence.after, SyscallOutcome::Failed(after), "{canary}");
        assert!(evidence.is_proof(), "{evidence:?}");
    }
    assert_eq!(prove_on_scratch_thread(&with_network(&world)).unwrap(), posture);
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
    let of_three = Probe::of_network(1, 3);
    assert!(of_three.iter().all(|probe| probe.describe() != "connect to a port that is not named"));
}

#[test]
fn a_network_and_mounts_exclude_each_other() {
    let world = World::new();
    let rules = ThreadConfinement { mounts: world.rules().mounts, ..with_network(&world) };
    let error = prove_on_scratch_thread(&rules).unwrap_err();
    // On a kernel without a layer, that is the first error.
    assert!(
        matches!(error, ConfineError::MountsWithNetwork { mounts: 2 } | ConfineError::LayerMissing { .. }),
        "{error}"
    );
}

#[test]
fn call_refused_before_confinement_is_no_proof() {
    if !kernel_has_layers() {
        return;
    }
    let world = World::new();
    let posture = on_fresh_thread(|| {
        enter_stock_container();
        confine_current_thread(&world.rules()).unwrap().posture().clone()
    });
    let is_proof = |probe: Probe| {
        let evidence = posture.evidence().iter().find(|evidence| evidence.canary == probe.describe());
        evidence.unwrap().is_proof()
    };
    assert!(!is_proof(Probe::Clone) && is_proof(Probe::Socket) && is_proof(Probe::ReadState));
}

#[test]
fn each_layer_holds_alone() {
    if !kernel_has_layers() {
        return;
    }
    let world = World::new();
    let status = |layer| confined(&world.only(layer), |proven| proven.posture().clone());

    let landlock = status(Layer::Landlock);
    assert_eq!(*landlock.seccomp(), LayerStatus::Waived);
    assert!(landlock.evidence().iter().all(|evidence| evidence.layer == Layer::Landlock));
    confined(&world.only(Layer::Landlock), |_| {
        assert_eq!(world.canary().attempt(Probe::Socket), SyscallOutcome::Succeeded);
        assert_eq!(world.canary().attempt(Probe::ReadState), Probe::ReadState.refusal());
    });

    let seccomp = status(Layer::Seccomp);
    assert_eq!(seccomp.summary(), "landlock=waived,seccomp=enforced");
    assert!(seccomp.evidence().iter().all(|evidence| evidence.layer == Layer::Seccomp));
    confined(&world.only(Layer::Seccomp), |_| {
        assert_eq!(world.canary().attempt(Probe::Socket), Probe::Socket.refusal());
        open("/etc/passwd", OFlags::RDONLY).unwrap();
    });
}

#[test]
fn waiving_both_confines_nothing_and_says_so() {
    let world = World::new();
    let mut rules = world.rules();
    (rules.landlock, rules.seccomp) = (Requirement::Waived, Requirement::Waived);
    let posture = prove_on_scratch_thread(&rules).unwrap();
    assert_eq!(posture.summary(), "landlock=waived,seccomp=waived");
    assert_eq!(posture.evidence(), []);
}

#[test]
fn a_required_layer_that_is_missing_is_an_error() {
    let world = World::new();
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
        let error = on_fresh_thread(|| {
            let error = confine_on(&kernel, &world.rules()).map(drop).unwrap_err();
            // It failed before it changed anything.
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
    let world = World::new();
    let kernel =
        KernelSupport { landlock_abi: None, landlock_reason: Some("it is off".into()), ..probe_kernel() };
    let rules = world.only(Layer::Seccomp);
    let summary = on_fresh_thread(|| confine_on(&kernel, &rules).unwrap().posture().summary().to_owned());
    assert_eq!(summary, "landlock=waived,seccomp=enforced");
}

#[test]
fn a_kernel_that_promises_more_than_it_enforces_is_not_believed() {
    if !kernel_has_layers() || probe_kernel().landlock_abi >= Some(9) {
        return;
    }
    let world = World::new();
    let kernel = KernelSupport { landlock_abi: Some(9), ..probe_kernel() };
    let error = on_fresh_thread(|| confine_on(&kernel, &world.rules()).map(drop).unwrap_err());
    assert!(matches!(error, ConfineError::LandlockDegraded { abi: 9 }), "{error}");
}

#[test]
fn a_mount_that_contains_the_state_folder_is_noticed() {
    if !kernel_has_layers() {
        return;
    }
    let world = World::new();
    for (dir, access) in [("state", MountAccess::Read), ("", MountAccess::Write)] {
        let mut rules = world.rules();
        rules.mounts.push(MountRule { dir: world.dir(dir), access });
        let error = on_fresh_thread(|| confine_current_thread(&rules).map(drop).unwrap_err());
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
    let world = World::new();
    for rules in [world.rules(), world.only(Layer::Landlock), world.only(Layer::Seccomp)] {
        let error = on_fresh_thread(|| {
            confine_current_thread(&rules).unwrap();
            confine_current_thread(&rules).map(drop).unwrap_err()
        });
        // Under seccomp the kernel probe itself is refused, which is just as good.
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
    let world = World::new();
    let (ready, is_ready) = mpsc::channel();
    let (removed, is_removed) = mpsc::channel::<()>();
    let rules = world.rules();
    thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let proven = confine_current_thread(&rules).unwrap();
            proven.reprove().unwrap();
            ready.send(()).unwrap();
            is_removed.recv().unwrap();
            proven.reprove().unwrap_err()
        });
        is_ready.recv().unwrap();
        std::fs::remove_file(world.path("state/canary")).unwrap();
        removed.send(()).unwrap();
        let error = worker.join().unwrap();
        let absent = SyscallOutcome::Failed(libc::ENOENT);
        assert!(matches!(error, ConfineError::NotRefused { observed, .. } if observed == absent), "{error}");
    });
}
