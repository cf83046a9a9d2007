//! Fast path for opening a file for reading by a single name in an open directory. `file_search` uses it: the check
//! takes one or two system calls instead of at least three.
//!
//! A single name that is not followed cannot leave its directory, and the directory was judged when the
//! guest opened it. Nothing has to be resolved, so the entry's `stat` suffices.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, FileType};

use super::{Descriptor, GuestFs, OpenIntent, OpenTarget, Touch};
use crate::{
    fs_result::{Errno, FsResult},
    mounts::real_path,
};

/// How long a directory counts as visible without another look at its path: 10 ms. The directory can be
/// renamed between any check and the open that follows. A check for each file would shorten this window but
/// not close it.
const SIGHT_TTL: Duration = Duration::from_millis(10);

/// A path at which a directory was found not to be hidden.
#[derive(Debug)]
pub(super) struct VisiblePath {
    /// The directory's host path.
    path: PathBuf,
    read_at: Instant,
}

impl GuestFs {
    /// Judges the open of a regular file in a directory. Returns `None` if the open needs the general path.
    pub(super) fn judge_entry(
        &mut self,
        fd: u32,
        preopen: usize,
        directory: &Arc<OwnedFd>,
        name: &str,
        intent: OpenIntent,
    ) -> FsResult<Option<OpenTarget>> {
        let is_name = !name.contains('/') && !matches!(name, "" | "." | "..");
        if !is_name || intent.follow || intent.create || intent.writes {
            return Ok(None);
        }
        let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => stat,
            // The general path handles directories, refuses special files, and maps errors.
            _ => return Ok(None),
        };
        self.judge_visibility_in(fd, preopen, directory, name)?;
        self.judge_read_of_links(preopen, &stat)?;
        let path = self.path_to_note(preopen, directory.as_fd(), Some(name));
        Ok(Some(OpenTarget { preopen, directory: None, writes: false, touch: Touch::Read, path }))
    }

    /// Judges whether a name in a directory is hidden, as `judge_visibility` does for a path. The names on the
    /// directory's own path are looked up again after [`SIGHT_TTL`], and compared only if the path has
    /// changed.
    fn judge_visibility_in(
        &mut self,
        fd: u32,
        preopen: usize,
        directory: &Arc<OwnedFd>,
        name: &str,
    ) -> FsResult {
        let Some(hidden) = self.hidden_in(preopen).cloned() else { return Ok(()) };
        if hidden.hides(name).is_some() {
            return Err(Errno::NOENT);
        }
        let now = Instant::now();
        let Some(Descriptor::Directory(known)) = self.descriptors.get(&fd) else { return Err(Errno::BADF) };
        let seen = known.visible_path.as_ref();
        if seen.is_some_and(|seen| now.duration_since(seen.read_at) < SIGHT_TTL) {
            return Ok(());
        }
        let path = real_path(directory.as_fd()).map_err(|_cause| Errno::IO)?;
        if seen.is_none_or(|seen| seen.path != path) {
            let below = self.below_mount(preopen, directory.as_fd(), None)?;
            if hidden.covers(&below).is_some() {
                return Err(Errno::NOENT);
            }
        }
        if let Some(Descriptor::Directory(known)) = self.descriptors.get_mut(&fd) {
            known.visible_path = Some(VisiblePath { path, read_at: now });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path, thread};

    use portcullis_types::Access;
    use rustix::fs::{Mode, mkfifoat};

    use super::*;
    use crate::fs::{
        FIRST_PREOPEN,
        fixture::{self, OPENED},
    };

    const READ: OpenIntent = OpenIntent { follow: false, create: false, writes: false };
    /// Creates a guest in whose mount `shared` the directory `folder` is open.
    fn guest(workspace: &Path) -> GuestFs {
        fixture::guest(workspace, Access::Read, &["*.pem", ".ssh"], "folder")
    }

    /// Opens a name, and checks that the fast path agrees with the general one. Returns whether the fast
    /// path was enough.
    #[track_caller]
    fn open(guest: &mut GuestFs, name: &str) -> FsResult<bool> {
        let (preopen, directory) = guest.directory_of(OPENED).expect("a directory");
        let short = guest.judge_entry(OPENED, preopen, &directory, name, READ);
        let by_path = guest.judge_open(FIRST_PREOPEN, &format!("folder/{name}"), READ);
        if let Ok(Some(_)) | Err(_) = short {
            assert_eq!(short.as_ref().err(), by_path.as_ref().err(), "{name}");
        }
        let whole = guest.judge_open(OPENED, name, READ);
        assert_eq!(whole.as_ref().err(), by_path.as_ref().err(), "{name}");
        whole.map(|_| matches!(short, Ok(Some(_))))
    }

    #[test]
    fn the_short_judgement_agrees_with_that_of_any_path() {
        let workspace = tempfile::tempdir().expect("a folder");
        let folder = workspace.path().join("shared/folder");
        fs::create_dir_all(folder.join("below")).expect("the folder can be made");
        for name in ["file", "key.pem", "below/file", "twice"] {
            fs::write(folder.join(name), "").expect("written");
        }
        fs::hard_link(folder.join("twice"), folder.join("again")).expect("linked");
        symlink("file", folder.join("link")).expect("linked");
        let handle = fs::File::open(&folder).expect("opens");
        mkfifoat(&handle, "pipe", Mode::RWXU).expect("the FIFO can be made");
        let mut guest = guest(workspace.path());
        for (name, expected) in [
            ("file", Ok(true)),
            ("twice", Ok(true)),
            ("below", Ok(false)),
            ("link", Ok(false)),
            ("below/file", Ok(false)),
            ("absent", Err(Errno::NOENT)),
            ("key.pem", Err(Errno::NOENT)),
            ("KEY.PEM", Err(Errno::NOENT)),
            ("pipe", Err(Errno::ACCES)),
        ] {
            assert_eq!(open(&mut guest, name), expected, "{name}");
        }
        assert!(guest.violation().is_none());
        assert_eq!(guest.judge_open(OPENED, "../../outside", READ).err(), Some(Errno::PERM));
        assert!(guest.violation().is_some());
    }

    #[test]
    fn a_directory_that_gets_a_hidden_name_is_hidden_from_then_on() {
        let workspace = tempfile::tempdir().expect("a folder");
        let shared = workspace.path().join("shared");
        fs::create_dir_all(shared.join("folder")).expect("the folder can be made");
        fs::write(shared.join("folder/file"), "").expect("written");
        let mut guest = guest(workspace.path());
        for _ in 0..2 {
            assert!(guest.judge_open(OPENED, "file", READ).is_ok());
        }
        fs::rename(shared.join("folder"), shared.join(".ssh")).expect("renamed");
        thread::sleep(SIGHT_TTL);
        assert_eq!(guest.judge_open(OPENED, "file", READ).err(), Some(Errno::NOENT));
        fs::rename(shared.join(".ssh"), workspace.path().join("outside")).expect("renamed");
        assert_eq!(guest.judge_open(OPENED, "file", READ).err(), Some(Errno::IO));
    }

    #[test]
    fn an_open_with_effects_is_judged_like_any_path() {
        let workspace = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(workspace.path().join("shared/folder")).expect("the folder can be made");
        fs::write(workspace.path().join("shared/folder/file"), "").expect("written");
        let mut guest = guest(workspace.path());
        let (preopen, directory) = guest.directory_of(OPENED).expect("a directory");
        for intent in [
            OpenIntent { follow: true, ..READ },
            OpenIntent { create: true, ..READ },
            OpenIntent { writes: true, ..READ },
        ] {
            assert!(matches!(guest.judge_entry(OPENED, preopen, &directory, "file", intent), Ok(None)));
        }
    }
}
