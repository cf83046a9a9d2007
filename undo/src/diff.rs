//! Shows a person what some calls changed.

use std::{
    fs::File,
    io::{self, Read as _},
    time::Duration,
};

use similar::TextDiff;

use crate::{
    content_copy::open_file,
    error::UndoError,
    path_state::{MountPath, PathState, guest_path},
    plan::{EarlierContent, PlannedPath, UndoPlan},
};

/// The maximum size of a file to compare line by line: 1 MiB. Larger files are only named.
const MAX_COMPARED_BYTES: u64 = 1 << 20;

/// How long to search for the shortest diff of one file. After that, a longer diff is shown.
const DIFF_TIMEOUT: Duration = Duration::from_secs(1);

/// The change of one path, between its state before the calls and its present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The path as tools name it, unescaped.
    pub path: String,
    /// The kind of change.
    pub kind: DifferenceKind,
    /// Whether someone else changed the path after the calls. The difference includes that change.
    pub is_changed_since: bool,
}

/// The kind of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DifferenceKind {
    /// Lines of a text file, as a unified diff without its header, unescaped.
    Lines(String),
    /// A file whose lines are not shown: it is binary or too large, or its earlier content was not stored.
    File,
    /// Only the permission bits changed: the old and the new ones.
    Mode(u32, u32),
    /// A directory, symlink or special file was created.
    Created,
    /// A directory, symlink or special file was removed.
    Removed,
    /// The path now has another kind of file.
    Replaced,
}

impl UndoPlan {
    /// Returns the paths that differ from their state before the calls, sorted.
    ///
    /// # Errors
    /// [`UndoError::Examine`] if a path cannot be examined.
    pub fn differences(&self) -> Result<Vec<Difference>, UndoError> {
        let mut differences = Vec::new();
        for ((mount, path), planned) in &self.paths {
            let current = self.current_state(mount, path)?;
            if self.is_as_before(mount, path, planned, &current)? {
                continue;
            }
            if let Some(kind) = self.kind(mount, path, planned, &current) {
                let is_changed_since = planned.after.as_ref().is_some_and(|after| *after != current);
                differences.push(Difference { path: guest_path(mount, path), kind, is_changed_since });
            }
        }
        Ok(differences)
    }

    /// Returns the kind of a change. `None` if only the file's modification time changed.
    fn kind(
        &self,
        mount: &str,
        path: &MountPath,
        planned: &PlannedPath,
        current: &PathState,
    ) -> Option<DifferenceKind> {
        match (&planned.before, current) {
            // A file that was created, removed or changed is compared by its lines below. Both states absent cannot occur
            // here, because the caller has skipped paths without a difference.
            (PathState::File(_) | PathState::Absent, PathState::File(_) | PathState::Absent) => {}
            (PathState::Directory { mode: before }, PathState::Directory { mode: now }) => {
                return Some(DifferenceKind::Mode(*before, *now));
            }
            (PathState::Absent, _) => return Some(DifferenceKind::Created),
            (_, PathState::Absent) => return Some(DifferenceKind::Removed),
            _ => return Some(DifferenceKind::Replaced),
        }
        let before = self.text_before(planned);
        let now = self.text_now(mount, path, current);
        let (Some(before), Some(now)) = (before, now) else { return Some(DifferenceKind::File) };
        if before == now {
            return match (&planned.before, current) {
                (PathState::File(before), PathState::File(now)) if before.mode == now.mode => None,
                (PathState::File(before), PathState::File(now)) => {
                    Some(DifferenceKind::Mode(before.mode, now.mode))
                }
                // An empty file was created or removed.
                _ => Some(DifferenceKind::File),
            };
        }
        let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(&before, &now);
        Some(DifferenceKind::Lines(diff.unified_diff().to_string()))
    }

    fn text_before(&self, planned: &PlannedPath) -> Option<String> {
        match (&planned.before, &planned.content) {
            (PathState::File(_), Some(EarlierContent::InRecord(record, number))) => {
                text(self.store.content(record, *number).ok()?).ok()?
            }
            (PathState::Absent, _) => Some(String::new()),
            _ => None,
        }
    }

    fn text_now(&self, mount: &str, path: &MountPath, current: &PathState) -> Option<String> {
        match current {
            PathState::Absent => Some(String::new()),
            _ => text(File::from(open_file(self.roots.get(mount)?, path).ok()?)).ok()?,
        }
    }
}

/// Reads a file as text. `None` if it is too large, has a NUL byte, or is not UTF-8.
fn text(file: File) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    file.take(MAX_COMPARED_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_COMPARED_BYTES || bytes.contains(&0) {
        return Ok(None);
    }
    Ok(String::from_utf8(bytes).ok())
}
