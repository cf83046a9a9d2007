//! A session's proven posture as protocol messages.

use portcullis_confine::{LayerReport, LayerStatus};
use portcullis_types::error_chain;

use super::session_thread::SessionForwarding;
use crate::{ShellSession, TreeFeature};
use portcullis_shell_protocol::{Evidence, Layer, Network, PostureReport};

/// The posture of a session and its network, with the evidence.
pub(super) fn report(session: &ShellSession, network: Option<&SessionForwarding>) -> PostureReport {
    let posture = session.posture();
    let mut summary = posture.summary();
    if let Some(network) = network.filter(|network| network.forwarder.is_ok()) {
        summary = format!("{summary},egress({})", network.summary);
    }
    let mut layers: Vec<Layer> = posture.layers().iter().map(layer).collect();
    for (name, request, absence) in
        [("hide", session.hiding(), NOTHING_HIDDEN), ("caches", session.cache_copies(), NO_COPIES)]
    {
        let (status, reason) = match request {
            TreeFeature::NotRequested => continue,
            TreeFeature::Active => ("enforced", ""),
            TreeFeature::Unavailable => ("missing", absence),
        };
        summary = format!("{summary},{name}={status}");
        let (name, status, reason) = (name.to_owned(), status.to_owned(), reason.to_owned());
        layers.push(Layer { name, status, reason, evidence: Vec::new() });
    }
    PostureReport {
        posture: posture.level().to_string(),
        layers,
        uid: session.user().map(|user| user.uid),
        summary,
        network: network.map(network_message),
    }
}

/// Why a session cannot hide names.
const NOTHING_HIDDEN: &str = "only a session with its own file tree hides what `[hide]` names, and this one has none; commands can read it";

/// Why a session has no copies of caches.
const NO_COPIES: &str = "only a session with its own file tree has copies of `[shell] caches`, and this one has none; commands read the caches and cannot write them";

fn network_message(network: &SessionForwarding) -> Network {
    Network {
        hosts: network.hosts.clone(),
        absence: network.forwarder.as_ref().err().map(|error| error_chain(error)).unwrap_or_default(),
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
        attempt: evidence.probe.to_string(),
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
