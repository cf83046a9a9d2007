//! The seccomp filter of a stock container. The tests of confinement also run inside it.
#![expect(clippy::unwrap_used, reason = "test helpers: clippy.toml exempts only test functions")]

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// Filters the calling thread like Docker's default profile for an unprivileged container: no namespaces, no
/// mounts, none of the kernel's rarer interfaces (`EPERM`), no `clone3` (`ENOSYS`).
///
/// # Panics
/// If the kernel accepts no filter.
pub fn enter_stock_container() {
    let mut denied_rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.into_iter().map(|number| (number, Vec::new())).collect();
    let vsock = u64::from(libc::AF_VSOCK.cast_unsigned());
    let is_vsock = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, vsock).unwrap();
    denied_rules.insert(libc::SYS_socket, vec![SeccompRule::new(vec![is_vsock]).unwrap()]);
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let rule_for_flag = |flag: libc::c_int| {
        let flag = u64::from(flag.cast_unsigned());
        let has_flag = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag);
        SeccompRule::new(vec![has_flag.unwrap()]).unwrap()
    };
    denied_rules.insert(libc::SYS_clone, namespaces.map(rule_for_flag).into());
    rustix::thread::set_no_new_privs(true).unwrap();
    let unknown_rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    for (calls, errno) in [(denied_rules, libc::EPERM), (unknown_rules, libc::ENOSYS)] {
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

/// Calls that the profile denies, or allows only with more capabilities.
const FORBIDDEN: [libc::c_long; 31] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_settime,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];
