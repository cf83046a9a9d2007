//! Writes frames, one line and one flush each.

use std::{
    io::{self, Write},
    sync::{Mutex, PoisonError},
};

use portcullis_types::{
    GuestFrame, MAX_CHUNK_BYTES, MAX_FINAL_FRAME_BYTES, MAX_STREAM_FRAME_BYTES, OutputFrame, ToolError,
    ToolOutput,
};

/// A guest's standard output, behind a lock because the listeners in the call's context share it.
pub(super) struct Frames<W>(Mutex<W>);

impl<W: Write> Frames<W> {
    pub(super) fn new(stdout: W) -> Self {
        Self(Mutex::new(stdout))
    }

    /// Sends a progress or update frame. A frame that is too long or cannot be written is dropped: it only informs
    /// people, and a faulty frame would make the host end the call.
    pub(super) fn report(&self, frame: &GuestFrame) {
        if let Ok(line) = encode_line(frame, 128)
            && line.len() <= MAX_STREAM_FRAME_BYTES
        {
            let _ = self.write(&line);
        }
    }

    /// Sends bytes of a transfer. The host ends the call if the tool is not the sending end of a transfer.
    pub(super) fn send_chunk(&self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() || bytes.len() > MAX_CHUNK_BYTES {
            let message = format!("a chunk of {} bytes", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut frame = encode_line(&GuestFrame::Chunk(bytes.len()), bytes.len() + 32)?;
        frame.extend_from_slice(bytes);
        self.write(&frame)
    }

    /// Sends the final frame. A result that is too long for a frame becomes an error.
    pub(super) fn finish(&self, result: Result<ToolOutput, ToolError>) -> io::Result<()> {
        let line = match result {
            Ok(output) => {
                let line = encode_output(output)?;
                if line.len() <= MAX_FINAL_FRAME_BYTES {
                    line
                } else {
                    let bytes = line.len();
                    let message = format!(
                        "the result takes {bytes} bytes as JSON and at most {MAX_FINAL_FRAME_BYTES} can be passed on"
                    );
                    encode_error(&ToolError::failed(message))?
                }
            }
            Err(error) => encode_error(&error)?,
        };
        self.write(&line)
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        // Use the lock even if it is poisoned: a panic of another writer must not stop this frame.
        let mut stdout = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stdout.write_all(line)?;
        stdout.flush()
    }
}

fn encode_output(output: ToolOutput) -> io::Result<Vec<u8>> {
    let text_bytes: usize = output.content.iter().filter_map(|block| block.as_text()).map(str::len).sum();
    // Newlines and quotes need two bytes each. An eighth more saves a second allocation for most texts.
    encode_line(&GuestFrame::Ok(OutputFrame(output)), text_bytes + text_bytes / 8 + 128)
}

fn encode_error(error: &ToolError) -> io::Result<Vec<u8>> {
    encode_line(&GuestFrame::Error(error.into()), 256)
}

fn encode_line(frame: &GuestFrame, capacity: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(capacity);
    serde_json::to_writer(&mut line, frame)?;
    line.push(b'\n');
    Ok(line)
}
