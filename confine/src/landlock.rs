//! Applies Landlock to the calling thread, which can then access the mounts and no other file.
//!
//! - A thread with a network gets no path, and TCP connections to its ports. Landlock does not judge MPTCP, UDP and TCP
//!   fast open; the filter of `seccomp/network.rs` refuses them.
//! - A process gets rules of the same form with more rights: it may execute programs and use devices.
//!
//! Rules are made from handles. There is no rule for `/`, `/proc` or `/etc`: a worker's engine, modules and time zones
//! are loaded before the worker is confined.
//!
//! Landlock leaves these gaps:
//!
//! - It does not restrict `stat`, `readlink` and `utimensat` on a path outside. For a guest, the WASI layer closes this
//!   gap: it resolves paths below a handle.
//! - It does not restrict `chmod`, sockets and io_uring. Seccomp refuses these, except `fchmod` with plain permissions.
//! - It judges an open through `/proc/self/fd/N` by the file behind it, so such an open works only for mounts. Pipes,
//!   sockets and memory files have no path, so it never judges them: a path that reaches `/proc/self/fd/1` can reopen a
//!   stdout that is a pipe.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort, PathBeneath,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::FileType;

use crate::{ConfineError, LayerStatus, MountAccess, MountRule, NetworkRules, PathAccess, PathRule};

/// The first version that can forbid truncation. Without it, "read-only" would not hold.
pub(crate) const REQUIRED_ABI: u32 = 3;

/// The first version that restricts TCP connections by port.
pub(crate) const CONNECT_ABI: u32 = 4;

/// Confines the calling thread to `mounts`, irrevocably. `abi` is the version that the kernel reported.
pub(crate) fn restrict(mounts: &[MountRule], abi: u32) -> Result<LayerStatus, ConfineError> {
    let mut path_rules = Vec::with_capacity(mounts.len());
    for (index, mount) in mounts.iter().enumerate() {
        require_directory(index, mount)?;
        path_rules.push((mount.dir.as_fd(), rights(mount.access)));
    }
    enforce(&path_rules, None, abi)
}

/// Confines the calling thread to no file at all, and to connections to the ports of `network`, irrevocably.
pub(crate) fn restrict_to_network(network: &NetworkRules, abi: u32) -> Result<LayerStatus, ConfineError> {
    enforce(&[], Some(network), abi)
}

/// Confines the calling process, which has one thread, to `paths`, and to connections to the ports of `network`,
/// irrevocably.
pub(crate) fn restrict_process(
    paths: &[PathRule],
    network: Option<&NetworkRules>,
    abi: u32,
) -> Result<LayerStatus, ConfineError> {
    let mut path_rules = Vec::with_capacity(paths.len());
    for (index, path) in paths.iter().enumerate() {
        path_rules.push((path.handle.as_fd(), process_rights(index, path)?));
    }
    enforce(&path_rules, network, abi)
}

fn enforce(
    path_rules: &[(BorrowedFd<'_>, BitFlags<AccessFs>)],
    network: Option<&NetworkRules>,
    abi: u32,
) -> Result<LayerStatus, ConfineError> {
    let missing = missing_rights(abi);
    let status = apply(path_rules, network, abi).map_err(|source| ConfineError::LandlockApply { source })?;
    let expected =
        if missing.is_empty() { RulesetStatus::FullyEnforced } else { RulesetStatus::PartiallyEnforced };
    if status.ruleset != expected || !status.no_new_privs {
        return Err(ConfineError::LandlockDegraded { abi });
    }
    Ok(if missing.is_empty() { LayerStatus::Enforced } else { LayerStatus::Partial { missing } })
}

fn apply(
    path_rules: &[(BorrowedFd<'_>, BitFlags<AccessFs>)],
    network: Option<&NetworkRules>,
    abi: u32,
) -> Result<landlock::RestrictionStatus, landlock::RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V3))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
        .handle_access(AccessFs::IoctlDev)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .handle_access(AccessFs::ResolveUnix)?
        .create()?
        .set_compatibility(CompatLevel::HardRequirement);
    for (handle, rights) in path_rules {
        rules = rules.add_rule(PathBeneath::new(handle, *rights))?;
    }
    // An older kernel accepts no rule for a port and restricts no port; `missing_rights` reports this.
    if let Some(network) = network.filter(|_| abi >= CONNECT_ABI) {
        for port in &network.ports {
            rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
    }
    // The canary is refused before every call. With auditd, each refusal would add a line to the system's
    // log.
    if abi >= QUIET_ABI {
        rules = rules.log_same_exec(false)?;
    }
    rules.restrict_self()
}

/// Returns the rights of a mount. They never include execution, device ioctls, or creating devices, FIFOs and
/// sockets.
fn rights(access: MountAccess) -> BitFlags<AccessFs> {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    match access {
        MountAccess::Read => read,
        MountAccess::Write => {
            read | make_bitflags!(AccessFs::{
                WriteFile | Truncate | RemoveFile | RemoveDir | MakeReg | MakeDir | MakeSym | Refer
            })
        }
    }
}

/// Returns the rights of a path for a process: a mount's rights, execution, and creating FIFOs below a
/// writable path. They never include creating devices and sockets. A rule for a plain file or a device has
/// only the rights of files, because the kernel accepts no others.
fn process_rights(index: usize, path: &PathRule) -> Result<BitFlags<AccessFs>, ConfineError> {
    let unusable = |source| ConfineError::PathUnusable { index, source };
    let stat = rustix::fs::fstat(&path.handle).map_err(|errno| unusable(errno.into()))?;
    let access_rights = match path.access {
        PathAccess::List => AccessFs::ReadDir.into(),
        PathAccess::Read => rights(MountAccess::Read) | AccessFs::Execute,
        PathAccess::Write => rights(MountAccess::Write) | AccessFs::Execute | AccessFs::MakeFifo,
        PathAccess::Device => make_bitflags!(AccessFs::{ReadFile | WriteFile}),
    };
    match (FileType::from_raw_mode(stat.st_mode), path.access) {
        (FileType::Directory, PathAccess::List | PathAccess::Read | PathAccess::Write) => Ok(access_rights),
        (FileType::RegularFile, PathAccess::Read | PathAccess::Write)
        | (FileType::CharacterDevice, PathAccess::Device) => Ok(access_rights & AccessFs::from_file(ABI::V3)),
        (kind, _) => {
            Err(unusable(io::Error::other(format!("{kind:?} cannot be granted as {:?}", path.access))))
        }
    }
}

/// Returns the rights of later versions, which a kernel of version `abi` cannot restrict.
fn missing_rights(abi: u32) -> Vec<String> {
    LATER_RIGHTS
        .iter()
        .filter(|(first_abi, _)| abi < *first_abi)
        .map(|(_, name)| (*name).to_owned())
        .collect()
}

fn require_directory(index: usize, mount: &MountRule) -> Result<(), ConfineError> {
    match rustix::fs::fstat(&mount.dir) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(()),
        Ok(_) => Err(ConfineError::MountNotDirectory { index, source: None }),
        Err(errno) => Err(ConfineError::MountNotDirectory { index, source: Some(errno.into()) }),
    }
}

/// The rights that [`apply`] requests with best effort, each with the version that introduced it. Keep both
/// lists in sync: [`enforce`] compares Landlock's report with this one.
const LATER_RIGHTS: [(u32, &str); 6] = [
    (4, "net_bind_tcp"),
    (4, "net_connect_tcp"),
    (5, "fs_ioctl_dev"),
    (6, "scope_abstract_unix_socket"),
    (6, "scope_signal"),
    (9, "fs_resolve_unix"),
];

/// The first version that can keep refusals out of the system's log.
const QUIET_ABI: u32 = 7;

#[cfg(test)]
mod tests;
