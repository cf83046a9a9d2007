//! Reads a log line by line with bounded memory, for any content.

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

/// A line of the log, with its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberedLine<'a> {
    /// Its number, from 1, counted from the start of the reading.
    pub(super) number: u64,
    /// Its byte offset in the file.
    pub(super) offset: u64,
    /// Its bytes, newline included; the first ones only if the line is too long.
    pub(super) bytes: &'a [u8],
    /// How it ends.
    pub(super) end: LineEnd,
}

/// The end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    /// With a newline.
    Newline,
    /// With the file.
    File,
    /// Later than any row: it has more than [`MAX_ROW_BYTES`].
    TooLong,
}

impl<F: Borrow<File>> LogLines<F> {
    /// The lines from one offset up to another.
    pub(super) fn new(file: F, from: u64, to: u64) -> Self {
        let stretch = PositionedReader { file, at: from, end: to };
        Self {
            reader: BufReader::with_capacity(MAX_ROW_BYTES, stretch),
            line: Vec::new(),
            number: 0,
            offset: from,
        }
    }

    /// The next line; none at the end.
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
            let taken = newline.map_or(chunk.len(), |at| at + 1);
            // One byte more than a row has: it tells that the line is too long. The rest is only counted.
            let room = (MAX_ROW_BYTES + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&chunk[..taken.min(room)]);
            self.reader.consume(taken);
            self.offset += taken as u64;
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
        Ok(Some(NumberedLine { number: self.number, offset, bytes: &self.line, end }))
    }
}

/// Reads by position, so that a shared file's offset does not change.
#[derive(Debug)]
struct PositionedReader<F> {
    file: F,
    at: u64,
    end: u64,
}

impl<F: Borrow<File>> Read for PositionedReader<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // No loss: only the smaller of this and the buffer counts.
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let read = self.file.borrow().read_at(&mut buffer[..wanted], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
