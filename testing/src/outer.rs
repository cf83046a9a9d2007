//! What is around a daemon: filters that take away, or only pretend, what it would confine its sessions by.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use crate::enter_stock_container;

/// A system call, or those of it that have something about them.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// All of them.
    Any(libc::c_long),
    /// Where the first argument has this bit.
    WithFlag(libc::c_long, libc::c_int),
    /// Where the first argument is this.
    WithFirst(libc::c_long, libc::c_int),
    /// Where the argument of this number points to something.
    WithPointer(libc::c_long, u8),
}

/// What stands around a daemon.
#[derive(Clone, Copy, Debug)]
pub enum Outer {
    /// Nothing.
    Nothing,
    /// What a container of a stock engine refuses.
    StockContainer,
    /// Calls are answered with an error. 0 says that all went well, and nothing was done.
    Answer(&'static [(Call, libc::c_int)]),
}

impl Outer {
    /// A kernel without Landlock and without filters.
    pub const BARE: Self = Self::Answer(&[
        (Call::Any(libc::SYS_landlock_create_ruleset), libc::ENOSYS),
        (Call::Any(libc::SYS_seccomp), libc::ENOSYS),
    ]);

    /// Starts a program in it.
    ///
    /// # Panics
    /// When the kernel takes no filter, or the start panics.
    pub fn start<T: Send>(self, start: impl FnOnce() -> T + Send) -> T {
        // A filter is for good: a thread that ends takes it along.
        std::thread::scope(|scope| {
            let started = scope.spawn(|| {
                match self {
                    Self::Nothing => {}
                    Self::StockContainer => enter_stock_container(),
                    Self::Answer(answers) => answer(answers),
                }
                start()
            });
            started.join().unwrap()
        })
    }
}

fn answer(answers: &[(Call, libc::c_int)]) {
    // A filter has one answer.
    let mut by_errno: BTreeMap<libc::c_int, BTreeMap<i64, Vec<SeccompRule>>> = BTreeMap::new();
    for (call, errno) in answers {
        let (number, rule) = rule(*call);
        by_errno.entry(*errno).or_default().entry(number).or_default().extend(rule);
    }
    // All are made before one is put on: afterwards there may be none to be had.
    let programs: Vec<BpfProgram> = by_errno
        .into_iter()
        .map(|(errno, rules)| {
            let answer = SeccompAction::Errno(errno.cast_unsigned());
            let architecture = std::env::consts::ARCH.try_into().unwrap();
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture);
            filter.unwrap().try_into().unwrap()
        })
        .collect();
    for program in &programs {
        apply_filter(program).unwrap();
    }
}

fn rule(call: Call) -> (i64, Option<SeccompRule>) {
    let (number, index, length, operator, value) = match call {
        Call::Any(number) => return (number, None),
        Call::WithFlag(number, flag) => {
            let flag = u64::from(flag.cast_unsigned());
            (number, 0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)
        }
        Call::WithFirst(number, value) => {
            (number, 0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value.cast_unsigned()))
        }
        Call::WithPointer(number, index) => (number, index, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0),
    };
    let condition = SeccompCondition::new(index, length, operator, value).unwrap();
    (number, Some(SeccompRule::new(vec![condition]).unwrap()))
}
