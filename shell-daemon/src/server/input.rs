//! Input that a client writes to a running command, in the order of the client's calls.

use tokio::{io::AsyncWriteExt as _, net::unix::pipe::Sender, sync::Mutex};
use tonic::Status;

use super::refusal::RefusalCode;
use crate::CommandInput;

/// The writing end of a command's standard input, until it is closed.
#[derive(Debug)]
pub(super) struct StdinSender(Mutex<Option<Sender>>);

impl StdinSender {
    /// A closed input.
    pub(super) fn without_input() -> Self {
        Self(Mutex::new(None))
    }

    /// Opens an input. Returns it with the end that the command reads. Must be called within the runtime.
    ///
    /// # Errors
    /// `limit`, if no descriptor is left.
    pub(super) fn open() -> Result<(Self, CommandInput), Status> {
        let failed =
            |error| RefusalCode::Limit.status(format!("no pipe is available for the input: {error}"));
        let (input, writer) = CommandInput::new().map_err(failed)?;
        let writer = Sender::from_owned_fd(writer.into()).map_err(failed)?;
        Ok((Self(Mutex::new(Some(writer))), input))
    }

    /// Writes all of `bytes` after the bytes of earlier calls. Waits while the command does not read.
    ///
    /// # Cancellation
    /// Some of the bytes may already have been written.
    ///
    /// # Errors
    /// `closed`, if the command has closed its standard input.
    pub(super) async fn write(&self, bytes: &[u8], after_input: MoreInput) -> Result<(), Status> {
        let closed = || RefusalCode::Closed.status("the command's input is closed");
        let mut sender = self.0.lock().await;
        let writer = sender.as_mut().ok_or_else(closed)?;
        if writer.write_all(bytes).await.is_err() {
            *sender = None;
            return Err(closed());
        }
        if after_input == MoreInput::Ends {
            *sender = None;
        }
        Ok(())
    }
}

/// Whether more input follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoreInput {
    Follows,
    Ends,
}
