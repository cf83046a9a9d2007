//! Input that clients write to a running command, in the order of their calls.

use tokio::{io::AsyncWriteExt as _, net::unix::pipe::Sender, sync::Mutex};
use tonic::Status;

use super::refusal::RefusalCode;
use crate::CommandInput;

/// The writing end of a command's standard input, until it is closed.
#[derive(Debug)]
pub(super) struct StdinSender(Mutex<Option<Sender>>);

impl StdinSender {
    /// A closed input.
    pub(super) fn none() -> Self {
        Self(Mutex::new(None))
    }

    /// An open input, and the command's end of it. Must be called within the runtime.
    ///
    /// # Errors
    /// `limit`, if there is no descriptor left.
    pub(super) fn open() -> Result<(Self, CommandInput), Status> {
        let failed = |error| RefusalCode::Limit.because(format!("no pipe is left for the input: {error}"));
        let (input, writer) = CommandInput::new().map_err(failed)?;
        let writer = Sender::from_owned_fd(writer.into()).map_err(failed)?;
        Ok((Self(Mutex::new(Some(writer))), input))
    }

    /// Writes all of `bytes`, as fast as the command reads, after the bytes of earlier calls.
    ///
    /// # Cancellation
    /// Some of the bytes may have been written.
    ///
    /// # Errors
    /// `closed`, if the command has closed its standard input.
    pub(super) async fn write(&self, bytes: &[u8], then: AfterInput) -> Result<(), Status> {
        let closed = || RefusalCode::Closed.because("the command's input is closed");
        let mut open = self.0.lock().await;
        let writer = open.as_mut().ok_or_else(closed)?;
        if writer.write_all(bytes).await.is_err() {
            *open = None;
            return Err(closed());
        }
        if then == AfterInput::Close {
            *open = None;
        }
        Ok(())
    }
}

/// Whether more input follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterInput {
    StayOpen,
    Close,
}
