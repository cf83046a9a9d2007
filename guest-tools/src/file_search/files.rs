//! Searches files one after another.

use std::{
    fs::File,
    io::{self, Read},
};

use grep_matcher::{LineTerminator, Matcher};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};

use super::{
    SearchReason,
    any_case::LineMatcher,
    report::{Group, SearchReport, SearchedLine},
};

/// The number of bytes of a file that are searched at a time: 256 KiB. Most files fit, and take one read into a reused
/// buffer without a copy. Longer files are streamed.
const WHOLE_BYTES: usize = 256 << 10;

/// The maximum length of a line that can be searched: 8 MiB. A line must be in memory as a whole, so the search of a
/// file stops at a longer line.
const MAX_LINE_BYTES: usize = 8 << 20;

pub(super) struct FileSearcher {
    pub(super) report: SearchReport,
    matcher: LineMatcher,
    searcher: Searcher,
    buffer: Box<[u8]>,
}

impl FileSearcher {
    pub(super) fn new(matcher: LineMatcher, context: usize, report: SearchReport) -> Self {
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .before_context(context)
            .after_context(context)
            .heap_limit(Some(MAX_LINE_BYTES))
            .memory_map(MmapChoice::never())
            .build();
        Self { report, matcher, searcher, buffer: vec![0; WHOLE_BYTES].into_boxed_slice() }
    }

    /// Searches a file. Failures are counted.
    ///
    /// A file from the walk that has a NUL byte is binary. It is skipped or, if it is long, searched up to the part
    /// with that byte. A file that the call names is searched as in ripgrep, but a match after the NUL byte is only
    /// reported and not shown.
    pub(super) fn search(&mut self, opened: io::Result<File>, guest: &str, chosen: SearchReason) {
        let Self { report, matcher, searcher, buffer } = self;
        searcher.set_binary_detection(match chosen {
            SearchReason::ByName => BinaryDetection::convert(0),
            SearchReason::ByWalk => BinaryDetection::quit(0),
        });
        let group = report.begin(guest);
        let mut sink = LineSink { report, matcher, group, reason: chosen, binary: None };
        let searched = opened.and_then(|mut file| {
            let filled = fill(&mut file, buffer)?;
            if filled < buffer.len() {
                return searcher.search_slice(&*matcher, &buffer[..filled], &mut sink);
            }
            searcher.search_reader(&*matcher, (&**buffer).chain(file), &mut sink)
        });
        let LineSink { group, binary, .. } = sink;
        match searched {
            Ok(()) if binary.is_some() && chosen == SearchReason::ByWalk && group.is_empty() => {
                report.binary += 1;
                return;
            }
            Ok(()) => report.cut_at_binary += usize::from(binary.is_some() && chosen == SearchReason::ByWalk),
            Err(error) if is_line_too_long(&error) => report.cut_at_long_line += 1,
            // The file was deleted after its directory was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => {
                report.add_unreadable(guest);
                return;
            }
        }
        report.searched += 1;
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Whether the searcher gave up because a line does not fit into its buffer. This is its only error without an error
/// number of the system.
fn is_line_too_long(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other && error.raw_os_error().is_none()
}

/// Receives the found lines of one file.
struct LineSink<'a> {
    report: &'a mut SearchReport,
    matcher: &'a LineMatcher,
    group: Group,
    reason: SearchReason,
    /// The offset of the first NUL byte, if there is one.
    binary: Option<u64>,
}

impl Sink for LineSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, sink_match: &SinkMatch<'_>) -> io::Result<bool> {
        if let Some(offset) = self.binary {
            self.report.add_binary(&mut self.group, offset);
            return Ok(false);
        }
        let bytes = sink_match.bytes();
        let number = sink_match.line_number().unwrap_or_default();
        let match_offset =
            || self.matcher.find(bytes).ok().flatten().map_or(0, |first_match| first_match.start());
        Ok(self.report.add_match(&mut self.group, SearchedLine { number, bytes }, match_offset))
    }

    fn context(&mut self, _: &Searcher, context_line: &SinkContext<'_>) -> io::Result<bool> {
        if self.binary.is_some() {
            return Ok(true);
        }
        let line = SearchedLine {
            number: context_line.line_number().unwrap_or_default(),
            bytes: context_line.bytes(),
        };
        let announces_match = *context_line.kind() == SinkContextKind::Before;
        Ok(self.report.add_context(&mut self.group, line, announces_match))
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        self.group.mark_gap();
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, offset: u64) -> io::Result<bool> {
        self.binary.get_or_insert(offset);
        Ok(self.reason == SearchReason::ByName)
    }
}
