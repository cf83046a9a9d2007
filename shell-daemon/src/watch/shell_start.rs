//! Detects the start of a command's shell. Before its `exec`, the process still runs this program. Its memory
//! is hidden and does not count for the command.

use crate::tree::{Process, ProcessesBelow};

/// The stage of the start of a command's shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShellStart {
    /// No process was seen yet.
    Pending,
    /// Exactly one process was seen so far: the shell before its `exec`, or a process that looks like it.
    BeforeExec(Process),
    /// The shell runs or has run.
    Running,
}

impl ShellStart {
    /// The stage after a sample. The command's init has an address space of `init_bytes`.
    ///
    /// Before its `exec`, a shell uses its init's address space or a copy of it, so the sizes are equal. A
    /// command could also start processes of that size, and each would seem to wait for its `exec`. So a
    /// second process, or the end of the first one, means that the shell has run.
    pub(super) fn after(self, below: &ProcessesBelow, init_bytes: Option<u64>) -> Self {
        match (self, below.living.as_slice()) {
            (Self::Pending, []) if below.ended == 0 => Self::Pending,
            (Self::Pending | Self::BeforeExec(_), [one])
                if below.ended == 0
                    && (self == Self::Pending || self == Self::BeforeExec(one.process))
                    && one.may_be_before_exec()
                    && init_bytes == Some(one.virtual_bytes) =>
            {
                Self::BeforeExec(one.process)
            }
            _ => Self::Running,
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
        let [first, other] = [7, 8].map(|number| ProcessEntry::before_exec(number, size));
        let sample =
            |living: &[ProcessEntry]| ProcessesBelow { living: living.to_vec(), ..ProcessesBelow::default() };
        let after = |shell_start: ShellStart, below: &ProcessesBelow| shell_start.after(below, Some(size));
        let before_exec = after(after(ShellStart::Pending, &sample(&[])), &sample(&[first]));
        assert_eq!(before_exec, ShellStart::BeforeExec(first.process));
        assert_eq!(after(before_exec, &sample(&[first])), before_exec);
        let (mut with_thread, mut larger) = (first, first);
        with_thread.threads = 2;
        larger.virtual_bytes += 4096;
        for (what, below) in [
            ("nothing", sample(&[])),
            ("another process", sample(&[other])),
            ("a further process", sample(&[first, other])),
            ("a thread", sample(&[with_thread])),
            ("more addresses", sample(&[larger])),
            ("a zombie", ProcessesBelow { ended: 1, ..sample(&[first]) }),
        ] {
            assert_eq!(after(before_exec, &below), ShellStart::Running, "{what}");
            assert_eq!(after(ShellStart::Running, &below), ShellStart::Running, "{what}");
        }
        assert_eq!(after(ShellStart::Pending, &sample(&[larger])), ShellStart::Running);
        assert_eq!(before_exec.after(&sample(&[first]), None), ShellStart::Running);
    }
}
