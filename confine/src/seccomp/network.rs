//! The system-call filter of a thread that may only connect: TCP streams over IPv4 and IPv6, and work on the
//! handles that exist. It opens no file; the thread's roots and resolver configuration are in memory.
//!
//! Landlock holds the ports of `connect` and nothing else, so this filter closes the ways round it: other
//! protocols (MPTCP, SCTP, SMC and UDP are sockets of their own), `MSG_FASTOPEN`, which connects in `sendto`, and
//! messages behind a pointer (`sendmsg`, `sendmmsg`), where a filter sees neither address nor descriptors.
//! Also refused: binding, listening and accepting; socket options but `TCP_NODELAY`, since `TCP_FASTOPEN_CONNECT`,
//! `TCP_ULP` and `TCP_REPAIR` change what a connection is; and receiving descriptors.
//!
//! An asynchronous runtime must exist before: `epoll_create1` and `eventfd2` are refused too.

use std::{collections::BTreeMap, sync::OnceLock};

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{FCNTL, MEMORY, Programs, THREAD, TIME, WAITING, common, compiled, one_of, word};
use crate::ConfineError;

/// The filters, compiled once per process.
pub(super) fn programs() -> Result<&'static Programs, ConfineError> {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    if let Some(programs) = PROGRAMS.get() {
        return Ok(programs);
    }
    let programs = compiled(&[(libc::ENOSYS, &[libc::SYS_clone3][..])], allowed)?;
    Ok(PROGRAMS.get_or_init(|| programs))
}

fn allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let plain = [MEMORY, WAITING, TIME, THREAD, STREAMS, LEGACY].concat();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        plain.into_iter().map(|number| (number, Vec::new())).collect();
    rules.append(&mut common()?);
    rules.insert(libc::SYS_fcntl, one_of(1, &FCNTL.map(word))?);
    rules.insert(libc::SYS_ioctl, one_of(1, &[FIONBIO])?);

    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for protocol in [0, libc::IPPROTO_TCP] {
            sockets.push(SeccompRule::new(vec![
                equal(0, family)?,
                SeccompCondition::new(
                    1,
                    SeccompCmpArgLen::Dword,
                    SeccompCmpOp::MaskedEq(u64::from(!word(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK))),
                    u64::from(word(libc::SOCK_STREAM)),
                )?,
                equal(2, protocol)?,
            ])?);
        }
    }
    rules.insert(libc::SYS_socket, sockets);

    // `send` of libc is `sendto` without an address.
    let no_address = SeccompCondition::new(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    let no_fast_open = SeccompCondition::new(
        3,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(u64::from(word(libc::MSG_FASTOPEN))),
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
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(word(value)))
}

/// Reading and writing what is connected, and connecting, which Landlock judges.
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

/// Without `open` and `readlink` of the worker's list.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[libc::c_long] = &[libc::SYS_epoll_wait, libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[libc::c_long] = &[];

/// Makes a handle's calls return instead of wait.
const FIONBIO: u32 = 0x5421;

#[cfg(test)]
mod tests;
