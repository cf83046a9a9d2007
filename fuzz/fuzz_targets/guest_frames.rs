//! A guest's standard output: frames, or other bytes.
//!
//! The reader of frames is private to the runner, so its file is compiled here once more, as it is.
#![no_main]

use std::{cell::RefCell, rc::Rc};

use libfuzzer_sys::fuzz_target;
use portcullis_testing::oracles::frames as oracle;
use portcullis_tools::sandbox::GuestFault;
use portcullis_types::{FinalFrame, ToolOutput};

#[path = "../../sandbox/src/stdio.rs"]
#[allow(dead_code, reason = "a target uses one of the streams")]
mod stdio;

/// Stands for the runner's own, whose text no target reads.
mod fault {
    pub(super) const STDOUT_ADVICE: &str = "";
}

/// Stands for the runner's own, which hands frames on to a channel.
#[derive(Debug, Clone)]
struct Listener;

/// As the runner has it.
#[derive(Debug)]
#[allow(dead_code, reason = "nobody listens here")]
enum StreamFrame {
    Progress(String),
    Update(ToolOutput),
}

impl Listener {
    fn send(&self, _frame: StreamFrame) {}
}

/// Stands for the runner's own, which hands chunks on to another guest.
#[derive(Debug, Clone)]
struct ChunkSink(Rc<RefCell<Vec<u8>>>);

impl ChunkSink {
    fn send(&self, chunk: Vec<u8>) -> Result<(), GuestFault> {
        self.0.borrow_mut().extend(chunk);
        Ok(())
    }
}

/// Reads bytes that come in pieces of this length.
fn read(bytes: &[u8], piece_length: usize, outlet: Option<ChunkSink>) -> Result<FinalFrame, GuestFault> {
    let mut stdout = stdio::Stdout::Frames(stdio::FrameReader::new(Some(Listener), outlet));
    for piece in bytes.chunks(piece_length) {
        stdout.write(piece)?;
    }
    stdout.finish()
}

/// Reads the output of a sending end: what it says, and what it sends.
fn read_sending(bytes: &[u8], piece: usize) -> (Result<FinalFrame, GuestFault>, Vec<u8>) {
    let sent: Rc<RefCell<Vec<u8>>> = Rc::default();
    let result = read(bytes, piece, Some(ChunkSink(Rc::clone(&sent))));
    (result, sent.take())
}

fuzz_target!(|input: &[u8]| {
    oracle::check_round_trip(input);
    let unsplit = read(input, usize::MAX, None);
    let sending = read_sending(input, usize::MAX);
    // However the guest's writes cut the stream, it says and sends the same.
    for piece in [1, 7] {
        assert_eq!(read(input, piece, None), unsplit);
        assert_eq!(read_sending(input, piece), sending);
    }
    // The runner accepts as a result only a separate line that decodes.
    if let Ok(final_frame) = unsplit {
        assert!(oracle::final_frames(input).contains(&final_frame));
    }
});
