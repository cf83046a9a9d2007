//! `file_delete`: removes a file, a link, or a directory.
//!
//! Links are not followed: a link itself is removed, and its target stays. The walk keeps an explicit list instead of
//! recursing, so that deep directories cannot overflow the stack.

use std::{
    fs::{self as system, FileType},
    io,
    path::{Path, PathBuf},
};

use portcullis_sdk::{GuestPath, ToolError, fs, tool};

/// Deletes a file, a symbolic link (never its target), or a directory.
/// A directory with anything in it is deleted only with `recursive`; the directory of a mount, such as `/shared` itself, never.
/// Returns how much was deleted and, if it stopped half way, what is left.
#[tool(label = "Delete file", tier = SideEffecting, timeout = "15s", profile = FileReadWrite, deny_unknown)]
pub async fn file_delete(
    /// The path to delete, such as `/shared/old.md`. Relative paths start at `/shared`.
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
    let delete_error = |error: io::Error| fs::tool_error(error, "delete", &path);
    let kind = system::symlink_metadata(&target).map_err(delete_error)?.file_type();
    if !kind.is_dir() {
        system::remove_file(&target).map_err(delete_error)?;
        let noun = if kind.is_symlink() { "symbolic link" } else { "file" };
        return Ok(format!("deleted {path}: 1 {noun}"));
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

/// The maximum number of files and directories that one call deletes: 100,000. Larger trees take several calls. The
/// limit keeps a call well within its time.
const MAX_DELETED: u64 = 100_000;

/// The maximum number of bytes of names that wait to be deleted: 4 MiB. Without this limit, nested directories could
/// fill the guest's memory. A directory that was read only in part is read again.
const MAX_PENDING_BYTES: usize = 4 << 20;

/// The memory that a name takes in addition to its bytes, as an estimate.
const NAME_BYTES: usize = 32;

/// The maximum number of entries of a directory that are counted for an error.
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

/// Why a deletion ended early.
enum DeletionStop {
    Failed { path: PathBuf, error: io::Error },
    Limit,
}

/// A directory to empty and delete.
struct DeletionLevel {
    directory: PathBuf,
    /// The names of the subdirectories that were read but not yet entered.
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
            // Read the directory until it is empty. That can take several rounds, and another process can add entries
            // in the meantime.
            if self.delete_entries(level)? == 0 {
                self.ensure_below_limit()?;
                ignore_missing(system::remove_dir(&level.directory), &level.directory)?;
                self.deleted.directories += 1;
                levels.pop();
            }
        }
        Ok(())
    }

    /// Deletes the entries of a directory except its subdirectories, whose names are noted. Returns the number of
    /// entries found.
    fn delete_entries(&mut self, level: &mut DeletionLevel) -> Result<usize, DeletionStop> {
        let directory = &level.directory;
        let stop = |error| DeletionStop::Failed { path: directory.clone(), error };
        let mut entries = Vec::new();
        let mut read_bytes = 0;
        for entry in system::read_dir(directory).map_err(stop)? {
            let entry = entry.map_err(stop)?;
            let name = entry.file_name();
            read_bytes += name.len() + NAME_BYTES;
            entries.push((name, entry.file_type().ok()));
            // Read the rest of the directory in a later round.
            if self.pending_bytes + read_bytes > MAX_PENDING_BYTES {
                break;
            }
        }
        let entry_count = entries.len();
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
        Ok(entry_count)
    }

    /// The kind of an entry. `None` if the entry is gone. Some file systems do not report the kind with the name.
    fn kind(&self, known_kind: Option<FileType>, path: &Path) -> Result<Option<FileType>, DeletionStop> {
        match known_kind {
            Some(kind) if kind.is_file() || kind.is_dir() || kind.is_symlink() => Ok(Some(kind)),
            _ => match system::symlink_metadata(path) {
                Ok(metadata) => Ok(Some(metadata.file_type())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(DeletionStop::Failed { path: path.to_owned(), error }),
            },
        }
    }

    fn ensure_below_limit(&self) -> Result<(), DeletionStop> {
        let Counts { files, links, directories } = self.deleted;
        if files + links + directories < MAX_DELETED { Ok(()) } else { Err(DeletionStop::Limit) }
    }
}

/// An entry that another process has removed counts as deleted.
fn ignore_missing(removal: io::Result<()>, path: &Path) -> Result<(), DeletionStop> {
    match removal {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DeletionStop::Failed { path: path.to_owned(), error })
        }
        _ => Ok(()),
    }
}

impl Counts {
    fn words(&self) -> String {
        let counted = [(self.files, "file", "files"), (self.links, "symbolic link", "symbolic links")];
        let mut words: Vec<String> =
            counted.iter().filter(|(count, ..)| *count > 0).map(count_with_noun).collect();
        words.push(count_with_noun(&(self.directories, "directory", "directories")));
        words.join(", ")
    }
}

impl DeletionStop {
    /// Returns the error for the model, which first says what was deleted.
    fn error(self, deleted: &Counts, target: &Path, path: &GuestPath) -> ToolError {
        let words = deleted.words();
        match self {
            Self::Limit => ToolError::failed(format!(
                "`{path}` was deleted only in part ({words}): one call deletes at most {MAX_DELETED} entries; call again for the rest"
            )),
            Self::Failed { path: failed_path, error } => {
                let relative =
                    failed_path.strip_prefix(target).ok().and_then(Path::to_str).unwrap_or_default();
                let failed_guest_path =
                    GuestPath::parse(&format!("{path}/{relative}")).unwrap_or_else(|_| path.clone());
                let cause = fs::tool_error(error, "delete", &failed_guest_path);
                if deleted.files + deleted.links + deleted.directories == 0 {
                    return cause;
                }
                let message = format!("`{path}` was deleted only in part ({words}); then {cause}");
                ToolError::new(cause.kind(), message)
            }
        }
    }
}

fn count_with_noun((count, singular, plural): &(u64, &str, &str)) -> String {
    format!("{count} {}", if *count == 1 { singular } else { plural })
}

/// Returns the error for a directory that is not empty, with the number of its entries.
fn refused_directory(error: io::Error, target: &Path, path: &GuestPath) -> ToolError {
    let entries = system::read_dir(target).map_or(0, |entries| entries.take(MAX_COUNTED).count());
    if error.kind() == io::ErrorKind::PermissionDenied || entries == 0 {
        return fs::tool_error(error, "delete", path);
    }
    let entry_count = match entries {
        1 => "1 entry".to_owned(),
        MAX_COUNTED => format!("{MAX_COUNTED} entries or more"),
        _ => format!("{entries} entries"),
    };
    ToolError::failed(format!(
        "`{path}` is not empty ({entry_count}): set 'recursive' to delete it with all of them"
    ))
}

#[cfg(test)]
mod tests;
