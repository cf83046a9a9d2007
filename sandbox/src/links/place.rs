//! Private places, opened once at the start: later changes of a name do not affect the handle.

use std::{
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags};

/// The host paths that must be disjoint from every mount. All except the overlay are searched for files that
/// have a name elsewhere.
#[derive(Debug, Clone, Default)]
pub struct PrivatePaths {
    /// The folder with the audit log, compiled modules and full outputs.
    pub state: Option<PathBuf>,
    /// The operator's policy file.
    pub policy: Option<PathBuf>,
    /// The folder of modules.
    pub modules: Option<PathBuf>,
    /// The workspace's own policy file, which an attacker may have written. It may link to anywhere, so
    /// nothing follows from its target except that no mount may contain it.
    pub overlay: Option<PathBuf>,
    /// The files of the policy's secrets.
    pub secrets: Vec<PathBuf>,
}

impl PrivatePaths {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<PathBuf> {
        let Self { state, policy, modules, overlay, secrets } = self;
        [state, policy, modules, overlay].into_iter().flatten().chain(secrets).cloned().collect()
    }

    /// The operator's paths: all except the overlay, which may have become a link to anywhere since the
    /// start.
    #[must_use]
    pub fn operators(&self) -> Vec<PathBuf> {
        Self { overlay: None, ..self.clone() }.all()
    }

    /// Opens the places to search, and the vault. A path that does not exist has no files.
    pub(super) fn open(&self, vault: Option<Arc<OwnedFd>>) -> Vec<PrivatePlace> {
        let opened =
            |path: &Option<PathBuf>, kind| Some(PrivatePlace { handle: open(path.as_ref()?)?, kind });
        let vault = vault.map(|handle| PrivatePlace { handle, kind: PlaceKind::Vault });
        let others = [
            opened(&self.state, PlaceKind::State),
            opened(&self.modules, PlaceKind::Modules),
            opened(&self.policy, PlaceKind::Policy),
        ];
        let secret = |path: &PathBuf| Some(PrivatePlace { handle: open(path)?, kind: PlaceKind::Secret });
        let secrets = self.secrets.iter().filter_map(secret);
        vault.into_iter().chain(others.into_iter().flatten()).chain(secrets).collect()
    }
}

fn open(path: &Path) -> Option<Arc<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).ok().map(Arc::new)
}

/// A private folder or file, opened.
#[derive(Debug)]
pub(super) struct PrivatePlace {
    pub(super) handle: Arc<OwnedFd>,
    pub(super) kind: PlaceKind,
}

/// Kind of a private place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceKind {
    Vault,
    State,
    Secret,
    /// Only modules that a command of this user could change: nothing in this folder is secret. On systems
    /// whose files are all links into a store, other users own them.
    Modules,
    /// As for modules, only a policy file that a command could change.
    Policy,
}

impl PrivatePlace {
    /// A file's name for a person and a model, without a host path.
    pub(super) fn name(&self, below: &Path) -> String {
        let below = below.display();
        match self.kind {
            PlaceKind::Vault => format!("/vault/{below}"),
            PlaceKind::State => format!("{below} in the state folder"),
            PlaceKind::Modules => format!("module {below}"),
            PlaceKind::Policy => "the policy file".to_owned(),
            PlaceKind::Secret => "the file of a secret".to_owned(),
        }
    }

    /// Whether a file of this owner counts.
    pub(super) fn takes(&self, owner: u32) -> bool {
        match self.kind {
            PlaceKind::Vault | PlaceKind::State | PlaceKind::Secret => true,
            PlaceKind::Modules | PlaceKind::Policy => owner == rustix::process::geteuid().as_raw(),
        }
    }

    /// Whether the file system is read-only. Files that are not secret are safe there.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.kind, PlaceKind::Modules | PlaceKind::Policy)
            && rustix::fs::fstatvfs(&self.handle)
                .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
    }
}

/// A path that leads to an open handle's target, even after the target is renamed or removed.
pub(super) fn handle_path(handle: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

impl AsFd for PrivatePlace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}
