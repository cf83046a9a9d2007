//! The filter that lets the host inspect a change of a file before the kernel makes it (seccomp_unotify(2)).
//!
//! It refuses nothing: each call waits until the holder of the listener lets it continue or fails it. The
//! filters that are installed later judge the call too, and their refusal wins. The arguments behind pointers
//! can change after the holder has read them (TOCTOU race), so the filter does not protect against a program
//! that evades it.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};

use super::process::masked;
use crate::{ConfineError, sys};

/// Installs the filter, and returns the listener on which its calls arrive.
pub(super) fn install() -> Result<OwnedFd, ConfineError> {
    let program = program().map_err(|source| ConfineError::SeccompCompile { source })?;
    sys::install_listening_filter(&program).map_err(|source| ConfineError::SeccompListener { source })
}

fn program() -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    // `seccompiler` has no action for a listener, so this mark is replaced in the compiled program.
    let marked = SeccompAction::Trace(MARK);
    let filter = SeccompFilter::new(calls()?, SeccompAction::Allow, marked, arch)?;
    let mut program: BpfProgram = filter.try_into()?;
    for instruction in &mut program {
        if instruction.code == RETURN && instruction.k == libc::SECCOMP_RET_TRACE | MARK {
            instruction.k = libc::SECCOMP_RET_USER_NOTIF;
        }
    }
    Ok(program)
}

/// Returns the calls that change names, content or permissions by path, and `fchmod`.
fn calls() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CHANGES.iter().chain(LEGACY_CHANGES).map(|number| (*number, Vec::new())).collect();
    for (number, flags) in OPENS {
        // An open changes a file if it writes, creates or truncates.
        let changes =
            [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC].map(libc::c_int::cast_unsigned);
        let changes = changes.into_iter().map(|flag| SeccompRule::new(vec![masked(*flags, flag, flag)?]));
        rules.insert(*number, changes.collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// The number that marks the action in the compiled program.
const MARK: u32 = 1;

/// The instruction that returns a constant action (`BPF_RET | BPF_K`).
const RETURN: u16 = 0x06;

/// Calls that open a file, each with the index of its flags.
#[cfg(target_arch = "x86_64")]
const OPENS: &[(libc::c_long, u8)] = &[(libc::SYS_open, 1), (libc::SYS_openat, 2)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: &[(libc::c_long, u8)] = &[(libc::SYS_openat, 2)];

const CHANGES: &[libc::c_long] = &[
    libc::SYS_truncate,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_mknodat,
    libc::SYS_fchmodat,
    super::process::FCHMODAT2,
    libc::SYS_fchmod,
];

/// Older forms of calls above, with the same effect.
#[cfg(target_arch = "x86_64")]
const LEGACY_CHANGES: &[libc::c_long] = &[
    libc::SYS_creat,
    libc::SYS_rename,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_mkdir,
    libc::SYS_symlink,
    libc::SYS_link,
    libc::SYS_mknod,
    libc::SYS_chmod,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY_CHANGES: &[libc::c_long] = &[];
