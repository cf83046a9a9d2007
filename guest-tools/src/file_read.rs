//! `file_read`: the exact text of a file, or of a part of it.
//!
//! The file is read forward, no further than the answer needs, and at most [`MAX_TEXT_BYTES`] of it are kept. Only the
//! returned part is checked for UTF-8.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use portcullis_sdk::{GuestPath, ToolError, ToolOutput, fs, serde_json::json, tool};

use crate::limits::{MAX_TEXT_BYTES, fitting_length};

/// Reads a UTF-8 text file and returns its exact text, without line numbers.
/// Give `offset` and `limit` to read some lines, or `byte_offset` to go on from a byte.
#[tool(label = "Read file", tier = ReadOnly, timeout = "10s", profile = FileReadOnly, deny_unknown)]
pub async fn file_read(
    /// The file, such as `/shared/notes.md`. Relative paths start at `/shared`.
    #[arg(path = "read")]
    path: &str,
    /// The first line to return, counted from 1.
    #[arg(default = 1, min = 1)]
    offset: u64,
    /// The number of lines to return. Default: all.
    #[arg(min = 1)]
    limit: Option<u64>,
    /// The first byte to return, counted from 0; not together with `offset` or `limit`.
    #[arg(min = 0)]
    byte_offset: Option<u64>,
) -> Result<ToolOutput, ToolError> {
    let path = fs::parse(path)?;
    if byte_offset.is_some() && (offset != 1 || limit.is_some()) {
        let message = "field 'byte_offset': give it without 'offset' and 'limit'";
        return Err(ToolError::invalid_arguments(message));
    }
    let read_error = |error: io::Error| fs::tool_error(error, "read", &path);
    let file = File::open(fs::locate(&path)?).map_err(read_error)?;
    let metadata = file.metadata().map_err(read_error)?;
    if metadata.is_dir() {
        return Err(ToolError::failed(format!("`{path}` is a directory: use file_list")));
    }
    let mut source = FileSource { file, bytes: metadata.len(), position: 0 };
    let part = match byte_offset {
        Some(byte) => source.text_from_byte(byte, &path),
        None => source.lines(offset, limit, &path),
    };
    source.output(part.map_err(|error| error.into_tool_error(&path))?, &path)
}

/// An open file and the position in it.
struct FileSource {
    file: File,
    /// The file's length when it was opened. Data that is added later is not read. Length 0 can also mean that the
    /// length is unknown, so the file is then read to its end.
    bytes: u64,
    position: u64,
}

struct FilePart {
    /// The offset of the part in the file.
    begin: u64,
    bytes: Vec<u8>,
    /// Whether the part ends at the end of the file or of the wanted lines, and not at the limit of this tool.
    is_complete: bool,
}

/// Why a read ended early.
enum ReadStop {
    Io(io::Error),
    Refused(ToolError),
}

/// The number of bytes that are read at a time while lines are counted.
const CHUNK_BYTES: usize = 64 << 10;

/// The maximum length of a UTF-8 character, in bytes.
const MAX_CHAR_BYTES: usize = 4;

impl FileSource {
    /// The text from a byte on. If the byte is inside a character, from the next character on.
    fn text_from_byte(&mut self, byte: u64, path: &GuestPath) -> Result<FilePart, ReadStop> {
        if byte > self.bytes {
            let bytes = self.bytes;
            return Err(ReadStop::Refused(ToolError::invalid_arguments(format!(
                "field 'byte_offset': {byte} is past the end, `{path}` has {bytes} bytes"
            ))));
        }
        self.position = self.file.seek(SeekFrom::Start(byte))?;
        let mut bytes = Vec::new();
        let is_complete = self.fill(&mut bytes, MAX_TEXT_BYTES + MAX_CHAR_BYTES)?;
        let split = bytes.iter().take(MAX_CHAR_BYTES - 1).take_while(|byte| is_continuation(**byte)).count();
        // At offset 0 a continuation byte is not the rest of a character, and the check for UTF-8 reports it.
        let split = if byte == 0 { 0 } else { split };
        bytes.drain(..split);
        Ok(FilePart { begin: byte + split as u64, bytes, is_complete })
    }

    /// Returns `limit` lines from line `first_line` on, each with its line break. Returns all further lines if there
    /// is not a limit.
    fn lines(&mut self, first_line: u64, limit: Option<u64>, path: &GuestPath) -> Result<FilePart, ReadStop> {
        let mut bytes = Vec::new();
        if first_line == 1 && limit.is_none() {
            let is_complete = self.fill(&mut bytes, MAX_TEXT_BYTES + MAX_CHAR_BYTES)?;
            return Ok(FilePart { begin: 0, bytes, is_complete });
        }
        let mut to_skip = first_line - 1;
        let mut ended = false;
        let mut last_byte = None;
        while to_skip > 0 && !ended {
            bytes.clear();
            ended = self.fill(&mut bytes, CHUNK_BYTES)?;
            last_byte = bytes.last().copied().or(last_byte);
            let end = end_of_line(&bytes, &mut to_skip);
            bytes.drain(..end);
        }
        // A last line without a line break counts as a line. An empty rest after a line break does not.
        let nothing_left = bytes.is_empty() && ended;
        if first_line > 1 && nothing_left {
            let unfinished = u64::from(last_byte.is_some_and(|byte| byte != b'\n'));
            let lines = first_line - 1 - to_skip + unfinished;
            return Err(ReadStop::Refused(ToolError::invalid_arguments(format!(
                "field 'offset': {first_line} is past the end, `{path}` has {lines} lines"
            ))));
        }
        let begin = self.position - bytes.len() as u64;
        let mut remaining_lines = limit.unwrap_or(u64::MAX);
        let mut end = end_of_line(&bytes, &mut remaining_lines);
        while remaining_lines > 0 && !ended && bytes.len() < MAX_TEXT_BYTES + MAX_CHAR_BYTES {
            let filled = bytes.len();
            ended = self.fill(&mut bytes, CHUNK_BYTES)?;
            end = filled + end_of_line(&bytes[filled..], &mut remaining_lines);
        }
        bytes.truncate(end);
        Ok(FilePart { begin, bytes, is_complete: ended || remaining_lines == 0 })
    }

    /// Reads at most `max_bytes` bytes, and appends them. Returns whether the file has ended.
    fn fill(&mut self, bytes: &mut Vec<u8>, max_bytes: usize) -> io::Result<bool> {
        let bytes_left = self.bytes.saturating_sub(self.position);
        let expected_bytes =
            if self.bytes == 0 { CHUNK_BYTES } else { usize::try_from(bytes_left).unwrap_or(max_bytes) };
        let start = bytes.len();
        let chunk_bytes = max_bytes.min(expected_bytes);
        bytes.resize(start + chunk_bytes, 0);
        let mut filled = start;
        while filled < start + chunk_bytes {
            match self.file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        self.position += (filled - start) as u64;
        // If all known bytes are read, do not read on to find the end: that would waste a host call.
        Ok(filled < start + chunk_bytes || (self.bytes > 0 && self.position >= self.bytes))
    }

    /// Checks a part for UTF-8, and bounds it. If the part ends before the requested end, the details give the offset
    /// for the next read and the file's length. The host shows both to the model after the text.
    fn output(&self, part: FilePart, path: &GuestPath) -> Result<ToolOutput, ToolError> {
        let FilePart { begin, mut bytes, is_complete } = part;
        let valid = match std::str::from_utf8(&bytes) {
            Ok(text) => text.len(),
            // The limit has split a character, which is not an error of the file.
            Err(error) if !is_complete && error.error_len().is_none() => error.valid_up_to(),
            Err(_) => {
                let total = self.bytes.max(self.position);
                return Err(ToolError::failed(format!("`{path}` is not UTF-8 text ({total} bytes)")));
            }
        };
        bytes.truncate(valid);
        let mut text = String::from_utf8(bytes).unwrap_or_default();
        let end = fitting_length(&text);
        let is_cut = !is_complete || end < text.len();
        text.truncate(end);
        let output = ToolOutput::text(text);
        if !is_cut {
            return Ok(output);
        }
        Ok(output.with_details(json!({
            "next_byte_offset": begin + end as u64,
            "total_bytes": self.bytes.max(self.position),
        })))
    }
}

impl From<io::Error> for ReadStop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl ReadStop {
    fn into_tool_error(self, path: &GuestPath) -> ToolError {
        match self {
            Self::Io(error) => fs::tool_error(error, "read", path),
            Self::Refused(error) => error,
        }
    }
}

/// The offset after `lines` lines. Reduces `lines` by the number of lines found.
fn end_of_line(bytes: &[u8], lines: &mut u64) -> usize {
    if *lines == 0 {
        return 0;
    }
    // Counting is much faster than searching, and most chunks only need to be counted.
    let line_ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    if line_ends < *lines {
        *lines -= line_ends;
        return bytes.len();
    }
    let mut end = 0;
    while *lines > 0 {
        end += bytes[end..].iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        *lines -= 1;
    }
    end
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests;
