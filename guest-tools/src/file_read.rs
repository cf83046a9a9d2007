//! `file_read`: the exact text of a file, or of a part of it.
//!
//! Reads the file forward, no further than the answer needs, and keeps at most [`MAX_TEXT_BYTES`] of it. Only
//! the returned part is checked for UTF-8.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
};

use portcullis_sdk::{GuestPath, ToolError, ToolOutput, fs, serde_json::json, tool};

use crate::limits::{MAX_TEXT_BYTES, that_fits};

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
    /// How many lines to return; all where it is left out.
    #[arg(min = 1)]
    limit: Option<u64>,
    /// The first byte to return, counted from 0; not together with `offset` or `limit`.
    #[arg(min = 0)]
    byte_offset: Option<u64>,
) -> Result<ToolOutput, ToolError> {
    let path = fs::parse(path)?;
    if byte_offset.is_some() && (offset != 1 || limit.is_some()) {
        let message = "field 'byte_offset': give it alone, without 'offset' and 'limit'";
        return Err(ToolError::invalid_arguments(message));
    }
    let failed = |error: io::Error| fs::error(error, "read", &path);
    let file = File::open(fs::locate(&path)?).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        return Err(ToolError::failed(format!("`{path}` is a directory: use file_list")));
    }
    let mut source = FileSource { file, bytes: metadata.len(), position: 0 };
    let part = match byte_offset {
        Some(byte) => source.text_from_byte(byte, &path),
        None => source.lines(offset, limit, &path),
    };
    source.output(part.map_err(|error| error.at(&path))?, &path)
}

/// An open file and the position in it.
struct FileSource {
    file: File,
    /// The file's length when it was opened. Later additions are not read. Length 0 may also mean that the
    /// length is unknown, so the file is read to its end.
    bytes: u64,
    position: u64,
}

/// A part of a file.
struct FilePart {
    /// Its offset in the file.
    begin: u64,
    bytes: Vec<u8>,
    /// Whether it ends at the end of the file or of the wanted lines, not at our limit.
    is_complete: bool,
}

/// The reason why a reading ended early.
enum ReadStop {
    Io(io::Error),
    Refused(ToolError),
}

/// The read size while lines are counted.
const CHUNK_BYTES: usize = 64 << 10;

/// The longest UTF-8 character, in bytes.
const CHAR_BYTES: usize = 4;

impl FileSource {
    /// The text from a byte, or from the next character's first byte.
    fn text_from_byte(&mut self, byte: u64, path: &GuestPath) -> Result<FilePart, ReadStop> {
        if byte > self.bytes {
            let bytes = self.bytes;
            return Err(ReadStop::Refused(ToolError::invalid_arguments(format!(
                "field 'byte_offset': {byte} is past the end, `{path}` has {bytes} bytes"
            ))));
        }
        self.position = self.file.seek(SeekFrom::Start(byte))?;
        let mut bytes = Vec::new();
        let is_complete = self.fill(&mut bytes, MAX_TEXT_BYTES + CHAR_BYTES)?;
        let split = bytes.iter().take(CHAR_BYTES - 1).take_while(|byte| is_continuation(**byte)).count();
        // At offset 0 a continuation byte is not the rest of a character: the check for UTF-8 reports it.
        let split = if byte == 0 { 0 } else { split };
        bytes.drain(..split);
        Ok(FilePart { begin: byte + split as u64, bytes, is_complete })
    }

    /// A number of lines, each with its line break.
    fn lines(&mut self, first: u64, limit: Option<u64>, path: &GuestPath) -> Result<FilePart, ReadStop> {
        let mut bytes = Vec::new();
        if first == 1 && limit.is_none() {
            let is_complete = self.fill(&mut bytes, MAX_TEXT_BYTES + CHAR_BYTES)?;
            return Ok(FilePart { begin: 0, bytes, is_complete });
        }
        let mut to_skip = first - 1;
        let mut ended = false;
        let mut last = None;
        while to_skip > 0 && !ended {
            bytes.clear();
            ended = self.fill(&mut bytes, CHUNK_BYTES)?;
            last = bytes.last().copied().or(last);
            let end = end_of_line(&bytes, &mut to_skip);
            bytes.drain(..end);
        }
        // A last line without a line break counts as a line; an empty rest after a line break does not.
        let nothing_left = bytes.is_empty() && ended;
        if first > 1 && nothing_left {
            let unfinished = u64::from(last.is_some_and(|byte| byte != b'\n'));
            let lines = first - 1 - to_skip + unfinished;
            return Err(ReadStop::Refused(ToolError::invalid_arguments(format!(
                "field 'offset': {first} is past the end, `{path}` has {lines} lines"
            ))));
        }
        let begin = self.position - bytes.len() as u64;
        let mut wanted = limit.unwrap_or(u64::MAX);
        let mut end = end_of_line(&bytes, &mut wanted);
        while wanted > 0 && !ended && bytes.len() < MAX_TEXT_BYTES + CHAR_BYTES {
            let from = bytes.len();
            ended = self.fill(&mut bytes, CHUNK_BYTES)?;
            end = from + end_of_line(&bytes[from..], &mut wanted);
        }
        bytes.truncate(end);
        Ok(FilePart { begin, bytes, is_complete: ended || wanted == 0 })
    }

    /// Reads at most this many more bytes; returns whether the file has ended.
    fn fill(&mut self, bytes: &mut Vec<u8>, more: usize) -> io::Result<bool> {
        let known = self.bytes.saturating_sub(self.position);
        let known = if self.bytes == 0 { CHUNK_BYTES } else { usize::try_from(known).unwrap_or(more) };
        let from = bytes.len();
        let wanted = more.min(known);
        bytes.resize(from + wanted, 0);
        let mut filled = from;
        while filled < from + wanted {
            match self.file.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        self.position += (filled - from) as u64;
        // All known bytes are read: asking once more for the end would waste a host call.
        Ok(filled < from + wanted || (self.bytes > 0 && self.position >= self.bytes))
    }

    /// Checks and bounds a part. If it ends before the requested end, the details say where to read on and
    /// the file's length: the host shows both to the model after the text.
    fn output(&self, part: FilePart, path: &GuestPath) -> Result<ToolOutput, ToolError> {
        let FilePart { begin, mut bytes, is_complete } = part;
        let valid = match std::str::from_utf8(&bytes) {
            Ok(text) => text.len(),
            // An incomplete character was split by our limit and is not an error of the file.
            Err(error) if !is_complete && error.error_len().is_none() => error.valid_up_to(),
            Err(_) => {
                let total = self.bytes.max(self.position);
                return Err(ToolError::failed(format!("`{path}` is not UTF-8 text ({total} bytes)")));
            }
        };
        bytes.truncate(valid);
        let mut text = String::from_utf8(bytes).unwrap_or_default();
        let end = that_fits(&text);
        let cut = !is_complete || end < text.len();
        text.truncate(end);
        let output = ToolOutput::text(text);
        if !cut {
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
    fn at(self, path: &GuestPath) -> ToolError {
        match self {
            Self::Io(error) => fs::error(error, "read", path),
            Self::Refused(error) => error,
        }
    }
}

/// The offset after this many lines; lowers the count by the lines found.
fn end_of_line(bytes: &[u8], lines: &mut u64) -> usize {
    if *lines == 0 {
        return 0;
    }
    // Counting is much faster than searching, and most chunks only need to be counted.
    let found = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    if found < *lines {
        *lines -= found;
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
