//! [`SessionPosture`]: a session's layers, and the level that sums them up.

use std::fmt;

use portcullis_confine::{Layer, LayerReport, LayerStatus, ProcessPosture};
use portcullis_types::ShellPosture;

use crate::PostureChoice;

/// The posture that a session proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPosture {
    level: ShellPosture,
    layers: ProcessPosture,
}

impl SessionPosture {
    /// Determines the level: the strongest posture whose layers all hold. With [`PostureChoice::Exactly`] it is never
    /// stronger than the requested posture.
    pub(crate) fn new(layers: ProcessPosture, choice: PostureChoice) -> Self {
        let reached = ShellPosture::ALL.into_iter().rev().find(|level| has_layers(&layers, *level));
        let level = match choice {
            PostureChoice::AtLeast(_) => reached.unwrap_or(ShellPosture::None),
            PostureChoice::Exactly(level) => reached.map_or(ShellPosture::None, |reached| reached.min(level)),
        };
        Self { level, layers }
    }

    /// Returns the level of this posture.
    #[must_use]
    pub fn level(&self) -> ShellPosture {
        self.level
    }

    /// Every layer that was tried, with its evidence. A missing layer has the reason and the remedy. Empty for
    /// [`ShellPosture::None`].
    #[must_use]
    pub fn layers(&self) -> &[LayerReport] {
        self.layers.layers()
    }

    /// Returns the status of one layer, if it was tried.
    #[must_use]
    pub fn layer(&self, layer: Layer) -> Option<&LayerStatus> {
        self.layers.layer(layer)
    }

    /// One line for audit rows: `strong(limits=enforced,privileges=enforced,…)`, or `none`.
    #[must_use]
    pub fn summary(&self) -> String {
        if self.layers().is_empty() {
            return self.level.to_string();
        }
        format!("{}({})", self.level, self.layers.summary())
    }

    /// Returns the layers of `level` that are missing or waived, with the reason.
    pub(crate) fn missing_layers(&self, level: ShellPosture) -> Vec<(Layer, String)> {
        let lacking = required(level).iter().filter(|layer| !is_on(&self.layers, **layer));
        lacking
            .map(|layer| {
                let reason = match self.layer(*layer) {
                    Some(LayerStatus::Missing { reason }) => reason.clone(),
                    Some(LayerStatus::Waived) => "it was left out on request".to_owned(),
                    _ => "it was not examined".to_owned(),
                };
                (*layer, reason)
            })
            .collect()
    }
}

impl fmt::Display for SessionPosture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())
    }
}

/// Returns the layers that a posture requires. No posture requires control groups, because few users may make
/// them.
pub(crate) fn required(level: ShellPosture) -> &'static [Layer] {
    match level {
        ShellPosture::None => &[],
        ShellPosture::Minimal => &STRONG[..2],
        ShellPosture::Contained => &STRONG[..4],
        ShellPosture::Strong => &STRONG,
    }
}

const STRONG: [Layer; 9] = [
    Layer::Limits,
    Layer::Privileges,
    Layer::Landlock,
    Layer::Seccomp,
    Layer::PidNamespace,
    Layer::IpcNamespace,
    Layer::UtsNamespace,
    Layer::NetNamespace,
    Layer::MountNamespace,
];

fn has_layers(layers: &ProcessPosture, level: ShellPosture) -> bool {
    required(level).iter().all(|layer| is_on(layers, *layer))
}

fn is_on(layers: &ProcessPosture, layer: Layer) -> bool {
    matches!(layers.layer(layer), Some(LayerStatus::Enforced | LayerStatus::Partial { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(status: impl Fn(Layer) -> LayerStatus) -> ProcessPosture {
        let report =
            |layer: &Layer| LayerReport { layer: *layer, status: status(*layer), evidence: Vec::new() };
        ProcessPosture::new(STRONG.iter().map(report).collect())
    }

    #[track_caller]
    fn check(missing: &[Layer], choice: PostureChoice, expected: ShellPosture) {
        let status = |layer| {
            if missing.contains(&layer) {
                LayerStatus::Missing { reason: "gone".to_owned() }
            } else {
                LayerStatus::Enforced
            }
        };
        let posture = SessionPosture::new(layers(status), choice);
        assert_eq!(posture.level(), expected, "{missing:?}");
        let lacks: Vec<Layer> =
            posture.missing_layers(ShellPosture::Strong).into_iter().map(|(layer, _)| layer).collect();
        assert_eq!(lacks, missing);
    }

    #[test]
    fn the_level_is_the_strongest_posture_with_all_its_layers() {
        let at_least = PostureChoice::AtLeast(ShellPosture::Minimal);
        check(&[], at_least, ShellPosture::Strong);
        for layer in STRONG[4..].iter().copied() {
            check(&[layer], at_least, ShellPosture::Contained);
        }
        check(&[Layer::Landlock], at_least, ShellPosture::Minimal);
        check(&[Layer::Seccomp], at_least, ShellPosture::Minimal);
        check(&[Layer::Limits], at_least, ShellPosture::None);
        check(&[], PostureChoice::Exactly(ShellPosture::Minimal), ShellPosture::Minimal);
        check(&[Layer::Seccomp], PostureChoice::Exactly(ShellPosture::Contained), ShellPosture::Minimal);
    }

    #[test]
    fn a_summary_names_the_word_and_the_layers() {
        let posture = SessionPosture::new(
            layers(|_| LayerStatus::Enforced),
            PostureChoice::AtLeast(ShellPosture::Strong),
        );
        assert!(posture.summary().starts_with("strong(limits=enforced,privileges=enforced,"), "{posture}");
        let unconfined =
            SessionPosture::new(ProcessPosture::new(Vec::new()), PostureChoice::Exactly(ShellPosture::None));
        assert_eq!(unconfined.summary(), "none");
    }
}
