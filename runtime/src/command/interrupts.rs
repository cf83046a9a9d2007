//! Handles Ctrl-C during work: the first cancels the work, the second ends the wait for it. A command with
//! several steps implements [`Interruptible`] to define the effect itself.

use portcullis_types::CancellationToken;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use crate::{error::CliError, output::stream, setup};

/// The exit code that shells expect from a program that an interrupt ended: 128 plus the number of SIGINT.
pub(super) const INTERRUPTED: u8 = 130;

/// Work that reacts to interrupts.
pub(super) trait Interruptible {
    /// Reacts to an interrupt. Returns `false` if the program must stop waiting for the work.
    fn interrupt(&self, interrupt: Interrupt) -> bool;
}

/// The work of one call. The first interrupt cancels the call, and the call's audit row records the
/// cancellation.
impl Interruptible for CancellationToken {
    fn interrupt(&self, _interrupt: Interrupt) -> bool {
        let is_first = !self.is_cancelled();
        self.cancel();
        is_first
    }
}

/// Runs work on a separate thread, so that interrupts are handled while the work blocks. Returns `None` if an
/// interrupt ended the wait.
pub(super) fn run_interruptibly<T: Send + 'static>(
    target: &impl Interruptible,
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<Option<T>, CliError> {
    let (sender, result_receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name("portcullis-call".to_owned())
        .spawn(move || {
            // Ignore the error: after a second interrupt the receiver is gone.
            let _ = sender.send(work());
        })
        .map_err(|source| CliError::Start { source })?;
    setup::runtime()?.block_on(wait_or_interrupt(result_receiver, target))?.transpose()
}

/// Waits until the work is done or an interrupt ends the wait.
///
/// # Cancellation
/// Safe: the work continues.
async fn wait_or_interrupt<T>(
    mut result_receiver: oneshot::Receiver<T>,
    target: &impl Interruptible,
) -> Result<Option<T>, CliError> {
    let mut interrupts = Interrupts::listen()?;
    loop {
        // `biased`: if the work is done, a concurrent interrupt has no effect.
        tokio::select! {
            biased;
            result = &mut result_receiver => {
                // The sender is dropped without a result only if the work's thread has panicked.
                return Ok(Some(result.map_err(|_dropped| CliError::Panicked)?));
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
    /// SIGTERM, a termination request from outside the terminal.
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
