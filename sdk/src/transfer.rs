//! Transfers: bytes that one tool passes to another tool, which the host calls at the same time.
//!
//! The steps of a shipped operation such as `vault_copyto` pass a file of any content this way, in chunks. Other
//! tools cannot use transfers. In any other call, [`receive`] fails, and the host ends the call if the tool tries to
//! [`send`].

use std::{
    fmt,
    io::{self, BufRead, Read},
    sync::{Mutex, PoisonError},
};

use portcullis_types::{InputFrame, MAX_CHUNK_BYTES, ToolContext, ToolError};

/// Sends a chunk of at most [`MAX_CHUNK_BYTES`]. Blocks while the other end is slow.
///
/// # Errors
/// `unavailable` if the call is not an end of a transfer; `failed` if the host accepts no more chunks.
pub fn send(ctx: &ToolContext, bytes: &[u8]) -> Result<(), ToolError> {
    let outlet = ctx.extensions.get::<TransferSender>().ok_or_else(not_in_transfer)?;
    (outlet.0)(bytes).map_err(|error| transfer_failure(&error))
}

/// Returns the next chunk; `None` after the last one. Blocks until the other end sends it.
///
/// # Errors
/// `unavailable` if the call is not an end of a transfer; `failed` if the other end was interrupted. The
/// received chunks are then only a part, and anything made from them must be removed.
pub fn receive(ctx: &ToolContext) -> Result<Option<Vec<u8>>, ToolError> {
    let inlet = ctx.extensions.get::<TransferReceiver>().ok_or_else(not_in_transfer)?;
    let mut inlet = inlet.0.lock().unwrap_or_else(PoisonError::into_inner);
    inlet.next_chunk().map_err(|error| transfer_failure(&error))
}

/// Returns all chunks, joined. Blocks until the other end has sent the last one. The host bounds the length.
///
/// # Errors
/// The errors of [`receive`].
pub fn receive_all(ctx: &ToolContext) -> Result<Vec<u8>, ToolError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = receive(ctx)? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn not_in_transfer() -> ToolError {
    ToolError::unavailable("this call is not an end of a transfer")
}

fn transfer_failure(error: &io::Error) -> ToolError {
    ToolError::failed("the transfer broke off").with_operator_detail(error.to_string())
}

/// Accepts a chunk, or returns the reason why it cannot.
type SendChunk = dyn Fn(&[u8]) -> io::Result<()> + Send + Sync;

/// The sending end of a transfer, in the extensions of a call's context.
pub struct TransferSender(Box<SendChunk>);

impl TransferSender {
    /// A sending end that passes each chunk to a function.
    pub fn new(send: impl Fn(&[u8]) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Box::new(send))
    }
}

impl fmt::Debug for TransferSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransferSender")
    }
}

/// The receiving end of a transfer, in the extensions of a call's context.
pub struct TransferReceiver(Mutex<ChunkReader>);

impl TransferReceiver {
    /// A receiving end that reads [`InputFrame`]s and the bytes between them.
    pub fn new(input: impl BufRead + Send + 'static) -> Self {
        Self(Mutex::new(ChunkReader { lines: Box::new(input), received: 0, has_ended: false }))
    }
}

impl fmt::Debug for TransferReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TransferReceiver")
    }
}

struct ChunkReader {
    lines: Box<dyn BufRead + Send>,
    received: u64,
    has_ended: bool,
}

/// The maximum length of a line of an input, in bytes, far above any valid line.
const MAX_LINE_BYTES: u64 = 64;

impl ChunkReader {
    fn next_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.has_ended {
            return Ok(None);
        }
        let mut line = Vec::new();
        // The length is bounded here; a longer line fails to parse below.
        (&mut *self.lines).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(&line)? {
            InputFrame::Chunk(bytes) if bytes <= MAX_CHUNK_BYTES => {
                let mut chunk = vec![0; bytes];
                self.lines.read_exact(&mut chunk)?;
                self.received += bytes as u64;
                Ok(Some(chunk))
            }
            // The count shows that no chunk is missing.
            InputFrame::End(bytes) if bytes == self.received => {
                self.has_ended = true;
                Ok(None)
            }
            frame => Err(io::Error::new(io::ErrorKind::InvalidData, format!("unexpected {frame:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use portcullis_types::ToolErrorKind;

    use super::*;

    /// A call that receives this input.
    fn context_receiving(input: &[u8]) -> ToolContext {
        let mut ctx = ToolContext::detached("t");
        ctx.extensions.insert(TransferReceiver::new(io::Cursor::new(input.to_vec())));
        ctx
    }

    #[test]
    fn chunks_are_received_as_they_are_up_to_the_end() {
        let ctx = context_receiving(b"{\"chunk\":4}\na\n\0\xff{\"chunk\":1}\nz{\"end\":5}\n{\"chunk\":1}\nx");
        assert_eq!(receive(&ctx), Ok(Some(b"a\n\0\xff".to_vec())));
        assert_eq!(receive(&ctx), Ok(Some(b"z".to_vec())));
        assert_eq!(receive(&ctx), Ok(None));
        assert_eq!(receive(&ctx), Ok(None), "nothing is read behind the end");
    }

    #[test]
    fn all_chunks_are_joined_and_a_missing_end_is_an_error() {
        let ctx = context_receiving(b"{\"chunk\":1}\na{\"chunk\":2}\nbc{\"end\":3}\n");
        assert_eq!(receive_all(&ctx), Ok(b"abc".to_vec()));
        let error = receive_all(&context_receiving(b"{\"chunk\":1}\na")).expect_err("no end");
        assert_eq!(error.kind(), ToolErrorKind::Failed);
    }

    #[test]
    fn truncated_or_miscounted_transfer_has_no_end() {
        for input in [
            "",
            "{\"chunk\":2}\na",
            "{\"end\":1}\n",
            "{\"chunk\":600000}\n",
            "{\"chunk\":",
            "nothing of the kind",
            &"x".repeat(1000),
        ] {
            let error = receive(&context_receiving(input.as_bytes())).expect_err(input);
            assert_eq!((error.kind(), error.message()), (ToolErrorKind::Failed, "the transfer broke off"));
        }
        let ctx = context_receiving(b"{\"chunk\":1}\na");
        receive(&ctx).expect("a chunk");
        receive(&ctx).expect_err("no end");
    }

    #[test]
    fn a_call_outside_a_transfer_can_neither_send_nor_receive() {
        let ctx = ToolContext::detached("t");
        assert_eq!(send(&ctx, b"x").expect_err("nowhere").kind(), ToolErrorKind::Unavailable);
        assert_eq!(receive(&ctx).expect_err("nothing").kind(), ToolErrorKind::Unavailable);
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut ctx = ctx;
        let sink = Arc::clone(&sent);
        ctx.extensions.insert(TransferSender::new(move |bytes| {
            sink.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(())
        }));
        send(&ctx, b"ab").expect("sends");
        assert_eq!(*sent.lock().expect("not poisoned"), b"ab");
    }
}
