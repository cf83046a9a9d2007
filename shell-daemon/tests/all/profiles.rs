//! Sessions below seccomp profiles of containers that refuse a part of what a strong session takes.
#![expect(clippy::disallowed_methods, reason = "the tests start the programs that they are about")]
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::{
    collections::BTreeMap,
    process::{Command, Output},
};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use crate::world::World;

/// Runs a program for one command where the kernel refuses these calls, whoever asks.
fn without(calls: &'static [i64], world: &World, posture: &str) -> Output {
    std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            let filter = SeccompFilter::new(
                calls.iter().map(|number| (*number, Vec::new())).collect::<BTreeMap<_, _>>(),
                SeccompAction::Allow,
                SeccompAction::Errno(libc::EPERM.cast_unsigned()),
                std::env::consts::ARCH.try_into().unwrap(),
            );
            let program: BpfProgram = filter.unwrap().try_into().unwrap();
            apply_filter(&program).unwrap();
            Command::new(env!("CARGO_BIN_EXE_portcullis-shell-test"))
                .arg(world.path(""))
                .args(["echo on", posture])
                .output()
                .unwrap()
        });
        started.join().unwrap()
    })
}

/// Podman's own profile is such a one: it lets namespaces through, and giving the machine a name only to who
/// has the privilege.
#[test]
fn where_only_the_machines_name_cannot_be_changed_that_is_what_a_strong_session_lacks() {
    let Some(world) = World::strong() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let control = without(&[libc::SYS_swapon], &world, "strong");
    assert_eq!(text(&control.stdout), "on\n", "{control:?}");
    let output = without(&[libc::SYS_sethostname], &world, "contained");
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "on\n", "{said}");
    let layers = "pid_ns=enforced,ipc_ns=enforced,uts_ns=missing,net_ns=enforced,mount_ns=enforced";
    assert!(said.starts_with("contained(") && said.contains(layers), "{said}");
    let refused = without(&[libc::SYS_sethostname], &world, "strong");
    let said = text(&refused.stderr);
    assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(1), ""), "{said}");
    assert!(said.contains("UtsNamespace") && said.contains("sethostname"), "{said}");
}
