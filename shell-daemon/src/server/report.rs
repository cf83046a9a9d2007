//! A session's proven posture as protocol messages.

use portcullis_confine::{LayerReport, LayerStatus};

use super::session_thread::SessionForwarding;
use crate::ShellSession;
use portcullis_shell_protocol::{Evidence, Layer, Network, PostureReport};

/// The posture of a session and of its network, with the evidence.
pub(super) fn report(session: &ShellSession, network: Option<&SessionForwarding>) -> PostureReport {
    let posture = session.posture();
    let mut summary = posture.summary();
    if let Some(network) = network.filter(|network| network.forwarder.is_ok()) {
        summary = format!("{summary},egress({})", network.summary);
    }
    PostureReport {
        posture: posture.level().to_string(),
        layers: posture.layers().iter().map(layer).collect(),
        uid: session.user().map(|user| user.uid),
        summary,
        network: network.map(of_network),
    }
}

fn of_network(network: &SessionForwarding) -> Network {
    Network {
        hosts: network.hosts.clone(),
        absence: network.forwarder.as_ref().err().cloned().unwrap_or_default(),
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
