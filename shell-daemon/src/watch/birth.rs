//! The start of a command's shell, as looks see it. Before its `exec`, its process runs our program, which hides
//! its memory, and its memory is not the command's.

use crate::tree::{Process, ProcessesBelow};

/// Whether a command's shell has been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Birth {
    /// No process has been seen.
    Awaited,
    /// One process has ever been seen, which is the shell before its `exec`, or looks like it.
    Unborn(Process),
    Born,
}

impl Birth {
    /// The state after a look, where the command's init has an address space of `init_bytes`.
    ///
    /// A shell before its `exec` uses its init's address space, or a copy of it, so it has the same size. A
    /// command could start processes of that size too, each of which seems to wait for its `exec`. So any other
    /// process than the first one, and the end of that one, means that the shell has run.
    pub(super) fn after(self, below: &ProcessesBelow, init_bytes: Option<u64>) -> Self {
        match (self, below.living.as_slice()) {
            (Self::Awaited, []) if below.ended == 0 => Self::Awaited,
            (Self::Awaited | Self::Unborn(_), [one])
                if below.ended == 0
                    && (self == Self::Awaited || self == Self::Unborn(one.process))
                    && one.may_be_unborn()
                    && init_bytes == Some(one.virtual_bytes) =>
            {
                Self::Unborn(one.process)
            }
            _ => Self::Born,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::ProcessEntry;

    #[test]
    fn a_process_looks_like_the_shell_before_its_program_only_once() {
        let size = 10 << 20;
        let [first, other] = [7, 8].map(|number| ProcessEntry::unborn(number, size));
        let look =
            |living: &[ProcessEntry]| ProcessesBelow { living: living.to_vec(), ..ProcessesBelow::default() };
        let after = |birth: Birth, below: &ProcessesBelow| birth.after(below, Some(size));
        let unborn = after(after(Birth::Awaited, &look(&[])), &look(&[first]));
        assert_eq!(unborn, Birth::Unborn(first.process));
        assert_eq!(after(unborn, &look(&[first])), unborn);
        let (mut with_thread, mut larger) = (first, first);
        with_thread.threads = 2;
        larger.virtual_bytes += 4096;
        for (what, below) in [
            ("nothing", look(&[])),
            ("another process", look(&[other])),
            ("a further process", look(&[first, other])),
            ("a thread", look(&[with_thread])),
            ("more addresses", look(&[larger])),
            ("a zombie", ProcessesBelow { ended: 1, ..look(&[first]) }),
        ] {
            assert_eq!(after(unborn, &below), Birth::Born, "{what}");
            assert_eq!(after(Birth::Born, &below), Birth::Born, "{what}");
        }
        assert_eq!(after(Birth::Awaited, &look(&[larger])), Birth::Born);
        assert_eq!(unborn.after(&look(&[first]), None), Birth::Born);
    }
}
