//! Reads a guest's standard streams: frames on standard output, bounded text on standard error.

use portcullis_types::{
    FinalFrame, GuestFrame, MAX_CHUNK_BYTES, MAX_FINAL_FRAME_BYTES, MAX_STREAM_FRAME_BYTES, ToolOutput,
};

use super::{ChunkSink, GuestFault, Listener, StreamFrame, fault::STDOUT_ADVICE};

/// Limit of a guest's standard error that is kept, for the operator's log and for authors: half from the
/// beginning, and half from the end, where a panic's message is.
const MAX_STDERR_BYTES: usize = 64 << 10;

/// Limit of an invalid line that a fault quotes, in characters.
const MAX_QUOTED_CHARS: usize = 64;

/// Limit of progress, update and chunk frames of one call, far beyond any use. More frames are a sign of a
/// loop that would otherwise run to its deadline.
const MAX_STREAM_FRAMES: usize = 100_000;

/// A guest's standard output, read according to its verb.
#[derive(Debug)]
pub(super) enum Stdout {
    /// Frames: the answer to `call`.
    Frames(FrameReader),
    /// One text: the answer to `describe`.
    Whole(Vec<u8>),
}

impl Stdout {
    /// Takes output of the guest.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), GuestFault> {
        match self {
            Self::Frames(reader) => reader.write(bytes),
            Self::Whole(text) if text.len() + bytes.len() > MAX_FINAL_FRAME_BYTES => {
                Err(GuestFault::FrameTooLarge { limit_bytes: MAX_FINAL_FRAME_BYTES })
            }
            Self::Whole(text) => {
                text.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Ends the stream.
    pub(super) fn finish(self) -> Result<FinalFrame, GuestFault> {
        match self {
            Self::Frames(reader) => reader.finish(),
            Self::Whole(text) => String::from_utf8(text)
                .map(|text| FinalFrame::Ok(ToolOutput::text(text)))
                .map_err(|error| GuestFault::MalformedFrame { reason: error.to_string() }),
        }
    }
}

/// Reads frames from a guest's output. A fault ends the call at once.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    line: Vec<u8>,
    last: Option<FinalFrame>,
    stream_frames: usize,
    listener: Option<Listener>,
    /// Takes chunks, if the call is the sending end of a transfer.
    outlet: Option<ChunkSink>,
    chunk: Option<PartialChunk>,
}

/// An announced chunk, and the bytes of it so far.
#[derive(Debug)]
struct PartialChunk {
    bytes: Vec<u8>,
    missing: usize,
}

impl FrameReader {
    pub(super) fn new(listener: Option<Listener>, outlet: Option<ChunkSink>) -> Self {
        Self { listener, outlet, ..Self::default() }
    }

    /// Takes output of the guest.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), GuestFault> {
        loop {
            bytes = self.fill_chunk(bytes)?;
            let Some(end) = memchr::memchr(b'\n', bytes) else { break };
            let (line, rest) = bytes.split_at(end);
            self.extend(line)?;
            let line = std::mem::take(&mut self.line);
            self.take_line(&line)?;
            self.line = line;
            self.line.clear();
            bytes = &rest[1..];
        }
        self.extend(bytes)
    }

    /// Ends the stream; the last line needs no newline.
    pub(super) fn finish(mut self) -> Result<FinalFrame, GuestFault> {
        if self.chunk.is_some() {
            return Err(GuestFault::MalformedFrame { reason: "a chunk is cut off".to_owned() });
        }
        let line = std::mem::take(&mut self.line);
        self.take_line(&line)?;
        self.last.ok_or(GuestFault::NoFinalFrame)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), GuestFault> {
        if self.line.len() + bytes.len() > MAX_FINAL_FRAME_BYTES {
            return Err(GuestFault::FrameTooLarge { limit_bytes: MAX_FINAL_FRAME_BYTES });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), GuestFault> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        if self.last.is_some() {
            return Err(GuestFault::OutputAfterFinalFrame);
        }
        let frame: GuestFrame = serde_json::from_slice(line)
            .map_err(|error| GuestFault::MalformedFrame { reason: malformed(line, &error) })?;
        match frame {
            GuestFrame::Ok(output) => self.last = Some(FinalFrame::Ok(output.0)),
            GuestFrame::Error(error) => self.last = Some(FinalFrame::Error(error)),
            GuestFrame::Progress(text) => self.stream(line, StreamFrame::Progress(text))?,
            GuestFrame::Update(output) => self.stream(line, StreamFrame::Update(output.0))?,
            GuestFrame::Chunk(bytes) => self.begin_chunk(bytes)?,
        }
        Ok(())
    }

    fn stream(&mut self, line: &[u8], frame: StreamFrame) -> Result<(), GuestFault> {
        if line.len() > MAX_STREAM_FRAME_BYTES {
            return Err(GuestFault::FrameTooLarge { limit_bytes: MAX_STREAM_FRAME_BYTES });
        }
        self.count()?;
        if let Some(listener) = &self.listener {
            listener.send(frame);
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), GuestFault> {
        self.stream_frames += 1;
        if self.stream_frames > MAX_STREAM_FRAMES {
            return Err(GuestFault::TooManyFrames { limit: MAX_STREAM_FRAMES });
        }
        Ok(())
    }

    fn begin_chunk(&mut self, bytes: usize) -> Result<(), GuestFault> {
        if self.outlet.is_none() {
            return Err(GuestFault::UnwantedChunk);
        }
        if bytes > MAX_CHUNK_BYTES {
            return Err(GuestFault::FrameTooLarge { limit_bytes: MAX_CHUNK_BYTES });
        }
        self.count()?;
        self.chunk = Some(PartialChunk { bytes: Vec::with_capacity(bytes), missing: bytes });
        Ok(())
    }

    /// Adds bytes to the current chunk, if there is one, and sends it when it is complete. Returns the
    /// remaining bytes.
    fn fill_chunk<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], GuestFault> {
        let Some(chunk) = &mut self.chunk else { return Ok(bytes) };
        let (own, rest) = bytes.split_at(chunk.missing.min(bytes.len()));
        chunk.bytes.extend_from_slice(own);
        chunk.missing -= own.len();
        if chunk.missing == 0
            && let (Some(whole), Some(outlet)) = (self.chunk.take(), &self.outlet)
        {
            outlet.send(whole.bytes)?;
        }
        Ok(rest)
    }
}

/// Explains an invalid line and its likely cause: text from `println!`, which is a line by itself, or from
/// `print!`, which precedes the next frame.
fn malformed(line: &[u8], error: &serde_json::Error) -> String {
    let Ok(text) = str::from_utf8(line) else {
        return format!("it is not UTF-8; {STDOUT_ADVICE}");
    };
    let trimmed = text.trim_start();
    if !trimmed.starts_with('{') {
        let before_a_frame = FRAME_BEGINNINGS.iter().any(|beginning| trimmed.contains(beginning));
        let what = if before_a_frame { "text before a frame" } else { "text" };
        return format!("{what}, {}; {STDOUT_ADVICE}", quoted(trimmed));
    }
    format!("{error}; {STDOUT_ADVICE}")
}

/// How frames begin when the SDK writes them.
const FRAME_BEGINNINGS: [&str; 5] =
    ["{\"ok\":", "{\"error\":", "{\"progress\":", "{\"update\":", "{\"chunk\":"];

/// Quotes a guest's text within one line.
fn quoted(text: &str) -> String {
    let mut shown: String = text.trim_end().chars().take(MAX_QUOTED_CHARS).collect();
    if shown.len() < text.trim_end().len() {
        shown.push('…');
    }
    format!("`{}`", portcullis_types::escape_for_display(&shown))
}

/// A guest's standard error up to the limit; dropped bytes are counted.
#[derive(Debug, Default)]
pub(super) struct Stderr {
    beginning: Vec<u8>,
    /// The last bytes after the beginning: half of the limit, and less than as much again that will be
    /// dropped.
    end: Vec<u8>,
    dropped_bytes: usize,
}

impl Stderr {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        const HALF: usize = MAX_STDERR_BYTES / 2;
        let (first, rest) = bytes.split_at(bytes.len().min(HALF - self.beginning.len()));
        self.beginning.extend_from_slice(first);
        // Of one long write only the last part can be kept.
        let (gone, rest) = rest.split_at(rest.len().saturating_sub(HALF));
        self.dropped_bytes = self.dropped_bytes.saturating_add(gone.len());
        self.end.extend_from_slice(rest);
        // Drain once per half limit rather than for each byte.
        if self.end.len() >= 2 * HALF {
            self.drop_all_but(HALF);
        }
    }

    fn drop_all_but(&mut self, kept: usize) {
        let surplus = self.end.len().saturating_sub(kept);
        self.end.drain(..surplus);
        self.dropped_bytes = self.dropped_bytes.saturating_add(surplus);
    }

    /// The text, with a note where bytes were dropped.
    pub(super) fn into_text(mut self) -> String {
        self.drop_all_but(MAX_STDERR_BYTES / 2);
        if self.dropped_bytes == 0 {
            // Joined first, since a character may span both parts.
            self.beginning.append(&mut self.end);
        }
        let mut text = String::from_utf8_lossy(&self.beginning).into_owned();
        if self.dropped_bytes > 0 {
            text.push_str(&format!("\n[{} bytes dropped]\n", self.dropped_bytes));
            text.push_str(&String::from_utf8_lossy(&self.end));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{
        control::CallControl,
        transfer::{Transfer, TransferItem},
    };

    fn read(parts: &[&str]) -> Result<FinalFrame, GuestFault> {
        let mut reader = FrameReader::new(None, None);
        for part in parts {
            reader.write(part.as_bytes())?;
        }
        reader.finish()
    }

    #[test]
    fn a_result_may_come_in_pieces_with_or_without_a_last_newline() {
        let done = Ok(FinalFrame::Ok(ToolOutput::text("done")));
        assert_eq!(read(&["{\"ok\":\"done\"}\n"]), done);
        assert_eq!(read(&["{\"o", "k\":\"do", "ne\"}"]), done);
        assert_eq!(read(&["{\"progress\":\"half\"}\n\n", "  \n{\"ok\":\"done\"}\n \n"]), done);
    }

    #[test]
    fn each_way_to_break_the_stream_has_its_own_fault() {
        assert_eq!(read(&[""]), Err(GuestFault::NoFinalFrame));
        assert_eq!(read(&["{\"progress\":\"half\"}"]), Err(GuestFault::NoFinalFrame));
        assert_eq!(read(&["{\"ok\":\"a\"}\n{\"ok\":\"b\"}\n"]), Err(GuestFault::OutputAfterFinalFrame));
        assert!(matches!(read(&["[1]\n"]), Err(GuestFault::MalformedFrame { .. })));
        let nested = format!("{{\"ok\":{{\"content\":[],\"details\":{}", "[".repeat(100_000));
        assert!(matches!(read(&[&nested]), Err(GuestFault::MalformedFrame { .. })));
        assert_eq!(read(&["{\"chunk\":1}\nx"]), Err(GuestFault::UnwantedChunk));
        let long = format!("{{\"progress\":\"{}\"}}\n", "x".repeat(MAX_STREAM_FRAME_BYTES));
        assert_eq!(read(&[&long]), Err(GuestFault::FrameTooLarge { limit_bytes: MAX_STREAM_FRAME_BYTES }));
        let flood = "x".repeat(MAX_FINAL_FRAME_BYTES);
        assert_eq!(
            read(&[&flood, "x"]),
            Err(GuestFault::FrameTooLarge { limit_bytes: MAX_FINAL_FRAME_BYTES })
        );
    }

    #[test]
    fn chunks_stand_between_the_lines_as_they_are() {
        let time_limit = Duration::from_secs(60);
        let said = b"{\"progress\":\"half\"}\n{\"chunk\":4}\na\n\0\xff{\"chunk\":0}\n{\"chunk\":1}\n}{\"ok\":\"done\"}\n";
        for piece in [1, 2, 7, said.len()] {
            let control = Arc::new(CallControl::new(Instant::now() + time_limit, None));
            let transfer = Transfer::new();
            let outlet =
                ChunkSink { transfer: Arc::clone(&transfer), control: Arc::clone(&control), time_limit };
            let mut reader = FrameReader::new(None, Some(outlet));
            for bytes in said.chunks(piece) {
                reader.write(bytes).expect("frames");
            }
            assert_eq!(reader.finish(), Ok(FinalFrame::Ok(ToolOutput::text("done"))));
            for chunk in [&b"a\n\0\xff"[..], b"", b"}"] {
                assert_eq!(transfer.receive(&control), Ok(TransferItem::Chunk(chunk.to_vec())));
            }
        }
    }

    #[test]
    fn a_chunk_that_is_too_long_or_cut_off_is_a_fault() {
        let control = Arc::new(CallControl::new(Instant::now() + Duration::from_secs(60), None));
        let reader = || {
            let (transfer, time_limit) = (Transfer::new(), Duration::from_secs(60));
            FrameReader::new(None, Some(ChunkSink { transfer, control: Arc::clone(&control), time_limit }))
        };
        let long = format!("{{\"chunk\":{}}}\n", MAX_CHUNK_BYTES + 1);
        let fault = reader().write(long.as_bytes());
        assert_eq!(fault, Err(GuestFault::FrameTooLarge { limit_bytes: MAX_CHUNK_BYTES }));
        for cut in ["{\"chunk\":2}\n", "{\"chunk\":2}\nx"] {
            let mut reader = reader();
            reader.write(cut.as_bytes()).expect("not over");
            assert!(matches!(reader.finish(), Err(GuestFault::MalformedFrame { .. })));
        }
        let mut after = reader();
        after.write(b"{\"ok\":\"done\"}\n").expect("a result");
        assert_eq!(after.write(b"{\"chunk\":1}\nx"), Err(GuestFault::OutputAfterFinalFrame));
    }

    #[track_caller]
    fn check_fault(stdout: &[u8], what: &str) {
        let mut reader = FrameReader::new(None, None);
        let fault = reader.write(stdout).and_then(|()| reader.finish().map(drop)).expect_err("no frame");
        let said = fault.to_string();
        assert!(said.contains(what), "{said}");
        assert!(said.contains("println!") && said.contains("eprintln!"), "{said}");
        assert!(!said.chars().any(char::is_control) && said.len() < 400, "{said}");
    }

    #[test]
    fn a_stray_print_is_named_as_what_it_is() {
        check_fault(b"hello\n{\"ok\":\"a\"}\n", "text, `hello`");
        check_fault(b"42\n", "text, `42`");
        check_fault(b"hello {\"ok\":\"a\"}\n", "text before a frame, `hello {");
        check_fault(b"\x1b[2Jclear\n", "text, `\\u{1b}[2Jclear`");
        check_fault(b"caf\xe9\n{\"ok\":\"a\"}\n", "it is not UTF-8");
        check_fault(b"{\"n\": 1}\n", "unknown");
        check_fault(b"{\"ok\":\"a\"}\nhello\n", "after its result");
        check_fault("x".repeat(10_000).as_bytes(), "…`");
    }

    #[test]
    fn the_beginning_and_the_end_of_standard_error_are_kept() {
        let written = |writes: &[&[u8]]| {
            let mut stderr = Stderr::default();
            writes.iter().for_each(|bytes| stderr.write(bytes));
            assert!(stderr.beginning.len() + stderr.end.len() < 2 * MAX_STDERR_BYTES);
            stderr.into_text()
        };
        let whole = "ä".repeat(MAX_STDERR_BYTES / 2);
        assert_eq!(written(&[b"a"]), "a");
        assert_eq!(written(&[&whole.as_bytes()[..33_333], &whole.as_bytes()[33_333..]]), whole);
        let flood = vec![b'x'; 10 * MAX_STDERR_BYTES];
        for text in [
            written(&[b"first", &flood, b"panicked"]),
            written(
                &[b"first".as_slice()]
                    .into_iter()
                    .chain(flood.chunks(1000))
                    .chain([b"panicked".as_slice()])
                    .collect::<Vec<_>>(),
            ),
        ] {
            assert!(text.starts_with("firstx") && text.ends_with("xpanicked"));
            let dropped = flood.len() + 13 - MAX_STDERR_BYTES;
            assert!(text.contains(&format!("\n[{dropped} bytes dropped]\n")));
            assert!(text.len() < MAX_STDERR_BYTES + 40);
        }
    }
}
