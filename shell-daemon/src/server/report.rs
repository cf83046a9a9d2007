//! A session's proven posture as protocol messages.

use portcullis_confine::{LayerReport, LayerStatus};

use crate::ShellSession;
use portcullis_shell_protocol::{Evidence, Layer, PostureReport};

/// The posture of a session, with its evidence.
pub(super) fn report(session: &ShellSession) -> PostureReport {
    let posture = session.posture();
    PostureReport {
        posture: posture.level().to_string(),
        layers: posture.layers().iter().map(layer).collect(),
        uid: session.user().map(|user| user.uid),
        summary: posture.summary(),
    }
}

fn layer(report: &LayerReport) -> Layer {
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
    Layer {
        name: report.layer.as_str().to_owned(),
        status: status.to_owned(),
        reason,
        evidence: evidence.collect(),
    }
}
