//! The system-call filter of a worker thread: what a WASM guest's work on open handles needs, and no more.
//! The much wider filter of a shell's processes is in `process.rs`, that of a thread that connects in `network.rs`.
//!
//! The default is refusal with `EPERM`, never death: a refused call is an error of that call, and the row
//! says so. (One exception cannot be changed: a call in another architecture's convention, `int 0x80` on
//! x86-64, ends the process. No compiler emits one.)
//!
//! **Which call was refused?** `strace -f -e status=failed -p PID` shows each refusal on its thread. In a
//! test of yours, `SeccompAction::Log` in place of the `Errno` in [`compile`] lets everything through and
//! makes the kernel log each number (`journalctl -k -g type=1326`, `ausyscall NR`).
//!
//! **Adding a call**: it must act on this thread's own memory, on time, or on a handle. It must not act on a
//! path alone, on another thread or process, on limits, identities or namespaces, or on code.
//!
//! The filter sees only call numbers and register values. It cannot judge `openat2`'s flags, which are behind
//! a pointer, nor the owner of a descriptor, since the process has one descriptor table. The kernel answers
//! calls that are allowed with any arguments from a bitmap, without running the filter (since Linux 5.11).

use std::{collections::BTreeMap, sync::OnceLock};

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use crate::{ConfineError, LayerStatus, NetworkRules};

mod network;
mod process;

/// Filters the calling thread's system calls, irrevocably.
pub(crate) fn restrict() -> Result<LayerStatus, ConfineError> {
    install(programs()?)
}

/// Filters the system calls of the calling thread, which may connect and opens no file, irrevocably.
pub(crate) fn restrict_to_network() -> Result<LayerStatus, ConfineError> {
    install(network::programs()?)
}

/// Filters the system calls of the calling process, which has one thread, and of all its children.
/// With `network` it may connect by TCP.
pub(crate) fn restrict_process(network: Option<&NetworkRules>) -> Result<LayerStatus, ConfineError> {
    let errno_filters =
        [(libc::ENOSYS, &process::UNKNOWN[..]), (libc::EOPNOTSUPP, &process::UNSUPPORTED[..])];
    install(&compiled(&errno_filters, || process::allowed(network.is_some()))?)
}

fn install(programs: &Programs) -> Result<LayerStatus, ConfineError> {
    // The order matters: the last filter forbids installing another one.
    for program in programs.errno_filters.iter().chain([&programs.allow_list]) {
        apply_filter(program).map_err(|source| ConfineError::SeccompApply { source })?;
    }
    Ok(LayerStatus::Enforced)
}

/// Compiled filters. All apply to each call, and a refusal by one of them stands; of two refusals, that of
/// the later filter.
struct Programs {
    /// One filter for each error other than `EPERM`, such as `ENOSYS` for `clone3`, which makes libc fall
    /// back as on an older kernel. These calls must be on the allow list too: it is installed later, so its
    /// refusal would win.
    errno_filters: Vec<BpfProgram>,
    allow_list: BpfProgram,
}

/// A thread's filters, compiled once per process; every thread gets a copy in the kernel.
fn programs() -> Result<&'static Programs, ConfineError> {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    if let Some(programs) = PROGRAMS.get() {
        return Ok(programs);
    }
    let programs = compiled(&[(libc::ENOSYS, &[libc::SYS_clone3][..])], allowed)?;
    Ok(PROGRAMS.get_or_init(|| programs))
}

fn compiled(
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
        let answer = SeccompAction::Errno(word(*errno));
        SeccompFilter::new(calls, SeccompAction::Allow, answer, arch)?.try_into()
    });
    let errno_filters = errno_filters.collect::<Result<_, BackendError>>()?;
    let allow_list =
        SeccompFilter::new(allowed, SeccompAction::Errno(word(libc::EPERM)), SeccompAction::Allow, arch)?;
    Ok(Programs { errno_filters, allow_list: allow_list.try_into()? })
}

/// The allow list. A call with an empty vector is allowed with any arguments; a call with rules, if one of
/// them matches.
fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let plain = [MEMORY, WAITING, TIME, THREAD, FILES, LEGACY].concat();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        plain.into_iter().map(|number| (number, Vec::new())).collect();

    rules.append(&mut common()?);
    // The pooling allocator asks with this one request which pages of an instance were written. Every other
    // ioctl is refused, above all TIOCSTI (typing into the operator's terminal).
    rules.insert(libc::SYS_ioctl, one_of(1, &[PAGEMAP_SCAN])?);
    // The pooling allocator gives back many regions in one call. Allowed for this process and this advice
    // only, which is no more than `madvise`; on another process it would be a weapon.
    let this_process = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, PIDFD_SELF)?;
    let give_back = SeccompCondition::new(
        3,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        u64::from(word(libc::MADV_DONTNEED)),
    )?;
    rules.insert(libc::SYS_process_madvise, vec![SeccompRule::new(vec![this_process, give_back])?]);
    rules.insert(libc::SYS_fcntl, one_of(1, &FCNTL.map(word))?);
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

/// The rules of every confined thread.
fn common() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules = BTreeMap::new();
    // No executable pages: the engine maps a module's code before the worker exists, so a worker that asks
    // for one runs an exploit.
    let executable = u64::from(word(libc::PROT_EXEC));
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        let prot = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(executable), 0)?;
        rules.insert(number, vec![SeccompRule::new(vec![prot])?]);
    }
    // For crashes: Rust's and wasmtime's fault handlers restore the default action and return to the faulting
    // instruction; if that were refused, the thread would fault for ever. A worker must not change other
    // signals, above all the interrupting one.
    rules.insert(libc::SYS_rt_sigaction, one_of(0, &FAULTS.map(word))?);
    Ok(rules)
}

/// Not `F_SETOWN` and `F_SETSIG`, which make the kernel send signals for us, nor locks and pipe sizes.
const FCNTL: [libc::c_int; 6] =
    [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL];

/// The signals of a crash.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP];

/// Read, write and execute for owner, group and others.
const PERMISSION_BITS: u32 = 0o777;

/// Allows a call if its argument number `index`, a 32-bit one, is one of `values`.
fn one_of(index: u8, values: &[u32]) -> Result<Vec<SeccompRule>, BackendError> {
    values
        .iter()
        .map(|value| {
            let equal =
                SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(*value))?;
            SeccompRule::new(vec![equal])
        })
        .collect()
}

/// libc's constants are signed, the filter's words are unsigned.
fn word(constant: libc::c_int) -> u32 {
    constant.unsigned_abs()
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u32 = 0xc060_6610;

/// The pidfd constant -10000 (`PIDFD_SELF`), as the filter sees it in 32 bits: the calling thread's process.
const PIDFD_SELF: u64 = (-10_000_i32).cast_unsigned() as u64;

const MEMORY: &[libc::c_long] =
    &[libc::SYS_brk, libc::SYS_madvise, libc::SYS_mremap, libc::SYS_munmap, libc::SYS_membarrier];

/// Locks, and a `current_thread` runtime that was made before: its epoll and eventfd exist already.
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

/// Calls of a thread about itself, its end included.
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

/// Work on handles, and on paths below handles; Landlock decides where those may lead. Left out on purpose:
/// every call that changes modes (`fchmod` is allowed above, by a rule), owners or extended attributes, makes
/// devices, or opens files by inode number.
const FILES: &[libc::c_long] = &[
    libc::SYS_close,
    libc::SYS_dup,
    // The WASI layer checks `..` with it when `openat2` gave up; it tells less than `statx`.
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

/// Older names of calls above, with the same reach: libc on x86-64 and rustix `open` still use them.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[libc::c_long] = &[libc::SYS_epoll_wait, libc::SYS_open, libc::SYS_poll, libc::SYS_readlink];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[libc::c_long] = &[];

#[cfg(test)]
mod tests;
