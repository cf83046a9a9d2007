//! What a session has proven, in the words of the protocol.

use portcullis_confine::{Layer, LayerReport, LayerStatus, ProcessPosture};
use portcullis_types::ShellPosture;

use crate::{
    ShellSession,
    protocol::{Evidence, Layer as LayerMessage, PostureReport},
};

/// The posture of a session, with its evidence.
pub(super) fn report(session: &ShellSession) -> PostureReport {
    let posture = shell_posture(session.posture());
    PostureReport {
        posture: posture.to_string(),
        layers: session.posture().layers().iter().map(layer).collect(),
        uid: session.user().map(|user| user.uid),
        summary: format!("{posture}({})", session.posture().summary()),
    }
}

/// The word for what was proven.
pub(super) fn shell_posture(proven: &ProcessPosture) -> ShellPosture {
    let holds =
        |layer| matches!(proven.layer(layer), Some(LayerStatus::Enforced | LayerStatus::Partial { .. }));
    if Layer::PROCESS.into_iter().all(holds) {
        ShellPosture::Contained
    } else if holds(Layer::Limits) {
        ShellPosture::Minimal
    } else {
        ShellPosture::None
    }
}

fn layer(report: &LayerReport) -> LayerMessage {
    let (status, reason) = match &report.status {
        LayerStatus::Enforced => ("enforced", String::new()),
        LayerStatus::Partial { missing } => ("partial", missing.join(", ")),
        LayerStatus::Waived => ("waived", String::new()),
        LayerStatus::Missing { reason } => ("missing", reason.clone()),
    };
    let evidence = report.evidence.iter().map(|evidence| Evidence {
        attempt: evidence.canary.to_string(),
        before: evidence.before.to_string(),
        after: evidence.after.to_string(),
    });
    LayerMessage {
        name: report.layer.as_str().to_owned(),
        status: status.to_owned(),
        reason,
        evidence: evidence.collect(),
    }
}
