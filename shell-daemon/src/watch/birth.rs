//! The start of a command's shell, as looks see it. Before its `exec`, its process runs our program, which hides
//! its memory, and its memory is not the command's.

use std::time::Instant;

use crate::{
    limits::UNBORN_TIME,
    tree::{Below, Process},
};

/// Whether a command's shell has been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Birth {
    /// No process has been seen.
    Awaited,
    /// One process has ever been seen, which may be the shell before its `exec`.
    Unborn {
        process: Process,
        since: Instant,
    },
    Born,
}

impl Birth {
    /// The state after a look. A command could start many processes one after the other that each look like a
    /// shell before its `exec`, so any other process than the first one, and the end of that one, means that
    /// the shell has run.
    pub(super) fn after(self, below: &Below, now: Instant) -> Self {
        match (self, below.living.as_slice()) {
            (Self::Awaited, []) if below.ended == 0 => Self::Awaited,
            (Self::Awaited, [one]) if below.ended == 0 && one.may_be_unborn() => {
                Self::Unborn { process: one.process, since: now }
            }
            (Self::Unborn { process, since }, [one])
                if below.ended == 0
                    && one.process == process
                    && one.may_be_unborn()
                    && now.duration_since(since) < UNBORN_TIME =>
            {
                self
            }
            _ => Self::Born,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Entry;

    #[test]
    fn a_process_looks_like_the_shell_before_its_program_only_once() {
        let pids = [rustix::process::getpid(), rustix::process::Pid::INIT];
        let entries = pids.map(|pid| Entry::unborn(pid).expect("it runs"));
        let look = |living: &[Entry]| Below { living: living.to_vec(), ..Below::default() };
        let begun = Instant::now();
        let after = |birth: Birth, below: &Below| birth.after(below, begun);
        let first = after(after(Birth::Awaited, &look(&[])), &look(&entries[..1]));
        assert_eq!(first, Birth::Unborn { process: entries[0].process, since: begun });
        assert_eq!(after(first, &look(&entries[..1])), first);
        let waited = Below { ended: 1, ..look(&entries[..1]) };
        for (what, below) in [
            ("nothing", look(&[])),
            ("another process", look(&entries[1..])),
            ("a further process", look(&entries)),
            ("a zombie", waited),
        ] {
            assert_eq!(after(first, &below), Birth::Born, "{what}");
            assert_eq!(after(Birth::Born, &below), Birth::Born, "{what}");
        }
        assert_eq!(first.after(&look(&entries[..1]), begun + UNBORN_TIME), Birth::Born);
    }
}
