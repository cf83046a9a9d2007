//! `file_edit`: replaces a passage of a file by another.
//!
//! The passage is matched exactly, without guesses. The new file replaces the old file atomically ([`fs::replace`]),
//! and only if the old file has not changed since it was read.

use std::{
    fs::{File, Metadata},
    io::{self, Read},
    path::Path,
};

use portcullis_sdk::{
    GuestPath, ToolError,
    fs::{
        self,
        replace::{Replacement, regular_file_metadata, replace},
    },
    tool,
};

mod hunks;
mod missing;

/// Replaces a passage of a UTF-8 text file by another and shows the changed lines.
/// `old_text` must be in the file exactly as given, spaces and line breaks included, and only once unless `replace_all` is set: give enough of the lines around it.
/// A file whose line breaks are all CRLF keeps them so: line breaks of `new_text` are written as CRLF there.
/// A symbolic link is never replaced: edit its target.
#[tool(label = "Edit file", tier = SideEffecting, timeout = "15s", profile = FileReadWrite, deny_unknown)]
pub async fn file_edit(
    /// The file, such as `/shared/notes.md`. Relative paths start at `/shared`.
    #[arg(path = "write")]
    path: &str,
    /// The text to replace, exactly as it is in the file.
    old_text: &str,
    /// The text to put in its place; may be empty.
    new_text: &str,
    /// Whether to replace every occurrence rather than the only one.
    #[arg(default = false)]
    replace_all: bool,
) -> Result<String, ToolError> {
    let path = fs::parse(path)?;
    if old_text.is_empty() {
        return Err(ToolError::invalid_arguments(
            "field 'old_text': it is empty; give the text to replace, or use file_write for a whole file",
        ));
    }
    if old_text == new_text {
        return Err(ToolError::invalid_arguments(
            "field 'new_text': it equals 'old_text', so nothing would change",
        ));
    }
    let target = fs::locate(&path)?;
    let metadata = regular_file_metadata(&target, Replacement::Edit, &path)?;
    let metadata = metadata.ok_or_else(|| fs::tool_error(io::ErrorKind::NotFound.into(), "edit", &path))?;
    let text = read(&target, &path)?;
    let edit = EditedText::replace(&text, old_text, new_text, replace_all, &path)?;
    refuse_changed(&target, &metadata, &path)?;
    replace(&target, edit.text.as_bytes(), Some(&metadata))
        .map_err(|error| fs::tool_error(error, "edit", &path))?;
    Ok(edit.report(&text, &path))
}

/// The maximum size of a file that is edited, before and after the edit: 8 MiB. The guest holds both texts in memory.
const MAX_FILE_BYTES: usize = 8 << 20;

/// The maximum number of replaced places that a message lists.
const MAX_REPORTED_PLACES: usize = 20;

/// The result of an edit.
struct EditedText {
    text: String,
    /// The length of the replaced passage, in bytes.
    old_bytes: usize,
    /// The length of its replacement, in bytes.
    new_bytes: usize,
    count: usize,
    /// The byte offsets in the old text of the first replaced passages.
    offsets: Vec<usize>,
}

/// The offset after the character at `offset`.
fn next_char_start(text: &str, offset: usize) -> usize {
    offset + text[offset..].chars().next().map_or(0, char::len_utf8)
}

impl EditedText {
    fn replace(text: &str, old: &str, new: &str, all: bool, path: &GuestPath) -> Result<Self, ToolError> {
        let new_with_crlf = convert_to_crlf(text, old, new);
        let new = new_with_crlf.as_deref().unwrap_or(new);
        let count = text.matches(old).count();
        let offsets: Vec<usize> =
            text.match_indices(old).take(MAX_REPORTED_PLACES).map(|(offset, _)| offset).collect();
        if count == 0 {
            return Err(ToolError::failed(format!(
                "'old_text' is not in `{path}`: {}",
                missing::explain(text, old)
            )));
        }
        // `aa` occurs twice in `aaa`, with an overlap. Such a passage is ambiguous too.
        let overlaps =
            || offsets.first().is_some_and(|&first| text[next_char_start(text, first)..].contains(old));
        if !all && count == 1 && overlaps() {
            return Err(ToolError::failed(format!(
                "'old_text' is in `{path}` more than once, at places that overlap: add lines around it until it is \
                 there once, or set 'replace_all'"
            )));
        }
        if count > 1 && !all {
            let lines = line_list(text, &offsets, count);
            return Err(ToolError::failed(format!(
                "'old_text' is {count} times in `{path}` ({lines}): add lines around it until it is there \
                 once, or set 'replace_all'"
            )));
        }
        if old == new {
            return Err(ToolError::failed(format!(
                "nothing would change: all line breaks of `{path}` are CRLF and are kept so"
            )));
        }
        let kept_bytes = text.len() - count * old.len();
        let bytes = new.len().checked_mul(count).and_then(|added| added.checked_add(kept_bytes));
        let Some(bytes) = bytes.filter(|bytes| *bytes <= MAX_FILE_BYTES) else {
            return Err(ToolError::failed(format!(
                "`{path}` would have more than {MAX_FILE_BYTES} bytes; nothing was changed"
            )));
        };
        let mut edited = String::with_capacity(bytes);
        let mut copied = 0;
        for (offset, _) in text.match_indices(old) {
            edited.push_str(&text[copied..offset]);
            edited.push_str(new);
            copied = offset + old.len();
        }
        edited.push_str(&text[copied..]);
        Ok(Self { text: edited, old_bytes: old.len(), new_bytes: new.len(), count, offsets })
    }

    /// Returns the report for the model: the number of replacements, their places, and the lines before and
    /// after.
    fn report(&self, old: &str, path: &GuestPath) -> String {
        let Self { count, offsets, .. } = self;
        let lines = line_list(old, offsets, *count);
        let times = if *count == 1 { "1 replacement".to_owned() } else { format!("{count} replacements") };
        let diff = hunks::format_hunks(old, &self.text, offsets, self.old_bytes, self.new_bytes);
        format!("edited {path}: {times} ({lines})\n{diff}")
    }
}

/// The whole text of a file.
fn read(target: &Path, path: &GuestPath) -> Result<String, ToolError> {
    let read_error = |error: io::Error| fs::tool_error(error, "edit", path);
    let file = File::open(target).map_err(read_error)?;
    let bytes = file.metadata().map_err(read_error)?.len();
    let too_long = || {
        ToolError::failed(format!(
            "`{path}` is too large to edit: at most {MAX_FILE_BYTES} bytes; file_read shows parts of it"
        ))
    };
    let capacity = usize::try_from(bytes).ok().filter(|size| *size <= MAX_FILE_BYTES).ok_or_else(too_long)?;
    let mut content = Vec::with_capacity(capacity + 1);
    // Read one byte more than the limit, because the file may have grown.
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut content).map_err(read_error)?;
    if content.len() > MAX_FILE_BYTES {
        return Err(too_long());
    }
    let total = content.len();
    String::from_utf8(content)
        .ok()
        .ok_or_else(|| ToolError::failed(format!("`{path}` is not UTF-8 text ({total} bytes)")))
}

/// Refuses to overwrite a concurrent change. A change between this check and the rename is still lost, because WASI has
/// no conditional rename.
fn refuse_changed(target: &Path, metadata_before: &Metadata, path: &GuestPath) -> Result<(), ToolError> {
    let is_unchanged = std::fs::symlink_metadata(target).is_ok_and(|now| {
        now.is_file()
            && now.len() == metadata_before.len()
            && now.modified().ok() == metadata_before.modified().ok()
    });
    if is_unchanged {
        return Ok(());
    }
    Err(ToolError::failed(format!("`{path}` was changed concurrently: read it again")))
}

/// Returns the new passage with CRLF line breaks, if the file has only these and the passage has others.
fn convert_to_crlf(text: &str, old: &str, new: &str) -> Option<String> {
    let breaks = text.matches('\n').count();
    let has_only_crlf = breaks > 0 && text.matches("\r\n").count() == breaks;
    // Take an old passage that starts inside a CRLF literally.
    if !has_only_crlf || old.starts_with('\n') || !has_bare_line_feed(new) {
        return None;
    }
    Some(new.replace("\r\n", "\n").replace('\n', "\r\n"))
}

/// Whether there is a line feed without a carriage return before it.
fn has_bare_line_feed(text: &str) -> bool {
    text.matches('\n').count() > text.matches("\r\n").count()
}

/// Formats a list of lines, as `line 3` or `lines 3, 9 and 4 more`.
fn line_list(text: &str, offsets: &[usize], count: usize) -> String {
    let mut list = String::from(if count == 1 { "line " } else { "lines " });
    let (mut line, mut counted) = (1, 0);
    for (index, offset) in offsets.iter().enumerate() {
        line += line_breaks(&text[counted..*offset]);
        counted = *offset;
        list.push_str(if index == 0 { "" } else { ", " });
        list.push_str(&line.to_string());
    }
    if count > offsets.len() {
        list.push_str(&format!(" and {} more", count - offsets.len()));
    }
    list
}

fn line_breaks(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests;
