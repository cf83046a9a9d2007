//! What is private, opened once: whatever becomes of a name later, the handle leads to what was found at the start.

use std::{
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags};

/// The host paths that no mount may contain, equal or lie in. All but the overlay are looked through for files that
/// have a name elsewhere.
#[derive(Debug, Clone, Default)]
pub struct PrivatePaths {
    /// The folder for audit log, compiled modules and whole outputs.
    pub state: Option<PathBuf>,
    /// The operator's policy file.
    pub policy: Option<PathBuf>,
    /// The folder of modules.
    pub modules: Option<PathBuf>,
    /// The workspace's own file, which a stranger may have written: it may be a link to anywhere, so nothing is
    /// concluded from what it leads to but that no mount may hold it.
    pub overlay: Option<PathBuf>,
}

impl PrivatePaths {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<PathBuf> {
        let Self { state, policy, modules, overlay } = self;
        [state, policy, modules, overlay].into_iter().flatten().cloned().collect()
    }

    /// Those that are the operator's: all but the overlay, which may have become a link to anywhere since the start.
    #[must_use]
    pub fn operators(&self) -> Vec<PathBuf> {
        Self { overlay: None, ..self.clone() }.all()
    }

    /// Opens those that are looked through, and the vault. A path that leads nowhere has no files.
    pub(super) fn open(&self, vault: Option<Arc<OwnedFd>>) -> Vec<Place> {
        let opened = |path: &Option<PathBuf>, kind| Some(Place { handle: open(path.as_ref()?)?, kind });
        let vault = vault.map(|handle| Place { handle, kind: Kind::Vault });
        let others = [
            opened(&self.state, Kind::State),
            opened(&self.modules, Kind::Modules),
            opened(&self.policy, Kind::Policy),
        ];
        vault.into_iter().chain(others.into_iter().flatten()).collect()
    }
}

fn open(path: &Path) -> Option<Arc<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).ok().map(Arc::new)
}

/// A private folder or file, open.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) handle: Arc<OwnedFd>,
    pub(super) kind: Kind,
}

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Vault,
    State,
    /// Only what is a module, and what a command of our user could change: nothing in it is a secret. Systems whose
    /// files are all links into a store have it where nobody can.
    Modules,
    /// As with modules, only one that a command could change.
    Policy,
}

impl Place {
    /// What a file in it is called, for a person and a model: no host path.
    pub(super) fn name(&self, below: &Path) -> String {
        let below = below.display();
        match self.kind {
            Kind::Vault => format!("/vault/{below}"),
            Kind::State => format!("{below} in the state folder"),
            Kind::Modules => format!("module {below}"),
            Kind::Policy => "the policy file".to_owned(),
        }
    }

    /// Whether a file of this owner counts.
    pub(super) fn takes(&self, owner: u32) -> bool {
        match self.kind {
            Kind::Vault | Kind::State => true,
            Kind::Modules | Kind::Policy => owner == rustix::process::geteuid().as_raw(),
        }
    }

    /// Whether nothing on its file system can be changed, so that what is no secret is safe there.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.kind, Kind::Modules | Kind::Policy)
            && rustix::fs::fstatvfs(&self.handle)
                .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
    }
}

/// A path to what is open that leads there whatever becomes of its name.
pub(super) fn handle_path(handle: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}
