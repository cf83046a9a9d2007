//! A case: an attack by a command, and its fate in each posture.

use portcullis_types::ShellPosture;

use super::{
    column::{Column, SidecarUser},
    files, network, processes,
};

/// One row of the table in `docs/shell.md`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Completes "a command that …".
    pub(crate) about: &'static str,
    /// Scripts for bash. Each ends with 0 if and only if its attack succeeded. Words such as `@vault@` are
    /// replaced by [`super::column::TrialSetup::script`].
    pub(crate) attacks: &'static [&'static str],
    /// The fates in `strong`, `contained`, `minimal` and `none`.
    pub(crate) fates: [Fate; 4],
    /// The evidence in addition to the script's exit code.
    pub(crate) witness: Witness,
}

/// The fate of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The attack fails.
    Refused,
    /// The attack succeeds: no layer stops it here.
    Open,
    /// The attack succeeds, and is reported after the command.
    Told,
    /// The sidecar kills the command with all its processes for exceeding a limit.
    Killed,
    /// The sidecar kills the command at its deadline: the command would not end by itself.
    Late,
    /// Open for root without privileges, refused to any other user. In `none` root has its privileges.
    OpenToRoot,
    /// Refused to root without privileges, because the sidecar has more privileges. Open for any other user.
    OpenToOthers,
}

/// The evidence of an attack's success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Witness {
    /// The attack's exit code.
    Script,
    /// The exit code, and a listener outside the session. The listener must have received something if and only if
    /// the attack succeeded.
    Listener,
    /// The attack's exit code, if the machine has the feature: some kernels are built without it, and some
    /// refuse it to every user.
    ScriptIfSupported,
}

impl Case {
    /// The fate in one column, without distinctions between users.
    pub(crate) fn fate(&self, column: Column) -> Fate {
        let position = POSTURES.iter().position(|posture| *posture == column.posture);
        match (self.fates[position.expect("one of the four")], column.user) {
            (Fate::OpenToRoot, SidecarUser::Root) | (Fate::OpenToOthers, SidecarUser::Ordinary) => Fate::Open,
            (Fate::OpenToRoot, SidecarUser::Ordinary) | (Fate::OpenToOthers, SidecarUser::Root) => {
                Fate::Refused
            }
            (fate, _) => fate,
        }
    }
}

/// The order of [`Case::fates`].
pub(crate) const POSTURES: [ShellPosture; 4] =
    [ShellPosture::Strong, ShellPosture::Contained, ShellPosture::Minimal, ShellPosture::None];

pub(crate) fn all() -> Vec<Case> {
    [files::CASES, network::CASES, processes::CASES].concat()
}

#[test]
fn every_case_that_is_refused_somewhere_is_done_somewhere_else() {
    for case in all() {
        let is_refused = case.fates.iter().any(|fate| !matches!(fate, Fate::Open | Fate::Told));
        let is_done =
            case.fates.iter().any(|fate| !matches!(fate, Fate::Refused | Fate::Killed | Fate::Late));
        // The tests of deadlines are the control for killed attacks.
        let is_killed = case.fates.iter().any(|fate| matches!(fate, Fate::Killed | Fate::Late));
        assert!(is_done || is_killed || !is_refused, "`{}` has no control", case.about);
        // A stronger posture never stops less.
        for pair in case.fates.windows(2) {
            assert!(
                pair[0] != Fate::Open || matches!(pair[1], Fate::Open),
                "`{}` is open in a posture and not in a weaker one",
                case.about
            );
        }
    }
}
