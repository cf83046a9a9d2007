//! Ctrl-C during work: the first cancels the work, the second stops waiting for it. A command with several
//! steps defines the effect of an interrupt itself, through [`Interruptible`].

use std::io;

use portcullis_types::CancellationToken;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use crate::{error::CliError, output::stream, setup};

/// The exit code that shells expect of a program ended by an interrupt.
pub(super) const INTERRUPTED: u8 = 130;

/// Work that reacts to interrupts.
pub(super) trait Interruptible {
    /// Reacts to an interrupt; `false` if the work must not be waited for any longer.
    fn interrupt(&self, interrupt: Interrupt) -> bool;
}

/// The work of one call: it is cancelled, and its audit row says so.
impl Interruptible for CancellationToken {
    fn interrupt(&self, _interrupt: Interrupt) -> bool {
        let is_first = !self.is_cancelled();
        self.cancel();
        is_first
    }
}

/// Does work on a separate thread, so that interrupts are handled while the work blocks. None if the work is
/// no longer waited for.
pub(super) fn run_interruptibly<T: Send + 'static>(
    target: &impl Interruptible,
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<Option<T>, CliError> {
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("portcullis-call".to_owned())
        .spawn(move || {
            // After a second interrupt no receiver is left.
            let _ = sender.send(work());
        })
        .map_err(|source| CliError::Start { source })?;
    setup::runtime()?.block_on(interruptible(ended, target))?.transpose()
}

/// Waits for the work, or until an interrupt ends the wait.
///
/// # Cancellation
/// Safe: the work goes on.
async fn interruptible<T>(
    mut ended: oneshot::Receiver<T>,
    target: &impl Interruptible,
) -> Result<Option<T>, CliError> {
    let mut interrupts = Interrupts::listen()?;
    loop {
        // `biased`: work that is done wins over an interrupt.
        tokio::select! {
            biased;
            ended = &mut ended => {
                let lost = |error| CliError::Start { source: io::Error::other(error) };
                return Ok(Some(ended.map_err(lost)?));
            }
            interrupt = interrupts.next() => {
                if stream::stderr_is_terminal() {
                    // The cursor may be in the middle of a line, such as after a question.
                    stream::write_stderr("\n");
                }
                if !target.interrupt(interrupt) {
                    return Ok(None);
                }
            }
        }
    }
}

/// A request to end the program's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    CtrlC,
    /// SIGTERM, the system's request to end.
    Terminate,
}

/// Listener for SIGINT and SIGTERM.
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(super) fn listen() -> Result<Self, CliError> {
        let listen = |kind| signal(kind).map_err(|source| CliError::Start { source });
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next interrupt.
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
