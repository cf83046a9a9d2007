//! Opens the private folders and files once, at the start. A later rename does not affect the open handles.

use std::{
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags};

/// The host paths that must be outside every mount. All of them except the overlay are searched for files that have a
/// name elsewhere.
#[derive(Debug, Clone, Default)]
pub struct PrivatePaths {
    /// The folder with the audit log, compiled modules and full outputs.
    pub state: Option<PathBuf>,
    /// The folder of compiled modules, if it is elsewhere.
    pub cache: Option<PathBuf>,
    /// The operator's policy file.
    pub policy: Option<PathBuf>,
    /// The folder of modules.
    pub modules: Option<PathBuf>,
    /// The workspace's own policy file, which an attacker may have written. It can be a symlink to any
    /// path, so its target counts only for the rule that no mount may contain it.
    pub overlay: Option<PathBuf>,
    /// The files of the policy's secrets.
    pub secrets: Vec<PathBuf>,
}

impl PrivatePaths {
    /// Returns all of these paths.
    #[must_use]
    pub fn all(&self) -> Vec<PathBuf> {
        let Self { state, cache, policy, modules, overlay, secrets } = self;
        [state, cache, policy, modules, overlay].into_iter().flatten().chain(secrets).cloned().collect()
    }

    /// Returns the operator's paths: all except the overlay, which may have become a symlink to any path
    /// since the start.
    #[must_use]
    pub fn operators(&self) -> Vec<PathBuf> {
        Self { overlay: None, ..self.clone() }.all()
    }

    /// Opens the vault and the paths to search. A path that cannot be opened is skipped.
    pub(super) fn open(&self, vault: Option<Arc<OwnedFd>>) -> Vec<OpenPrivatePath> {
        let open_path =
            |path: &Option<PathBuf>, kind| Some(OpenPrivatePath { handle: open(path.as_ref()?)?, kind });
        let vault = vault.map(|handle| OpenPrivatePath { handle, kind: PrivateKind::Vault });
        let other_paths = [
            open_path(&self.state, PrivateKind::State),
            open_path(&self.cache, PrivateKind::Cache),
            open_path(&self.modules, PrivateKind::Modules),
            open_path(&self.policy, PrivateKind::Policy),
        ];
        let secret =
            |path: &PathBuf| Some(OpenPrivatePath { handle: open(path)?, kind: PrivateKind::Secret });
        let secrets = self.secrets.iter().filter_map(secret);
        vault.into_iter().chain(other_paths.into_iter().flatten()).chain(secrets).collect()
    }
}

fn open(path: &Path) -> Option<Arc<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).ok().map(Arc::new)
}

/// A private folder or file, opened.
#[derive(Debug)]
pub(super) struct OpenPrivatePath {
    pub(super) handle: Arc<OwnedFd>,
    pub(super) kind: PrivateKind,
}

/// The kind of a private folder or file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrivateKind {
    Vault,
    State,
    Cache,
    Secret,
    /// Counts only modules that a command of this user could change, because nothing in this folder is
    /// secret. On systems whose files are all links into a store, another user owns them.
    Modules,
    /// Counts only a policy file that a command of this user could change, as for modules.
    Policy,
}

impl OpenPrivatePath {
    /// Returns a file's name in the form shown to a person or a model, without a host path.
    pub(super) fn name(&self, relative_path: &Path) -> String {
        let relative_path = relative_path.display();
        match self.kind {
            PrivateKind::Vault => format!("/vault/{relative_path}"),
            PrivateKind::State => format!("{relative_path} in the state folder"),
            PrivateKind::Cache => format!("{relative_path} in the folder of compiled modules"),
            PrivateKind::Modules => format!("module {relative_path}"),
            PrivateKind::Policy => "the policy file".to_owned(),
            PrivateKind::Secret => "the file of a secret".to_owned(),
        }
    }

    /// Returns whether a file of this owner counts as private here.
    pub(super) fn counts_owner_as_private(&self, owner: u32) -> bool {
        match self.kind {
            PrivateKind::Vault | PrivateKind::State | PrivateKind::Cache | PrivateKind::Secret => true,
            PrivateKind::Modules | PrivateKind::Policy => owner == rustix::process::geteuid().as_raw(),
        }
    }

    /// Returns whether the file system is read-only. Files that are not secret are safe there.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.kind, PrivateKind::Modules | PrivateKind::Policy)
            && rustix::fs::fstatvfs(&self.handle)
                .is_ok_and(|file_system| file_system.f_flag.contains(StatVfsMountFlags::RDONLY))
    }
}

/// Returns a path that leads to the target of an open handle, even after the target was renamed or removed.
pub(super) fn handle_path(handle: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

impl AsFd for OpenPrivatePath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}
