//! The system-call filter of a thread that may only connect: TCP streams over IPv4 and IPv6, and work on existing
//! handles. The filter refuses to open files, because the thread's root certificates and resolver configuration are in
//! memory.
//!
//! Landlock restricts only the ports of `connect`, so this filter closes the ways around it:
//!
//! - other protocols: MPTCP, SCTP, SMC and UDP have their own sockets,
//! - `MSG_FASTOPEN`, which connects in `sendto`,
//! - messages behind a pointer (`sendmsg`, `sendmmsg`), where a filter sees neither address nor descriptors,
//! - binding, listening, accepting, and receiving descriptors,
//! - socket options other than `TCP_NODELAY`, because `TCP_FASTOPEN_CONNECT`, `TCP_ULP` and `TCP_REPAIR` change the
//!   kind of a connection.
//!
//! An asynchronous runtime must exist before the filter is installed, because `epoll_create1` and `eventfd2` are
//! refused too.

use std::{collections::BTreeMap, sync::OnceLock};

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{
    FCNTL, MEMORY, Programs, THREAD, TIME, WAITING, as_unsigned, common_rules, compile_programs, match_any,
};
use crate::ConfineError;

/// Returns the filters, compiled once per process.
pub(super) fn programs() -> Result<&'static Programs, ConfineError> {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    if let Some(programs) = PROGRAMS.get() {
        return Ok(programs);
    }
    let programs = compile_programs(&[(libc::ENOSYS, &[libc::SYS_clone3][..])], allowed)?;
    Ok(PROGRAMS.get_or_init(|| programs))
}

fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let unconditional = [MEMORY, WAITING, TIME, THREAD, STREAMS, LEGACY].concat();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        unconditional.into_iter().map(|number| (number, Vec::new())).collect();
    rules.append(&mut common_rules()?);
    rules.insert(libc::SYS_fcntl, match_any(1, &FCNTL.map(as_unsigned))?);
    rules.insert(libc::SYS_ioctl, match_any(1, &[FIONBIO])?);

    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for protocol in [0, libc::IPPROTO_TCP] {
            sockets.push(SeccompRule::new(vec![
                equal(0, family)?,
                SeccompCondition::new(
                    1,
                    SeccompCmpArgLen::Dword,
                    SeccompCmpOp::MaskedEq(u64::from(!as_unsigned(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK))),
                    u64::from(as_unsigned(libc::SOCK_STREAM)),
                )?,
                equal(2, protocol)?,
            ])?);
        }
    }
    rules.insert(libc::SYS_socket, sockets);

    // libc's `send` is a `sendto` without an address.
    let no_address = SeccompCondition::new(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    let no_fast_open = SeccompCondition::new(
        3,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(u64::from(as_unsigned(libc::MSG_FASTOPEN))),
        0,
    )?;
    rules.insert(libc::SYS_sendto, vec![SeccompRule::new(vec![no_address, no_fast_open])?]);

    let option = |level, name| -> Result<Vec<SeccompRule>, BackendError> {
        Ok(vec![SeccompRule::new(vec![equal(1, level)?, equal(2, name)?])?])
    };
    rules.insert(libc::SYS_setsockopt, option(libc::IPPROTO_TCP, libc::TCP_NODELAY)?);
    rules.insert(libc::SYS_getsockopt, option(libc::SOL_SOCKET, libc::SO_ERROR)?);
    Ok(rules)
}

fn equal(index: u8, value: libc::c_int) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(as_unsigned(value)))
}

/// Calls for reading, writing and connecting. Landlock judges the port of `connect`.
const STREAMS: &[libc::c_long] = &[
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Older forms of calls above. Unlike the worker's list, this one has no `open` and `readlink`.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[libc::c_long] = &[libc::SYS_epoll_wait, libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[libc::c_long] = &[];

/// The ioctl that makes a handle non-blocking (`asm-generic/ioctls.h`).
const FIONBIO: u32 = 0x5421;

#[cfg(test)]
mod tests;
