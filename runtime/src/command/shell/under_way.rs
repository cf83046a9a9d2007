//! The current state of `portcullis shell`, for interrupts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_types::CancellationToken;

use crate::{
    command::interrupts::{Interrupt, Interruptible},
    output::stream,
};

/// The prompt for the next command.
pub(super) const PROMPT: &str = "portcullis$ ";

/// The current state, shared with the thread that handles interrupts.
#[derive(Debug, Clone, Default)]
pub(super) struct UnderWay(Arc<Mutex<UnderWayState>>);

#[derive(Debug, Default)]
struct UnderWayState {
    doing: ShellActivity,
    /// Whether the system has asked to end. No command follows then.
    is_over: bool,
}

#[derive(Debug, Default)]
enum ShellActivity {
    /// Nothing that needs cleaning up.
    #[default]
    Nothing,
    /// Waiting for a person to type a command.
    Asking,
    /// Running a command, which the token cancels.
    Command(CancellationToken),
}

impl UnderWay {
    /// Goes on to the next command, with a prompt if `is_asked_for`; `false` if none must follow.
    pub(super) fn next(&self, is_asked_for: bool) -> bool {
        self.goes_on_to(if is_asked_for { ShellActivity::Asking } else { ShellActivity::Nothing })
    }

    /// Starts a command, and returns the token that cancels it; none if it must not run.
    pub(super) fn command(&self) -> Option<CancellationToken> {
        let cancel = CancellationToken::new();
        self.goes_on_to(ShellActivity::Command(cancel.clone())).then_some(cancel)
    }

    fn goes_on_to(&self, doing: ShellActivity) -> bool {
        let mut state = self.state();
        state.doing = doing;
        !state.is_over
    }

    fn state(&self) -> MutexGuard<'_, UnderWayState> {
        // Every change is complete in itself, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interruptible for UnderWay {
    /// Cancels a running command. After Ctrl-C the next command may follow; a half-typed one is dropped, as
    /// in shells.
    fn interrupt(&self, interrupt: Interrupt) -> bool {
        let is_asked_again = {
            let mut state = self.state();
            state.is_over |= interrupt == Interrupt::Terminate;
            match &state.doing {
                ShellActivity::Command(cancel) => return cancel.interrupt(interrupt),
                ShellActivity::Asking => interrupt == Interrupt::CtrlC,
                ShellActivity::Nothing => false,
            }
        };
        // Print without the lock: a terminal may block.
        if is_asked_again {
            stream::write_stderr(PROMPT);
        }
        is_asked_again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_cancels_one_command_and_sigterm_lets_no_other_run() {
        let under_way = UnderWay::default();
        assert!(under_way.next(false));
        let first = under_way.command().expect("runs");
        assert!(under_way.interrupt(Interrupt::CtrlC) && first.is_cancelled());
        let second = under_way.command().expect("runs");
        assert!(!second.is_cancelled());
        // It may have ended by now; in any state, no command follows.
        assert!(under_way.interrupt(Interrupt::Terminate) && second.is_cancelled());
        assert!(!under_way.next(true));
        assert!(under_way.command().is_none());
    }

    #[test]
    fn idle_shell_is_not_waited_for_on_interrupt() {
        let under_way = UnderWay::default();
        assert!(!under_way.interrupt(Interrupt::CtrlC), "it starts");
        under_way.next(false);
        assert!(!under_way.interrupt(Interrupt::CtrlC), "between two commands of a list");
        under_way.next(true);
        assert!(!under_way.interrupt(Interrupt::Terminate), "at the prompt");
    }

    #[test]
    fn the_second_interrupt_of_a_command_is_not_waited_for() {
        let under_way = UnderWay::default();
        under_way.command().expect("runs");
        assert!(under_way.interrupt(Interrupt::CtrlC));
        assert!(!under_way.interrupt(Interrupt::CtrlC));
    }
}
