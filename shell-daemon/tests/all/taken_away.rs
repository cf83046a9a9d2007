//! The sidecar notices a layer that is taken away or only pretends to hold. The posture report then changes, and a
//! client that asks for a stronger posture gets no session.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::io::Write as _;

use portcullis_shell_daemon::PostureChoice;
use portcullis_testing::kernel_environment::{KernelEnvironment, SyscallUse};
use portcullis_types::ShellPosture;
use tonic::Status;

use crate::{
    fixture::Fixture,
    matrix::column::{SidecarUser, sidecar_command},
    server::sidecar::{
        Credentials, Embedded, Shell, client, code, config, everything, setup_line, spawn_embedded,
    },
};
use portcullis_shell_protocol::{CreateSessionRequest, HealthRequest, PostureReport};

/// A sidecar that accepts every posture from `minimal` upwards.
async fn sidecar(user: SidecarUser, outer: KernelEnvironment) -> (Fixture, Embedded, Shell) {
    let fixture = Fixture::make(PostureChoice::AtLeast(ShellPosture::Minimal));
    let mut command = sidecar_command(&fixture, user);
    let (sidecar, mut stream) = outer.start(|| spawn_embedded(&mut command));
    let mut config = config(&fixture);
    config.posture = PostureChoice::AtLeast(ShellPosture::Minimal);
    stream.write_all(setup_line(&config).as_bytes()).unwrap();
    (fixture, sidecar, client(stream, Credentials::good()).await)
}

fn session_with_posture(posture: ShellPosture) -> CreateSessionRequest {
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

/// If the kernel refuses a layer, the layer is missing, the posture is the next weaker posture, and a stronger posture
/// is refused.
async fn check_missing(user: SidecarUser, outer: KernelEnvironment, missing: &[&str], reached: ShellPosture) {
    if Fixture::strong().is_none() || (user == SidecarUser::Root && !rustix::process::geteuid().is_root()) {
        return;
    }
    let (_control_world, _control_sidecar, mut control) = sidecar(user, KernelEnvironment::Nothing).await;
    let full_posture = control.health(HealthRequest::default()).await.unwrap().into_inner().posture.unwrap();
    let (_world, _sidecar, mut shell) = sidecar(user, outer).await;
    let health = shell.health(HealthRequest::default()).await.unwrap().into_inner().posture.unwrap();
    let created =
        shell.create_session(session_with_posture(reached)).await.unwrap().into_inner().posture.unwrap();
    for report in [&health, &created] {
        assert_eq!(report.posture, reached.as_str(), "{outer:?}: {report:?}");
        assert_ne!(report.summary, full_posture.summary, "the row says so");
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
            status(&full_posture, layer).replace("partial", "enforced"),
            "enforced",
            "the control: {full_posture:?}"
        );
    }
    assert_eq!(full_posture.posture, "strong", "the control");
    for stronger in ShellPosture::ALL.into_iter().filter(|stronger| *stronger > reached) {
        let refused = shell.create_session(session_with_posture(stronger)).await.unwrap_err();
        assert_eq!(code(&refused), "posture", "{refused:?}");
        for layer in missing.iter().filter(|_| stronger == ShellPosture::Strong) {
            assert!(refused.message().contains(layer), "{layer}: {refused:?}");
        }
    }
}

/// If a layer that every session needs is not available or does not hold, no session starts.
async fn check_refused(user: SidecarUser, outer: KernelEnvironment, words: &[&str]) {
    if Fixture::strong().is_none() || (user == SidecarUser::Root && !rustix::process::geteuid().is_root()) {
        return;
    }
    let (fixture, _sidecar, mut shell) = sidecar(user, outer).await;
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
    assert_eq!(std::fs::read_dir(fixture.path("shared")).unwrap().count(), 0);
}

const DAEMON_USERS: [SidecarUser; 2] = [SidecarUser::Root, SidecarUser::Ordinary];

#[tokio::test]
async fn without_landlock_there_is_less_than_contained() {
    for user in DAEMON_USERS {
        let outer =
            KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_landlock_create_ruleset), libc::ENOSYS)]);
        check_missing(user, outer, &["landlock"], ShellPosture::Minimal).await;
    }
}

#[tokio::test]
async fn without_a_filter_there_is_less_than_contained() {
    for user in DAEMON_USERS {
        let outer = KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_seccomp), libc::ENOSYS)]);
        check_missing(user, outer, &["seccomp"], ShellPosture::Minimal).await;
    }
}

/// The outer sandbox's answer to a call that makes one kind of namespace.
const fn unshare(flag: libc::c_int, errno: libc::c_int) -> (SyscallUse, libc::c_int) {
    (SyscallUse::WithFlag(libc::SYS_unshare, flag), errno)
}

const NAMESPACE_LAYERS: [&str; 5] = ["pid_ns", "ipc_ns", "uts_ns", "net_ns", "mount_ns"];

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
        // The entry into a file tree cannot be undone, so a new session without any namespace is started.
        (KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_pivot_root), REFUSED)]), &NAMESPACE_LAYERS),
    ] {
        for user in DAEMON_USERS {
            check_missing(user, outer, missing, ShellPosture::Contained).await;
        }
    }
}

#[tokio::test]
async fn without_a_user_namespace_ordinary_users_get_no_namespace() {
    let outer = KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWUSER, libc::EPERM)] });
    check_missing(SidecarUser::Ordinary, outer, &NAMESPACE_LAYERS, ShellPosture::Contained).await;
}

/// The UTS and mount namespaces are not tested: the next steps would change the machine itself.
#[tokio::test]
async fn a_namespace_that_only_pretends_does_not_count() {
    for outer in [
        KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWPID, 0)] }),
        KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWIPC, 0)] }),
        KernelEnvironment::Errno(const { &[unshare(libc::CLONE_NEWNET, 0)] }),
    ] {
        for user in DAEMON_USERS {
            check_missing(user, outer, &NAMESPACE_LAYERS, ShellPosture::Contained).await;
        }
    }
}

#[tokio::test]
async fn landlock_that_only_pretends_is_noticed() {
    for user in DAEMON_USERS {
        let outer = KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_landlock_restrict_self), 0)]);
        check_refused(user, outer, &["landlock"]).await;
    }
}

#[tokio::test]
async fn a_filter_that_only_pretends_is_noticed() {
    for user in DAEMON_USERS {
        check_refused(
            user,
            KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_seccomp), 0)]),
            &["seccomp"],
        )
        .await;
    }
}

#[tokio::test]
async fn limits_that_cannot_be_set_or_only_pretend_are_noticed() {
    for user in DAEMON_USERS {
        for outer in [
            KernelEnvironment::Errno(&[(SyscallUse::WithPointer(libc::SYS_prlimit64, 2), libc::EPERM)]),
            KernelEnvironment::Errno(&[(SyscallUse::WithPointer(libc::SYS_prlimit64, 2), 0)]),
        ] {
            check_refused(user, outer, &["limit"]).await;
        }
    }
}

#[tokio::test]
async fn privileges_that_cannot_be_given_up_are_noticed() {
    for user in DAEMON_USERS {
        let outer = KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_capset), libc::EPERM)]);
        check_refused(user, outer, &["capabilities"]).await;
        let outer = KernelEnvironment::Errno(&[(
            SyscallUse::WithFirst(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS),
            libc::EPERM,
        )]);
        check_refused(user, outer, &["no_new_privs"]).await;
    }
    // An ordinary user has no privileges to keep. In namespaces, root becomes an ordinary user.
    let outer = KernelEnvironment::Errno(&[
        (SyscallUse::Any(libc::SYS_capset), 0),
        (SyscallUse::Any(libc::SYS_unshare), libc::EPERM),
    ]);
    check_refused(SidecarUser::Root, outer, &["capabilities"]).await;
}
