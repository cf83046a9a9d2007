//! The environment around a sidecar: filters that deny the system calls of confinement, or only pretend
//! that they succeed.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use crate::enter_stock_container;

/// A system call, or its uses with certain arguments.
#[derive(Clone, Copy, Debug)]
pub enum SyscallUse {
    /// All uses.
    Any(libc::c_long),
    /// Uses whose first argument has this bit.
    WithFlag(libc::c_long, libc::c_int),
    /// Uses whose first argument has this value.
    WithFirst(libc::c_long, libc::c_int),
    /// Uses whose argument at this index is not null.
    WithPointer(libc::c_long, u8),
}

/// The environment around a sidecar.
#[derive(Clone, Copy, Debug)]
pub enum KernelEnvironment {
    /// No filter.
    Nothing,
    /// The filter of a stock container engine.
    StockContainer,
    /// These calls return an error. With the error 0, the call returns success without any effect.
    Errno(&'static [(SyscallUse, libc::c_int)]),
}

impl KernelEnvironment {
    /// A kernel without Landlock and without seccomp filters.
    pub const BARE: Self = Self::Errno(&[
        (SyscallUse::Any(libc::SYS_landlock_create_ruleset), libc::ENOSYS),
        (SyscallUse::Any(libc::SYS_seccomp), libc::ENOSYS),
    ]);

    /// Runs a function in a thread inside this environment.
    ///
    /// # Panics
    /// If the kernel accepts no filter, or the function panics.
    pub fn start<T: Send>(self, body: impl FnOnce() -> T + Send) -> T {
        // A filter cannot be removed, so install it in a thread that ends.
        std::thread::scope(|scope| {
            let started = scope.spawn(|| {
                match self {
                    Self::Nothing => {}
                    Self::StockContainer => enter_stock_container(),
                    Self::Errno(answers) => install_errno_filters(answers),
                }
                body()
            });
            started.join().unwrap()
        })
    }
}

fn install_errno_filters(answers: &[(SyscallUse, libc::c_int)]) {
    // A filter returns only one errno, so there is one filter per errno.
    let mut rules_by_errno: BTreeMap<libc::c_int, BTreeMap<i64, Vec<SeccompRule>>> = BTreeMap::new();
    for (call, errno) in answers {
        let (number, rule) = seccomp_rule(*call);
        rules_by_errno.entry(*errno).or_default().entry(number).or_default().extend(rule);
    }
    // Compile all filters before installing the first, which may deny calls that compiling needs.
    let programs: Vec<BpfProgram> = rules_by_errno
        .into_iter()
        .map(|(errno, rules)| {
            let action = SeccompAction::Errno(errno.cast_unsigned());
            let architecture = std::env::consts::ARCH.try_into().unwrap();
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture);
            filter.unwrap().try_into().unwrap()
        })
        .collect();
    for program in &programs {
        apply_filter(program).unwrap();
    }
}

fn seccomp_rule(call: SyscallUse) -> (i64, Option<SeccompRule>) {
    let (number, index, length, operator, value) = match call {
        SyscallUse::Any(number) => return (number, None),
        SyscallUse::WithFlag(number, flag) => {
            let flag = u64::from(flag.cast_unsigned());
            (number, 0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)
        }
        SyscallUse::WithFirst(number, value) => {
            (number, 0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value.cast_unsigned()))
        }
        SyscallUse::WithPointer(number, index) => {
            (number, index, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)
        }
    };
    let condition = SeccompCondition::new(index, length, operator, value).unwrap();
    (number, Some(SeccompRule::new(vec![condition]).unwrap()))
}
