//! Ctrl-C, and what it does to work that is under way: the first cancels it, the second does not wait for it.

use std::io;

use portcullis_types::CancellationToken;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use crate::{error::CliError, output::stream, setup};

/// What a shell expects of a program that an interrupt ended.
pub(super) const INTERRUPTED: u8 = 130;

/// Does a call's work on a thread apart from the signals: whatever it waits for, a second interrupt is heard,
/// and then there is no answer.
pub(super) fn apart<T: Send + 'static>(
    cancel: &CancellationToken,
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<Option<T>, CliError> {
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("portcullis-call".to_owned())
        .spawn(move || {
            // Nobody waits for a call that was interrupted twice.
            let _ = sender.send(work());
        })
        .map_err(|source| CliError::Start { source })?;
    setup::runtime()?.block_on(interruptible(ended, cancel))?.transpose()
}

/// Waits for the call. The first interrupt cancels it, and its row says so; the second gives up on it,
/// which is what no answer means.
///
/// # Cancellation
/// Safe; the call goes on.
async fn interruptible<T>(
    mut ended: oneshot::Receiver<T>,
    cancel: &CancellationToken,
) -> Result<Option<T>, CliError> {
    let mut interrupts = Interrupts::listen()?;
    loop {
        tokio::select! {
            biased;
            ended = &mut ended => {
                let lost = |error| CliError::Start { source: io::Error::other(error) };
                return Ok(Some(ended.map_err(lost)?));
            }
            () = interrupts.next() => {
                if cancel.is_cancelled() {
                    return Ok(None);
                }
                cancel.cancel();
                if stream::stderr_is_terminal() {
                    // It may stand in the middle of a line, perhaps behind a question.
                    stream::tell("\n");
                }
            }
        }
    }
}

/// Ctrl-C, and the signal by which systems end programs.
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(super) fn listen() -> Result<Self, CliError> {
        let listen = |kind| signal(kind).map_err(|source| CliError::Start { source });
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next of them.
    ///
    /// # Cancellation
    /// Safe: no signal is lost.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
