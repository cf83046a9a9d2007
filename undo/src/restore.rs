//! Undoes the changes of a plan. It stages the content of all files first, because only that step can run out
//! of disk space, and then makes the changes. A new record stores the states that it overwrites.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::File,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use portcullis_types::ChangeScope;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid};

use crate::{
    content_copy::copy_content,
    error::UndoError,
    path_state::{FileMetadata, FileOwner, MountPath, MountRoot, PathState},
    plan::{EarlierContent, PlannedPath, UndoPlan},
    record::CallIdentity,
    recorder::ChangeRecorder,
    store::{MAX_FILE_BYTES, RecordId},
};

/// A complete file under a temporary name, on the file system of its destination.
struct StagedFile {
    directory: OwnedFd,
    name: OsString,
    is_placed: bool,
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.is_placed {
            // If the file cannot be removed, it stays under its temporary name, which shows its origin.
            let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// A path of the plan that has not been restored yet.
struct Restoration<'p> {
    root: &'p MountRoot,
    path: &'p MountPath,
    planned: &'p PlannedPath,
    current: PathState,
    staged: Option<StagedFile>,
}

impl UndoPlan {
    /// Undoes the changes. Returns the id of the record of this undo, which can itself be undone, or `None`
    /// if every path is already in its earlier state. `force` also restores paths that someone else has
    /// changed, and skips paths that cannot be restored.
    ///
    /// # Errors
    /// - [`UndoError::Restore`]: some paths were restored. The record of this undo lists them.
    /// - [`UndoError::Store`]: nothing was changed, or everything was restored but not marked as undone.
    /// - Every other error: nothing was changed.
    pub fn restore(&self, actor: &str, force: bool) -> Result<Option<RecordId>, UndoError> {
        let _lock = self.store.lock()?;
        let conflicts = self.conflicts()?;
        if !conflicts.is_empty() && !force {
            return Err(UndoError::Conflicts { conflicts });
        }
        let left_alone = conflicts.into_iter().filter(|conflict| !conflict.can_be_forced());
        let left_alone: BTreeSet<String> = left_alone.map(|conflict| conflict.path).collect();
        let mut restorations = self.restorations()?;
        restorations
            .retain(|restoration| !left_alone.contains(&restoration.root.guest_path(restoration.path)));
        let undoes = self.records.iter().map(|record| record.id.to_string()).collect();
        let identity = CallIdentity {
            call: String::new(),
            run: String::new(),
            agent: actor.to_owned(),
            tool: "undo".to_owned(),
        };
        let roots = self.roots.values().cloned();
        let recorder = ChangeRecorder::new(self.store.clone(), identity, roots).with_undone_records(undoes);
        for restoration in &mut restorations {
            recorder.save_before(restoration.root.name(), restoration.path, ChangeScope::Path)?;
            restoration.stage(self).map_err(|source| UndoError::Stage {
                path: restoration.root.guest_path(restoration.path),
                source,
            })?;
        }
        let Some(record) = recorder.id() else { return Ok(None) };
        let restore_error = |root: &MountRoot, path: &MountPath, source| UndoError::Restore {
            path: root.guest_path(path),
            record: record.to_string(),
            source,
        };
        // Sorted by path, a directory precedes its content, so remove in reverse order.
        for restoration in restorations.iter().rev() {
            restoration
                .remove()
                .map_err(|source| restore_error(restoration.root, restoration.path, source))?;
        }
        for restoration in &mut restorations {
            restoration
                .put_in_place()
                .map_err(|source| restore_error(restoration.root, restoration.path, source))?;
        }
        // Innermost first: a restored mode may deny access to the content.
        for restoration in restorations.iter().rev() {
            restoration
                .restore_mode()
                .map_err(|source| restore_error(restoration.root, restoration.path, source))?;
        }
        // Dropping the recorder records the states after this undo.
        drop(recorder);
        for undone in &self.records {
            self.store.mark_undone(&undone.id, &record)?;
            // If an undo made these changes, the changes that it had undone are in effect again.
            self.store.clear_undone_mark(undone)?;
        }
        Ok(Some(record))
    }

    fn restorations(&self) -> Result<Vec<Restoration<'_>>, UndoError> {
        let mut restorations = Vec::new();
        for ((mount, path), planned) in &self.paths {
            let current = self.current_state(mount, path)?;
            if !self.is_as_before(mount, path, planned, &current)? {
                let root = self.root(mount)?;
                restorations.push(Restoration { root, path, planned, current, staged: None });
            }
        }
        Ok(restorations)
    }
}

impl Restoration<'_> {
    /// Creates the file under a temporary name, in the nearest existing directory above it.
    fn stage(&mut self, plan: &UndoPlan) -> io::Result<()> {
        let PathState::File(metadata) = &self.planned.before else { return Ok(()) };
        let Some(EarlierContent::InRecord(record, number)) = &self.planned.content else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut parent = self.path.parent();
        let directory = loop {
            let path = parent.ok_or(io::ErrorKind::NotFound)?;
            match self.root.open(&path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
                Ok(directory) => break directory,
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                    parent = path.parent();
                }
                Err(errno) => return Err(errno.into()),
            }
        };
        let name = OsString::from(format!(".portcullis-undo-{record}-{number}"));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&directory, &name, flags, Mode::RUSR | Mode::WUSR)?);
        self.staged = Some(StagedFile { directory, name, is_placed: false });
        copy_content(plan.store.content(record, *number)?.into(), &file, MAX_FILE_BYTES)?;
        // Restore the owner first, because changing it clears permission bits.
        restore_owner(file.as_fd(), self.planned.owner);
        finish_file(&file, metadata)
    }

    /// Removes the file at the path, if it is of another kind than before.
    fn remove(&self) -> io::Result<()> {
        let is_directory = match (&self.current, &self.planned.before) {
            (PathState::Absent, _) | (PathState::Directory { .. }, PathState::Directory { .. }) => {
                return Ok(());
            }
            // The staged file replaces the file atomically.
            (PathState::File(_), PathState::File(_)) => return Ok(()),
            (current, _) => matches!(current, PathState::Directory { .. }),
        };
        let (parent, name) = self.root.parent_of(self.path)?;
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        Ok(rustix::fs::unlinkat(parent, name, flags)?)
    }

    /// Moves the earlier state into place.
    fn put_in_place(&mut self) -> io::Result<()> {
        if self.planned.before == PathState::Absent {
            return Ok(());
        }
        let (parent, name) = self.root.parent_of(self.path)?;
        match &self.planned.before {
            PathState::File(_) => {
                let staged = self.staged.as_mut().ok_or(io::ErrorKind::NotFound)?;
                rustix::fs::renameat(&staged.directory, &staged.name, &parent, name)?;
                staged.is_placed = true;
            }
            PathState::Directory { .. } if !matches!(self.current, PathState::Directory { .. }) => {
                // Accessible until `restore_mode`, so that the content can be put into it.
                rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
            }
            PathState::Link { target } => rustix::fs::symlinkat(target, &parent, name)?,
            PathState::Absent | PathState::Directory { .. } | PathState::Other => {}
        }
        Ok(())
    }

    /// Restores the permissions of a directory. This comes last, because they may forbid
    /// changes of its content.
    fn restore_mode(&self) -> io::Result<()> {
        if let PathState::Directory { mode } = &self.planned.before {
            let directory = self.root.open(self.path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
            restore_owner(directory.as_fd(), self.planned.owner);
            rustix::fs::fchmod(&directory, Mode::from_raw_mode(*mode))?;
        }
        Ok(())
    }
}

/// Restores the owner of a file or directory. Only root may change owners, so a refusal is not an error.
fn restore_owner(file: BorrowedFd<'_>, owner: Option<FileOwner>) {
    let Some(FileOwner { user, group }) = owner else { return };
    let is_owned = rustix::fs::fstat(file).is_ok_and(|stat| (stat.st_uid, stat.st_gid) == (user, group));
    if !is_owned {
        let _ = rustix::fs::fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
    }
}

/// Restores the permissions and the modification time of a file.
fn finish_file(file: &File, metadata: &FileMetadata) -> io::Result<()> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(metadata.mode))?;
    let (tv_sec, nanoseconds) = metadata.modified;
    let modified = Timespec { tv_sec, tv_nsec: i64::try_from(nanoseconds).unwrap_or_default() };
    let unchanged = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    Ok(rustix::fs::futimens(file, &Timestamps { last_access: unchanged, last_modification: modified })?)
}
