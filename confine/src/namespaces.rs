//! The namespaces of a process: its own files, processes, shared memory, name and network.
//!
//! Two processes take part. The one outside prepares: the first process of a process namespace has to be
//! started by somebody who stays outside. The one inside enters the others and moves into its file tree. Both
//! have one thread.
//!
//! A namespace that cannot be had here is reported with the reason and with what would give it; one that is
//! there and does not refuse what it has to is an error. What follows from a missing one is the caller's part.

use std::{io, os::fd::OwnedFd};

use rustix::{
    process::{DumpableBehavior, Gid, Pid, Uid, WaitOptions},
    thread::{CapabilitySet, UnshareFlags},
};

use crate::{
    BuiltTree, Canary, ConfineError, Evidence, FileTree, Layer, LayerReport, LayerStatus, Outcome,
    ProcessUser, SingleThreaded,
    file_tree::{Prepared, TreeUnavailable},
    process::{Fork, become_user, fork},
    sys,
};

mod advice;
pub(crate) mod apart;
mod attempt;

use attempt::Attempt;

/// Who is to live in a file tree, if it can be had: another user than the owner of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Apart {
    /// Who owns the files.
    pub owner: ProcessUser,
    /// Who it is to be. Its number must be larger than the owner's, and nobody else's.
    pub other: ProcessUser,
}

/// What the process outside has prepared. Its child takes it along when it is forked.
#[derive(Debug)]
pub struct Namespaces {
    /// Those that are decided already, because they are waived or cannot be had.
    reports: Vec<LayerReport>,
    /// Those that the process inside is to enter or, that of processes, finds itself in.
    wanted: Vec<Layer>,
    /// Who is outside.
    outer: Pid,
    /// What the process outside saw of itself.
    outer_seen: Outcome,
    /// The other user, and the map that makes the files its own.
    apart: Option<(ProcessUser, OwnedFd)>,
    /// It went into a user namespace.
    has_own_users: bool,
}

/// A process in its namespaces.
#[derive(Debug)]
pub struct Inside {
    /// One for each of [`Layer::NAMESPACES`], in that order.
    pub reports: Vec<LayerReport>,
    /// The tree, if there is one. Without it the process is where it was.
    pub tree: Option<BuiltTree>,
    /// It is in a user namespace of its own: the kernel counts what its user has there apart from all else.
    pub has_own_users: bool,
}

impl Namespaces {
    /// Leaves all of them out.
    #[must_use]
    pub fn none(status: &LayerStatus) -> Self {
        let report = |layer| LayerReport { layer, status: status.clone(), evidence: Vec::new() };
        Self {
            reports: Layer::NAMESPACES.map(report).into(),
            wanted: Vec::new(),
            outer: rustix::process::getpid(),
            outer_seen: Outcome::Succeeded,
            apart: None,
            has_own_users: false,
        }
    }

    /// Makes the calling process ready to start the first process inside: that is the next one it forks. The
    /// calling process itself stays where it is, but that who may not make namespaces goes into a user
    /// namespace, in which it is who it was, or `user` if that is given. `apart` is for a file tree; where the file systems or the kernel do
    /// not have it, [`BuiltTree::user`] says so.
    ///
    /// # Errors
    /// If a user namespace was entered and cannot be used: the process has to end.
    pub fn prepare(
        one_thread: &SingleThreaded,
        waived: &[Layer],
        user: Option<ProcessUser>,
        apart: Option<Apart>,
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
        // Only who may everywhere may say who owns what. Where it cannot be had, the owner lives there.
        if admin && let Some(Apart { owner, other }) = apart {
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

    /// Whether the next child is the first process of a process namespace: when that ends, the kernel kills all
    /// others in it.
    #[must_use]
    pub fn has_processes(&self) -> bool {
        self.wanted.contains(&Layer::PidNamespace)
    }

    /// Enters the namespaces and the tree. To be called by the process that was forked after
    /// [`Self::prepare`].
    ///
    /// # Errors
    /// [`ConfineError::NotRefused`] if a namespace does not hold, [`ConfineError::NamespaceBroken`] if the
    /// process is between two trees. It has to end in either case.
    pub fn enter(
        mut self,
        one_thread: &SingleThreaded,
        canary: &Canary,
        tree: &FileTree,
    ) -> Result<Inside, ConfineError> {
        if self.wanted.contains(&Layer::PidNamespace) {
            let attempt = Attempt::outer_process(self.outer);
            let evidence = attempt.proof(Layer::PidNamespace, self.outer_seen)?;
            self.report(Layer::PidNamespace, LayerStatus::Enforced, vec![evidence]);
        }
        for (layer, flag) in [
            (Layer::IpcNamespace, UnshareFlags::NEWIPC),
            (Layer::UtsNamespace, UnshareFlags::NEWUTS),
            (Layer::NetNamespace, UnshareFlags::NEWNET),
        ] {
            if self.wanted.contains(&layer) {
                self.enter_one(layer, || {
                    sys::unshare(flag, one_thread)?;
                    if layer == Layer::UtsNamespace { attempt::rename_machine() } else { Ok(()) }
                })?;
            }
        }
        if !self.wanted.is_empty() {
            // Only so that `/proc` does not tell the names of groups. It bounds nothing, and so it is no layer.
            let _ = sys::unshare(UnshareFlags::NEWCGROUP, one_thread);
        }
        let tree = if self.wanted.contains(&Layer::MountNamespace) {
            self.enter_tree(one_thread, canary, tree)?
        } else {
            None
        };
        let place = |layer| Layer::NAMESPACES.iter().position(|one| *one == layer);
        self.reports.sort_by_key(|report| place(report.layer));
        Ok(Inside { reports: self.reports, tree, has_own_users: self.has_own_users })
    }

    fn enter_one(
        &mut self,
        layer: Layer,
        enter: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), ConfineError> {
        let attempts = match Attempt::all(layer) {
            Ok(attempts) => attempts,
            Err(error) => {
                self.miss(layer, format!("there is nothing here to prove it by ({error})"));
                return Ok(());
            }
        };
        let before: Vec<Outcome> = attempts.iter().map(Attempt::make).collect();
        if before.first() != Some(&Outcome::Succeeded) {
            self.miss(
                layer,
                "what it is to refuse is refused already, so that nothing would prove it".to_owned(),
            );
            return Ok(());
        }
        if let Err(error) = enter() {
            self.miss(layer, advice::namespace(layer, &error));
            return Ok(());
        }
        let evidence = attempts.iter().zip(before).map(|(attempt, before)| attempt.proof(layer, before));
        let evidence = evidence.collect::<Result<_, _>>()?;
        self.report(layer, LayerStatus::Enforced, evidence);
        Ok(())
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
        let mut attempts = match Attempt::root_folder() {
            Ok(attempt) => vec![attempt],
            Err(error) => {
                self.miss(layer, format!("the root folder cannot be looked at ({error})"));
                return Ok(None);
            }
        };
        let mut before: Vec<Outcome> = attempts.iter().map(Attempt::make).collect();
        let state = match canary.path() {
            Ok(path) => Attempt::state_by_path(path),
            Err(error) => {
                self.miss(layer, format!("the state folder has no path to prove it by ({error})"));
                return Ok(None);
            }
        };
        match state.make() {
            // Another user than the daemon's is shut out anyway, and the root folder has to do.
            Outcome::Failed(libc::EACCES) => {}
            Outcome::Succeeded => {
                attempts.push(state);
                before.push(Outcome::Succeeded);
            }
            // The canary is gone, say.
            Outcome::Failed(_) => {
                self.miss(layer, "the state folder has no file to prove it by".to_owned());
                return Ok(None);
            }
        }
        if let Err(error) = sys::unshare(UnshareFlags::NEWNS, one_thread) {
            self.miss(layer, advice::namespace(layer, &error));
            return Ok(None);
        }
        let apart = self.apart.as_ref().map(|(user, map)| (*user, map));
        let built = match Prepared::new(tree, apart) {
            Ok(prepared) => prepared.enter()?,
            Err(TreeUnavailable { step, source }) => {
                self.miss(layer, advice::tree(step, &source));
                return Ok(None);
            }
        };
        let evidence = attempts.iter().zip(before).map(|(attempt, before)| attempt.proof(layer, before));
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

/// Goes where an ordinary user may make namespaces. The reason, where that is not allowed: nothing has
/// changed then.
fn enter_user_namespace(
    one_thread: &SingleThreaded,
    user: Option<ProcessUser>,
) -> Result<Result<(), String>, ConfineError> {
    if let Some(user) = user {
        // In the namespace there is nobody but who enters it, so that one has to be that user before. Whoever
        // has become it stays so, and therefore another process tries first.
        let tried = tried(one_thread, || {
            become_user(user).is_ok() && sys::unshare(UnshareFlags::NEWUSER, one_thread).is_ok()
        });
        if !tried.unwrap_or_default() {
            return Ok(Err(advice::user_namespace(&io::Error::from_raw_os_error(libc::EPERM))));
        }
        become_user(user)?;
        // Or else the files by which one says who one is are not one's own.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
            .map_err(|errno| broken("be seen")(errno.into()))?;
    }
    // Who one is outside: inside, one is nobody until that is said.
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if let Err(error) = sys::unshare(UnshareFlags::NEWUSER, one_thread) {
        return Ok(Err(advice::user_namespace(&error)));
    }
    // The map of somebody who was root is refused to who might have marked no file as root's.
    let step = if uid.is_root() {
        "stay root, which takes CAP_SETFCAP (--cap-add=SETFCAP, or --user with an ordinary user's number)"
    } else {
        "stay the same user"
    };
    stay(uid, gid).map_err(broken(step))?;
    Ok(Ok(()))
}

fn broken(step: &'static str) -> impl Fn(io::Error) -> ConfineError {
    move |source| ConfineError::NamespaceBroken { step, source }
}

/// Whether something works, tried by a process that ends with it.
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

/// Makes this user the same one inside as outside, and nobody else anybody.
fn stay(uid: Uid, gid: Gid) -> io::Result<()> {
    let (uid, gid) = (uid.as_raw(), gid.as_raw());
    // Without this, an ordinary user may not say who its group is.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

#[cfg(test)]
mod tests;
