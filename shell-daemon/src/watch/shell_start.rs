//! Detects the start of a command's shell. Until its `exec`, the shell's process is a copy of this program, which is
//! not dumpable: its memory cannot be read, and is not counted.

use crate::tree::{Descendants, Process};

/// The stage of the start of a command's shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShellStart {
    /// No process has been seen yet.
    Pending,
    /// Exactly one process has been seen: the shell before its `exec`, or a process that looks like it.
    BeforeExec(Process),
    /// The shell runs or has run.
    Running,
}

impl ShellStart {
    /// The stage after a sample. `init_bytes` is the size of the address space of the command's init.
    ///
    /// Before its `exec`, a shell uses the address space of the init or a copy, so the sizes are equal. A command could
    /// also start processes of that size, and each would seem to wait for its `exec`. Therefore a second process, or
    /// the end of the first process, means that the shell has run.
    pub(super) fn next_stage(self, descendants: &Descendants, init_bytes: Option<u64>) -> Self {
        match (self, descendants.living_processes.as_slice()) {
            (Self::Pending, []) if descendants.ended == 0 => Self::Pending,
            (Self::Pending | Self::BeforeExec(_), [first_process])
                if descendants.ended == 0
                    && (self == Self::Pending || self == Self::BeforeExec(first_process.process))
                    && first_process.may_be_before_exec()
                    && init_bytes == Some(first_process.virtual_bytes) =>
            {
                Self::BeforeExec(first_process.process)
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
    fn only_the_first_process_counts_as_the_shell_before_its_exec() {
        let size = 10 << 20;
        let [first, other] = [7, 8].map(|number| ProcessEntry::before_exec(number, size));
        let sample = |living: &[ProcessEntry]| Descendants {
            living_processes: living.to_vec(),
            ..Descendants::default()
        };
        let next_stage = |shell_start: ShellStart, descendants: &Descendants| {
            shell_start.next_stage(descendants, Some(size))
        };
        let before_exec = next_stage(next_stage(ShellStart::Pending, &sample(&[])), &sample(&[first]));
        assert_eq!(before_exec, ShellStart::BeforeExec(first.process));
        assert_eq!(next_stage(before_exec, &sample(&[first])), before_exec);
        let (mut with_thread, mut larger) = (first, first);
        with_thread.threads = 2;
        larger.virtual_bytes += 4096;
        for (what, descendants) in [
            ("nothing", sample(&[])),
            ("another process", sample(&[other])),
            ("a further process", sample(&[first, other])),
            ("a thread", sample(&[with_thread])),
            ("more addresses", sample(&[larger])),
            ("a zombie", Descendants { ended: 1, ..sample(&[first]) }),
        ] {
            assert_eq!(next_stage(before_exec, &descendants), ShellStart::Running, "{what}");
            assert_eq!(next_stage(ShellStart::Running, &descendants), ShellStart::Running, "{what}");
        }
        assert_eq!(next_stage(ShellStart::Pending, &sample(&[larger])), ShellStart::Running);
        assert_eq!(before_exec.next_stage(&sample(&[first]), None), ShellStart::Running);
    }
}
