//! What a container's own filter leaves: the tests of confinement run below it as well, also those of other
//! crates, which include this file.
#![expect(clippy::unwrap_used, reason = "test code, which clippy.toml lets off by function only")]

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// Filters the calling thread as a stock container does that is not privileged: no namespaces and no mounts
/// (`EPERM`), no `clone3` (`ENOSYS`).
pub(crate) fn enter_stock_container() {
    let forbidden =
        [libc::SYS_unshare, libc::SYS_setns, libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root];
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        forbidden.into_iter().map(|number| (number, Vec::new())).collect();
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let with_flag = |flag: libc::c_int| {
        let flag = u64::from(flag.cast_unsigned());
        let set = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag);
        SeccompRule::new(vec![set.unwrap()]).unwrap()
    };
    refused.insert(libc::SYS_clone, namespaces.map(with_flag).into());
    rustix::thread::set_no_new_privs(true).unwrap();
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    for (calls, errno) in [(refused, libc::EPERM), (unknown, libc::ENOSYS)] {
        let filter = SeccompFilter::new(
            calls,
            SeccompAction::Allow,
            SeccompAction::Errno(errno.cast_unsigned()),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let program: BpfProgram = filter.unwrap().try_into().unwrap();
        apply_filter(&program).unwrap();
    }
}
