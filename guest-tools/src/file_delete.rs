//! `file_delete`: removes a file, a link, or a directory.
//!
//! Links are not followed: a link is removed, never its target. The tree is walked with an explicit list
//! instead of recursion, so that deep directories cannot overflow the stack.

use std::{
    fs::{self as system, FileType},
    io,
    path::{Path, PathBuf},
};

use portcullis_sdk::{GuestPath, ToolError, fs, tool};

/// Deletes a file, a symbolic link (never what it leads to), or a directory.
/// A directory with anything in it is deleted only with `recursive`; the directory of a mount, such as `/shared` itself, never.
/// Says how much was deleted; where it stops half way, also what is left.
#[tool(label = "Delete file", tier = SideEffecting, timeout = "15s", profile = FileReadWrite, deny_unknown)]
pub async fn file_delete(
    /// What to delete, such as `/shared/old.md`. Relative paths start at `/shared`.
    #[arg(entry)]
    path: &str,
    /// Whether to delete a directory with all that is below it.
    #[arg(default = false)]
    recursive: bool,
) -> Result<String, ToolError> {
    let path = fs::parse(path)?;
    if path.components().count() < 2 {
        return Err(ToolError::invalid_arguments(format!(
            "field 'path': `{path}` is the directory of a mount; name something in it"
        )));
    }
    let target = fs::locate(&path)?;
    if target.file_name().is_none() {
        return Err(ToolError::invalid_arguments(format!("field 'path': `{path}` names nothing to delete")));
    }
    let failed = |error: io::Error| fs::error(error, "delete", &path);
    let kind = system::symlink_metadata(&target).map_err(failed)?.file_type();
    if !kind.is_dir() {
        system::remove_file(&target).map_err(failed)?;
        let what = if kind.is_symlink() { "symbolic link" } else { "file" };
        return Ok(format!("deleted {path}: 1 {what}"));
    }
    if !recursive {
        system::remove_dir(&target).map_err(|error| refused_directory(error, &target, &path))?;
        return Ok(format!("deleted {path}: 1 empty directory"));
    }
    let mut deletion = Deletion { deleted: Counts::default(), pending_bytes: 0 };
    match deletion.delete_tree(&target) {
        Ok(()) => Ok(format!("deleted {path}: {}", deletion.deleted.words())),
        Err(stop) => Err(stop.error(&deletion.deleted, &target, &path)),
    }
}

/// The most files and directories that one call deletes; larger trees take several calls. Keeps a call well
/// within its time.
const MAX_DELETED: u64 = 100_000;

/// The most bytes of names that wait to be deleted. Without it, directories of directories could fill the
/// guest's memory. A directory read only in part is read again.
const MAX_PENDING_BYTES: usize = 4 << 20;

/// The cost of a name in addition to its bytes.
const NAME_BYTES: usize = 32;

/// The most entries of a directory that are counted.
const MAX_COUNTED: usize = 10_000;

/// A deletion of a whole tree.
struct Deletion {
    deleted: Counts,
    pending_bytes: usize,
}

/// The number of deleted entries by kind.
#[derive(Default)]
struct Counts {
    files: u64,
    links: u64,
    directories: u64,
}

/// The reason why a deletion ended early.
enum DeletionStop {
    At { path: PathBuf, error: io::Error },
    Limit,
}

/// A directory to empty and delete.
struct DeletionLevel {
    directory: PathBuf,
    /// The names of its subdirectories that were read but not entered yet.
    subdirectories: Vec<std::ffi::OsString>,
}

impl Deletion {
    fn delete_tree(&mut self, root: &Path) -> Result<(), DeletionStop> {
        let mut levels = vec![DeletionLevel { directory: root.to_owned(), subdirectories: Vec::new() }];
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.subdirectories.pop() {
                self.pending_bytes -= name.len() + NAME_BYTES;
                let directory = level.directory.join(name);
                levels.push(DeletionLevel { directory, subdirectories: Vec::new() });
                continue;
            }
            // A directory is read until it is empty: that may take several readings, and another process may
            // add entries meanwhile.
            if self.delete_entries(level)? == 0 {
                self.ensure_below_limit()?;
                ignore_missing(system::remove_dir(&level.directory), &level.directory)?;
                self.deleted.directories += 1;
                levels.pop();
            }
        }
        Ok(())
    }

    /// Deletes the entries of a directory except its subdirectories, which are noted. Returns the number of
    /// entries found.
    fn delete_entries(&mut self, level: &mut DeletionLevel) -> Result<usize, DeletionStop> {
        let directory = &level.directory;
        let stop = |error| DeletionStop::At { path: directory.clone(), error };
        let mut entries = Vec::new();
        let mut read_bytes = 0;
        for entry in system::read_dir(directory).map_err(stop)? {
            let entry = entry.map_err(stop)?;
            let name = entry.file_name();
            read_bytes += name.len() + NAME_BYTES;
            entries.push((name, entry.file_type().ok()));
            if self.pending_bytes + read_bytes > MAX_PENDING_BYTES {
                break;
            }
        }
        let found = entries.len();
        for (name, kind) in entries {
            let path = directory.join(&name);
            match self.kind(kind, &path)? {
                None => {}
                Some(kind) if kind.is_dir() => {
                    self.pending_bytes += name.len() + NAME_BYTES;
                    level.subdirectories.push(name);
                }
                Some(kind) => {
                    self.ensure_below_limit()?;
                    ignore_missing(system::remove_file(&path), &path)?;
                    *(if kind.is_symlink() { &mut self.deleted.links } else { &mut self.deleted.files }) += 1;
                }
            }
        }
        Ok(found)
    }

    /// The kind of an entry; none if it is gone. Some file systems do not report it with the name.
    fn kind(&self, known: Option<FileType>, path: &Path) -> Result<Option<FileType>, DeletionStop> {
        match known {
            Some(kind) if kind.is_file() || kind.is_dir() || kind.is_symlink() => Ok(Some(kind)),
            _ => match system::symlink_metadata(path) {
                Ok(found) => Ok(Some(found.file_type())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(DeletionStop::At { path: path.to_owned(), error }),
            },
        }
    }

    fn ensure_below_limit(&self) -> Result<(), DeletionStop> {
        let Counts { files, links, directories } = self.deleted;
        if files + links + directories < MAX_DELETED { Ok(()) } else { Err(DeletionStop::Limit) }
    }
}

/// An entry that another process has removed counts as deleted.
fn ignore_missing(removed: io::Result<()>, path: &Path) -> Result<(), DeletionStop> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DeletionStop::At { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

impl Counts {
    fn words(&self) -> String {
        let counted = [(self.files, "file", "files"), (self.links, "symbolic link", "symbolic links")];
        let mut words: Vec<String> =
            counted.iter().filter(|(count, ..)| *count > 0).map(noun_count).collect();
        words.push(noun_count(&(self.directories, "directory", "directories")));
        words.join(", ")
    }
}

impl DeletionStop {
    /// The error for the model; it first says what was deleted.
    fn error(self, deleted: &Counts, target: &Path, path: &GuestPath) -> ToolError {
        let words = deleted.words();
        match self {
            Self::Limit => ToolError::failed(format!(
                "`{path}` is deleted only in part: {words}, as many as one call deletes; call again for the rest"
            )),
            Self::At { path: at, error } => {
                let below = at.strip_prefix(target).ok().and_then(Path::to_str).unwrap_or_default();
                let at = GuestPath::parse(&format!("{path}/{below}")).unwrap_or_else(|_| path.clone());
                let cause = fs::error(error, "delete", &at);
                if deleted.files + deleted.links + deleted.directories == 0 {
                    return cause;
                }
                let message = format!("`{path}` is deleted only in part: {words}; then {cause}");
                ToolError::new(cause.kind(), message)
            }
        }
    }
}

fn noun_count((count, one, many): &(u64, &str, &str)) -> String {
    format!("{count} {}", if *count == 1 { one } else { many })
}

/// The error of a directory that is not empty, with the number of its entries.
fn refused_directory(error: io::Error, target: &Path, path: &GuestPath) -> ToolError {
    let entries = system::read_dir(target).map_or(0, |entries| entries.take(MAX_COUNTED).count());
    if error.kind() == io::ErrorKind::PermissionDenied || entries == 0 {
        return fs::error(error, "delete", path);
    }
    let many = match entries {
        1 => "1 entry".to_owned(),
        MAX_COUNTED => format!("{MAX_COUNTED} entries or more"),
        _ => format!("{entries} entries"),
    };
    ToolError::failed(format!(
        "`{path}` is not empty ({many}): set 'recursive' to delete it with all of them"
    ))
}

#[cfg(test)]
mod tests;
