//! Sessions below container seccomp profiles that refuse a part of what a strong session needs.
#![expect(clippy::disallowed_methods, reason = "the tests start the programs that they are about")]
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::process::{Command, Output};

use portcullis_testing::kernel_environment::{KernelEnvironment, SyscallUse};

use crate::fixture::Fixture;

/// Runs the test program for one command below a profile.
fn run_under_profile(outer: KernelEnvironment, fixture: &Fixture, posture: &str) -> Output {
    outer.start(|| {
        Command::new(env!("CARGO_BIN_EXE_portcullis-shell-test"))
            .arg(fixture.path(""))
            .args(["echo on", posture])
            .output()
            .unwrap()
    })
}

/// Podman's own profile is an example: it allows namespaces, but setting the host name only to processes with
/// the privilege.
#[test]
fn strong_lacks_only_uts_ns_without_sethostname() {
    let Some(fixture) = Fixture::strong() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let control = run_under_profile(
        KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_swapon), libc::EPERM)]),
        &fixture,
        "strong",
    );
    assert_eq!(text(&control.stdout), "on\n", "{control:?}");
    let output = run_under_profile(
        KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_sethostname), libc::EPERM)]),
        &fixture,
        "contained",
    );
    let stderr = text(&output.stderr);
    assert_eq!(text(&output.stdout), "on\n", "{stderr}");
    let layers = "pid_ns=enforced,ipc_ns=enforced,uts_ns=missing,net_ns=enforced,mount_ns=enforced";
    assert!(stderr.starts_with("contained(") && stderr.contains(layers), "{stderr}");
    let refused = run_under_profile(
        KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_sethostname), libc::EPERM)]),
        &fixture,
        "strong",
    );
    let stderr = text(&refused.stderr);
    assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("UtsNamespace") && stderr.contains("sethostname"), "{stderr}");
}
