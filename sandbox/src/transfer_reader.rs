//! The standard input of a guest at the receiving end of a transfer: the call frame, followed by the transferred chunks
//! as they arrive.

use std::sync::Arc;

use portcullis_types::InputFrame;

use super::{
    control::{CallControl, CallStop},
    transfer::{Transfer, TransferItem},
};

/// Buffered input and the transfer that supplies more.
#[derive(Debug)]
pub(super) struct TransferReader {
    ready_bytes: Vec<u8>,
    /// The number of bytes of `ready_bytes` that were read.
    position: usize,
    transfer: Arc<Transfer>,
    is_over: bool,
}

impl TransferReader {
    /// Creates an input that starts with the call frame.
    pub(super) fn new(call_frame: Vec<u8>, transfer: Arc<Transfer>) -> Self {
        Self { ready_bytes: call_frame, position: 0, transfer, is_over: false }
    }

    /// Blocks until there is input, and reads at least one byte. Returns zero at the end of the input.
    pub(super) fn read(&mut self, buffer: &mut [u8], control: &CallControl) -> Result<usize, CallStop> {
        if self.position == self.ready_bytes.len() && !self.is_over {
            self.fetch_more(control)?;
        }
        let unread = &self.ready_bytes[self.position..];
        let count = unread.len().min(buffer.len());
        buffer[..count].copy_from_slice(&unread[..count]);
        self.position += count;
        Ok(count)
    }

    fn fetch_more(&mut self, control: &CallControl) -> Result<(), CallStop> {
        self.ready_bytes.clear();
        self.position = 0;
        match self.transfer.receive(control)? {
            TransferItem::Chunk(chunk) => {
                self.push_line(InputFrame::Chunk(chunk.len()));
                self.ready_bytes.extend_from_slice(&chunk);
            }
            TransferItem::Complete(bytes) => {
                self.push_line(InputFrame::End(bytes));
                self.is_over = true;
            }
            TransferItem::Aborted => self.is_over = true,
        }
        Ok(())
    }

    fn push_line(&mut self, frame: InputFrame) {
        // Serializing numbers to a `Vec` cannot fail.
        let _ = serde_json::to_writer(&mut self.ready_bytes, &frame);
        self.ready_bytes.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::transfer::ChunkSink;

    fn control() -> Arc<CallControl> {
        Arc::new(CallControl::new(Instant::now() + Duration::from_secs(60), None))
    }

    fn read_all(transfer_input: &mut TransferReader, piece: usize) -> Vec<u8> {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match transfer_input.read(&mut buffer, &control()).expect("not stopped") {
                0 => return bytes,
                count => bytes.extend_from_slice(&buffer[..count]),
            }
        }
    }

    #[test]
    fn the_call_comes_first_and_the_end_last_however_it_is_read() {
        for (piece, ends) in [(1, true), (4096, true), (3, false)] {
            let transfer = Transfer::new();
            let mut transfer_input = TransferReader::new(b"{}\n".to_vec(), Arc::clone(&transfer));
            let time_limit = Duration::from_secs(60);
            let transfer_output =
                ChunkSink { transfer: Arc::clone(&transfer), control: control(), time_limit };
            transfer_output.send(b"a\n\0".to_vec()).expect("room");
            if ends {
                transfer.complete();
                assert_eq!(read_all(&mut transfer_input, piece), b"{}\n{\"chunk\":3}\na\n\0{\"end\":3}\n");
            } else {
                transfer.abort();
                assert_eq!(read_all(&mut transfer_input, piece), b"{}\n");
            }
        }
    }
}
