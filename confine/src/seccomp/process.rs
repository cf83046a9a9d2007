//! The system-call filter of a shell and its programs. It allows the calls that ordinary programs need, but
//! none that reach other processes' memory, the network, other namespaces or the kernel's rarer interfaces.
//!
//! Some calls are refused although programs make them:
//!
//! - every socket except a connected pair,
//! - setting extended attributes and flags of files,
//! - `io_uring`,
//! - `ptrace` and everything else that inspects another process,
//! - System V and POSIX message queues, which all processes of the user share,
//! - memory files without a file system (`memfd_create`), and giving pages to a pipe (`vmsplice`),
//! - setting the set-user-ID or set-group-ID bit on a file,
//! - changing another process's limits or priority.
//!
//! A process that may connect also has IPv4 streams, which it can neither bind nor listen on.

use std::collections::BTreeMap;

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{LEGACY, MEMORY, THREAD, TIME, WAITING, as_unsigned, match_any};

/// Calls that get `ENOSYS`, so that programs fall back to an older form. `clone3` and `openat2` pass the
/// arguments that the filter must check behind a pointer. `memfd_create` and `vmsplice` hold memory that is
/// in no process's page table, so neither a process limit nor a scan of the mappings would find it.
pub(super) const UNKNOWN: [libc::c_long; 4] =
    [libc::SYS_clone3, libc::SYS_openat2, libc::SYS_memfd_create, libc::SYS_vmsplice];

/// Calls that get `EOPNOTSUPP`, as from a file system without extended attributes. Programs that copy such
/// attributes continue without them. Landlock does not see these calls, so they would reach files that the
/// session may not write or even read.
pub(super) const UNSUPPORTED: [libc::c_long; 8] = [
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
    SETXATTRAT,
    REMOVEXATTRAT,
];

/// Returns the allowlist, in the same form as a worker thread's. With `may_connect` it also has IPv4 streams.
pub(super) fn allowed(may_connect: bool) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let unconditional = [
        MEMORY,
        WAITING,
        TIME,
        THREAD,
        LEGACY,
        super::FILES,
        MORE_FILES,
        DESCRIPTORS_AND_MEMORY,
        PROCESSES,
        IDENTITY,
        LEGACY_CALLS,
        // This list must allow the calls that another filter answers with `EOPNOTSUPP`: of two answers, the
        // kernel takes this list's refusal.
        &UNSUPPORTED,
    ]
    .concat();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        unconditional.into_iter().map(|number| (number, Vec::new())).collect();

    // This allows only connected pairs. Datagram pairs are refused, because `sendto` on them accepts an address and
    // reaches every datagram socket of the machine.
    let kinds = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].into_iter().map(|kind| {
        SeccompRule::new(vec![
            equal(0, libc::AF_UNIX)?,
            masked(1, !as_unsigned(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK), as_unsigned(kind))?,
        ])
    });
    rules.insert(libc::SYS_socketpair, kinds.collect::<Result<_, _>>()?);

    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![masked(0, NAMESPACES, 0)?])?]);
    // Refused: typing into a terminal, signals that the kernel would send for the process, and requests that
    // change a file that was opened read-only.
    let terminal_ioctls = [TIOCSTI, TIOCLINUX, TIOCSETD, FIOSETOWN, SIOCSPGRP];
    rules.insert(libc::SYS_ioctl, match_none(1, &[&terminal_ioctls[..], &FILE_IOCTLS].concat())?);
    rules.insert(libc::SYS_fcntl, match_none(1, &[as_unsigned(libc::F_SETOWN), F_SETSIG, F_SETOWN_EX])?);
    // Allowed only on the calling process, whose id is 0 in these calls.
    for number in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
    ] {
        rules.insert(number, vec![SeccompRule::new(vec![equal(0, 0)?])?]);
    }
    rules.insert(libc::SYS_setpriority, vec![SeccompRule::new(vec![equal(0, 0)?, equal(1, 0)?])?]);
    rules.insert(libc::SYS_prctl, match_any(0, &PRCTL.map(as_unsigned))?);
    // The value 0 is Linux, and the largest value is a query. Other values disable memory protections.
    rules.insert(libc::SYS_personality, match_any(0, &[0, u32::MAX])?);

    add_mode_rules(&mut rules)?;
    if may_connect {
        add_stream_rules(&mut rules)?;
    }
    Ok(rules)
}

/// Adds the calls that create and connect IPv4 streams. Landlock judges the port. IPv6 is missing: there is
/// only one listener, and programs fall back to IPv4.
fn add_stream_rules(rules: &mut BTreeMap<i64, Vec<SeccompRule>>) -> Result<(), BackendError> {
    let sockets = [0, libc::IPPROTO_TCP].into_iter().map(|protocol| {
        SeccompRule::new(vec![
            equal(0, libc::AF_INET)?,
            masked(
                1,
                !as_unsigned(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK),
                as_unsigned(libc::SOCK_STREAM),
            )?,
            equal(2, protocol)?,
        ])
    });
    rules.insert(libc::SYS_socket, sockets.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_connect, Vec::new());
    // Refuse two options: `TCP_ULP` loads another protocol onto a stream (`tls`, `smc`), and `TCP_REPAIR` changes the
    // stream's internal state.
    let not_equal = |index, value: libc::c_int| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(as_unsigned(value)))
    };
    let other_level = SeccompRule::new(vec![not_equal(1, libc::IPPROTO_TCP)?])?;
    let harmless = SeccompRule::new(vec![not_equal(2, libc::TCP_ULP)?, not_equal(2, libc::TCP_REPAIR)?])?;
    rules.insert(libc::SYS_setsockopt, vec![other_level, harmless]);
    Ok(())
}

/// Adds the calls that set a mode, without the set-user-ID and set-group-ID bits: a program with these bits
/// would be an escape if root ran it later.
fn add_mode_rules(rules: &mut BTreeMap<i64, Vec<SeccompRule>>) -> Result<(), BackendError> {
    // Each call with the index of its mode argument.
    for (number, mode) in [
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (FCHMODAT2, 2),
        (libc::SYS_openat, 3),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, 1),
    ] {
        rules.insert(number, vec![SeccompRule::new(vec![masked(mode, SET_ID_BITS, 0)?])?]);
    }
    for (number, mode) in [
        (libc::SYS_mknodat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
    ] {
        // Plain files (0 means the same) and FIFOs. Creating devices and sockets is refused.
        let kinds = [0, libc::S_IFREG, libc::S_IFIFO]
            .into_iter()
            .map(|kind| SeccompRule::new(vec![masked(mode, libc::S_IFMT | SET_ID_BITS, kind)?]));
        rules.insert(number, kinds.collect::<Result<_, _>>()?);
    }
    Ok(())
}

fn equal(index: u8, value: libc::c_int) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(as_unsigned(value)))
}

pub(super) fn masked(index: u8, mask: u32, value: u32) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(
        index,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(u64::from(mask)),
        u64::from(value),
    )
}

/// Allows a call unless its argument number `index`, a 32-bit argument, is one of `values`.
fn match_none(index: u8, values: &[u32]) -> Result<Vec<SeccompRule>, BackendError> {
    let conditions = values.iter().map(|value| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(*value))
    });
    Ok(vec![SeccompRule::new(conditions.collect::<Result<_, _>>()?)?])
}

/// Every flag of `clone` that creates a namespace.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .cast_unsigned();

const SET_ID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const TIOCSETD: u32 = 0x5423;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;
/// Requests that set a file's flags and project (`chattr`), version, encryption and seal (`linux/fs.h`,
/// `linux/fscrypt.h`, `linux/fsverity.h`).
const FILE_IOCTLS: [u32; 7] = [
    FS_IOC_SETFLAGS,
    FS_IOC32_SETFLAGS,
    FS_IOC_FSSETXATTR,
    FS_IOC_SETVERSION,
    FS_IOC32_SETVERSION,
    FS_IOC_SET_ENCRYPTION_POLICY,
    FS_IOC_ENABLE_VERITY,
];
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FS_IOC_SETVERSION: u32 = 0x4008_7602;
const FS_IOC32_SETVERSION: u32 = 0x4004_7602;
const FS_IOC_SET_ENCRYPTION_POLICY: u32 = 0x800c_6613;
const FS_IOC_ENABLE_VERITY: u32 = 0x4080_6685;

const F_SETSIG: u32 = 10;
const F_SETOWN_EX: u32 = 15;

/// Newer than libc's constants. The numbers are equal on every architecture.
pub(crate) const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;

/// The settings of a process for itself, except its filter, securebits and memory map.
const PRCTL: [libc::c_int; 13] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_PDEATHSIG,
    libc::PR_GET_PDEATHSIG,
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_DUMPABLE,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_SET_CHILD_SUBREAPER,
    libc::PR_GET_CHILD_SUBREAPER,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_TIMERSLACK,
    libc::PR_SET_VMA,
];

const MORE_FILES: &[libc::c_long] = &[
    libc::SYS_chdir,
    libc::SYS_copy_file_range,
    libc::SYS_faccessat,
    libc::SYS_fchdir,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fgetxattr,
    libc::SYS_flistxattr,
    libc::SYS_flock,
    libc::SYS_getcwd,
    libc::SYS_getxattr,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_readahead,
    libc::SYS_statfs,
    libc::SYS_sync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_truncate,
    libc::SYS_umask,
];

/// Operations on open descriptors and on the process's own memory. Sockets come from `socketpair`, or from
/// the network rules.
const DESCRIPTORS_AND_MEMORY: &[libc::c_long] = &[
    libc::SYS_close_range,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_eventfd2,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    // The filter for `ENOSYS` answers this call, like `openat2` and `vmsplice` below.
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_signalfd4,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_vmsplice,
];

/// Starting, ending and waiting for processes, timers, facts of the machine, and Landlock's own calls.
/// Landlock decides which processes a signal may reach.
const PROCESSES: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_getitimer,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_getrusage,
    libc::SYS_kill,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_set_tid_address,
    libc::SYS_setitimer,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_times,
    libc::SYS_tkill,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// Calls on user, group, process group and session identity, and on capabilities. Without capabilities, a
/// setter can only set an identity that the process already has.
const IDENTITY: &[libc::c_long] = &[
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getppid,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setpgid,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setsid,
    libc::SYS_setuid,
];

/// Calls that exist only on older architectures. Most are older forms of a call above.
#[cfg(target_arch = "x86_64")]
const LEGACY_CALLS: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_futimesat,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_inotify_init,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_signalfd,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY_CALLS: &[libc::c_long] = &[];
