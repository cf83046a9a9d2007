//! Checks whether other users of the machine can read a file with a secret.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use rustix::fs::StatVfsMountFlags;

use super::{TrustError, has_access_list, is_private_group};

/// Whether members of a file's group may read a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupReaders {
    /// Group members count as other users, unless the owner is the group's only member or the file system is
    /// read-only: orchestrators mount secrets read-only and group-readable.
    Refused,
    /// Group members are ignored. systemd lets a service read its credentials through an ACL, whose
    /// mask appears in the group bits of the mode.
    Ignored,
}

/// Checks that other users cannot read an open file that holds a secret. [`super::open_file`] checks who can
/// change the file.
///
/// # Errors
/// [`TrustError::Readable`], or [`TrustError::Unusable`] if the file cannot be examined.
pub fn judge_readers(file: BorrowedFd<'_>, path: &Path, group: GroupReaders) -> Result<(), TrustError> {
    let stat = rustix::fs::fstat(file)
        .map_err(|errno| TrustError::Unusable { path: path.to_owned(), source: errno.into() })?;
    let readable = |by, remedy| {
        Err(TrustError::Readable { path: path.to_owned(), mode: stat.st_mode & 0o7777, by, remedy })
    };
    if stat.st_mode & 0o004 != 0 {
        return readable("everybody", "o-r");
    }
    let by_group = group == GroupReaders::Refused && stat.st_mode & 0o040 != 0;
    let is_read_only = || {
        rustix::fs::fstatvfs(file.as_fd())
            .is_ok_and(|file_system| file_system.f_flag.contains(StatVfsMountFlags::RDONLY))
    };
    if by_group && (has_access_list(file) || !is_private_group(stat.st_gid, stat.st_uid)) && !is_read_only() {
        return readable("other members of its group", "g-r");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

    use super::*;

    #[track_caller]
    fn check(mode: u32, group: GroupReaders, expected: Result<(), &str>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "text").unwrap();
        if rustix::process::geteuid().is_root() {
            // A group that no file of users knows.
            std::os::unix::fs::chown(&path, None, Some(54321)).unwrap();
        }
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let judged = judge_readers(File::open(&path).unwrap().as_fd(), &path, group);
        let outcome = judged.as_ref().map_err(|error| error.to_string());
        match expected {
            Ok(()) => assert_eq!(outcome, Ok(&()), "{mode:o}"),
            Err(part) => assert!(outcome.as_ref().unwrap_err().contains(part), "{mode:o} {outcome:?}"),
        }
    }

    #[test]
    fn others_read_no_secret() {
        for mode in [0o600, 0o400, 0o700] {
            check(mode, GroupReaders::Refused, Ok(()));
        }
        for mode in [0o644, 0o604, 0o444, 0o666] {
            check(mode, GroupReaders::Refused, Err("can be read by everybody"));
            check(mode, GroupReaders::Ignored, Err("`chmod o-r "));
        }
    }

    #[test]
    fn a_group_reads_a_credential_of_systemd_only() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root gives a file to another group");
            return;
        }
        check(0o640, GroupReaders::Refused, Err("`chmod g-r "));
        check(0o440, GroupReaders::Ignored, Ok(()));
    }
}
