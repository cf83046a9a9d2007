//! The current activity of an interactive command, which decides the effect of an interrupt.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use portcullis_types::CancellationToken;

use super::interrupts::{Interrupt, Interruptible};

/// The current state, shared with the thread that handles interrupts.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<Mutex<ProgressState>>);

#[derive(Debug, Default)]
struct ProgressState {
    activity: Activity,
    /// Whether SIGTERM has asked the program to end. No further line is then processed.
    is_terminated: bool,
}

#[derive(Debug, Default)]
enum Activity {
    /// No activity that needs cleaning up.
    #[default]
    Nothing,
    /// Waiting for a person to type a line.
    Asking,
    /// Executing a line, until the token cancels it.
    Work(CancellationToken),
}

impl Progress {
    /// Begins the next line, which a person types if `is_interactive`. Returns `false` if no line may follow.
    pub(super) fn begin_next(&self, is_interactive: bool) -> bool {
        self.begin_activity(if is_interactive { Activity::Asking } else { Activity::Nothing })
    }

    /// Starts work, and returns the token that cancels it. Returns `None` if the work must not begin.
    pub(super) fn begin_work(&self) -> Option<CancellationToken> {
        let cancel = CancellationToken::new();
        self.begin_activity(Activity::Work(cancel.clone())).then_some(cancel)
    }

    fn begin_activity(&self, activity: Activity) -> bool {
        let mut state = self.state();
        // One lock for both fields, so that a SIGTERM cannot arrive between them.
        state.activity = activity;
        !state.is_terminated
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.0.lock()
    }
}

impl Interruptible for Progress {
    /// Cancels the running work. After Ctrl-C the next line may follow. At a prompt, the line editor reads
    /// Ctrl-C as a key, so a signal at a prompt comes from another process and has no effect.
    fn interrupt(&self, interrupt: Interrupt) -> bool {
        let mut state = self.state();
        state.is_terminated |= interrupt == Interrupt::Terminate;
        match &state.activity {
            Activity::Work(cancel) => cancel.interrupt(interrupt),
            Activity::Asking => interrupt == Interrupt::CtrlC,
            Activity::Nothing => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_cancels_one_work_and_sigterm_lets_no_other_begin() {
        let progress = Progress::default();
        assert!(progress.begin_next(false));
        let first = progress.begin_work().expect("runs");
        assert!(progress.interrupt(Interrupt::CtrlC) && first.is_cancelled());
        let second = progress.begin_work().expect("runs");
        assert!(!second.is_cancelled());
        // The work may have ended. In any state, no further line follows.
        assert!(progress.interrupt(Interrupt::Terminate) && second.is_cancelled());
        assert!(!progress.begin_next(true));
        assert!(progress.begin_work().is_none());
    }

    #[test]
    fn a_command_without_work_is_not_waited_for_on_interrupt() {
        let progress = Progress::default();
        assert!(!progress.interrupt(Interrupt::CtrlC), "it starts");
        progress.begin_next(false);
        assert!(!progress.interrupt(Interrupt::CtrlC), "between two commands of a list");
        progress.begin_next(true);
        assert!(progress.interrupt(Interrupt::CtrlC), "at the prompt");
        assert!(!progress.interrupt(Interrupt::Terminate), "at the prompt");
    }

    #[test]
    fn the_second_interrupt_of_work_is_not_waited_for() {
        let progress = Progress::default();
        progress.begin_work().expect("runs");
        assert!(progress.interrupt(Interrupt::CtrlC));
        assert!(!progress.interrupt(Interrupt::CtrlC));
    }
}
