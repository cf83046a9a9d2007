//! Reads a guest's standard streams: frames on standard output, bounded text on standard error.

use portcullis_types::{
    FinalFrame, GuestFrame, MAX_CHUNK_BYTES, MAX_FINAL_FRAME_BYTES, MAX_STREAM_FRAME_BYTES, ToolOutput,
};

use super::{ChunkSink, GuestFault, Listener, StreamFrame, fault::STDOUT_ADVICE};

/// The maximum size of the stored standard error of a guest: 64 KiB, for the operator's log and for
/// authors. Half of it comes from the start, and half from the end, which contains a panic's message.
const MAX_STDERR_BYTES: usize = 64 << 10;

/// The maximum length of an invalid line that a fault quotes, in characters.
const MAX_QUOTED_CHARS: usize = 64;

/// The maximum number of progress, update and chunk frames of one call, far beyond any use. A tool with more frames is
/// in a loop that would otherwise run until the deadline.
const MAX_STREAM_FRAMES: usize = 100_000;

/// A guest's standard output, read according to its verb.
#[derive(Debug)]
pub(super) enum Stdout {
    /// Frames: the output of the verb `call`.
    Frames(FrameReader),
    /// One text: the output of the verb `describe`.
    Text(Vec<u8>),
}

impl Stdout {
    /// Accepts output of the guest.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), GuestFault> {
        match self {
            Self::Frames(reader) => reader.write(bytes),
            Self::Text(text) if text.len() + bytes.len() > MAX_FINAL_FRAME_BYTES => {
                Err(GuestFault::FrameTooLarge { limit_bytes: MAX_FINAL_FRAME_BYTES })
            }
            Self::Text(text) => {
                text.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Ends the stream, and returns the result.
    pub(super) fn finish(self) -> Result<FinalFrame, GuestFault> {
        match self {
            Self::Frames(reader) => reader.finish(),
            Self::Text(text) => String::from_utf8(text)
                .map(|text| FinalFrame::Ok(ToolOutput::text(text)))
                .map_err(|error| GuestFault::MalformedFrame { reason: error.to_string() }),
        }
    }
}

/// Reads frames from a guest's output. Any fault ends the call immediately.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    line: Vec<u8>,
    final_frame: Option<FinalFrame>,
    stream_frames: usize,
    listener: Option<Listener>,
    /// Receives chunks, if the call is the sending end of a transfer.
    transfer_output: Option<ChunkSink>,
    chunk: Option<PartialChunk>,
}

/// An announced chunk, with the bytes received so far.
#[derive(Debug)]
struct PartialChunk {
    bytes: Vec<u8>,
    missing_bytes: usize,
}

impl FrameReader {
    pub(super) fn new(listener: Option<Listener>, transfer_output: Option<ChunkSink>) -> Self {
        Self { listener, transfer_output, ..Self::default() }
    }

    /// Accepts output of the guest.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), GuestFault> {
        loop {
            bytes = self.fill_chunk(bytes)?;
            let Some(end) = memchr::memchr(b'\n', bytes) else { break };
            let (line, rest) = bytes.split_at(end);
            self.extend(line)?;
            let line = std::mem::take(&mut self.line);
            self.take_line(&line)?;
            // Put the buffer back, so that the next line reuses its allocation.
            self.line = line;
            self.line.clear();
            bytes = &rest[1..];
        }
        self.extend(bytes)
    }

    /// Ends the stream. The last line does not need a newline.
    pub(super) fn finish(mut self) -> Result<FinalFrame, GuestFault> {
        if self.chunk.is_some() {
            return Err(GuestFault::MalformedFrame { reason: "a chunk is cut off".to_owned() });
        }
        let line = std::mem::take(&mut self.line);
        self.take_line(&line)?;
        self.final_frame.ok_or(GuestFault::NoFinalFrame)
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
        if self.final_frame.is_some() {
            return Err(GuestFault::OutputAfterFinalFrame);
        }
        let frame: GuestFrame = serde_json::from_slice(line)
            .map_err(|error| GuestFault::MalformedFrame { reason: explain_malformed(line, &error) })?;
        match frame {
            GuestFrame::Ok(output) => self.final_frame = Some(FinalFrame::Ok(output.0)),
            GuestFrame::Error(error) => self.final_frame = Some(FinalFrame::Error(error)),
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
        self.count_frame()?;
        if let Some(listener) = &self.listener {
            listener.send(frame);
        }
        Ok(())
    }

    fn count_frame(&mut self) -> Result<(), GuestFault> {
        self.stream_frames += 1;
        if self.stream_frames > MAX_STREAM_FRAMES {
            return Err(GuestFault::TooManyFrames { limit: MAX_STREAM_FRAMES });
        }
        Ok(())
    }

    fn begin_chunk(&mut self, bytes: usize) -> Result<(), GuestFault> {
        if self.transfer_output.is_none() {
            return Err(GuestFault::UnwantedChunk);
        }
        if bytes > MAX_CHUNK_BYTES {
            return Err(GuestFault::FrameTooLarge { limit_bytes: MAX_CHUNK_BYTES });
        }
        self.count_frame()?;
        self.chunk = Some(PartialChunk { bytes: Vec::with_capacity(bytes), missing_bytes: bytes });
        Ok(())
    }

    /// Adds bytes to the current chunk, if there is one, and sends the chunk when it is complete. Returns the bytes
    /// after the chunk.
    fn fill_chunk<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], GuestFault> {
        let Some(chunk) = &mut self.chunk else { return Ok(bytes) };
        let (chunk_part, rest) = bytes.split_at(chunk.missing_bytes.min(bytes.len()));
        chunk.bytes.extend_from_slice(chunk_part);
        chunk.missing_bytes -= chunk_part.len();
        if chunk.missing_bytes == 0
            && let (Some(complete_chunk), Some(transfer_output)) = (self.chunk.take(), &self.transfer_output)
        {
            transfer_output.send(complete_chunk.bytes)?;
        }
        Ok(rest)
    }
}

/// Explains an invalid line and its likely cause: text from `println!`, which is a separate line, or text
/// from `print!`, which precedes the next frame.
fn explain_malformed(line: &[u8], error: &serde_json::Error) -> String {
    let Ok(text) = str::from_utf8(line) else {
        return format!("it is not UTF-8; {STDOUT_ADVICE}");
    };
    let trimmed = text.trim_start();
    if !trimmed.starts_with('{') {
        let precedes_frame = FRAME_BEGINNINGS.iter().any(|beginning| trimmed.contains(beginning));
        let part = if precedes_frame { "text before a frame" } else { "text" };
        return format!("{part}, {}; {STDOUT_ADVICE}", quote_text(trimmed));
    }
    format!("{error}; {STDOUT_ADVICE}")
}

/// The prefixes of the frames that the SDK writes.
const FRAME_BEGINNINGS: [&str; 5] =
    ["{\"ok\":", "{\"error\":", "{\"progress\":", "{\"update\":", "{\"chunk\":"];

/// Quotes a guest's text within one line.
fn quote_text(text: &str) -> String {
    let mut short: String = text.trim_end().chars().take(MAX_QUOTED_CHARS).collect();
    if short.len() < text.trim_end().len() {
        short.push('…');
    }
    format!("`{}`", portcullis_types::escape_for_display(&short))
}

/// A guest's standard error up to the limit. Dropped bytes are counted.
#[derive(Debug, Default)]
pub(super) struct Stderr {
    beginning: Vec<u8>,
    /// The last bytes after `beginning`. The buffer can grow to the whole limit, and is then cut back to
    /// half of it.
    end: Vec<u8>,
    dropped_bytes: usize,
}

impl Stderr {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        const HALF: usize = MAX_STDERR_BYTES / 2;
        let (first, rest) = bytes.split_at(bytes.len().min(HALF - self.beginning.len()));
        self.beginning.extend_from_slice(first);
        // Only the last part of a long write can be kept.
        let (dropped, rest) = rest.split_at(rest.len().saturating_sub(HALF));
        self.dropped_bytes = self.dropped_bytes.saturating_add(dropped.len());
        self.end.extend_from_slice(rest);
        // Drain once per half limit instead of for each byte.
        if self.end.len() >= 2 * HALF {
            self.drop_all_but(HALF);
        }
    }

    fn drop_all_but(&mut self, retained_bytes: usize) {
        let surplus = self.end.len().saturating_sub(retained_bytes);
        self.end.drain(..surplus);
        self.dropped_bytes = self.dropped_bytes.saturating_add(surplus);
    }

    /// Returns the text, with a note where bytes were dropped.
    pub(super) fn into_text(mut self) -> String {
        self.drop_all_but(MAX_STDERR_BYTES / 2);
        if self.dropped_bytes == 0 {
            // Join the parts before decoding, because a character can span both.
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
        let sent = b"{\"progress\":\"half\"}\n{\"chunk\":4}\na\n\0\xff{\"chunk\":0}\n{\"chunk\":1}\n}{\"ok\":\"done\"}\n";
        for piece in [1, 2, 7, sent.len()] {
            let control = Arc::new(CallControl::new(Instant::now() + time_limit, None));
            let transfer = Transfer::new();
            let transfer_output =
                ChunkSink { transfer: Arc::clone(&transfer), control: Arc::clone(&control), time_limit };
            let mut reader = FrameReader::new(None, Some(transfer_output));
            for bytes in sent.chunks(piece) {
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
        let mut finished_reader = reader();
        finished_reader.write(b"{\"ok\":\"done\"}\n").expect("a result");
        assert_eq!(finished_reader.write(b"{\"chunk\":1}\nx"), Err(GuestFault::OutputAfterFinalFrame));
    }

    #[track_caller]
    fn check_fault(stdout: &[u8], part: &str) {
        let mut reader = FrameReader::new(None, None);
        let fault = reader.write(stdout).and_then(|()| reader.finish().map(drop)).expect_err("no frame");
        let message = fault.to_string();
        assert!(message.contains(part), "{message}");
        assert!(message.contains("println!") && message.contains("eprintln!"), "{message}");
        assert!(!message.chars().any(char::is_control) && message.len() < 400, "{message}");
    }

    #[test]
    fn a_stray_print_is_identified_in_the_fault() {
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
        let kept_text = |writes: &[&[u8]]| {
            let mut stderr = Stderr::default();
            writes.iter().for_each(|bytes| stderr.write(bytes));
            assert!(stderr.beginning.len() + stderr.end.len() < 2 * MAX_STDERR_BYTES);
            stderr.into_text()
        };
        let full_length_text = "ä".repeat(MAX_STDERR_BYTES / 2);
        assert_eq!(kept_text(&[b"a"]), "a");
        assert_eq!(
            kept_text(&[&full_length_text.as_bytes()[..33_333], &full_length_text.as_bytes()[33_333..]]),
            full_length_text
        );
        let flood = vec![b'x'; 10 * MAX_STDERR_BYTES];
        for text in [
            kept_text(&[b"first", &flood, b"panicked"]),
            kept_text(
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
