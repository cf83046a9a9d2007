//! Reads a log line by line, with bounded memory for any content.

use std::{
    borrow::Borrow,
    fs::File,
    io::{self, BufRead as _, BufReader, Read},
    os::unix::fs::FileExt as _,
};

use super::chain::MAX_ROW_BYTES;

/// The lines of a part of a file.
#[derive(Debug)]
pub(super) struct LogLines<F> {
    reader: BufReader<PositionedReader<F>>,
    line: Vec<u8>,
    number: u64,
    offset: u64,
}

/// A line of the log, with its position.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberedLine<'a> {
    /// The line's number, counted from 1 where the reader started.
    pub(super) number: u64,
    /// The line's byte offset in the file.
    pub(super) offset: u64,
    /// The line's length in the file, newline included.
    pub(super) length: u64,
    /// The line's bytes, newline included. If the line is too long, only its first bytes.
    pub(super) bytes: &'a [u8],
    /// How the line ends.
    pub(super) end: LineEnd,
}

/// How a line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// The line ends with a newline.
    Newline,
    /// The line ends with the file.
    File,
    /// The line is longer than any row: it has more than [`MAX_ROW_BYTES`].
    TooLong,
}

impl<F: Borrow<File>> LogLines<F> {
    /// Reads the lines between two byte offsets.
    pub(super) fn new(file: F, start: u64, end: u64) -> Self {
        let range_reader = PositionedReader { file, position: start, end };
        Self {
            reader: BufReader::with_capacity(MAX_ROW_BYTES, range_reader),
            line: Vec::new(),
            number: 0,
            offset: start,
        }
    }

    /// Returns the next line. `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<NumberedLine<'_>>> {
        self.line.clear();
        let offset = self.offset;
        let mut end = LineEnd::File;
        loop {
            let chunk = self.reader.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            let consumed = newline.map_or(chunk.len(), |index| index + 1);
            // Keep one byte more than the longest row to mark the line as too long, and only count the rest.
            let free_bytes = (MAX_ROW_BYTES + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&chunk[..consumed.min(free_bytes)]);
            self.reader.consume(consumed);
            self.offset += consumed as u64;
            if newline.is_some() {
                end = LineEnd::Newline;
                break;
            }
        }
        if self.offset == offset {
            return Ok(None);
        }
        if self.line.len() > MAX_ROW_BYTES && end == LineEnd::Newline {
            end = LineEnd::TooLong;
        }
        self.number += 1;
        let length = self.offset - offset;
        Ok(Some(NumberedLine { number: self.number, offset, length, bytes: &self.line, end }))
    }
}

/// Reads by position, because other readers may share the file's cursor.
#[derive(Debug)]
struct PositionedReader<F> {
    file: F,
    position: u64,
    end: u64,
}

impl<F: Borrow<File>> Read for PositionedReader<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The fallback is harmless, because the smaller of this number and the buffer's length is used.
        let remaining = usize::try_from(self.end.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let length = buffer.len().min(remaining);
        let bytes_read = self.file.borrow().read_at(&mut buffer[..length], self.position)?;
        self.position += bytes_read as u64;
        Ok(bytes_read)
    }
}
