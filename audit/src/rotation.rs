//! The files of sealed segments: sealing a segment, repairing an unfinished sealing, and
//! removing old segments.

use std::{
    fs::File,
    io::Write as _,
    os::fd::AsFd as _,
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, chmodat, fdatasync, linkat, mkdirat, openat, renameat, unlinkat},
    io::Errno,
};

use super::{
    checkpoint::SignedCheckpoint,
    error::AuditError,
    files::{LOG_NAME, LogFiles, Segment},
    key::CheckpointKey,
    lines::LogLines,
    seal::frontier_of,
    segments::{self, NOTE_EXTENSION, SEGMENT_EXTENSION, SEGMENTS_DIR, SegmentName},
    stored_texts,
};

/// The temporary name of the new segment.
const NEXT_SEGMENT: &str = ".audit.next";

/// Returns the sealed segments before this one, the oldest first.
pub(super) fn sealed_before(
    files: &LogFiles,
    segment: &Segment,
) -> Result<Vec<segments::LogPart>, AuditError> {
    let names = segments::listed(&files.state_folder, SEGMENT_EXTENSION)
        .map_err(|source| files.read_error(source))?;
    let earlier = names.into_iter().filter(|name| name.number < segment.number);
    Ok(earlier.map(|name| segments::LogPart::sealed(&files.state_folder, &name)).collect())
}

/// Signs a checkpoint for each sealed segment without one, from the first row of the segment after it. Such a
/// segment is left by a process that was killed right after sealing it. The newest sealed segment is skipped,
/// because the process that seals it signs its checkpoint.
pub(super) fn keep_missing_notes(files: &LogFiles, key: &CheckpointKey) -> Result<(), AuditError> {
    let read_error = |source| files.read_error(source);
    let names = segments::listed(&files.state_folder, SEGMENT_EXTENSION).map_err(read_error)?;
    let notes = segments::listed(&files.state_folder, NOTE_EXTENSION).map_err(read_error)?;
    for pair in names.windows(2) {
        let [name, next] = pair else { continue };
        if notes.contains(name) {
            continue;
        }
        let path = segments::path_of(&files.state_folder, next, SEGMENT_EXTENSION);
        let (file, end) = segments::open_at_end(&path)?;
        let mut lines = LogLines::new(&file, 0, end);
        let first = lines.next().map_err(read_error)?.and_then(|line| frontier_of(line.bytes));
        let Some(frontier) = first.filter(|frontier| frontier.size() == name.last) else {
            return Err(AuditError::Altered { path, offset: 0 });
        };
        let signed = SignedCheckpoint::sign(key, frontier.size(), frontier.root())
            .map_err(|source| AuditError::Key { source })?;
        store_note(files, name, &signed)?;
    }
    Ok(())
}

/// Stores the checkpoint of a sealed segment beside it.
pub(super) fn store_note(
    files: &LogFiles,
    name: &SegmentName,
    signed: &SignedCheckpoint,
) -> Result<(), AuditError> {
    stored_texts::store_text(files, SEGMENTS_DIR, &name.file_name(NOTE_EXTENSION), signed.note().as_bytes())
}

/// Removes sealed segments whose last row is older than this, starting with the oldest. Their
/// checkpoints are kept.
pub(super) fn remove_old_segments(files: &LogFiles, retention: Duration) -> Result<(), AuditError> {
    let read_error = |source| files.read_error(source);
    let notes = segments::listed(&files.state_folder, NOTE_EXTENSION).map_err(read_error)?;
    for name in segments::listed(&files.state_folder, SEGMENT_EXTENSION).map_err(read_error)? {
        let path = segments::path_of(&files.state_folder, &name, SEGMENT_EXTENSION);
        let modified = std::fs::symlink_metadata(&path).and_then(|metadata| metadata.modified());
        // If the clock was set back, the age counts as zero, so nothing is sealed or removed too early.
        let age = SystemTime::now().duration_since(modified.map_err(read_error)?).unwrap_or_default();
        // Without its checkpoint, the following rows would have no proven start.
        if age < retention || !notes.contains(&name) {
            break;
        }
        std::fs::remove_file(&path).map_err(read_error)?;
        tracing::info!(
            first = name.first,
            last = name.last,
            "rows of the audit log were removed by retention"
        );
    }
    Ok(())
}

/// Whether a checkpoint is stored for the segment with this number.
pub(super) fn has_note(files: &LogFiles, number: u64) -> Result<bool, AuditError> {
    let notes =
        segments::listed(&files.state_folder, NOTE_EXTENSION).map_err(|source| files.read_error(source))?;
    Ok(notes.iter().any(|name| name.number == number))
}

/// Removes the sealed name of the open segment. A process that was killed between the two steps of
/// [`rotate_files`] leaves such a name.
pub(super) fn undo_unfinished(files: &LogFiles, segment: &Segment) -> Result<(), AuditError> {
    let Some(path) = files.sealed_name(segment)? else { return Ok(()) };
    unlinkat(CWD, &path, AtFlags::empty()).map_err(|errno| files.write_error(errno.into()))
}

/// Gives the open segment its sealed name, and gives the log's name to a new segment with this first row.
/// Returns the new segment.
///
/// The old file gets its second name first, and the new file then replaces it under the log's name. So the
/// log's name always exists, and a reader sees all rows at any time.
pub(super) fn rotate_files(
    files: &LogFiles,
    name: &SegmentName,
    first_row: &[u8],
) -> Result<Segment, AuditError> {
    let failed = |errno: Errno| files.write_error(errno.into());
    match mkdirat(&files.folder, SEGMENTS_DIR, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let folder_flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(&files.folder, SEGMENTS_DIR, folder_flags, Mode::empty()).map_err(failed)?;
    // A process that was killed while sealing may have left this file.
    match unlinkat(&files.folder, NEXT_SEGMENT, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let flags =
        OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let next = openat(&files.folder, NEXT_SEGMENT, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let mut next = File::from(next);
    next.write_all(first_row).map_err(|source| files.write_error(source))?;
    // Sync before the rename: after a power loss, the log's name must not refer to an empty file.
    fdatasync(&next).map_err(failed)?;
    // Do not open the segment by the log's name after the change: a process that opens the log then may
    // already have sealed this segment, and the name would refer to the next one.
    let segment = Segment::of(next, &files.path)?;

    let sealed = name.file_name(SEGMENT_EXTENSION);
    linkat(&files.folder, LOG_NAME, &folder, sealed.as_str(), AtFlags::empty()).map_err(failed)?;
    if let Err(errno) = renameat(&files.folder, NEXT_SEGMENT, &files.folder, LOG_NAME) {
        // If this fails too, `undo_unfinished` removes the name later.
        let _ = unlinkat(&folder, sealed.as_str(), AtFlags::empty());
        return Err(failed(errno));
    }
    // From here on the segment is sealed, and the steps below are best effort.
    let _ = chmodat(&folder, sealed.as_str(), Mode::RUSR, AtFlags::empty());
    let _ = files.device.sync_folder(folder.as_fd());
    let _ = files.device.sync_folder(files.folder.as_fd());
    Ok(segment)
}
