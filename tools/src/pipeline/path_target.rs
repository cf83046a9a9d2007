//! The target of a path. The path is followed through its mount's directory handle, links included, and
//! judged there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portcullis_policy::{Denial, DenialCode, WorkspaceSecurityPolicy};
use portcullis_types::{Access, GuestPath};
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};

use crate::{
    sandbox::links::{self, ExposedFiles, LinkSuspicion},
    sandbox::mounts::{MountTable, real_path, resolve_beneath},
    sandbox::repository,
};

/// The places that paths may lead to: the mounts, and the private files that hard links expose in them.
#[derive(Clone, Copy)]
pub(super) struct PathContext<'a> {
    pub(super) mounts: &'a MountTable,
    pub(super) exposed: &'a ExposedFiles,
}

/// Follows a path through its mount's directory handle, links included. It refuses what the name alone did
/// not show: a way out of the mount, a special file, a protected path under another name.
pub(super) fn judge_target(
    path: &GuestPath,
    access: Access,
    last: LastName,
    policy: &WorkspaceSecurityPolicy,
    paths: PathContext<'_>,
) -> Result<(), Box<Denial>> {
    let Some(mount) = path.mount().and_then(|name| paths.mounts.get(name)) else { return Ok(()) };
    let root = mount.directory().as_fd();
    let reached = match resolve_nearest(root, path.below_mount(), last) {
        Ok(Some(reached)) => reached,
        Ok(None) => return Ok(()),
        Err(LeavesMount) => {
            let hint = "name a path whose links stay within the mount";
            return Err(path_denial(path, DenialCode::LinkEscapesMount, hint));
        }
    };
    let exists = reached.missing.is_empty();
    let target = reached.target.as_fd();
    if exists && is_special(target) {
        let hint = "tools read and write files and folders only";
        return Err(path_denial(path, DenialCode::SpecialFile, hint));
    }
    let is_vault = mount.name().is_vault();
    // Removing or renaming a name leaves the file itself unchanged.
    let is_opened = exists && matches!(last, LastName::Followed);
    if is_opened && !is_vault {
        match suspicion_of(target, paths.exposed) {
            Some(LinkSuspicion::Private) => {
                return Err(path_denial(path, DenialCode::HardLink, links::PRIVATE));
            }
            Some(LinkSuspicion::Unknown(why)) => {
                return Err(path_denial(path, DenialCode::LinksUnknown, &why.hint()));
            }
            None => {}
        }
    }
    match access {
        Access::Write => not_protected(path, root, &reached, policy),
        Access::Read => Ok(()),
    }
}

/// Refuses to write a path that leads to a protected one.
fn not_protected(
    path: &GuestPath,
    root: BorrowedFd<'_>,
    reached: &Reached<'_>,
    policy: &WorkspaceSecurityPolicy,
) -> Result<(), Box<Denial>> {
    let Some(below) = below(root, reached.target.as_fd(), &reached.missing) else {
        return Err(path_denial(
            path,
            DenialCode::PathEscapesMount,
            "it cannot be told where the path leads",
        ));
    };
    let found = policy.protected().covers(&below).map(str::to_owned);
    match found.or_else(|| repository::protects(policy.protected(), root, &below)) {
        Some(pattern) => {
            let hint = format!("it leads to `{pattern}`, which is protected at any depth");
            Err(path_denial(path, DenialCode::ProtectedPath, &hint))
        }
        None => Ok(()),
    }
}

fn path_denial(path: &GuestPath, code: DenialCode, hint: &str) -> Box<Denial> {
    Box::new(Denial { code, rule: "mounts".to_owned(), subject: path.to_string(), hint: hint.to_owned() })
}

/// The nearest existing place on a path.
struct Reached<'a> {
    target: OwnedFd,
    /// The components below it that do not exist, the last one first.
    missing: Vec<&'a str>,
}

/// A link on the path leads out of its mount.
struct LeavesMount;

/// Opens the nearest existing place on a path below `root`. `None` if the tool will get an error there
/// anyway.
fn resolve_nearest<'a>(
    root: BorrowedFd<'_>,
    path: &'a str,
    last: LastName,
) -> Result<Option<Reached<'a>>, LeavesMount> {
    let mut existing = path;
    let mut missing = Vec::new();
    loop {
        // A parent is always followed: the last name is reached through it.
        let flags = match last {
            LastName::Itself if missing.is_empty() => OFlags::NOFOLLOW,
            LastName::Itself | LastName::Followed => OFlags::empty(),
        };
        match resolve_beneath(root, existing, flags) {
            Ok(target) => return Ok(Some(Reached { target, missing })),
            Err(Errno::XDEV) => return Err(LeavesMount),
            // A missing path is judged by its nearest existing parent.
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
            // A loop, a file in place of a folder, or a folder without access: the tool meets the same error
            // and reports it.
            Err(_) => return Ok(None),
        }
    }
}

/// The treatment of a link at the end of a path.
#[derive(Clone, Copy)]
pub(super) enum LastName {
    /// The link is followed.
    Followed,
    /// The link itself is removed or renamed.
    Itself,
}

/// The reason to suspect that the file is a private one under another name.
fn suspicion_of(handle: BorrowedFd<'_>, exposed: &ExposedFiles) -> Option<LinkSuspicion> {
    let stat = rustix::fs::fstat(handle).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if is_file { exposed.suspects(&stat) } else { None }
}

fn is_special(handle: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(handle).is_ok_and(|stat| {
        !matches!(
            FileType::from_raw_mode(stat.st_mode),
            FileType::RegularFile | FileType::Directory | FileType::Symlink
        )
    })
}

/// The path of a target below its mount, with the missing components appended. `None` if the kernel cannot
/// tell it, or the mount was moved meanwhile.
fn below(root: BorrowedFd<'_>, target: BorrowedFd<'_>, missing: &[&str]) -> Option<Vec<String>> {
    let (root, target) = (real_path(root).ok()?, real_path(target).ok()?);
    let existing = target.strip_prefix(&root).ok()?;
    let existing = existing.iter().map(|part| part.to_string_lossy().into_owned());
    Some(existing.chain(missing.iter().rev().map(|part| (*part).to_owned())).collect())
}
