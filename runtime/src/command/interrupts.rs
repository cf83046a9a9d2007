//! Ctrl-C, and what it does to work that is under way: the first cancels it, the second does not wait for it.
//! Whoever does one thing after the other says itself what an interrupt means to it.

use std::io;

use portcullis_types::CancellationToken;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use crate::{error::CliError, output::stream, setup};

/// What a shell expects of a program that an interrupt ended.
pub(super) const INTERRUPTED: u8 = 130;

/// Work that hears of interrupts while it is under way.
pub(super) trait Interruptible {
    /// Does what an interrupt asks for; `false` if the work is to be waited for no longer.
    fn interrupt(&self, interrupt: Interrupt) -> bool;
}

/// The work of one call: it is cancelled, and its row says so.
impl Interruptible for CancellationToken {
    fn interrupt(&self, _interrupt: Interrupt) -> bool {
        let is_first = !self.is_cancelled();
        self.cancel();
        is_first
    }
}

/// Does work on a thread apart from the signals: whatever it waits for, an interrupt is heard. Where the work is
/// waited for no longer, there is no answer.
pub(super) fn apart<T: Send + 'static>(
    heard: &impl Interruptible,
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
    setup::runtime()?.block_on(interruptible(ended, heard))?.transpose()
}

/// Waits for the work, or until it hears of an interrupt after which it is not waited for.
///
/// # Cancellation
/// Safe; the work goes on.
async fn interruptible<T>(
    mut ended: oneshot::Receiver<T>,
    heard: &impl Interruptible,
) -> Result<Option<T>, CliError> {
    let mut interrupts = Interrupts::listen()?;
    loop {
        tokio::select! {
            biased;
            ended = &mut ended => {
                let lost = |error| CliError::Start { source: io::Error::other(error) };
                return Ok(Some(ended.map_err(lost)?));
            }
            interrupt = interrupts.next() => {
                if stream::stderr_is_terminal() {
                    // It may stand in the middle of a line, perhaps behind a question.
                    stream::tell("\n");
                }
                if !heard.interrupt(interrupt) {
                    return Ok(None);
                }
            }
        }
    }
}

/// What asks a program to end what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    CtrlC,
    /// SIGTERM, the signal by which systems end programs.
    Terminate,
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
    pub(super) async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupt::CtrlC,
            _ = self.terminate.recv() => Interrupt::Terminate,
        }
    }
}
