//! [`UndoStore`]: the folder with the records of all calls.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Read as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fs::FlockOperation;

use crate::{
    error::UndoError,
    path_state::RootIdentity,
    record::{CallIdentity, PathAfter, PathBefore, RecordLine, VERSION},
    sizes,
};

/// The maximum size of one stored file: 256 MiB. The content of a larger file is not stored.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

/// The maximum size of the content that is stored for one call: 1 GiB.
pub const MAX_CALL_BYTES: u64 = 1 << 30;

/// The maximum number of paths that are recorded for one call: 100,000. Further paths are not recorded, so
/// the call can only be undone in part.
pub const MAX_CALL_PATHS: usize = 100_000;

/// The maximum size of the whole store: 4 GiB. The oldest records are removed first.
pub const MAX_STORE_BYTES: u64 = 4 << 30;

/// The maximum number of records: 1,000. The oldest are removed first.
pub const MAX_RECORDS: usize = 1_000;

/// The maximum size of a record's file, which has two states for each path: 256 MiB.
const MAX_RECORD_BYTES: u64 = 256 << 20;

const UNDO_FOLDER: &str = "undo";
const RECORD: &str = "record.jsonl";
const UNDONE: &str = "undone";

/// The id of a record, which is also the name of its folder. Later records have greater ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordId(String);

impl RecordId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
        is_id.then(|| Self(text.to_owned()))
    }
}

/// The number of digits of an id: microseconds since the epoch.
const ID_DIGITS: usize = 17;

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The `undo` folder of a state folder.
#[derive(Debug, Clone)]
pub struct UndoStore {
    folder: PathBuf,
}

/// The recorded changes of one call.
#[derive(Debug, Clone)]
pub struct ChangeRecord {
    /// The record's id.
    pub id: RecordId,
    /// The call that made the changes.
    pub call: CallIdentity,
    /// When the call made its first change, in seconds since the epoch.
    pub time: u64,
    /// The undone records, if these changes were made by an undo.
    pub undoes: Vec<String>,
    /// The record of the undo of these changes, if they were undone.
    pub undone_by: Option<RecordId>,
    /// Whether the call's end is recorded. If not, the process died during the call.
    pub is_ended: bool,
    /// Whether paths are missing, because there were more than [`MAX_CALL_PATHS`].
    pub is_incomplete: bool,
    pub(crate) mounts: BTreeMap<String, RootIdentity>,
    pub(crate) before: Vec<PathBefore>,
    pub(crate) after: Vec<PathAfter>,
}

impl ChangeRecord {
    /// The number of recorded paths.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.before.len()
    }
}

impl UndoStore {
    /// Returns the store of a state folder. Its folder is created with the first recorded change.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join(UNDO_FOLDER) }
    }

    /// Returns all records, newest first. Skips unreadable records, with a warning in the log.
    ///
    /// # Errors
    /// [`UndoError::Store`] if the folder cannot be read. If there is no folder, there are no records.
    pub fn records(&self) -> Result<Vec<ChangeRecord>, UndoError> {
        Ok(self.ids()?.iter().filter_map(|id| self.readable_record(id)).collect())
    }

    /// Returns the newest record that `is_wanted` accepts. Older records are not read. Skips unreadable
    /// records, as [`Self::records`] does.
    ///
    /// # Errors
    /// As for [`Self::records`].
    pub fn newest(
        &self,
        is_wanted: impl Fn(&ChangeRecord) -> bool,
    ) -> Result<Option<ChangeRecord>, UndoError> {
        let ids = self.ids()?;
        Ok(ids.iter().filter_map(|id| self.readable_record(id)).find(is_wanted))
    }

    /// Returns the record with this id, or the newest record of the call with this id.
    ///
    /// # Errors
    /// [`UndoError::Unknown`] if there is none, otherwise as for [`Self::records`].
    pub fn find_call(&self, name: &str) -> Result<ChangeRecord, UndoError> {
        if let Some(id) = RecordId::parse(name)
            && self.folder.join(name).exists()
        {
            return self.record(&id);
        }
        let found = self.records()?.into_iter().find(|record| record.call.call == name);
        found.ok_or_else(|| UndoError::Unknown { name: name.to_owned() })
    }

    /// Returns the records of a run, newest first. A run without changes has none.
    ///
    /// # Errors
    /// [`UndoError::Unknown`] if there are none, otherwise as for [`Self::records`].
    pub fn find_run(&self, run: &str) -> Result<Vec<ChangeRecord>, UndoError> {
        let mut records = self.records()?;
        records.retain(|record| record.call.run == run);
        if records.is_empty() { Err(UndoError::Unknown { name: run.to_owned() }) } else { Ok(records) }
    }

    /// Reads one record.
    ///
    /// # Errors
    /// [`UndoError::Damaged`] or [`UndoError::Store`].
    pub fn record(&self, id: &RecordId) -> Result<ChangeRecord, UndoError> {
        let folder = self.record_folder(id);
        let path = folder.join(RECORD);
        let file = File::open(&path).map_err(|source| UndoError::Store { path: path.clone(), source })?;
        let damaged = |reason: String| UndoError::Damaged { id: id.to_string(), reason };
        let mut lines = BufReader::new(file.take(MAX_RECORD_BYTES)).split(b'\n');
        let mut next_line = || -> Result<Option<RecordLine>, UndoError> {
            match lines.next() {
                None => Ok(None),
                Some(Err(source)) => Err(UndoError::Store { path: path.clone(), source }),
                // The process may have died while writing the last line.
                Some(Ok(line)) => match serde_json::from_slice(&line) {
                    Ok(line) => Ok(Some(line)),
                    Err(_) if lines.next().is_none() => Ok(None),
                    Err(error) => Err(damaged(error.to_string())),
                },
            }
        };
        let Some(RecordLine::Call { v, time, identity, undoes, mounts }) = next_line()? else {
            return Err(damaged("it does not begin with the call".to_owned()));
        };
        if v > VERSION {
            return Err(damaged(format!("a newer version of this program wrote it (format {v})")));
        }
        let undone_by = fs::read_to_string(folder.join(UNDONE)).ok();
        let mut record = ChangeRecord {
            id: id.clone(),
            call: identity,
            time,
            undoes,
            undone_by: undone_by.as_deref().and_then(RecordId::parse),
            is_ended: false,
            is_incomplete: false,
            mounts,
            before: Vec::new(),
            after: Vec::new(),
        };
        while let Some(line) = next_line()? {
            match line {
                RecordLine::Call { .. } => return Err(damaged("it has two calls".to_owned())),
                RecordLine::Before(before) => record.before.push(before),
                RecordLine::End { after, incomplete } => {
                    record.after = after;
                    (record.is_ended, record.is_incomplete) = (true, incomplete);
                }
            }
        }
        Ok(record)
    }

    /// Opens the stored content of a file.
    pub(crate) fn content(&self, id: &RecordId, number: u32) -> io::Result<File> {
        File::open(self.record_folder(id).join(number.to_string()))
    }

    /// Marks a record's changes as undone.
    pub(crate) fn mark_undone(&self, id: &RecordId, by: &RecordId) -> Result<(), UndoError> {
        let path = self.record_folder(id).join(UNDONE);
        fs::write(&path, by.as_str()).map_err(|source| UndoError::Store { path, source })
    }

    /// Removes the mark of [`Self::note_undone`] from the records that an undo had undone, because the undo
    /// itself was undone.
    pub(crate) fn clear_undone_mark(&self, undo: &ChangeRecord) -> Result<(), UndoError> {
        for id in undo.undoes.iter().filter_map(|id| RecordId::parse(id)) {
            let path = self.record_folder(&id).join(UNDONE);
            // Another undo may have undone the record again meanwhile, or the record was removed.
            if fs::read_to_string(&path).is_ok_and(|by| by == undo.id.as_str()) {
                fs::remove_file(&path).map_err(|source| UndoError::Store { path, source })?;
            }
        }
        Ok(())
    }

    /// Creates the folder and the file of a new record. Removes the oldest records beyond the limits.
    pub(crate) fn create(&self) -> Result<(RecordId, File), UndoError> {
        let store_error = |path: &Path, source| UndoError::Store { path: path.to_owned(), source };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(|source| store_error(&self.folder, source))?;
        self.remove_oldest(MAX_RECORDS, MAX_STORE_BYTES)?;
        let id = loop {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
            let id = RecordId(format!("{now:0ID_DIGITS$}"));
            match DirBuilder::new().mode(0o700).create(self.record_folder(&id)) {
                Ok(()) => break id,
                // Another call started in the same microsecond.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(store_error(&self.record_folder(&id), source)),
            }
        };
        let path = self.record_folder(&id).join(RECORD);
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path);
        Ok((id, file.map_err(|source| store_error(&path, source))?))
    }

    /// Creates the file for the content of a changed file.
    pub(crate) fn create_content(&self, id: &RecordId, number: u32) -> io::Result<File> {
        let path = self.record_folder(id).join(number.to_string());
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    /// Removes a content file whose copy failed.
    pub(crate) fn remove_content(&self, id: &RecordId, number: u32) -> io::Result<()> {
        fs::remove_file(self.record_folder(id).join(number.to_string()))
    }

    /// Waits until no other process is undoing changes in this store. The lock is held until the
    /// returned file is dropped.
    pub(crate) fn lock(&self) -> Result<File, UndoError> {
        let store_error = |source: io::Error| UndoError::Store { path: self.folder.clone(), source };
        let folder = File::open(&self.folder).map_err(store_error)?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive)
            .map_err(|errno| store_error(errno.into()))?;
        Ok(folder)
    }

    fn record_folder(&self, id: &RecordId) -> PathBuf {
        self.folder.join(&id.0)
    }

    /// Returns the ids of all records, newest first.
    fn ids(&self) -> Result<Vec<RecordId>, UndoError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(UndoError::Store { path: self.folder.clone(), source }),
        };
        let names = entries.flatten().filter_map(|entry| RecordId::parse(entry.file_name().to_str()?));
        let mut ids: Vec<RecordId> = names.collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        Ok(ids)
    }

    /// Reads a record. Logs a warning and returns `None` if it is unreadable.
    fn readable_record(&self, id: &RecordId) -> Option<ChangeRecord> {
        match self.record(id) {
            Ok(record) => Some(record),
            Err(error) => {
                tracing::warn!(record = %id, error = &error as &dyn std::error::Error, "skipped an unreadable change record");
                None
            }
        }
    }

    /// Removes the oldest records until there is room for another one.
    fn remove_oldest(&self, max_records: usize, max_bytes: u64) -> Result<(), UndoError> {
        let sizes = sizes::read(&self.folder);
        let (mut kept, mut kept_bytes) = (BTreeMap::new(), 0);
        let ids = self.ids()?;
        for (index, id) in ids.iter().enumerate() {
            let path = self.record_folder(id);
            let known_bytes = sizes.get(id.as_str()).copied();
            kept_bytes += known_bytes.unwrap_or_else(|| folder_bytes(&path));
            if index + 1 < max_records && kept_bytes <= max_bytes {
                kept.extend(known_bytes.map(|bytes| (id.0.clone(), bytes)));
                continue;
            }
            match fs::remove_dir_all(&path) {
                Ok(()) => {}
                // Another process is removing the same record.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(UndoError::Store { path, source }),
            }
        }
        // Rewrite only if many lines are stale, because a rewrite can lose a concurrent line.
        if sizes.len() > kept.len() + max_records {
            sizes::rewrite(&self.folder, &kept);
        }
        Ok(())
    }

    /// Stores the size of a finished call's record, so that later calls need not measure its files.
    pub(crate) fn write_size(&self, id: &RecordId) {
        sizes::add(&self.folder, id.as_str(), folder_bytes(&self.record_folder(id)));
    }
}

/// Returns the disk space that a record's files take, in bytes.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(store: &UndoStore, bytes: usize, is_noted: bool) -> RecordId {
        let (id, _) = store.create().expect("made");
        fs::write(store.record_folder(&id).join("0"), vec![0; bytes]).expect("written");
        if is_noted {
            store.write_size(&id);
        }
        id
    }

    #[test]
    fn the_oldest_records_go_first_with_or_without_a_noted_size() {
        for is_noted in [true, false] {
            let folder = tempfile::tempdir().expect("a folder");
            let store = UndoStore::new(folder.path());
            let ids: Vec<RecordId> = (0..5).map(|_| add(&store, 100_000, is_noted)).collect();
            let newest = |count: usize| ids.iter().rev().take(count).cloned().collect::<Vec<_>>();
            store.remove_oldest(10, 10_000_000).expect("removes none");
            assert_eq!(store.ids().expect("readable"), newest(5));
            store.remove_oldest(10, 350_000).expect("removes");
            assert_eq!(store.ids().expect("readable"), newest(3));
            store.remove_oldest(2, 10_000_000).expect("removes");
            assert_eq!(store.ids().expect("readable"), newest(1));
        }
    }

    #[test]
    fn notes_of_removed_records_go_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = UndoStore::new(folder.path());
        let ids: Vec<RecordId> = (0..6).map(|_| add(&store, 10, true)).collect();
        store.remove_oldest(3, u64::MAX).expect("removes");
        let sizes = sizes::read(&store.folder);
        assert_eq!(sizes.keys().map(String::as_str).collect::<Vec<_>>(), [ids[4].as_str(), ids[5].as_str()]);
    }

    #[test]
    fn a_damaged_record_is_passed_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = UndoStore::new(folder.path());
        // Without its first line, the record is damaged.
        add(&store, 10, true);
        assert!(store.newest(|_| true).expect("readable").is_none());
    }
}
