//! Moves a process into namespaces with separate files, processes, shared memory, host name and network.
//!
//! Two processes take part, each with one thread. The outer process prepares, because the first process of a
//! process namespace can only be started from outside. The inner process enters the other namespaces and
//! moves into its file tree.
//!
//! If a namespace is not available here, the report gives the reason and the remedy, and the caller decides
//! about the consequences. If a namespace was entered but does not refuse the attempts that it must refuse,
//! that is an error.

use std::{io, os::fd::OwnedFd};

use rustix::{
    process::{DumpableBehavior, Gid, Pid, Uid, WaitOptions},
    thread::{CapabilitySet, UnshareFlags},
};

use crate::{
    BuiltTree, CanaryFile, ConfineError, Evidence, FileTree, Layer, LayerReport, LayerStatus, ProcessUser,
    SingleThreaded, SyscallOutcome,
    file_tree::{PreparedTree, TreeUnavailable},
    process::{ForkSide, become_user, fork},
    sys,
};

mod advice;
pub(crate) mod id_map;
mod loopback;
mod probe;

use probe::NamespaceProbe;

/// The separate user of a file tree, other than the owner of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SeparateUser {
    /// The owner of the files.
    pub owner: ProcessUser,
    /// The separate user. Its id must be larger than the owner's, and no other process may have it.
    pub other: ProcessUser,
}

/// The reason why the listener on the loopback device was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenerError {
    /// The process has no network namespace of its own.
    #[error("there is no network namespace")]
    NoNamespace,
    /// The kernel refused the loopback device, or the listener on it.
    #[error("the loopback device cannot be set up ({0})")]
    Loopback(io::Error),
}

/// The outer process's preparations. The child inherits them through the fork.
#[derive(Debug)]
pub struct Namespaces {
    /// Reports of the namespaces that are already decided: waived or not available.
    reports: Vec<LayerReport>,
    /// The namespaces that the inner process must enter. It is in the process namespace from its start.
    requested: Vec<Layer>,
    /// The outer process.
    outer_process: Pid,
    /// The outcome of the outer process's attempt to find itself by its process id.
    outer_visibility: SyscallOutcome,
    /// The separate user, and the id map that shows that user as the files' owner.
    separate_user: Option<(ProcessUser, OwnedFd)>,
    /// Whether a user namespace was entered.
    has_own_users: bool,
}

/// A process in its namespaces.
#[derive(Debug)]
pub struct NamespacedProcess {
    /// One report for each of [`Layer::NAMESPACES`], in that order.
    pub reports: Vec<LayerReport>,
    /// The tree, if one was entered. Otherwise the process is still in its old tree.
    pub tree: Option<BuiltTree>,
    /// Whether the process is in its own user namespace, where the kernel counts its processes separately.
    pub has_own_users: bool,
    /// The listener that the caller asked for, or the reason why it was not made.
    pub listener: Option<Result<OwnedFd, ListenerError>>,
}

impl Namespaces {
    /// Leaves out all namespaces, each with this status.
    #[must_use]
    pub fn absent(status: &LayerStatus) -> Self {
        let report = |layer| LayerReport { layer, status: status.clone(), evidence: Vec::new() };
        Self {
            reports: Layer::NAMESPACES.map(report).into(),
            requested: Vec::new(),
            outer_process: rustix::process::getpid(),
            outer_visibility: SyscallOutcome::Succeeded,
            separate_user: None,
            has_own_users: false,
        }
    }

    /// Prepares for the first inner process: the next process that the calling process forks.
    ///
    /// The calling process stays in its namespaces, with one exception: if it lacks the privilege to create
    /// namespaces, it enters a user namespace, in which it keeps its user, or has `user` if that is given.
    /// `separate_user` is the separate user of a file tree. If the file systems or the kernel do not support
    /// it, [`BuiltTree::user`] is `None`.
    ///
    /// # Errors
    /// If a user namespace was entered but cannot be used. The process must then end.
    pub fn prepare(
        one_thread: &SingleThreaded,
        waived: &[Layer],
        user: Option<ProcessUser>,
        separate_user: Option<SeparateUser>,
    ) -> Result<Self, ConfineError> {
        let mut namespaces = Self { reports: Vec::new(), ..Self::absent(&LayerStatus::Waived) };
        for layer in Layer::NAMESPACES {
            if waived.contains(&layer) {
                namespaces.report(layer, LayerStatus::Waived, Vec::new());
            } else {
                namespaces.requested.push(layer);
            }
        }
        if namespaces.requested.is_empty() {
            return Ok(namespaces);
        }
        let is_admin = rustix::thread::capabilities(None)
            .is_ok_and(|capabilities| capabilities.effective.contains(CapabilitySet::SYS_ADMIN));
        if !is_admin && let Err(reason) = enter_user_namespace(one_thread, user)? {
            for layer in std::mem::take(&mut namespaces.requested) {
                namespaces.report(layer, LayerStatus::Missing { reason: reason.to_string() }, Vec::new());
            }
            return Ok(namespaces);
        }
        namespaces.has_own_users = !is_admin;
        // Mapping owners needs privileges in the initial user namespace. Without a map, the tree's user is
        // the owner.
        if is_admin && let Some(SeparateUser { owner, other }) = separate_user {
            namespaces.separate_user = id_map::create(one_thread, owner, other).ok().map(|map| (other, map));
        }
        if namespaces.requested.contains(&Layer::PidNamespace) {
            namespaces.outer_visibility = probe::try_find_process(namespaces.outer_process);
            if let Err(error) = sys::unshare(UnshareFlags::NEWPID, one_thread) {
                namespaces
                    .report_missing(Layer::PidNamespace, advice::namespace(Layer::PidNamespace, &error));
            }
        }
        Ok(namespaces)
    }

    /// Returns whether the next child is the first process of a process namespace. When that child ends, the
    /// kernel kills all other processes in the namespace.
    #[must_use]
    pub fn has_processes(&self) -> bool {
        self.requested.contains(&Layer::PidNamespace)
    }

    /// Enters the namespaces and the tree. Only the process that was forked after [`Self::prepare`] may call this.
    ///
    /// With `listen`, the network namespace gets a loopback device and a listener on that port of 127.0.0.1.
    /// The listener is created after the namespace is proved, and the proof is then repeated. Without a
    /// network namespace there is no listener.
    ///
    /// # Errors
    /// [`ConfineError::NotRefused`] if a namespace does not hold, [`ConfineError::NamespaceBroken`] if the
    /// process is between two trees. In either case the process must end.
    pub fn enter(
        mut self,
        one_thread: &SingleThreaded,
        canary: &CanaryFile,
        tree: &FileTree,
        listen: Option<u16>,
    ) -> Result<NamespacedProcess, ConfineError> {
        let mut listener = listen.map(|_| Err(ListenerError::NoNamespace));
        if self.requested.contains(&Layer::PidNamespace) {
            let attempt = NamespaceProbe::outer_process(self.outer_process);
            let evidence = attempt.proof(Layer::PidNamespace, self.outer_visibility)?;
            self.report(Layer::PidNamespace, LayerStatus::Enforced, vec![evidence]);
        }
        for (layer, flag) in [
            (Layer::IpcNamespace, UnshareFlags::NEWIPC),
            (Layer::UtsNamespace, UnshareFlags::NEWUTS),
            (Layer::NetNamespace, UnshareFlags::NEWNET),
        ] {
            if self.requested.contains(&layer) {
                let attempts = self.enter_layer(layer, || {
                    sys::unshare(flag, one_thread)?;
                    // A new UTS namespace keeps the old name, so the proof needs a new one.
                    if layer == Layer::UtsNamespace { probe::rename_machine() } else { Ok(()) }
                })?;
                if let (Layer::NetNamespace, Some(port), Some(attempts)) = (layer, listen, attempts) {
                    listener = Some(self.listen(port, &attempts)?);
                }
            }
        }
        if !self.requested.is_empty() {
            // Hides the names of control groups in `/proc`. This limits nothing, so it is not a layer, and
            // errors are ignored.
            let _ = sys::unshare(UnshareFlags::NEWCGROUP, one_thread);
        }
        let tree = if self.requested.contains(&Layer::MountNamespace) {
            self.enter_tree(one_thread, canary, tree)?
        } else {
            None
        };
        let order = |layer| Layer::NAMESPACES.iter().position(|namespace_layer| *namespace_layer == layer);
        self.reports.sort_by_key(|report| order(report.layer));
        Ok(NamespacedProcess { reports: self.reports, tree, has_own_users: self.has_own_users, listener })
    }

    /// Creates the loopback device and its listener, and repeats the attempts to reach the outside: with a
    /// device, the kernel refuses them with another error.
    fn listen(
        &mut self,
        port: u16,
        attempts: &[(NamespaceProbe, SyscallOutcome)],
    ) -> Result<Result<OwnedFd, ListenerError>, ConfineError> {
        let listener = match loopback::listen(port) {
            Ok(listener) => listener,
            Err(error) => return Ok(Err(ListenerError::Loopback(error))),
        };
        for (attempt, before) in attempts {
            let evidence = attempt.proof_with_loopback(*before)?;
            let report = self.reports.iter_mut().find(|report| report.layer == Layer::NetNamespace);
            report.into_iter().for_each(|report| report.evidence.push(evidence.clone()));
        }
        Ok(Ok(listener))
    }

    /// Enters one namespace and proves it. Returns the attempts of the proof, each with its earlier outcome,
    /// or `None` if the namespace is not available.
    fn enter_layer(
        &mut self,
        layer: Layer,
        enter: impl FnOnce() -> io::Result<()>,
    ) -> Result<Option<Vec<(NamespaceProbe, SyscallOutcome)>>, ConfineError> {
        let attempts = match NamespaceProbe::for_layer(layer) {
            Ok(attempts) => attempts,
            Err(error) => {
                self.report_missing(layer, format!("nothing here can prove it ({error})"));
                return Ok(None);
            }
        };
        let before: Vec<SyscallOutcome> = attempts.iter().map(NamespaceProbe::run).collect();
        if before.first() != Some(&SyscallOutcome::Succeeded) {
            self.report_missing(
                layer,
                "the attempt was refused before the namespace was entered, so a refusal would prove nothing"
                    .to_owned(),
            );
            return Ok(None);
        }
        if let Err(error) = enter() {
            self.report_missing(layer, advice::namespace(layer, &error));
            return Ok(None);
        }
        let attempts: Vec<_> = attempts.into_iter().zip(before).collect();
        let evidence = attempts.iter().map(|(attempt, before)| attempt.proof(layer, *before));
        let evidence = evidence.collect::<Result<_, _>>()?;
        self.report(layer, LayerStatus::Enforced, evidence);
        Ok(Some(attempts))
    }

    /// Enters the mount namespace and the tree, and proves them. Returns `None` if they are not available.
    fn enter_tree(
        &mut self,
        one_thread: &SingleThreaded,
        canary: &CanaryFile,
        tree: &FileTree,
    ) -> Result<Option<BuiltTree>, ConfineError> {
        let layer = Layer::MountNamespace;
        if !self
            .reports
            .iter()
            .any(|report| report.layer == Layer::PidNamespace && report.status == LayerStatus::Enforced)
        {
            self.report_missing(
                layer,
                "its /proc has to be that of a process namespace, and there is none".to_owned(),
            );
            return Ok(None);
        }
        let attempts = match attempts_on_tree(canary) {
            Ok(attempts) => attempts,
            Err(reason) => {
                self.report_missing(layer, reason.to_string());
                return Ok(None);
            }
        };
        if let Err(error) = sys::unshare(UnshareFlags::NEWNS, one_thread) {
            self.report_missing(layer, advice::namespace(layer, &error));
            return Ok(None);
        }
        let separate_user = self.separate_user.as_ref().map(|(user, map)| (*user, map));
        // Until `enter`, a failure leaves the process in its old tree. A failure of `enter` must end the
        // process.
        let built = match PreparedTree::new(tree, separate_user) {
            Ok(prepared) => prepared.enter()?,
            Err(TreeUnavailable { step, source }) => {
                self.report_missing(layer, advice::tree(step, &source));
                return Ok(None);
            }
        };
        let evidence = attempts.into_iter().map(|(attempt, before)| attempt.proof(layer, before));
        let evidence = evidence.collect::<Result<_, _>>()?;
        self.report(layer, LayerStatus::Enforced, evidence);
        Ok(Some(built))
    }

    /// Reports a namespace as not available.
    fn report_missing(&mut self, layer: Layer, reason: String) {
        self.requested.retain(|requested_layer| *requested_layer != layer);
        self.report(layer, LayerStatus::Missing { reason }, Vec::new());
    }

    fn report(&mut self, layer: Layer, status: LayerStatus, evidence: Vec<Evidence>) {
        self.reports.push(LayerReport { layer, status, evidence });
    }
}

/// Enters a user namespace, in which an ordinary user may create the other namespaces. The inner error gives
/// the reason why that was refused. In that case nothing has changed.
fn enter_user_namespace(
    one_thread: &SingleThreaded,
    user: Option<ProcessUser>,
) -> Result<Result<(), advice::UserNamespaceRefusal>, ConfineError> {
    if let Some(user) = user {
        // A new user namespace maps only the user that creates it, so this process must switch to `user`
        // first. It could not switch back after a failure, so a child process tries both steps first.
        let is_possible = succeeds_in_child(one_thread, || {
            become_user(user).is_ok() && sys::unshare(UnshareFlags::NEWUSER, one_thread).is_ok()
        });
        if !is_possible.unwrap_or_default() {
            return Ok(Err(advice::user_namespace(io::Error::from_raw_os_error(libc::EPERM))));
        }
        become_user(user)?;
        // Switching the user made the process undumpable, so the files below `/proc/self` that define the id
        // map belong to root.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
            .map_err(|errno| namespace_broken("become dumpable")(errno.into()))?;
    }
    // Read the ids before the `unshare`: inside, they are unmapped until the map is written.
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if let Err(error) = sys::unshare(UnshareFlags::NEWUSER, one_thread) {
        return Ok(Err(advice::user_namespace(error)));
    }
    // The kernel lets root map itself only with `CAP_SETFCAP`: root in the namespace could otherwise give
    // files capabilities that are valid for root outside.
    let step = if uid.is_root() {
        "stay root, which takes CAP_SETFCAP (--cap-add=SETFCAP, or --user with an ordinary user's number)"
    } else {
        "stay the same user"
    };
    map_same_ids(uid, gid).map_err(namespace_broken(step))?;
    Ok(Ok(()))
}

/// The reason why a file tree cannot be proved.
#[derive(Debug, thiserror::Error)]
enum UnprovableTree {
    #[error("the root folder cannot be examined ({0})")]
    Root(io::Error),
    #[error("the state folder has no path to prove it by ({0})")]
    NoPath(io::Error),
    #[error("the state folder has no file for the proof")]
    NoFile,
}

/// The attempts that prove a file tree, each with its earlier outcome.
fn attempts_on_tree(canary: &CanaryFile) -> Result<Vec<(NamespaceProbe, SyscallOutcome)>, UnprovableTree> {
    let root = NamespaceProbe::root_folder().map_err(UnprovableTree::Root)?;
    let before = root.run();
    let mut attempts = vec![(root, before)];
    let path = canary.path().map_err(UnprovableTree::NoPath)?;
    let state = NamespaceProbe::state_by_path(path);
    match state.run() {
        // A process of another user than the sidecar's is refused in any case, so rely only on the attempt on
        // the root folder.
        SyscallOutcome::Failed(libc::EACCES) => {}
        SyscallOutcome::Succeeded => attempts.push((state, SyscallOutcome::Succeeded)),
        // For example, the canary was removed.
        SyscallOutcome::Failed(_) => return Err(UnprovableTree::NoFile),
    }
    Ok(attempts)
}

fn namespace_broken(step: &'static str) -> impl Fn(io::Error) -> ConfineError {
    move |source| ConfineError::NamespaceBroken { step, source }
}

/// Returns whether `attempt` succeeds in a child process, which then ends.
fn succeeds_in_child(one_thread: &SingleThreaded, attempt: impl FnOnce() -> bool) -> io::Result<bool> {
    match fork(one_thread)? {
        ForkSide::Child => sys::exit(i32::from(!attempt())),
        ForkSide::Parent { child } => {
            let options = WaitOptions::empty();
            let exit_status = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), options))?;
            Ok(exit_status.is_some_and(|(_, status)| status.exit_status() == Some(0)))
        }
    }
}

/// Maps this user and group to the same numbers inside, and no other user or group.
fn map_same_ids(uid: Uid, gid: Gid) -> io::Result<()> {
    let (uid, gid) = (uid.as_raw(), gid.as_raw());
    // Without this line, an ordinary user may not write `gid_map` (user_namespaces(7)).
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

#[cfg(test)]
mod tests;
