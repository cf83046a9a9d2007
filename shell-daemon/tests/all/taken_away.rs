//! The daemon notices a layer that is taken away or only pretends to hold: its posture report changes, and a
//! client that asks for more gets no session.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::io::Write as _;

use portcullis_shell_daemon::PostureChoice;
use portcullis_testing::outer::{KernelEnvironment, SyscallUse};
use portcullis_types::ShellPosture;
use tonic::Status;

use crate::{
    matrix::column::{Who, daemon_of},
    server::sidecar::{
        Credentials, Embedded, Shell, client, code, config, everything, setup_line, spawn_embedded,
    },
    world::World,
};
use portcullis_shell_protocol::{CreateSessionRequest, HealthRequest, PostureReport};

/// A daemon that accepts every posture from `minimal` upwards.
async fn daemon(who: Who, outer: KernelEnvironment) -> (World, Embedded, Shell) {
    let world = World::make(PostureChoice::AtLeast(ShellPosture::Minimal));
    let mut command = daemon_of(&world, who);
    let (daemon, mut stream) = outer.start(|| spawn_embedded(&mut command));
    let mut config = config(&world);
    config.posture = PostureChoice::AtLeast(ShellPosture::Minimal);
    stream.write_all(setup_line(&config).as_bytes()).unwrap();
    (world, daemon, client(stream, Credentials::good()).await)
}

fn at_least(posture: ShellPosture) -> CreateSessionRequest {
    CreateSessionRequest { least_posture: posture.as_str().to_owned(), ..everything() }
}

fn status(report: &PostureReport, layer: &str) -> String {
    report
        .layers
        .iter()
        .find(|found| found.name == layer)
        .map(|found| found.status.clone())
        .unwrap_or_default()
}

/// Where the kernel refuses a layer, it is missing, the posture is the next weaker one, and a stronger one is
/// refused.
async fn check_missing(who: Who, outer: KernelEnvironment, missing: &[&str], reached: ShellPosture) {
    if World::strong().is_none() || (who == Who::Root && !rustix::process::geteuid().is_root()) {
        return;
    }
    let (_control_world, _control_daemon, mut control) = daemon(who, KernelEnvironment::Nothing).await;
    let whole = control.health(HealthRequest::default()).await.unwrap().into_inner().posture.unwrap();
    let (_world, _daemon, mut shell) = daemon(who, outer).await;
    let health = shell.health(HealthRequest::default()).await.unwrap().into_inner().posture.unwrap();
    let created = shell.create_session(at_least(reached)).await.unwrap().into_inner().posture.unwrap();
    for report in [&health, &created] {
        assert_eq!(report.posture, reached.as_str(), "{outer:?}: {report:?}");
        assert_ne!(report.summary, whole.summary, "the row says so");
        for layer in &report.layers {
            let is_missing = missing.contains(&layer.name.as_str());
            assert_eq!(
                layer.status == "missing",
                is_missing || layer.name == "cgroup",
                "{outer:?}: {report:?}"
            );
            assert!(!(layer.evidence.is_empty() && layer.reason.is_empty()), "{layer:?}");
            assert!(!is_missing || report.summary.contains(&format!("{}=missing", layer.name)), "{report:?}");
        }
    }
    for layer in missing {
        assert_eq!(
            status(&whole, layer).replace("partial", "enforced"),
            "enforced",
            "the control: {whole:?}"
        );
    }
    assert_eq!(whole.posture, "strong", "the control");
    for more in ShellPosture::ALL.into_iter().filter(|more| *more > reached) {
        let refused = shell.create_session(at_least(more)).await.unwrap_err();
        assert_eq!(code(&refused), "posture", "{refused:?}");
        for layer in missing.iter().filter(|_| more == ShellPosture::Strong) {
            assert!(refused.message().contains(layer), "{layer}: {refused:?}");
        }
    }
}

/// Where a layer that every session needs is not available or does not hold, there is no session at all.
async fn check_refused(who: Who, outer: KernelEnvironment, words: &[&str]) {
    if World::strong().is_none() || (who == Who::Root && !rustix::process::geteuid().is_root()) {
        return;
    }
    let (world, _daemon, mut shell) = daemon(who, outer).await;
    let refused: [Status; 2] = [
        shell.health(HealthRequest::default()).await.unwrap_err(),
        shell.create_session(everything()).await.unwrap_err(),
    ];
    for status in refused {
        assert_eq!(code(&status), "start", "{outer:?}: {status:?}");
        for word in words {
            assert!(status.message().contains(word), "{outer:?}: {word}: {status:?}");
        }
    }
    assert_eq!(std::fs::read_dir(world.path("shared")).unwrap().count(), 0);
}

const BOTH: [Who; 2] = [Who::Root, Who::Ordinary];

#[tokio::test]
async fn without_landlock_there_is_less_than_contained() {
    for who in BOTH {
        let outer =
            KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_landlock_create_ruleset), libc::ENOSYS)]);
        check_missing(who, outer, &["landlock"], ShellPosture::Minimal).await;
    }
}

#[tokio::test]
async fn without_a_filter_there_is_less_than_contained() {
    for who in BOTH {
        let outer = KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_seccomp), libc::ENOSYS)]);
        check_missing(who, outer, &["seccomp"], ShellPosture::Minimal).await;
    }
}

/// The outer sandbox's answer to a call that makes one kind of namespace.
const fn unshare(flag: libc::c_int, errno: libc::c_int) -> (SyscallUse, libc::c_int) {
    (SyscallUse::WithFlag(libc::SYS_unshare, flag), errno)
}

const ALL: [&str; 5] = ["pid_ns", "ipc_ns", "uts_ns", "net_ns", "mount_ns"];

#[tokio::test]
async fn without_one_of_the_namespaces_there_is_less_than_strong() {
    const REFUSED: libc::c_int = libc::EPERM;
    for (outer, missing) in [
        (
            KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWPID, REFUSED)] }),
            &["pid_ns", "mount_ns"][..],
        ),
        (KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWIPC, REFUSED)] }), &["ipc_ns"]),
        (KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWUTS, REFUSED)] }), &["uts_ns"]),
        (KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWNET, REFUSED)] }), &["net_ns"]),
        (KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWNS, REFUSED)] }), &["mount_ns"]),
        // On the way into a file tree there is no way back, so a new session without any namespace is
        // started.
        (KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_pivot_root), REFUSED)]), &ALL),
    ] {
        for who in BOTH {
            check_missing(who, outer, missing, ShellPosture::Contained).await;
        }
    }
}

#[tokio::test]
async fn without_a_user_namespace_ordinary_users_get_no_namespace() {
    let outer = KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWUSER, libc::EPERM)] });
    check_missing(Who::Ordinary, outer, &ALL, ShellPosture::Contained).await;
}

/// Not the UTS and mount namespaces: the next steps would then change the machine itself.
#[tokio::test]
async fn a_namespace_that_only_pretends_is_none() {
    for outer in [
        KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWPID, 0)] }),
        KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWIPC, 0)] }),
        KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWNET, 0)] }),
    ] {
        for who in BOTH {
            check_missing(who, outer, &ALL, ShellPosture::Contained).await;
        }
    }
}

#[tokio::test]
async fn landlock_that_only_pretends_is_noticed() {
    for who in BOTH {
        let outer = KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_landlock_restrict_self), 0)]);
        check_refused(who, outer, &["landlock"]).await;
    }
}

#[tokio::test]
async fn a_filter_that_only_pretends_is_noticed() {
    for who in BOTH {
        check_refused(
            who,
            KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_seccomp), 0)]),
            &["seccomp"],
        )
        .await;
    }
}

#[tokio::test]
async fn limits_that_cannot_be_set_or_only_pretend_are_noticed() {
    for who in BOTH {
        for outer in [
            KernelEnvironment::Errno(&[(SyscallUse::WithPointer(libc::SYS_prlimit64, 2), libc::EPERM)]),
            KernelEnvironment::Errno(&[(SyscallUse::WithPointer(libc::SYS_prlimit64, 2), 0)]),
        ] {
            check_refused(who, outer, &["limit"]).await;
        }
    }
}

#[tokio::test]
async fn privileges_that_cannot_be_given_up_are_noticed() {
    for who in BOTH {
        let outer = KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_capset), libc::EPERM)]);
        check_refused(who, outer, &["capabilities"]).await;
        let outer = KernelEnvironment::Errno(&[(
            SyscallUse::WithFirst(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS),
            libc::EPERM,
        )]);
        check_refused(who, outer, &["no_new_privs"]).await;
    }
    // An ordinary user has no privileges to keep, and in namespaces root becomes one.
    let outer = KernelEnvironment::Errno(&[
        (SyscallUse::Any(libc::SYS_capset), 0),
        (SyscallUse::Any(libc::SYS_unshare), libc::EPERM),
    ]);
    check_refused(Who::Root, outer, &["capabilities"]).await;
}
