//! The network of sessions: the rules that apply, the sessions that have a network, and the end of their connections.

use std::{
    io::Read as _,
    net::{Ipv4Addr, TcpListener, TcpStream},
};

use portcullis_policy::ShellNetwork;
use portcullis_shell_daemon::{PostureChoice, SidecarNetwork, SidecarServerConfig};
use portcullis_shell_protocol::{
    CreateSessionRequest, CreateSessionResponse, HealthRequest, KillSessionRequest, NetworkRequest,
};
use portcullis_types::ShellPosture;

use super::sidecar::{Shell, code, config, embedded, everything, exec, output, run};
use crate::fixture::Fixture;

fn network(hosts: &[String], private: &[String]) -> ShellNetwork {
    ShellNetwork {
        hosts: hosts.iter().map(|rule| rule.parse().unwrap()).collect(),
        allow_private: private.iter().map(|endpoint| endpoint.parse().unwrap()).collect(),
    }
}

fn with_network(fixture: &Fixture, rules: ShellNetwork) -> SidecarServerConfig {
    let network = SidecarNetwork { rules, ca: None, proxy: None, landlock: true, seccomp: true };
    SidecarServerConfig { network: Some(network), ..config(fixture) }
}

async fn create(shell: &mut Shell, network: Option<NetworkRequest>) -> CreateSessionResponse {
    shell.create_session(CreateSessionRequest { network, ..everything() }).await.unwrap().into_inner()
}

fn asking(hosts: &[String], allow_private: &[String]) -> Option<NetworkRequest> {
    Some(NetworkRequest { hosts: hosts.to_vec(), allow_private: allow_private.to_vec() })
}

/// The status line of the answer to a request for a tunnel.
async fn ask(shell: &mut Shell, session: &str, target: &str) -> String {
    let command = format!(
        "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT {target} HTTP/1.1\\r\\n\\r\\n' >&3; read -r answer <&3; \
         echo \"$answer\""
    );
    output(shell, session, &command).await.trim().to_owned()
}

/// A listener of this machine, with the rule and the endpoints that let `localhost` reach it.
fn listener() -> (TcpListener, String, [String; 2]) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("https://localhost:{port}"), [format!("127.0.0.1:{port}"), format!("[::1]:{port}")])
}

#[tokio::test]
async fn a_connection_must_pass_the_sidecars_rules_and_the_clients() {
    let Some(fixture) = Fixture::strong() else { return };
    let (listener, rule, private) = listener();
    let port = listener.local_addr().unwrap().port();
    let other = format!("https://other.test:{port}");
    let own = network(&[rule.clone(), other.clone()], &private);
    let (_sidecar, mut shell) = embedded(with_network(&fixture, own)).await;
    let target = format!("localhost:{port}");
    for (hosts, endpoints, requested_target, status) in [
        (vec![rule.clone()], &private[..], &target, "200"),
        (vec!["https://*:1".to_owned()], &private, &target, "403"),
        // The client's operator does not permit the address.
        (vec![rule.clone()], &[], &target, "403"),
        (vec!["https://evil.test".to_owned(), rule.clone()], &private, &"evil.test:443".to_owned(), "403"),
        (vec![], &private, &target, "403"),
    ] {
        let session = create(&mut shell, asking(&hosts, endpoints)).await;
        let report = session.posture.unwrap().network.unwrap();
        assert_eq!(report.absence, "", "{hosts:?}");
        let line = ask(&mut shell, &session.session_id, requested_target).await;
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status} ")),
            "{hosts:?} {endpoints:?} {requested_target}: {line}"
        );
    }
}

#[tokio::test]
async fn a_session_that_asks_for_none_has_no_network() {
    let Some(fixture) = Fixture::strong() else { return };
    let (_listener, rule, private) = listener();
    let (_sidecar, mut shell) = embedded(with_network(&fixture, network(&[rule], &private))).await;
    let session = create(&mut shell, None).await;
    let posture = session.posture.unwrap();
    assert!(posture.network.is_none() && !posture.summary.contains("egress"), "{posture:?}");
    let tried = exec(&session.session_id, "echo \"$HTTPS_PROXY\"; exec 3<>/dev/tcp/127.0.0.1/3128");
    let result = run(&mut shell, tried).await.unwrap();
    assert!(result.stderr.contains("Operation not permitted") && result.stdout == "\n", "{result:?}");
}

#[tokio::test]
async fn a_session_that_cannot_have_a_network_says_why() {
    let Some(fixture) = Fixture::strong() else { return };
    let (_listener, rule, private) = listener();
    let without = config(&fixture);
    let weak = SidecarServerConfig {
        posture: PostureChoice::Exactly(ShellPosture::Contained),
        ..with_network(&fixture, network(std::slice::from_ref(&rule), &private))
    };
    for (config, why) in [
        (without, "the sidecar's policy has no `hosts` in `[shell]`"),
        (weak, "only sessions of the posture `strong` have a network"),
    ] {
        let (_sidecar, mut shell) = embedded(config).await;
        let session = create(&mut shell, asking(std::slice::from_ref(&rule), &private)).await;
        assert_eq!(session.posture.unwrap().network.unwrap().absence, why);
        let tried = exec(&session.session_id, "exec 3<>/dev/tcp/127.0.0.1/3128");
        assert!(run(&mut shell, tried).await.unwrap().stderr.contains("Operation not permitted"));
    }
}

#[tokio::test]
async fn rules_of_a_client_are_checked() {
    let Some(fixture) = Fixture::strong() else { return };
    let (_listener, rule, private) = listener();
    let (_sidecar, mut shell) =
        embedded(with_network(&fixture, network(std::slice::from_ref(&rule), &private))).await;
    let many = vec![rule.clone(); 600];
    for (network, all_hosts) in [
        (asking(&["http://localhost".to_owned()], &[]), false),
        (asking(&["https://127.0.0.1".to_owned()], &[]), false),
        (asking(&[], &["localhost:1".to_owned()]), false),
        (asking(&many, &[]), false),
        (asking(std::slice::from_ref(&rule), &[]), true),
    ] {
        let request = CreateSessionRequest { network, all_hosts, ..everything() };
        assert_eq!(code(&shell.create_session(request).await.unwrap_err()), "invalid");
    }
}

#[tokio::test]
async fn health_shows_the_hosts() {
    let Some(fixture) = Fixture::strong() else { return };
    let (_listener, rule, private) = listener();
    let (_sidecar, mut shell) =
        embedded(with_network(&fixture, network(std::slice::from_ref(&rule), &private))).await;
    let posture = shell.health(HealthRequest::default()).await.unwrap().into_inner().posture.unwrap();
    assert!(posture.summary.contains(",egress(landlock="), "{}", posture.summary);
    let network = posture.network.unwrap();
    assert_eq!((network.hosts, network.absence), (vec![rule], String::new()));
    let evidence: Vec<String> = posture
        .layers
        .iter()
        .filter(|layer| layer.name == "net_ns")
        .flat_map(|layer| &layer.evidence)
        .map(|evidence| format!("{} {} {}", evidence.attempt, evidence.before, evidence.after))
        .collect();
    assert!(
        evidence.contains(
            &"connect to a port of the machine, beside a loopback device ok ECONNREFUSED".to_owned()
        ),
        "{evidence:?}"
    );
}

#[tokio::test]
async fn connections_end_with_their_session() {
    let Some(fixture) = Fixture::strong() else { return };
    let (listener, rule, private) = listener();
    let port = listener.local_addr().unwrap().port();
    let (_sidecar, mut shell) =
        embedded(with_network(&fixture, network(std::slice::from_ref(&rule), &private))).await;
    let session = create(&mut shell, asking(&[rule], &private)).await.session_id;
    // A job that waits for an answer that never arrives.
    let job = format!("curl --silent --max-time 1000 https://localhost:{port}/ & echo started");
    let result = run(&mut shell, exec(&session, &job)).await.unwrap();
    assert!(result.exited.jobs_left, "{result:?}");
    // The attempt of a confined thread's canary also connects, and sends nothing. `accepted` skips it.
    let mut connection = accepted(&listener);
    let ended = shell.kill_session(KillSessionRequest { session_id: session.clone() }).await;
    ended.unwrap();
    let mut rest = Vec::new();
    let read = connection.read_to_end(&mut rest);
    assert!(read.is_ok() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    let refused = run(&mut shell, exec(&session, "true")).await.unwrap_err();
    assert_eq!(code(&refused), "not_found");
}

/// The first connection that sends something.
fn accepted(listener: &TcpListener) -> TcpStream {
    loop {
        let (mut connection, _) = listener.accept().unwrap();
        if connection.read_exact(&mut [0]).is_ok() {
            return connection;
        }
    }
}
