//! `file_list`: the entries of a directory.
//!
//! The directory reports the kind of each entry together with its name. Listing therefore needs no call per entry,
//! even for 20,000 entries.

use std::{fs::FileType, io, path::Path};

use portcullis_sdk::{GuestPath, ToolError, fs, tool};

use crate::{
    limits::{MAX_TEXT_BYTES, fitting_length},
    shown_name::shown_name,
};

/// Lists a directory, one entry per line, sorted by name.
/// Directories end with `/`, symbolic links with `@` (they are not followed), anything else that is not a regular file with `?`.
/// With `depth` above 1, the entries of a subdirectory follow it, with their path from the listed directory.
#[tool(label = "List directory", tier = ReadOnly, timeout = "10s", profile = FileReadOnly, deny_unknown)]
pub async fn file_list(
    /// The directory. Relative paths start at `/shared`.
    #[arg(path = "read", default = "/shared")]
    path: &str,
    /// How many levels of directories to list.
    #[arg(default = 1, min = 1, max = 16)]
    depth: u32,
) -> Result<String, ToolError> {
    let path = fs::parse(path)?;
    let root = fs::locate(&path)?;
    let entries = entries(&root).map_err(|error| listing_error(error, &root, &path))?;
    let mut listing = Listing { text: String::new(), is_full: false };
    listing.add(&root, "", entries, depth);
    Ok(listing.finish())
}

/// An entry of a directory.
struct ListedEntry {
    name: String,
    kind: EntryKind,
}

#[derive(Clone, Copy, PartialEq)]
enum EntryKind {
    File,
    Directory,
    Link,
    Other,
}

/// The lines collected so far.
struct Listing {
    text: String,
    /// Whether the text has reached its limit, so that nothing more is added.
    is_full: bool,
}

impl Listing {
    fn add(&mut self, directory: &Path, prefix: &str, entries: Vec<ListedEntry>, depth: u32) {
        for ListedEntry { name, kind } in entries {
            if self.text.len() >= MAX_TEXT_BYTES {
                self.is_full = true;
                return;
            }
            let begin = self.text.len();
            self.text.push_str(prefix);
            self.text.push_str(&shown_name(&name));
            self.text.push_str(kind.mark());
            if kind != EntryKind::Directory || depth <= 1 {
                self.text.push('\n');
                continue;
            }
            let directory = directory.join(&name);
            match self::entries(&directory) {
                Ok(entries) => {
                    let prefix = self.text[begin..].to_owned();
                    self.text.push('\n');
                    self.add(&directory, &prefix, entries, depth - 1);
                }
                Err(_) => self.text.push_str(" (not readable)\n"),
            }
        }
    }

    fn finish(mut self) -> String {
        if self.text.is_empty() {
            return "(empty)".to_owned();
        }
        let end = fitting_length(&self.text);
        if self.is_full || end < self.text.len() {
            // Cut after the last whole line that fits.
            self.text.truncate(self.text[..end].rfind('\n').map_or(0, |index| index + 1));
            self.text.push_str("[listing cut: list a subdirectory, or fewer levels]\n");
        }
        self.text.pop();
        self.text
    }
}

impl EntryKind {
    fn from_file_type(kind: FileType) -> Self {
        match kind {
            kind if kind.is_file() => Self::File,
            kind if kind.is_dir() => Self::Directory,
            kind if kind.is_symlink() => Self::Link,
            _ => Self::Other,
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Self::File => "",
            Self::Directory => "/",
            Self::Link => "@",
            Self::Other => "?",
        }
    }
}

/// The entries of a directory, sorted by the bytes of their names.
fn entries(directory: &Path) -> io::Result<Vec<ListedEntry>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type().map_or(EntryKind::Other, EntryKind::from_file_type);
        let name = entry.file_name().into_string().unwrap_or_else(|name| name.to_string_lossy().into_owned());
        entries.push(ListedEntry { name, kind });
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn listing_error(error: io::Error, root: &Path, path: &GuestPath) -> ToolError {
    if error.kind() == io::ErrorKind::NotADirectory || root.is_file() {
        return ToolError::failed(format!("`{path}` is not a directory: use file_read"));
    }
    if error.kind() == io::ErrorKind::NotFound {
        return ToolError::not_found(format!("no such directory `{path}`"));
    }
    fs::tool_error(error, "list", path)
}

#[cfg(test)]
mod tests;
