//! A guest's standard streams: frames on its standard output, bounded text on its standard error.

use portcullis_types::{
    FinalFrame, GuestFrame, MAX_CHUNK_BYTES, MAX_FINAL_FRAME_BYTES, MAX_STREAM_FRAME_BYTES, ToolOutput,
};

use super::{GuestFault, Listener, Outlet, StreamFrame};

/// What is kept of a guest's standard error, for the operator's log.
const MAX_STDERR_BYTES: usize = 64 << 10;

/// Progress, update and chunk frames of one call. Far beyond what anybody watches; an endless stream of them is
/// a loop that would otherwise run to its deadline.
const MAX_STREAM_FRAMES: usize = 100_000;

/// A guest's standard output, read according to what it was asked.
#[derive(Debug)]
pub(super) enum Stdout {
    /// The answer to `call`.
    Frames(FrameReader),
    /// The answer to `describe`: one text.
    Whole(Vec<u8>),
}

impl Stdout {
    /// Takes what the guest wrote.
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

/// Reads frames from the bytes that a guest writes. A fault ends the call at once.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    line: Vec<u8>,
    last: Option<FinalFrame>,
    stream_frames: usize,
    listener: Option<Listener>,
    /// Takes chunks, where the call is the sending end of a transfer.
    outlet: Option<Outlet>,
    chunk: Option<Chunk>,
}

/// A chunk that was announced, and what is there of it.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    missing: usize,
}

impl FrameReader {
    pub(super) fn new(listener: Option<Listener>, outlet: Option<Outlet>) -> Self {
        Self { listener, outlet, ..Self::default() }
    }

    /// Takes what the guest wrote.
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

    /// Ends the stream; a last line needs no newline.
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
            .map_err(|error| GuestFault::MalformedFrame { reason: error.to_string() })?;
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
        self.chunk = Some(Chunk { bytes: Vec::with_capacity(bytes), missing: bytes });
        Ok(())
    }

    /// Takes what belongs to the chunk that was begun, if one was, and sends it when it is whole. Returns what
    /// follows.
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

/// What a guest writes to its standard error, up to a limit; the rest is counted.
#[derive(Debug, Default)]
pub(super) struct Stderr {
    kept: Vec<u8>,
    dropped_bytes: usize,
}

impl Stderr {
    pub(super) fn write(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(MAX_STDERR_BYTES - self.kept.len());
        self.kept.extend_from_slice(&bytes[..fits]);
        self.dropped_bytes = self.dropped_bytes.saturating_add(bytes.len() - fits);
    }

    /// The text, with a note where some was dropped.
    pub(super) fn into_text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        if self.dropped_bytes > 0 {
            text.push_str(&format!(" [{} more bytes dropped]", self.dropped_bytes));
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
    use crate::wasm::{
        control::CallControl,
        transfer::{Received, Transfer},
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
        assert!(matches!(read(&["hello\n"]), Err(GuestFault::MalformedFrame { .. })));
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
                Outlet { transfer: Arc::clone(&transfer), control: Arc::clone(&control), time_limit };
            let mut reader = FrameReader::new(None, Some(outlet));
            for bytes in said.chunks(piece) {
                reader.write(bytes).expect("frames");
            }
            assert_eq!(reader.finish(), Ok(FinalFrame::Ok(ToolOutput::text("done"))));
            for chunk in [&b"a\n\0\xff"[..], b"", b"}"] {
                assert_eq!(transfer.receive(&control), Ok(Received::Chunk(chunk.to_vec())));
            }
        }
    }

    #[test]
    fn a_chunk_that_is_too_long_or_cut_off_is_a_fault() {
        let control = Arc::new(CallControl::new(Instant::now() + Duration::from_secs(60), None));
        let reader = || {
            let (transfer, time_limit) = (Transfer::new(), Duration::from_secs(60));
            FrameReader::new(None, Some(Outlet { transfer, control: Arc::clone(&control), time_limit }))
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

    #[test]
    fn standard_error_is_kept_to_a_limit() {
        let mut stderr = Stderr::default();
        stderr.write(&vec![b'x'; MAX_STDERR_BYTES - 1]);
        stderr.write(b"yz");
        let text = stderr.into_text();
        assert!(text.ends_with("xy [1 more bytes dropped]"));
    }
}
