//! [`ChangeRecorder`]: records the states of paths before one call changes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use parking_lot::{Mutex, MutexGuard};
use portcullis_types::ChangeScope;
use rustix::io::Errno;

use crate::{
    content_copy::{copy_content, open_file},
    error::UndoError,
    path_state::{FileOwner, MountPath, MountRoot, PathState},
    record::{CallIdentity, ContentLocation, OmissionReason, PathAfter, PathBefore, RecordLine, VERSION},
    store::{MAX_CALL_BYTES, MAX_CALL_PATHS, MAX_FILE_BYTES, RecordId, UndoStore},
};

/// Records the changes of one call. A call that changes nothing leaves no record. Dropping the recorder
/// records the end of the call.
#[derive(Debug)]
pub struct ChangeRecorder {
    store: UndoStore,
    identity: CallIdentity,
    undone_records: Vec<String>,
    roots: BTreeMap<String, MountRoot>,
    state: Mutex<RecorderState>,
}

#[derive(Debug, Default)]
struct RecorderState {
    /// The record, which exists from the first change on.
    record: Option<(RecordId, File)>,
    saved_paths: BTreeSet<(String, MountPath)>,
    content_files: u32,
    bytes: u64,
    is_incomplete: bool,
}

impl ChangeRecorder {
    /// Creates a recorder for a call that may change these mounts.
    #[must_use]
    pub fn new(store: UndoStore, identity: CallIdentity, roots: impl IntoIterator<Item = MountRoot>) -> Self {
        let roots = roots.into_iter().map(|root| (root.name().to_owned(), root)).collect();
        Self { store, identity, undone_records: Vec::new(), roots, state: Mutex::default() }
    }

    /// Marks the recorder's changes as an undo of these records.
    pub(crate) fn with_undone_records(mut self, records: Vec<String>) -> Self {
        self.undone_records = records;
        self
    }

    /// Whether changes of a mount are recorded.
    #[must_use]
    pub fn records(&self, mount: &str) -> bool {
        self.roots.contains_key(mount)
    }

    /// Records the present state of a path, unless the call has already changed it. This must return before
    /// the change is made.
    ///
    /// # Errors
    /// [`UndoError::Examine`], [`UndoError::Copy`], [`UndoError::Record`] or [`UndoError::Store`]. Then the caller must
    /// not make the change. A mount that is not recorded is not an error.
    pub fn save_before(
        &self,
        mount: &str,
        path: &MountPath,
        scope: ChangeScope<&str, &MountPath>,
    ) -> Result<(), UndoError> {
        let Some(root) = self.roots.get(mount) else { return Ok(()) };
        let mut state = self.lock();
        let mut pending = vec![path.clone()];
        if let ChangeScope::MovedHere { mount: from_mount, from } = scope {
            pending.extend(self.destinations_below(from_mount, from, path)?);
        }
        while let Some(path) = pending.pop() {
            let is_saved = state.saved_paths.contains(&(mount.to_owned(), path.clone()));
            // A directory that was recorded by itself may still have unrecorded content.
            if is_saved && scope == ChangeScope::Path {
                continue;
            }
            // The call may still make its change: an undo shows as a conflict that the record lacks paths.
            if !is_saved && state.saved_paths.len() >= MAX_CALL_PATHS {
                state.is_incomplete = true;
                return Ok(());
            }
            let examine_error = |source| UndoError::Examine { path: root.guest_path(&path), source };
            let (path_state, owner) = root.state_with_owner(&path).map_err(examine_error)?;
            let is_tree = scope != ChangeScope::Path && matches!(path_state, PathState::Directory { .. });
            if !is_saved {
                self.add(&mut state, root, path.clone(), (path_state, owner))?;
            }
            if is_tree {
                let names = root.names(&path).map_err(examine_error)?;
                pending.extend(names.iter().filter_map(|name| path.child(name)));
            }
        }
        Ok(())
    }

    /// Returns the destinations of `from` and everything below it, if `from` is moved to `to`.
    fn destinations_below(
        &self,
        mount: &str,
        from: &MountPath,
        to: &MountPath,
    ) -> Result<Vec<MountPath>, UndoError> {
        let Some(root) = self.roots.get(mount) else { return Ok(Vec::new()) };
        let examine_error =
            |path: &MountPath, source| UndoError::Examine { path: root.guest_path(path), source };
        let mut destinations = Vec::new();
        let mut pending = vec![(from.clone(), to.clone())];
        while let Some((from, to)) = pending.pop() {
            // `save_before` marks the record as incomplete at this number of paths.
            if destinations.len() >= MAX_CALL_PATHS {
                break;
            }
            let path_state = root.state(&from).map_err(|source| examine_error(&from, source))?;
            if matches!(path_state, PathState::Directory { .. }) {
                let names = root.names(&from).map_err(|source| examine_error(&from, source))?;
                pending.extend(names.iter().filter_map(|name| Some((from.child(name)?, to.child(name)?))));
            }
            destinations.push(to);
        }
        Ok(destinations)
    }

    /// Returns the record's id, if there were changes.
    #[must_use]
    pub fn id(&self) -> Option<RecordId> {
        self.lock().record.as_ref().map(|(id, _)| id.clone())
    }

    fn add(
        &self,
        state: &mut RecorderState,
        root: &MountRoot,
        path: MountPath,
        seen: (PathState, Option<FileOwner>),
    ) -> Result<(), UndoError> {
        let (id, mut file) = match state.record.take() {
            Some(record) => record,
            None => self.begin()?,
        };
        let added = self.add_to(state, &id, &mut file, root, &path, seen);
        // Put the record back even after an error, because it has the paths recorded earlier.
        state.record = Some((id, file));
        added?;
        state.saved_paths.insert((root.name().to_owned(), path));
        Ok(())
    }

    fn add_to(
        &self,
        state: &mut RecorderState,
        id: &RecordId,
        file: &mut File,
        root: &MountRoot,
        path: &MountPath,
        (path_state, owner): (PathState, Option<FileOwner>),
    ) -> Result<(), UndoError> {
        let content = match &path_state {
            PathState::File(metadata) => Some(self.keep_content(state, id, root, path, metadata.size)?),
            _ => None,
        };
        let before = PathBefore {
            mount: root.name().to_owned(),
            path: path.clone(),
            state: path_state,
            owner,
            content,
        };
        self.write(id, file, &RecordLine::Before(before))
    }

    fn keep_content(
        &self,
        state: &mut RecorderState,
        id: &RecordId,
        root: &MountRoot,
        path: &MountPath,
        size: u64,
    ) -> Result<ContentLocation, UndoError> {
        if size > MAX_FILE_BYTES {
            return Ok(ContentLocation::Omitted(OmissionReason::LargeFile));
        }
        if state.bytes.saturating_add(size) > MAX_CALL_BYTES {
            return Ok(ContentLocation::Omitted(OmissionReason::LargeCall));
        }
        let file = match open_file(root, path) {
            Ok(file) => file,
            // Another process has removed or replaced the file in the meantime, or the file is unreadable.
            Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS | Errno::PERM) => {
                return Ok(ContentLocation::Omitted(OmissionReason::Unreadable));
            }
            Err(errno) => return Err(UndoError::Copy { path: root.guest_path(path), source: errno.into() }),
        };
        let number = state.content_files;
        state.content_files += 1;
        let copied =
            self.store.create_content(id, number).and_then(|copy| copy_content(file, &copy, MAX_FILE_BYTES));
        if let Err(source) = copied {
            // A partial copy would be restored as if it were complete. If it cannot be removed either, its
            // number stays unused.
            let _ = self.store.remove_content(id, number);
            return Err(UndoError::Copy { path: root.guest_path(path), source });
        }
        state.bytes += size;
        Ok(ContentLocation::InFile(number))
    }

    fn begin(&self) -> Result<(RecordId, File), UndoError> {
        let (id, mut file) = self.store.create()?;
        let identity = |root: &MountRoot| {
            let identity = root.identity();
            identity.map_err(|source| UndoError::Examine { path: format!("/{}", root.name()), source })
        };
        let mounts = self.roots.iter().map(|(name, root)| Ok((name.clone(), identity(root)?)));
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let line = RecordLine::Call {
            v: VERSION,
            time,
            identity: self.identity.clone(),
            undoes: self.undone_records.clone(),
            mounts: mounts.collect::<Result<_, UndoError>>()?,
        };
        self.write(&id, &mut file, &line)?;
        Ok((id, file))
    }

    fn write(&self, id: &RecordId, file: &mut File, line: &RecordLine) -> Result<(), UndoError> {
        let record_error = |source| UndoError::Record { id: id.to_string(), source };
        let mut text = serde_json::to_vec(line).map_err(|error| record_error(error.into()))?;
        text.push(b'\n');
        file.write_all(&text).map_err(record_error)
    }

    fn end(&self) -> Result<(), UndoError> {
        let mut state = self.lock();
        let Some((id, mut file)) = state.record.take() else { return Ok(()) };
        let mut after = Vec::with_capacity(state.saved_paths.len());
        for (mount, path) in &state.saved_paths {
            let Some(root) = self.roots.get(mount) else { continue };
            let path_state = root
                .state(path)
                .map_err(|source| UndoError::Examine { path: root.guest_path(path), source })?;
            after.push(PathAfter { mount: mount.clone(), path: path.clone(), state: path_state });
        }
        self.write(&id, &mut file, &RecordLine::End { after, incomplete: state.is_incomplete })?;
        self.store.write_size(&id);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock()
    }
}

impl Drop for ChangeRecorder {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the end of a call's changes was not recorded"
            );
        }
    }
}
