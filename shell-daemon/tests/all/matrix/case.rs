//! A case: what a command tries, and what becomes of it in each posture.

use portcullis_types::ShellPosture;

use super::{
    column::{Column, Who},
    files, network, processes,
};

/// One row of the table in `docs/shell.md`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Completes "a command that …".
    pub(crate) about: &'static str,
    /// Scripts for bash, each of which ends with 0 if and only if it got what it wanted. Words such as
    /// `@vault@` stand for what [`super::column::Place::script`] knows.
    pub(crate) attacks: &'static [&'static str],
    /// In `strong`, `contained`, `minimal` and `none`.
    pub(crate) fates: [Fate; 4],
    /// What is asked besides how the script ended.
    pub(crate) witness: Witness,
}

/// What becomes of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is not done.
    Refused,
    /// It is done: nothing stops it here.
    Open,
    /// It is done, and said after the command.
    Told,
    /// It is ended with all that it started, by the daemon, for what it has.
    Killed,
    /// The same for its time: it would not end by itself.
    Late,
    /// For root without privileges, open; for anybody else, refused. In `none` root has its privileges.
    OpenToRoot,
    /// For root without privileges, refused, since the daemon has more; for anybody else, open.
    OpenToOthers,
}

/// Who knows whether something came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witness {
    /// The attack itself.
    Script,
    /// A listener outside as well, which must have heard something, or nothing.
    Listener,
    /// The attack itself, where the machine has what it is about: some kernels are built without, and some
    /// refuse it to everybody.
    ScriptIfSupported,
}

impl Case {
    /// What happens in one column, without the distinctions between users.
    pub(crate) fn fate(&self, column: Column) -> Fate {
        let position = POSTURES.iter().position(|posture| *posture == column.posture);
        match (self.fates[position.expect("one of the four")], column.who) {
            (Fate::OpenToRoot, Who::Root) | (Fate::OpenToOthers, Who::Ordinary) => Fate::Open,
            (Fate::OpenToRoot, Who::Ordinary) | (Fate::OpenToOthers, Who::Root) => Fate::Refused,
            (fate, _) => fate,
        }
    }
}

/// The order of [`Case::fates`].
pub(crate) const POSTURES: [ShellPosture; 4] =
    [ShellPosture::Strong, ShellPosture::Contained, ShellPosture::Minimal, ShellPosture::None];

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    [files::CASES, network::CASES, processes::CASES].concat()
}

#[test]
fn every_case_that_is_refused_somewhere_is_done_somewhere_else() {
    for case in all() {
        let is_refused = case.fates.iter().any(|fate| !matches!(fate, Fate::Open | Fate::Told));
        let is_done =
            case.fates.iter().any(|fate| !matches!(fate, Fate::Refused | Fate::Killed | Fate::Late));
        // What is killed has the tests of deadlines as its control.
        let is_killed = case.fates.iter().any(|fate| matches!(fate, Fate::Killed | Fate::Late));
        assert!(is_done || is_killed || !is_refused, "`{}` has no control", case.about);
        // More confinement never stops less.
        for pair in case.fates.windows(2) {
            assert!(
                pair[0] != Fate::Open || matches!(pair[1], Fate::Open),
                "`{}` is open in a posture and not in a weaker one",
                case.about
            );
        }
    }
}
