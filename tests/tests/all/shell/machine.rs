//! A sidecar on a machine that lacks a layer: it runs under a seccomp filter that refuses the system calls of
//! that layer, as a container or an old kernel does.

use std::{io, sync::Arc};

use portcullis::OwnSidecar;
use portcullis_testing::{
    World, binary,
    outer::{KernelEnvironment, SyscallUse},
};
use portcullis_tools::shell::{ShellSource, SidecarConfig, StartSidecar, StartedSidecar};

use super::Shell;

/// A kernel without Landlock.
pub(super) const WITHOUT_LANDLOCK: KernelEnvironment =
    KernelEnvironment::Errno(&[(SyscallUse::Any(libc::SYS_landlock_create_ruleset), libc::ENOSYS)]);

/// A kernel that accepts no seccomp filter.
pub(super) const WITHOUT_SECCOMP: KernelEnvironment = KernelEnvironment::Errno(&[
    (SyscallUse::Any(libc::SYS_seccomp), libc::ENOSYS),
    (SyscallUse::WithFirst(libc::SYS_prctl, libc::PR_SET_SECCOMP), libc::ENOSYS),
]);

/// A machine on which no resource limit can be set.
pub(super) const WITHOUT_LIMITS: KernelEnvironment = KernelEnvironment::Errno(&[
    (SyscallUse::Any(libc::SYS_setrlimit), libc::EPERM),
    (SyscallUse::WithPointer(libc::SYS_prlimit64, 2), libc::EPERM),
]);

/// Starts the sidecar on such a machine.
#[derive(Debug)]
struct OnMachine(KernelEnvironment);

impl StartSidecar for OnMachine {
    fn start(&self, config: &SidecarConfig) -> io::Result<StartedSidecar> {
        self.0.start(|| OwnSidecar::new(binary()).start(config))
    }
}

/// A shell whose sidecar runs on such a machine.
pub(super) async fn shell_on(machine: KernelEnvironment, world: World) -> Shell {
    let place = ShellSource::Own(Arc::new(OnMachine(machine)));
    let registry = world.builder().await.expect("bootstraps").shell(place).build().expect("builds");
    Shell { world, registry }
}
