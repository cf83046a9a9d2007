//! Reads a log backwards, line by line, with bounded memory for any content.

use std::{fs::File, io, os::unix::fs::FileExt as _};

use super::{chain::MAX_ROW_BYTES, lines::LineEnd};

/// The number of bytes that are read at a time: 64 KiB.
const CHUNK_BYTES: usize = 64 * 1024;

/// The lines of a file before a byte offset, the last line first.
#[derive(Debug)]
pub(super) struct BackwardLines {
    file: File,
    /// The bytes from here to the end of the file are in `partial_line`, or were already returned.
    start: u64,
    /// The end of the bytes in `partial_line`.
    end: u64,
    /// Bytes before the last returned line. Empty if a line is too long; then only `end` is valid.
    partial_line: Vec<u8>,
    is_too_long: bool,
}

/// A line, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BackwardLine {
    /// The line's byte offset in the file.
    pub(super) offset: u64,
    /// The line's bytes, newline included. Empty if the line is too long.
    pub(super) bytes: Vec<u8>,
    /// How the line ends.
    pub(super) end: LineEnd,
}

impl BackwardLines {
    pub(super) fn new(file: File, end: u64) -> Self {
        Self { file, start: end, end, partial_line: Vec::new(), is_too_long: false }
    }

    /// Returns the line before the last returned one. `None` at the start of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<BackwardLine>> {
        // The last newline of the pending bytes belongs to the line itself, so the search skips it.
        let mut searched = 0;
        loop {
            let unsearched = self.partial_line.len().saturating_sub(searched.max(1));
            if let Some(newline) = self.partial_line[..unsearched].iter().rposition(|byte| *byte == b'\n') {
                return Ok(Some(self.take_line(newline + 1)));
            }
            searched = self.partial_line.len();
            if self.start == 0 {
                return Ok((self.end > 0).then(|| self.take_line(0)));
            }
            if self.partial_line.len() > MAX_ROW_BYTES {
                // Keep the last byte, which shows whether the line ends with a newline.
                self.partial_line.drain(..self.partial_line.len() - 1);
                self.is_too_long = true;
                searched = 1;
            }
            self.read_chunk()?;
        }
    }

    fn read_chunk(&mut self) -> io::Result<()> {
        let length = CHUNK_BYTES.min(usize::try_from(self.start).unwrap_or(usize::MAX));
        let mut chunk = vec![0; length];
        self.start -= length as u64;
        self.file.read_exact_at(&mut chunk, self.start)?;
        chunk.append(&mut self.partial_line);
        self.partial_line = chunk;
        Ok(())
    }

    /// Removes the pending bytes from this index on, and returns them as the next line.
    fn take_line(&mut self, index: usize) -> BackwardLine {
        let bytes = self.partial_line.split_off(index);
        let offset = self.start + index as u64;
        let is_too_long = std::mem::take(&mut self.is_too_long) || bytes.len() > MAX_ROW_BYTES;
        let end = match bytes.last() {
            Some(b'\n') if is_too_long => LineEnd::TooLong,
            Some(b'\n') => LineEnd::Newline,
            // Without a newline, the line ends with the file, whatever its length.
            _ => LineEnd::File,
        };
        self.end = offset;
        BackwardLine { offset, bytes: if is_too_long { Vec::new() } else { bytes }, end }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::lines::LogLines;

    fn file(text: &[u8]) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text).expect("written");
        file
    }

    /// Returns the lines read backwards, and the lines read forwards in reverse order.
    #[expect(clippy::type_complexity, reason = "two lists of the same facts")]
    fn both_ways(text: &[u8]) -> (Vec<(u64, Vec<u8>, LineEnd)>, Vec<(u64, Vec<u8>, LineEnd)>) {
        let mut backward_lines = BackwardLines::new(file(text), text.len() as u64);
        let mut backwards = Vec::new();
        while let Some(line) = backward_lines.next().expect("reads") {
            backwards.push((line.offset, line.bytes, line.end));
        }
        let mut lines = LogLines::new(file(text), 0, text.len() as u64);
        let mut forwards = Vec::new();
        while let Some(line) = lines.next().expect("reads") {
            let is_whole = line.bytes.len() <= MAX_ROW_BYTES;
            let bytes = if is_whole { line.bytes.to_vec() } else { Vec::new() };
            forwards.push((line.offset, bytes, line.end));
        }
        forwards.reverse();
        (backwards, forwards)
    }

    #[test]
    fn long_lines_are_skipped_with_bounded_memory() {
        let long = "x".repeat(3 * MAX_ROW_BYTES);
        for text in [
            format!("a\n{long}\nb\n"),
            format!("{long}\n"),
            long.clone(),
            format!("a\n{long}"),
            format!("{}\nb\n", "y".repeat(MAX_ROW_BYTES - 1)),
            format!("{}\nb\n", "y".repeat(MAX_ROW_BYTES)),
        ] {
            let (backwards, forwards) = both_ways(text.as_bytes());
            assert_eq!(backwards, forwards, "{} bytes", text.len());
        }
    }

    proptest! {
        #[test]
        fn the_lines_are_those_of_the_reading_from_the_start(
            lengths in prop::collection::vec((0_usize..40, 1_usize..4000), 0..60),
            has_last_newline in any::<bool>(),
        ) {
            let mut text = Vec::new();
            for (kind, length) in lengths {
                // Some lines span several chunks.
                let length = if kind == 0 { length * 15 } else { length };
                text.extend(std::iter::repeat_n(b'a', length));
                text.extend(kind.to_string().bytes());
                text.push(b'\n');
            }
            if !has_last_newline {
                text.pop();
            }
            let (backwards, forwards) = both_ways(&text);
            prop_assert_eq!(backwards, forwards);
        }
    }
}
