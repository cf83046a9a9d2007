//! The target of a path. The path is followed through its mount's descriptor, including symlinks, and
//! the target is judged.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portcullis_policy::{Denial, DenialCode, HiddenNames, WorkspaceSecurityPolicy};
use portcullis_types::{Access, GuestPath};
use rustix::{
    fs::{FileType, OFlags, Stat},
    io::Errno,
};

use crate::{
    sandbox::hard_links::{self, ExposedFiles, HardLinkSuspicion},
    sandbox::mounts::{MountTable, real_path, resolve_beneath},
    sandbox::repository,
};

/// The context in which paths are judged: the mounts, and the private files that hard links expose in them.
#[derive(Clone, Copy)]
pub(super) struct PathContext<'a> {
    pub(super) mounts: &'a MountTable,
    pub(super) exposed_files: &'a ExposedFiles,
}

/// Follows a path through its mount's descriptor, including symlinks. Refuses what the name alone does not
/// reveal: a symlink out of the mount, a special file, a protected or hidden path under another name, or a
/// hard link to a private file.
pub(super) fn judge_target(
    path: &GuestPath,
    access: Access,
    final_symlink: SymlinkHandling,
    policy: &WorkspaceSecurityPolicy,
    paths: PathContext<'_>,
) -> Result<(), Box<Denial>> {
    let Some(mount) = path.mount().and_then(|name| paths.mounts.get(name)) else { return Ok(()) };
    let root = mount.directory().as_fd();
    let reached = match resolve_nearest(root, path.below_mount(), final_symlink) {
        Ok(Some(reached)) => reached,
        Ok(None) => return Ok(()),
        Err(LeavesMount) => {
            let hint = "name a path whose links stay within the mount";
            return Err(path_denial(path, DenialCode::LinkEscapesMount, hint));
        }
    };
    let exists = reached.missing_parts.is_empty();
    let target = reached.target.as_fd();
    // If the stat fails, the tool's own open fails too.
    let stat = if exists { rustix::fs::fstat(target).ok() } else { None };
    if stat.as_ref().is_some_and(is_special) {
        let hint = "tools read and write only files and directories";
        return Err(path_denial(path, DenialCode::SpecialFile, hint));
    }
    let is_vault = mount.name().is_vault();
    // Removing or renaming a name leaves the file's content unchanged.
    let is_opened = exists && matches!(final_symlink, SymlinkHandling::Follow);
    if is_opened && !is_vault {
        match stat.as_ref().and_then(|stat| suspicion_of(stat, paths.exposed_files)) {
            Some(HardLinkSuspicion::Private) => {
                return Err(path_denial(path, DenialCode::HardLink, hard_links::PRIVATE));
            }
            Some(HardLinkSuspicion::Unknown(uncertainty)) => {
                return Err(path_denial(path, DenialCode::LinksUnknown, &uncertainty.hint()));
            }
            None => {}
        }
    }
    if HiddenNames::apply_to_mount(mount.name().as_str()) && !policy.hidden().is_empty() {
        refuse_hidden(path, root, &reached, policy)?;
    }
    match access {
        Access::Write => refuse_protected(path, root, &reached, policy),
        Access::Read => Ok(()),
    }
}

/// Whether a path leads through no symlink: its target, or the nearest existing folder above it, has
/// exactly the path's names.
pub(super) fn is_reached_as_written(
    path: &GuestPath,
    final_symlink: SymlinkHandling,
    paths: PathContext<'_>,
) -> bool {
    let Some(mount) = path.mount().and_then(|name| paths.mounts.get(name)) else { return false };
    let root = mount.directory().as_fd();
    let Ok(Some(reached)) = resolve_nearest(root, path.below_mount(), final_symlink) else { return false };
    let written = path.components().skip(1).filter(|name| *name != ".");
    path_below(root, reached.target.as_fd(), &reached.missing_parts)
        .is_some_and(|components| components.iter().map(String::as_str).eq(written))
}

/// Refuses a path that reaches a hidden name through a symlink.
fn refuse_hidden(
    path: &GuestPath,
    root: BorrowedFd<'_>,
    reached: &NearestTarget<'_>,
    policy: &WorkspaceSecurityPolicy,
) -> Result<(), Box<Denial>> {
    let components = components_of_target(path, root, reached)?;
    match policy.hidden().covers(&components) {
        Some(pattern) => {
            let hint = format!("it leads to `{pattern}`, which the operator hides at any depth");
            Err(path_denial(path, DenialCode::HiddenPath, &hint))
        }
        None => Ok(()),
    }
}

/// Refuses a write to a path that leads to a protected path.
fn refuse_protected(
    path: &GuestPath,
    root: BorrowedFd<'_>,
    reached: &NearestTarget<'_>,
    policy: &WorkspaceSecurityPolicy,
) -> Result<(), Box<Denial>> {
    let components = components_of_target(path, root, reached)?;
    let pattern = policy.protected().covers(&components).map(str::to_owned);
    match pattern.or_else(|| repository::protects(policy.protected(), root, &components)) {
        Some(pattern) => {
            let hint = format!("it leads to `{pattern}`, which is protected at any depth");
            Err(path_denial(path, DenialCode::ProtectedPath, &hint))
        }
        None => Ok(()),
    }
}

/// Returns the components of the target's path below its mount.
fn components_of_target(
    path: &GuestPath,
    root: BorrowedFd<'_>,
    reached: &NearestTarget<'_>,
) -> Result<Vec<String>, Box<Denial>> {
    path_below(root, reached.target.as_fd(), &reached.missing_parts).ok_or_else(|| {
        path_denial(path, DenialCode::PathEscapesMount, "the target of the path cannot be determined")
    })
}

fn path_denial(path: &GuestPath, code: DenialCode, hint: &str) -> Box<Denial> {
    Box::new(Denial { code, rule: "mounts".to_owned(), subject: path.to_string(), hint: hint.to_owned() })
}

/// The target of a path, or the nearest existing folder above it.
struct NearestTarget<'a> {
    target: OwnedFd,
    /// The components below the target that do not exist, innermost first.
    missing_parts: Vec<&'a str>,
}

/// A symlink on the path leads out of its mount.
struct LeavesMount;

/// Opens the target of a path below `root`, or the nearest existing folder above it. `None` if the tool will
/// fail on this path in any case.
fn resolve_nearest<'a>(
    root: BorrowedFd<'_>,
    path: &'a str,
    final_symlink: SymlinkHandling,
) -> Result<Option<NearestTarget<'a>>, LeavesMount> {
    let mut existing = path;
    let mut missing = Vec::new();
    loop {
        // A parent folder is always followed, because the last name is resolved in it.
        let flags = match final_symlink {
            SymlinkHandling::Keep if missing.is_empty() => OFlags::NOFOLLOW,
            SymlinkHandling::Keep | SymlinkHandling::Follow => OFlags::empty(),
        };
        match resolve_beneath(root, existing, flags) {
            Ok(target) => return Ok(Some(NearestTarget { target, missing_parts: missing })),
            Err(Errno::XDEV) => return Err(LeavesMount),
            // A missing path is judged by its nearest existing ancestor.
            Err(Errno::NOENT) => match existing.rsplit_once('/') {
                Some((parent, name)) => {
                    missing.push(name);
                    existing = parent;
                }
                None if existing != "." => {
                    missing.push(existing);
                    existing = ".";
                }
                None => return Ok(None),
            },
            // A symlink loop, a file in place of a folder, or a folder without access. The tool gets the same
            // error and reports it.
            Err(_) => return Ok(None),
        }
    }
}

/// How a symlink at the end of a path is treated.
#[derive(Clone, Copy)]
pub(super) enum SymlinkHandling {
    /// The symlink is followed.
    Follow,
    /// The symlink itself is removed or renamed.
    Keep,
}

/// Returns why the file may be a private file under another name.
fn suspicion_of(stat: &Stat, exposed: &ExposedFiles) -> Option<HardLinkSuspicion> {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file { exposed.suspicion_of(stat) } else { None }
}

fn is_special(stat: &Stat) -> bool {
    !matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::RegularFile | FileType::Directory | FileType::Symlink
    )
}

/// Returns the path of a target below its mount, with the missing components appended. `None` if the kernel
/// does not know the path, or if the mount was moved in the meantime.
fn path_below(root: BorrowedFd<'_>, target: BorrowedFd<'_>, missing: &[&str]) -> Option<Vec<String>> {
    let (root, target) = (real_path(root).ok()?, real_path(target).ok()?);
    let existing = target.strip_prefix(&root).ok()?;
    let existing = existing.iter().map(|part| part.to_string_lossy().into_owned());
    Some(existing.chain(missing.iter().rev().map(|part| (*part).to_owned())).collect())
}
