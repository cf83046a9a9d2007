//! Fuzzes the reader of a guest's standard output, with frames and with other bytes.
//!
//! The runner's frame reader is private, so this target compiles the reader's file again, unchanged.
#![no_main]

use std::{cell::RefCell, rc::Rc};

use libfuzzer_sys::fuzz_target;
use portcullis_testing::oracles::frames as oracle;
use portcullis_tools::sandbox::GuestFault;
use portcullis_types::{FinalFrame, ToolOutput};

#[path = "../../sandbox/src/stdio.rs"]
#[allow(dead_code, reason = "a target uses one of the streams")]
mod stdio;

/// Replaces the runner's module of the same name. No target reads the text.
mod fault {
    pub(super) const STDOUT_ADVICE: &str = "";
}

/// Replaces the runner's listener, which forwards frames to a channel.
#[derive(Debug, Clone)]
struct Listener;

/// A copy of the runner's type.
#[derive(Debug)]
#[allow(dead_code, reason = "the target discards the frames")]
enum StreamFrame {
    Progress(String),
    Update(ToolOutput),
}

impl Listener {
    fn send(&self, _frame: StreamFrame) {}
}

/// Replaces the runner's sink, which forwards chunks to another guest.
#[derive(Debug, Clone)]
struct ChunkSink(Rc<RefCell<Vec<u8>>>);

impl ChunkSink {
    fn send(&self, chunk: Vec<u8>) -> Result<(), GuestFault> {
        self.0.borrow_mut().extend(chunk);
        Ok(())
    }
}

/// Reads bytes in pieces of this length.
fn read(bytes: &[u8], piece_length: usize, outlet: Option<ChunkSink>) -> Result<FinalFrame, GuestFault> {
    let mut stdout = stdio::Stdout::Frames(stdio::FrameReader::new(Some(Listener), outlet));
    for piece in bytes.chunks(piece_length) {
        stdout.write(piece)?;
    }
    stdout.finish()
}

/// Reads the output of a guest that sends chunks. Returns its result, and the bytes that it sent.
fn read_sending(bytes: &[u8], piece: usize) -> (Result<FinalFrame, GuestFault>, Vec<u8>) {
    let sent: Rc<RefCell<Vec<u8>>> = Rc::default();
    let result = read(bytes, piece, Some(ChunkSink(Rc::clone(&sent))));
    (result, sent.take())
}

fuzz_target!(|input: &[u8]| {
    oracle::check_round_trip(input);
    let unsplit = read(input, usize::MAX, None);
    let sending = read_sending(input, usize::MAX);
    // The result and the sent bytes must not depend on how the guest's writes split the stream.
    for piece in [1, 7] {
        assert_eq!(read(input, piece, None), unsplit);
        assert_eq!(read_sending(input, piece), sending);
    }
    // The runner accepts as a result only a separate line that decodes.
    if let Ok(final_frame) = unsplit {
        assert!(oracle::final_frames(input).contains(&final_frame));
    }
});
