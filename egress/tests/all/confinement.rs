//! The posture of the client's threads, and the ports that they can connect to.

use std::sync::Arc;

use portcullis_confine::{LayerStatus, SyscallOutcome};
use portcullis_egress::{DnsConfig, RequestLimits};

use crate::fixture::{Authority, Client, RecordingJudge, Server, assert_code, loopback, ok};

#[tokio::test]
async fn the_posture_has_the_proof_of_each_way_out() {
    let client =
        Client::with_settings(&[443], DnsConfig::with_servers(vec![loopback(53)]), &Authority::new().pem);
    let posture = client.egress.posture();
    if *posture.seccomp() == LayerStatus::Waived || *posture.landlock() == LayerStatus::Waived {
        return;
    }
    assert_eq!(posture.network(), Some(&[53, 443].into()));
    assert!(posture.summary().contains("seccomp=enforced"), "{posture}");
    for canary in ["make a UDP socket", "make an MPTCP socket", "connect by a first message (MSG_FASTOPEN)"] {
        let evidence = posture.evidence().iter().find(|evidence| evidence.probe == canary).unwrap();
        assert_ne!(evidence.after, SyscallOutcome::Succeeded, "{canary}");
    }
}

#[tokio::test]
async fn a_port_that_is_not_named_is_closed() {
    let (listed, other) = (Server::answering(ok("hi")), Server::answering(ok("hi")));
    // The name server's port is open for resolving names only.
    let names = DnsConfig::with_servers(vec![loopback(other.port)]);
    let client = Client::with_settings(&[listed.port], names, &Authority::new().pem);
    let judge = Arc::new(RecordingJudge { limits: RequestLimits::default(), ..RecordingJudge::default() });
    client.get(&listed.url("/"), &judge).await.unwrap();
    assert_code(client.get(&other.url("/"), &judge).await, "port_closed");
    assert_eq!(other.requests(), 0);
}
