//! Machines that lack a layer: a sidecar that is started below a filter which refuses the system calls that the
//! layer is made of, as a container or an old kernel does.

use std::{collections::BTreeMap, io, sync::Arc, thread};

use portcullis::OwnSidecar;
use portcullis_tests::{World, binary};
use portcullis_tools::{
    ToolRegistry,
    shell::{ShellPlace, SidecarTerms, StartSidecar, StartedSidecar},
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::Shell;
use crate::stock_container::enter_stock_container;

/// What a machine has not.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lacks {
    /// Nothing: the control.
    Nothing,
    /// Namespaces and mounts, as in a stock container.
    Namespaces,
    /// Landlock.
    Landlock,
    /// Filters of system calls: none can be added.
    Seccomp,
    /// Limits: none can be set.
    Limits,
}

impl Lacks {
    /// Takes it from the calling thread and all that it starts.
    fn take(self) {
        match self {
            Self::Nothing => {}
            Self::Namespaces => enter_stock_container(),
            Self::Landlock => refuse(&[libc::SYS_landlock_create_ruleset], libc::ENOSYS, None),
            Self::Seccomp => {
                refuse(&[libc::SYS_seccomp], libc::ENOSYS, Some(libc::PR_SET_SECCOMP.cast_unsigned()));
            }
            Self::Limits => refuse(&[libc::SYS_setrlimit], libc::EPERM, None),
        }
    }
}

/// Refuses system calls, and one kind of `prctl` besides. `prlimit64` only where it sets a limit.
fn refuse(calls: &[i64], errno: libc::c_int, prctl: Option<u32>) {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        calls.iter().map(|number| (*number, Vec::new())).collect();
    let when = |argument, operator, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value);
        vec![SeccompRule::new(vec![condition.expect("a condition")]).expect("a rule")]
    };
    if let Some(kind) = prctl {
        refused.insert(libc::SYS_prctl, when(0, SeccompCmpOp::Eq, kind.into()));
    }
    if calls.contains(&libc::SYS_setrlimit) {
        refused.insert(libc::SYS_prlimit64, when(2, SeccompCmpOp::Ne, 0));
    }
    rustix::thread::set_no_new_privs(true).expect("can be set");
    let filter = SeccompFilter::new(
        refused,
        SeccompAction::Allow,
        SeccompAction::Errno(errno.cast_unsigned()),
        std::env::consts::ARCH.try_into().expect("a known architecture"),
    );
    let program: BpfProgram = filter.expect("a filter").try_into().expect("a program");
    apply_filter(&program).expect("applied");
}

/// Starts the sidecar on such a machine.
#[derive(Debug)]
struct OnMachine(Lacks);

impl StartSidecar for OnMachine {
    fn start(&self, terms: &SidecarTerms) -> io::Result<StartedSidecar> {
        thread::scope(|scope| {
            let started = scope.spawn(|| {
                self.0.take();
                OwnSidecar::new(binary()).start(terms)
            });
            started.join().expect("the thread ends")
        })
    }
}

/// A shell whose sidecar is on a machine that lacks something.
pub(super) async fn shell_on(lacks: Lacks, world: World) -> Shell {
    let place = ShellPlace::Own(Arc::new(OnMachine(lacks)));
    let registry: ToolRegistry =
        world.builder().await.expect("bootstraps").shell(place).build().expect("builds");
    Shell { world, registry }
}
