//! A sidecar on a machine that lacks a layer. The sidecar runs under a seccomp filter that refuses the layer's system
//! calls, as in a container or on an old kernel.

use std::{io, sync::Arc};

use portcullis::OwnSidecar;
use portcullis_testing::{
    Fixture, binary,
    kernel_environment::{KernelEnvironment, SyscallUse},
};
use portcullis_tools::shell::{ShellSource, SidecarOptions, StartSidecar, StartedSidecar};

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

/// Starts the sidecar on a machine that lacks this layer.
#[derive(Debug)]
struct OnMachine(KernelEnvironment);

impl StartSidecar for OnMachine {
    fn start(&self, options: &SidecarOptions) -> io::Result<StartedSidecar> {
        self.0.start(|| OwnSidecar::new(binary()).start(options))
    }
}

/// Creates a shell whose sidecar runs on a machine that lacks this layer.
pub(super) async fn shell_on(machine: KernelEnvironment, fixture: Fixture) -> Shell {
    let shell = ShellSource::Own(Arc::new(OnMachine(machine)));
    let registry = fixture.builder().await.expect("bootstraps").shell(shell).build().expect("builds");
    Shell { fixture, registry }
}
