//! [`HistoryFile`]: the lines that were typed earlier, in the state folder.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::error::CliError;

/// The maximum number of lines that a history keeps. The oldest are dropped first.
pub(crate) const MAX_HISTORY_LINES: usize = 1_000;

/// The maximum length of a line that a history file keeps: 4 KiB, encoded. A longer line is kept only until
/// the program ends.
pub(crate) const MAX_HISTORY_LINE_BYTES: usize = 4 << 10;

/// The maximum size of a history file that is read: 8 MiB. The file is shortened at each start, so it is much
/// smaller unless another program has written it.
pub(crate) const MAX_HISTORY_BYTES: u64 = 8 << 20;

/// A file with one line of JSON for each typed line, which may itself have several lines. The file is private
/// to its user. Several processes may append to it.
#[derive(Debug)]
pub(super) struct HistoryFile {
    file: File,
    path: PathBuf,
}

impl HistoryFile {
    /// Opens or creates the file, and returns its newest lines, oldest first. Malformed lines are skipped.
    ///
    /// # Errors
    /// [`CliError::History`] if the file cannot be used, is too large, is not a regular file, or belongs to another
    /// user.
    pub(super) fn open(state: &Path, name: &str) -> Result<(Self, Vec<String>), CliError> {
        let path = state.join(format!("{name}.history"));
        let failed = |source: io::Error| CliError::History { path: path.clone(), source };
        let mut file = open(&path).map_err(failed)?;
        let mut text = String::new();
        (&mut file).take(MAX_HISTORY_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_HISTORY_BYTES {
            return Err(failed(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "it is not a history; remove it",
            )));
        }
        let mut lines: Vec<String> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if lines.len() > MAX_HISTORY_LINES {
            lines.drain(..lines.len() - MAX_HISTORY_LINES);
            shorten(&path, &lines).map_err(failed)?;
            // The rename has replaced the file, so the old handle would append to the removed one.
            file = open(&path).map_err(failed)?;
        }
        Ok((Self { file, path }, lines))
    }

    /// Adds a line, unless it is too long.
    ///
    /// # Errors
    /// [`CliError::History`] if the file cannot be written.
    pub(super) fn append(&mut self, line: &str) -> Result<(), CliError> {
        let encoded = encode(line);
        if encoded.len() > MAX_HISTORY_LINE_BYTES {
            return Ok(());
        }
        // Append with a single write, so that the lines of two processes do not interleave.
        self.file
            .write_all(encoded.as_bytes())
            .map_err(|source| CliError::History { path: self.path.clone(), source })
    }
}

/// Encodes a typed line as a line of the file.
fn encode(line: &str) -> String {
    format!("{}\n", serde_json::Value::from(line))
}

/// Opens the file for reading from its start and for appending. The flags refuse a symlink.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, OWNER_FILE)?;
    let stat = rustix::fs::fstat(file.as_fd())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        let problem = format!("it belongs to user {}", stat.st_uid);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    rustix::fs::fchmod(file.as_fd(), OWNER_FILE)?;
    Ok(File::from(file))
}

/// Replaces the file with these lines.
fn shorten(path: &Path, lines: &[String]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut unfinished = tempfile::NamedTempFile::new_in(folder)?;
    unfinished.write_all(lines.iter().map(|line| encode(line)).collect::<String>().as_bytes())?;
    unfinished.persist(path)?;
    Ok(())
}

const OWNER_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn lines(state: &Path) -> Vec<String> {
        HistoryFile::open(state, "x").expect("opens").1
    }

    #[test]
    fn lines_are_kept_in_a_private_file() {
        let state = tempfile::tempdir().expect("a folder");
        let (mut history, before) = HistoryFile::open(state.path(), "x").expect("opens");
        assert_eq!(before, Vec::<String>::new());
        let long = "x".repeat(MAX_HISTORY_LINE_BYTES);
        for line in ["one", "two\nlines \u{1b}[2J", &long] {
            history.append(line).expect("written");
        }
        assert_eq!(lines(state.path()), ["one", "two\nlines \u{1b}[2J"]);
        let file = state.path().join("x.history");
        assert_eq!(fs::metadata(&file).expect("the path exists").permissions().mode() & 0o7777, 0o600);
        assert!(!fs::read_to_string(&file).expect("the file is readable").contains('\u{1b}'));
    }

    #[test]
    fn only_the_newest_lines_are_kept() {
        let state = tempfile::tempdir().expect("a folder");
        let file = state.path().join("x.history");
        let text: String = (0..=MAX_HISTORY_LINES).map(|number| encode(&number.to_string())).collect();
        fs::write(&file, format!("no JSON\n{text}")).expect("written");
        let kept_lines = lines(state.path());
        assert_eq!((kept_lines.len(), kept_lines[0].as_str()), (MAX_HISTORY_LINES, "1"));
        assert_eq!(
            fs::read_to_string(&file).expect("the file is readable").lines().count(),
            MAX_HISTORY_LINES
        );
    }

    #[test]
    fn a_file_that_is_not_a_history_is_refused() {
        let state = tempfile::tempdir().expect("a folder");
        let file = state.path().join("x.history");
        std::os::unix::fs::symlink("elsewhere", &file).expect("linked");
        assert!(matches!(HistoryFile::open(state.path(), "x"), Err(CliError::History { .. })));
        fs::remove_file(&file).expect("removed");
        let large = File::create(&file).expect("the file can be made");
        large.set_len(MAX_HISTORY_BYTES + 1).expect("set");
        assert!(matches!(HistoryFile::open(state.path(), "x"), Err(CliError::History { .. })));
    }
}
