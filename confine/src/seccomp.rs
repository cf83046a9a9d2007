//! The system-call filter of a worker thread. It allows the calls with which a WASM guest works on open
//! handles, and no others. `process.rs` has the much wider filter of a shell's processes, and `network.rs`
//! the filter of a thread that connects.
//!
//! Refused calls get `EPERM` and never kill the process: the refusal is an error of that call, and the audit
//! row reports it. One exception cannot be changed: a call in another architecture's convention, `int 0x80`
//! on x86-64, ends the process. No compiler emits such a call.
//!
//! **Which call was refused?** `strace -f -e status=failed -p PID` shows each refusal on its thread. In a test,
//! `SeccompAction::Log` in place of the `Errno` in [`compile`] allows everything and makes the kernel log each number
//! (`journalctl -k -g type=1326`, `ausyscall NR`).
//!
//! **Adding a call**: it must act on this thread's own memory, on time, or on a handle. It must not act on a path
//! alone, on another thread or process, on limits, identities or namespaces, or on code.
//!
//! The filter sees only call numbers and register values. It cannot check `openat2`'s flags, which are behind
//! a pointer, or the owner of a descriptor, because the process has one descriptor table. From Linux 5.11 on,
//! the kernel answers calls that are allowed with any arguments from a bitmap, without running the filter.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::OnceLock};

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use crate::{ConfineError, LayerStatus, NetworkRules};

mod changes;
mod network;
mod process;

pub(crate) use process::FCHMODAT2;

/// Filters the calling thread's system calls, irrevocably.
pub(crate) fn restrict() -> Result<LayerStatus, ConfineError> {
    install(programs()?)
}

/// Filters the calling thread's system calls, irrevocably. The thread may connect, and opens no file.
pub(crate) fn restrict_to_network() -> Result<LayerStatus, ConfineError> {
    install(network::programs()?)
}

/// Makes file changes by the calling process, which has one thread, and by all its children arrive on the
/// returned listener before they are made.
pub(crate) fn watch_changes() -> Result<OwnedFd, ConfineError> {
    changes::install()
}

/// Filters the system calls of the calling process, which has one thread, and of all its children. With
/// `network` the process may connect by TCP.
pub(crate) fn restrict_process(network: Option<&NetworkRules>) -> Result<LayerStatus, ConfineError> {
    let errno_filters =
        [(libc::ENOSYS, &process::UNKNOWN[..]), (libc::EOPNOTSUPP, &process::UNSUPPORTED[..])];
    install(&compile_programs(&errno_filters, || process::allowed(network.is_some()))?)
}

fn install(programs: &Programs) -> Result<LayerStatus, ConfineError> {
    // The allowlist must be last, because it forbids the installation of another filter.
    for program in programs.errno_filters.iter().chain([&programs.allow_list]) {
        apply_filter(program).map_err(|source| ConfineError::SeccompApply { source })?;
    }
    Ok(LayerStatus::Enforced)
}

/// Compiled filters. All of them judge each call, and one refusal is enough. If several refuse, the filter
/// that was installed last decides the error.
struct Programs {
    /// One filter for each error other than `EPERM`, such as `ENOSYS` for `clone3`, which makes libc fall
    /// back as on an older kernel. The allowlist must allow these calls too: it is installed later, so its
    /// refusal would win.
    errno_filters: Vec<BpfProgram>,
    allow_list: BpfProgram,
}

/// Returns a thread's filters, compiled once per process. Every thread gets a copy in the kernel.
fn programs() -> Result<&'static Programs, ConfineError> {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    if let Some(programs) = PROGRAMS.get() {
        return Ok(programs);
    }
    let programs = compile_programs(&[(libc::ENOSYS, &[libc::SYS_clone3][..])], allowed)?;
    Ok(PROGRAMS.get_or_init(|| programs))
}

fn compile_programs(
    errno_filters: &[(libc::c_int, &[libc::c_long])],
    allowed: impl FnOnce() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError>,
) -> Result<Programs, ConfineError> {
    allowed()
        .and_then(|allowed| compile(errno_filters, allowed))
        .map_err(|source| ConfineError::SeccompCompile { source })
}

fn compile(
    errno_filters: &[(libc::c_int, &[libc::c_long])],
    allowed: BTreeMap<i64, Vec<SeccompRule>>,
) -> Result<Programs, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let errno_filters = errno_filters.iter().map(|(errno, calls)| -> Result<BpfProgram, BackendError> {
        let calls = calls.iter().map(|number| (*number, Vec::new())).collect();
        let action = SeccompAction::Errno(as_unsigned(*errno));
        SeccompFilter::new(calls, SeccompAction::Allow, action, arch)?.try_into()
    });
    let errno_filters = errno_filters.collect::<Result<_, BackendError>>()?;
    let allow_list = SeccompFilter::new(
        allowed,
        SeccompAction::Errno(as_unsigned(libc::EPERM)),
        SeccompAction::Allow,
        arch,
    )?;
    Ok(Programs { errno_filters, allow_list: allow_list.try_into()? })
}

/// Returns the allowlist. A call with an empty vector is allowed with any arguments. A call with rules is
/// allowed if one of them matches.
fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let unconditional = [MEMORY, WAITING, TIME, THREAD, FILES, LEGACY].concat();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        unconditional.into_iter().map(|number| (number, Vec::new())).collect();

    rules.append(&mut common_rules()?);
    // The pooling allocator uses this request to query which pages of an instance were written. Every other
    // ioctl is refused, above all TIOCSTI, which types into the operator's terminal.
    rules.insert(libc::SYS_ioctl, match_any(1, &[PAGEMAP_SCAN])?);
    // The pooling allocator returns many regions in one call. Allow the call only for this process and this
    // advice, which is no more than `madvise` can do. On another process it could do harm.
    let this_process = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, PIDFD_SELF)?;
    let dont_need = SeccompCondition::new(
        3,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        u64::from(as_unsigned(libc::MADV_DONTNEED)),
    )?;
    rules.insert(libc::SYS_process_madvise, vec![SeccompRule::new(vec![this_process, dont_need])?]);
    rules.insert(libc::SYS_fcntl, match_any(1, &FCNTL.map(as_unsigned))?);
    // A file that replaces another takes over its read, write and execute permissions. The set-user-ID and
    // set-group-ID bits are never allowed.
    let permissions_only = SeccompCondition::new(
        1,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(u64::from(!PERMISSION_BITS)),
        0,
    )?;
    rules.insert(libc::SYS_fchmod, vec![SeccompRule::new(vec![permissions_only])?]);
    Ok(rules)
}

/// Returns the rules of every confined thread.
fn common_rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules = BTreeMap::new();
    // Refuse executable pages: the engine maps a module's code before the worker exists, so only an exploit
    // asks for one.
    let executable = u64::from(as_unsigned(libc::PROT_EXEC));
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        let prot = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(executable), 0)?;
        rules.insert(number, vec![SeccompRule::new(vec![prot])?]);
    }
    // Crashes need this: Rust's and wasmtime's fault handlers restore the default action and return to the
    // faulting instruction. If restoring were refused, the thread would fault forever. A worker must not
    // change other signals, above all the signal that interrupts it.
    rules.insert(libc::SYS_rt_sigaction, match_any(0, &FAULTS.map(as_unsigned))?);
    Ok(rules)
}

/// The allowed requests of `fcntl`. `F_SETOWN` and `F_SETSIG` are missing, because they make the kernel send signals
/// for the thread. Locks and pipe sizes are missing too.
const FCNTL: [libc::c_int; 6] =
    [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];

/// The signals of a crash.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP];

/// Read, write and execute for owner, group and others.
const PERMISSION_BITS: u32 = 0o777;

/// Allows a call if its argument number `index`, a 32-bit argument, is one of `values`.
fn match_any(index: u8, values: &[u32]) -> Result<Vec<SeccompRule>, BackendError> {
    values
        .iter()
        .map(|value| {
            let equal =
                SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(*value))?;
            SeccompRule::new(vec![equal])
        })
        .collect()
}

/// Converts a constant of libc, which is signed, to a word of the filter, which is unsigned.
fn as_unsigned(constant: libc::c_int) -> u32 {
    constant.unsigned_abs()
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u32 = 0xc060_6610;

/// The pidfd constant -10000 (`PIDFD_SELF`) for the calling thread's process, as the filter sees it in 32 bits.
const PIDFD_SELF: u64 = (-10_000_i32).cast_unsigned() as u64;

const MEMORY: &[libc::c_long] =
    &[libc::SYS_brk, libc::SYS_madvise, libc::SYS_mremap, libc::SYS_munmap, libc::SYS_membarrier];

/// Calls for locks and for a `current_thread` runtime, whose epoll and eventfd must exist before the filter
/// is installed.
const WAITING: &[libc::c_long] = &[
    libc::SYS_futex,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_restart_syscall,
];

const TIME: &[libc::c_long] = &[
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
];

/// Calls by which a thread acts on itself, including its end.
const THREAD: &[libc::c_long] = &[
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    // Allowed here, because the filter for `ENOSYS` answers it (see [`Programs::errno_filters`]).
    libc::SYS_clone3,
];

/// Operations on handles, and on paths below handles. Landlock decides where the paths may lead. Calls that
/// change modes (a rule above allows `fchmod`), owners or extended attributes, create devices, or open files
/// by inode number are missing on purpose.
const FILES: &[libc::c_long] = &[
    libc::SYS_close,
    libc::SYS_dup,
    // The WASI layer checks `..` with this call after `openat2` has failed. It reveals less than `statx`.
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getdents64,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Older forms of calls above, with the same effect. On x86-64, libc and rustix `open` still use them.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[libc::c_long] = &[libc::SYS_epoll_wait, libc::SYS_open, libc::SYS_poll, libc::SYS_readlink];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[libc::c_long] = &[];

#[cfg(test)]
mod tests;
