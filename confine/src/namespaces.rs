//! The namespaces of a process: separate files, processes, shared memory, host name and network.
//!
//! Two processes take part. The outer one prepares, because the first process of a process namespace must be
//! started by a process outside it. The inner one enters the other namespaces and moves into its file tree.
//! Both have one thread.
//!
//! A namespace that is not available here is reported with the reason and the remedy. One that was entered
//! and does not refuse what it must refuse is an error. The caller decides what follows from a missing one.

use std::{io, os::fd::OwnedFd};

use rustix::{
    process::{DumpableBehavior, Gid, Pid, Uid, WaitOptions},
    thread::{CapabilitySet, UnshareFlags},
};

use crate::{
    BuiltTree, Canary, ConfineError, Evidence, FileTree, Layer, LayerReport, LayerStatus, ProcessUser,
    SingleThreaded, SyscallOutcome,
    file_tree::{PreparedTree, TreeUnavailable},
    process::{Fork, become_user, fork},
    sys,
};

mod advice;
pub(crate) mod apart;
mod attempt;
mod loopback;

use attempt::NamespaceAttempt;

/// The separate user of a file tree, if it is possible: another user than the owner of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SeparateUser {
    /// The owner of the files.
    pub owner: ProcessUser,
    /// The separate user. Its number must be larger than the owner's, and no other process may have it.
    pub other: ProcessUser,
}

/// The outer process's preparations. Its child inherits them by the fork.
#[derive(Debug)]
pub struct Namespaces {
    /// Reports of namespaces that are decided already: waived or not available.
    reports: Vec<LayerReport>,
    /// Namespaces that the inner process has to enter; the process namespace it is in from the start.
    wanted: Vec<Layer>,
    /// The outer process.
    outer: Pid,
    /// The outer process's attempt to find itself by its number.
    outer_seen: SyscallOutcome,
    /// The separate user, and the id map that shows the files as that user's.
    apart: Option<(ProcessUser, OwnedFd)>,
    /// Whether a user namespace was entered.
    has_own_users: bool,
}

/// A process in its namespaces.
#[derive(Debug)]
pub struct NamespacedProcess {
    /// One report for each of [`Layer::NAMESPACES`], in that order.
    pub reports: Vec<LayerReport>,
    /// The tree, if there is one. Without it the process is in its old tree.
    pub tree: Option<BuiltTree>,
    /// Whether it is in its own user namespace, where the kernel counts its user's processes separately.
    pub has_own_users: bool,
    /// The listener that was asked for, or the reason why there is none.
    pub listener: Option<Result<OwnedFd, String>>,
}

impl Namespaces {
    /// Leaves out all namespaces, with this status.
    #[must_use]
    pub fn none(status: &LayerStatus) -> Self {
        let report = |layer| LayerReport { layer, status: status.clone(), evidence: Vec::new() };
        Self {
            reports: Layer::NAMESPACES.map(report).into(),
            wanted: Vec::new(),
            outer: rustix::process::getpid(),
            outer_seen: SyscallOutcome::Succeeded,
            apart: None,
            has_own_users: false,
        }
    }

    /// Prepares for the first inner process, which is the next one that the calling process forks. The
    /// calling process stays in its namespaces, with one exception: without the privilege to make namespaces
    /// it enters a user namespace, in which it is the same user as before, or `user` if that is given.
    /// `apart` is the separate user of a file tree; if the file systems or the kernel do not support it,
    /// [`BuiltTree::user`] is `None`.
    ///
    /// # Errors
    /// If a user namespace was entered and cannot be used: the process must end.
    pub fn prepare(
        one_thread: &SingleThreaded,
        waived: &[Layer],
        user: Option<ProcessUser>,
        apart: Option<SeparateUser>,
    ) -> Result<Self, ConfineError> {
        let mut this = Self { reports: Vec::new(), ..Self::none(&LayerStatus::Waived) };
        for layer in Layer::NAMESPACES {
            if waived.contains(&layer) {
                this.report(layer, LayerStatus::Waived, Vec::new());
            } else {
                this.wanted.push(layer);
            }
        }
        if this.wanted.is_empty() {
            return Ok(this);
        }
        let admin = rustix::thread::capabilities(None)
            .is_ok_and(|capabilities| capabilities.effective.contains(CapabilitySet::SYS_ADMIN));
        if !admin && let Err(reason) = enter_user_namespace(one_thread, user)? {
            for layer in std::mem::take(&mut this.wanted) {
                this.report(layer, LayerStatus::Missing { reason: reason.clone() }, Vec::new());
            }
            return Ok(this);
        }
        this.has_own_users = !admin;
        // Only with privileges in the initial user namespace can owners be mapped. Without that map, the
        // owner is the tree's user.
        if admin && let Some(SeparateUser { owner, other }) = apart {
            this.apart = apart::map(one_thread, owner, other).ok().map(|map| (other, map));
        }
        if this.wanted.contains(&Layer::PidNamespace) {
            this.outer_seen = attempt::find(this.outer);
            if let Err(error) = sys::unshare(UnshareFlags::NEWPID, one_thread) {
                this.miss(Layer::PidNamespace, advice::namespace(Layer::PidNamespace, &error));
            }
        }
        Ok(this)
    }

    /// Whether the next child is the first process of a process namespace: when it ends, the kernel kills all
    /// other processes in it.
    #[must_use]
    pub fn has_processes(&self) -> bool {
        self.wanted.contains(&Layer::PidNamespace)
    }

    /// Enters the namespaces and the tree. Must be called by the process that was forked after
    /// [`Self::prepare`]. With `listen`, the network namespace gets a loopback device and a listener on that port of
    /// 127.0.0.1, after the proof of the namespace, which is then repeated. Without a network namespace there is no
    /// listener.
    ///
    /// # Errors
    /// [`ConfineError::NotRefused`] if a namespace does not hold, [`ConfineError::NamespaceBroken`] if the
    /// process is between two trees. It must end in either case.
    pub fn enter(
        mut self,
        one_thread: &SingleThreaded,
        canary: &Canary,
        tree: &FileTree,
        listen: Option<u16>,
    ) -> Result<NamespacedProcess, ConfineError> {
        let mut listener = listen.map(|_| Err("there is no network namespace".to_owned()));
        if self.wanted.contains(&Layer::PidNamespace) {
            let attempt = NamespaceAttempt::outer_process(self.outer);
            let evidence = attempt.proof(Layer::PidNamespace, self.outer_seen)?;
            self.report(Layer::PidNamespace, LayerStatus::Enforced, vec![evidence]);
        }
        for (layer, flag) in [
            (Layer::IpcNamespace, UnshareFlags::NEWIPC),
            (Layer::UtsNamespace, UnshareFlags::NEWUTS),
            (Layer::NetNamespace, UnshareFlags::NEWNET),
        ] {
            if self.wanted.contains(&layer) {
                let attempts = self.enter_one(layer, || {
                    sys::unshare(flag, one_thread)?;
                    if layer == Layer::UtsNamespace { attempt::rename_machine() } else { Ok(()) }
                })?;
                if let (Layer::NetNamespace, Some(port), Some(attempts)) = (layer, listen, attempts) {
                    listener = Some(self.listen(port, &attempts)?);
                }
            }
        }
        if !self.wanted.is_empty() {
            // Hides the names of groups in `/proc`. It limits nothing, so it is no layer and errors are
            // ignored.
            let _ = sys::unshare(UnshareFlags::NEWCGROUP, one_thread);
        }
        let tree = if self.wanted.contains(&Layer::MountNamespace) {
            self.enter_tree(one_thread, canary, tree)?
        } else {
            None
        };
        let place = |layer| Layer::NAMESPACES.iter().position(|one| *one == layer);
        self.reports.sort_by_key(|report| place(report.layer));
        Ok(NamespacedProcess { reports: self.reports, tree, has_own_users: self.has_own_users, listener })
    }

    /// Makes the loopback device and its listener, and repeats the attempts on what is outside: with a device they are
    /// refused in another way.
    fn listen(
        &mut self,
        port: u16,
        attempts: &[(NamespaceAttempt, SyscallOutcome)],
    ) -> Result<Result<OwnedFd, String>, ConfineError> {
        let listener = match loopback::listen(port) {
            Ok(listener) => listener,
            Err(error) => return Ok(Err(format!("the loopback device cannot be used ({error})"))),
        };
        for (attempt, before) in attempts {
            let evidence = attempt.proof_beside_loopback(*before)?;
            let report = self.reports.iter_mut().find(|report| report.layer == Layer::NetNamespace);
            report.into_iter().for_each(|report| report.evidence.push(evidence.clone()));
        }
        Ok(Ok(listener))
    }

    /// Returns the attempts of a namespace that was entered, each with its outcome before.
    fn enter_one(
        &mut self,
        layer: Layer,
        enter: impl FnOnce() -> io::Result<()>,
    ) -> Result<Option<Vec<(NamespaceAttempt, SyscallOutcome)>>, ConfineError> {
        let attempts = match NamespaceAttempt::all(layer) {
            Ok(attempts) => attempts,
            Err(error) => {
                self.miss(layer, format!("nothing here can prove it ({error})"));
                return Ok(None);
            }
        };
        let before: Vec<SyscallOutcome> = attempts.iter().map(NamespaceAttempt::make).collect();
        if before.first() != Some(&SyscallOutcome::Succeeded) {
            self.miss(
                layer,
                "the attempt was refused before the namespace was entered, so a refusal would prove nothing"
                    .to_owned(),
            );
            return Ok(None);
        }
        if let Err(error) = enter() {
            self.miss(layer, advice::namespace(layer, &error));
            return Ok(None);
        }
        let attempts: Vec<_> = attempts.into_iter().zip(before).collect();
        let evidence = attempts.iter().map(|(attempt, before)| attempt.proof(layer, *before));
        let evidence = evidence.collect::<Result<_, _>>()?;
        self.report(layer, LayerStatus::Enforced, evidence);
        Ok(Some(attempts))
    }

    fn enter_tree(
        &mut self,
        one_thread: &SingleThreaded,
        canary: &Canary,
        tree: &FileTree,
    ) -> Result<Option<BuiltTree>, ConfineError> {
        let layer = Layer::MountNamespace;
        if !self
            .reports
            .iter()
            .any(|report| report.layer == Layer::PidNamespace && report.status == LayerStatus::Enforced)
        {
            self.miss(layer, "its /proc has to be that of a process namespace, and there is none".to_owned());
            return Ok(None);
        }
        let attempts = match attempts_on_tree(canary) {
            Ok(attempts) => attempts,
            Err(reason) => {
                self.miss(layer, reason);
                return Ok(None);
            }
        };
        if let Err(error) = sys::unshare(UnshareFlags::NEWNS, one_thread) {
            self.miss(layer, advice::namespace(layer, &error));
            return Ok(None);
        }
        let apart = self.apart.as_ref().map(|(user, map)| (*user, map));
        let built = match PreparedTree::new(tree, apart) {
            Ok(prepared) => prepared.enter()?,
            Err(TreeUnavailable { step, source }) => {
                self.miss(layer, advice::tree(step, &source));
                return Ok(None);
            }
        };
        let evidence = attempts.into_iter().map(|(attempt, before)| attempt.proof(layer, before));
        let evidence = evidence.collect::<Result<_, _>>()?;
        self.report(layer, LayerStatus::Enforced, evidence);
        Ok(Some(built))
    }

    fn miss(&mut self, layer: Layer, reason: String) {
        self.wanted.retain(|wanted| *wanted != layer);
        self.report(layer, LayerStatus::Missing { reason }, Vec::new());
    }

    fn report(&mut self, layer: Layer, status: LayerStatus, evidence: Vec<Evidence>) {
        self.reports.push(LayerReport { layer, status, evidence });
    }
}

/// Enters a user namespace, in which an ordinary user may make the others. Returns the reason if that is
/// refused; nothing has changed then.
fn enter_user_namespace(
    one_thread: &SingleThreaded,
    user: Option<ProcessUser>,
) -> Result<Result<(), String>, ConfineError> {
    if let Some(user) = user {
        // A new user namespace maps only the user that makes it, so this process must become `user` first. It
        // could not go back after a failure, so a child process tries it before.
        let tried = tried(one_thread, || {
            become_user(user).is_ok() && sys::unshare(UnshareFlags::NEWUSER, one_thread).is_ok()
        });
        if !tried.unwrap_or_default() {
            return Ok(Err(advice::user_namespace(&io::Error::from_raw_os_error(libc::EPERM))));
        }
        become_user(user)?;
        // Otherwise the files below `/proc/self` that define the id map would belong to root.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
            .map_err(|errno| broken("be seen")(errno.into()))?;
    }
    // Read before the `unshare`: inside, the ids are unmapped until the map is written.
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if let Err(error) = sys::unshare(UnshareFlags::NEWUSER, one_thread) {
        return Ok(Err(advice::user_namespace(&error)));
    }
    // The kernel lets root map itself only with `CAP_SETFCAP`: root in the namespace could give files
    // capabilities that hold for root outside.
    let step = if uid.is_root() {
        "stay root, which takes CAP_SETFCAP (--cap-add=SETFCAP, or --user with an ordinary user's number)"
    } else {
        "stay the same user"
    };
    stay(uid, gid).map_err(broken(step))?;
    Ok(Ok(()))
}

/// The attempts that prove a file tree, each with its outcome before, or the reason why none can.
fn attempts_on_tree(canary: &Canary) -> Result<Vec<(NamespaceAttempt, SyscallOutcome)>, String> {
    let root = NamespaceAttempt::root_folder()
        .map_err(|error| format!("the root folder cannot be looked at ({error})"))?;
    let before = root.make();
    let mut attempts = vec![(root, before)];
    let path =
        canary.path().map_err(|error| format!("the state folder has no path to prove it by ({error})"))?;
    let state = NamespaceAttempt::state_by_path(path);
    match state.make() {
        // A process that is not the daemon's user is shut out anyway; the attempt on the root folder has to
        // suffice.
        SyscallOutcome::Failed(libc::EACCES) => {}
        SyscallOutcome::Succeeded => attempts.push((state, SyscallOutcome::Succeeded)),
        // For example, the canary was removed.
        SyscallOutcome::Failed(_) => return Err("the state folder has no file for the proof".to_owned()),
    }
    Ok(attempts)
}

fn broken(step: &'static str) -> impl Fn(io::Error) -> ConfineError {
    move |source| ConfineError::NamespaceBroken { step, source }
}

/// Whether `attempt` succeeds, tried in a child process that ends after it.
fn tried(one_thread: &SingleThreaded, attempt: impl FnOnce() -> bool) -> io::Result<bool> {
    match fork(one_thread)? {
        Fork::Child => sys::exit(i32::from(!attempt())),
        Fork::Parent { child } => {
            let options = WaitOptions::empty();
            let ended = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), options))?;
            Ok(ended.is_some_and(|(_, status)| status.exit_status() == Some(0)))
        }
    }
}

/// Maps this user to the same number inside, and no other user.
fn stay(uid: Uid, gid: Gid) -> io::Result<()> {
    let (uid, gid) = (uid.as_raw(), gid.as_raw());
    // Without this, an ordinary user may not write `gid_map`.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

#[cfg(test)]
mod tests;
