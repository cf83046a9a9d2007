//! [`UndoPlan`]: the combined changes of some calls.

use std::{collections::BTreeMap, fmt, io};

use crate::{
    content_copy::{have_same_content, open_file},
    error::UndoError,
    path_state::{FileOwner, MountPath, MountRoot, PathState, guest_path},
    record::{ContentLocation, OmissionReason},
    store::{ChangeRecord, RecordId, UndoStore},
};

/// The changes of one or more calls, combined: for each path the state before the first change
/// and after the last.
#[derive(Debug)]
pub struct UndoPlan {
    pub(crate) store: UndoStore,
    pub(crate) roots: BTreeMap<String, MountRoot>,
    /// The records, newest first.
    pub(crate) records: Vec<ChangeRecord>,
    pub(crate) paths: BTreeMap<(String, MountPath), PlannedPath>,
}

/// The combined change of a path.
#[derive(Debug)]
pub(crate) struct PlannedPath {
    pub(crate) before: PathState,
    pub(crate) owner: Option<FileOwner>,
    pub(crate) content: Option<EarlierContent>,
    /// The state after the last call. `None` if the end of that call was not recorded.
    pub(crate) after: Option<PathState>,
    /// Whether someone else changed the path between two of the calls.
    pub(crate) is_changed_between: bool,
}

/// The content of a file before the calls.
#[derive(Debug, Clone)]
pub(crate) enum EarlierContent {
    InRecord(RecordId, u32),
    Omitted(OmissionReason),
}

/// A path whose earlier state cannot be restored without loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The path as tools name it, unescaped.
    pub path: String,
    /// Why the state cannot be restored.
    pub reason: ConflictReason,
}

/// Why a path cannot be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConflictReason {
    /// The path was changed after the calls.
    ChangedSince,
    /// Someone else changed the path between the calls.
    ChangedBetween,
    /// The end of a call was not recorded, so its last state is unknown.
    Unfinished,
    /// The directory contains files that no call created.
    HasOtherFiles,
    /// The file's earlier content was not stored.
    ContentOmitted(OmissionReason),
    /// The path was a FIFO, socket or device.
    UnsupportedKind,
    /// A call changed more paths than are recorded.
    Incomplete,
}

impl Conflict {
    /// Whether a forced undo restores the path. Without the earlier content, it leaves the path unchanged.
    #[must_use]
    pub const fn can_be_forced(&self) -> bool {
        matches!(
            self.reason,
            ConflictReason::ChangedSince | ConflictReason::ChangedBetween | ConflictReason::Unfinished
        )
    }
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChangedSince => f.write_str("it was changed since"),
            Self::ChangedBetween => f.write_str("it was changed between the calls"),
            Self::Unfinished => f.write_str("the end of the call was not recorded"),
            Self::HasOtherFiles => f.write_str("it has files that the calls did not make"),
            Self::ContentOmitted(reason) => write!(f, "its content was not recorded: {}", reason.as_str()),
            Self::UnsupportedKind => f.write_str("it was not a regular file, directory or link"),
            Self::Incomplete => f.write_str("the call changed more paths than are recorded"),
        }
    }
}

impl UndoPlan {
    /// Combines records, which may be in any order. `roots` are the policy's mounts.
    ///
    /// # Errors
    /// [`UndoError::MountChanged`] if a mount of a record is missing or is another folder.
    pub fn new(
        store: UndoStore,
        mut records: Vec<ChangeRecord>,
        roots: impl IntoIterator<Item = MountRoot>,
    ) -> Result<Self, UndoError> {
        records.sort_unstable_by(|a, b| b.id.cmp(&a.id));
        let roots: BTreeMap<String, MountRoot> =
            roots.into_iter().map(|root| (root.name().to_owned(), root)).collect();
        let mut paths = BTreeMap::<(String, MountPath), PlannedPath>::new();
        for record in &records {
            for before in &record.before {
                let root = roots.get(&before.mount);
                let is_same = root
                    .is_some_and(|root| root.identity().ok().as_ref() == record.mounts.get(&before.mount));
                if !is_same {
                    return Err(UndoError::MountChanged { mount: before.mount.clone() });
                }
            }
            let mut after: BTreeMap<(&str, &MountPath), &PathState> = record
                .after
                .iter()
                .map(|after| ((after.mount.as_str(), &after.path), &after.state))
                .collect();
            for before in &record.before {
                let own_after = after.remove(&(before.mount.as_str(), &before.path)).cloned();
                let content = before.content.map(|content| match content {
                    ContentLocation::InFile(number) => EarlierContent::InRecord(record.id.clone(), number),
                    ContentLocation::Omitted(reason) => EarlierContent::Omitted(reason),
                });
                let planned = paths.entry((before.mount.clone(), before.path.clone()));
                planned
                    .and_modify(|planned| {
                        // The next call, which is already in the plan, found the path as `planned.before`.
                        if own_after.as_ref().is_some_and(|after| *after != planned.before) {
                            planned.is_changed_between = true;
                        }
                        planned.before = before.state.clone();
                        planned.owner = before.owner;
                        planned.content.clone_from(&content);
                    })
                    .or_insert_with(|| PlannedPath {
                        before: before.state.clone(),
                        owner: before.owner,
                        content: content.clone(),
                        after: own_after.clone(),
                        is_changed_between: false,
                    });
            }
        }
        Ok(Self { store, roots, records, paths })
    }

    /// Returns the paths that cannot be restored without loss.
    ///
    /// # Errors
    /// [`UndoError::Examine`] if a path cannot be examined.
    pub fn conflicts(&self) -> Result<Vec<Conflict>, UndoError> {
        let mut conflicts = Vec::new();
        if self.records.iter().any(|record| record.is_incomplete) {
            conflicts.push(Conflict { path: "/".to_owned(), reason: ConflictReason::Incomplete });
        }
        for ((mount, path), planned) in &self.paths {
            let current = self.current_state(mount, path)?;
            if let Some(reason) = self.conflict(mount, path, planned, &current)? {
                conflicts.push(Conflict { path: guest_path(mount, path), reason });
            }
        }
        Ok(conflicts)
    }

    fn conflict(
        &self,
        mount: &str,
        path: &MountPath,
        planned: &PlannedPath,
        current: &PathState,
    ) -> Result<Option<ConflictReason>, UndoError> {
        if self.is_as_before(mount, path, planned, current)? {
            return Ok(None);
        }
        if let Some(EarlierContent::Omitted(reason)) = planned.content {
            return Ok(Some(ConflictReason::ContentOmitted(reason)));
        }
        if planned.before == PathState::Other {
            return Ok(Some(ConflictReason::UnsupportedKind));
        }
        let is_directory = |state: &PathState| matches!(state, PathState::Directory { .. });
        if is_directory(current) && !is_directory(&planned.before) {
            let root = self.root(mount)?;
            let names = root
                .names(path)
                .map_err(|source| UndoError::Examine { path: root.guest_path(path), source })?;
            let is_removed = |name: &Vec<u8>| {
                path.child(name)
                    .and_then(|child| self.paths.get(&(mount.to_owned(), child)))
                    .is_some_and(|planned| planned.before == PathState::Absent)
            };
            if !names.iter().all(is_removed) {
                return Ok(Some(ConflictReason::HasOtherFiles));
            }
        }
        Ok(match &planned.after {
            None => Some(ConflictReason::Unfinished),
            Some(after) if after != current => Some(ConflictReason::ChangedSince),
            Some(_) if planned.is_changed_between => Some(ConflictReason::ChangedBetween),
            Some(_) => None,
        })
    }

    /// Whether a path is in its state before the calls. Two changes within one tick of the kernel's clock can
    /// leave equal facts, so the content of a file is compared too.
    pub(crate) fn is_as_before(
        &self,
        mount: &str,
        path: &MountPath,
        planned: &PlannedPath,
        current: &PathState,
    ) -> Result<bool, UndoError> {
        let (PathState::File(_), Some(EarlierContent::InRecord(record, number))) =
            (current, &planned.content)
        else {
            return Ok(*current == planned.before);
        };
        if *current != planned.before {
            return Ok(false);
        }
        let root = self.root(mount)?;
        // Without the stored content, the file counts as changed, and restoring it reports what is missing.
        let Ok(kept) = self.store.content(record, *number) else { return Ok(false) };
        let compare = || have_same_content(open_file(root, path)?.into(), kept);
        compare().map_err(|source| UndoError::Examine { path: root.guest_path(path), source })
    }

    /// Returns the present state of a path.
    pub(crate) fn current_state(&self, mount: &str, path: &MountPath) -> Result<PathState, UndoError> {
        let root = self.root(mount)?;
        root.state(path)
            .map_err(|source: io::Error| UndoError::Examine { path: root.guest_path(path), source })
    }

    pub(crate) fn root(&self, mount: &str) -> Result<&MountRoot, UndoError> {
        self.roots.get(mount).ok_or_else(|| UndoError::MountChanged { mount: mount.to_owned() })
    }
}
