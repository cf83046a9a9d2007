//! A shell with a list of hosts. Programs reach these hosts through the forwarder and have no other route.

mod hostile;
mod programs;
mod reading;
mod server;

use std::fs;

use portcullis_testing::{CallOutcome, Fixture, kernel_environment::KernelEnvironment};
use portcullis_tools::audit::RecordedConnection;
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::{Shell, machine::shell_on};
use crate::modules::{portcullis, stdout};
use server::Server;

/// Creates a fixture whose shell reaches this server as `localhost`, and trusts the server's authority.
fn fixture(server: &Server) -> Fixture {
    fixture_with_posture(server, "strong")
}

fn fixture_with_posture(server: &Server, posture: &str) -> Fixture {
    let port = server.port();
    let fixture = Fixture::new();
    let ca = fixture.root().join("authority.pem");
    fs::write(&ca, server.authority()).expect("written");
    fixture
        .with_policy_edit(
            "posture     = \"contained\"",
            &format!("posture = \"{posture}\"\nhosts = [\"https://localhost:{port}\"]"),
        )
        .with_policy_edit(
            "allow_private = []",
            // `localhost` has both addresses.
            &format!("ca = {ca:?}\nallow_private = [\"127.0.0.1:{port}\", \"[::1]:{port}\"]"),
        )
}

async fn shell(server: &Server) -> Shell {
    Shell::with_fixture(fixture(server)).await
}

/// Returns the connections in the last row with this `end`.
fn connections(shell: &Shell, end: &str) -> Vec<RecordedConnection> {
    let row = shell.last_row();
    row.connections.into_iter().filter(|connection| *connection.end == *end).collect()
}

/// Returns a bash command that asks for a tunnel, sends nothing more, and prints the first line of the
/// answer.
fn tunnel_command(target: &str) -> String {
    format!(
        "exec 3<>/dev/tcp/127.0.0.1/3128 && printf 'CONNECT {target} HTTP/1.1\\r\\n\\r\\n' >&3 && \
         read -r answer <&3; echo \"$answer\"; exec 3>&-"
    )
}

#[tokio::test]
async fn a_granted_host_is_reached_and_the_row_says_so() {
    let server = Server::start();
    server.put("page", b"hello from the server\n");
    let shell = shell(&server).await;
    let text = shell.text(&format!("curl --silent --show-error {}", server.url("page"))).await;
    assert_eq!(text, "hello from the server\n");
    let row = shell.last_row();
    let [connection] = row.connections.as_slice() else { panic!("{:?}", row.connections) };
    assert_eq!(connection.host.as_deref(), Some("localhost"));
    assert_eq!(connection.port, Some(server.port()));
    assert_eq!((connection.address.as_deref(), connection.count), (Some("127.0.0.1"), 1));
    assert!(connection.sent > 200 && connection.received > 500, "{connection:?}");
    assert!(["closed", "broken"].contains(&&*connection.end), "{connection:?}");
    let posture = row.posture.expect("proven");
    assert!(posture.starts_with("strong(") && posture.contains(",egress(landlock="), "{posture}");
    assert!(posture.contains(&format!("{}", server.port())), "{posture}");
}

#[tokio::test]
async fn a_command_goes_through_the_operators_proxy_alone() {
    let proxy = crate::web::server::Server::start(|_target| crate::web::server::status("403 Forbidden"));
    let server = Server::start();
    let to_proxy = format!("[egress]\nproxy = \"http://127.0.0.1:{}\"\n#", proxy.port());
    let shell = Shell::with_fixture(fixture(&server).with_policy_edit("[egress]    ", &to_proxy)).await;
    shell.run(&format!("curl --silent {}", server.url("page"))).await;
    let target = format!("localhost:{}", server.port());
    assert!(
        proxy.requests_seen()[0].starts_with(&format!("CONNECT {target} HTTP/1.1\r\n")),
        "{:?}",
        proxy.requests_seen()
    );
    let refused = connections(&shell, "proxy_refused");
    assert_eq!((refused.len(), server.requests()), (1, 0), "{:?}", shell.last_row());
    let posture = shell.last_row().posture.expect("proven");
    assert!(posture.contains(&format!(" tcp {}", proxy.port())), "{posture}");
}

#[tokio::test]
async fn a_command_brings_the_label_of_the_web() {
    let server = Server::start();
    let shell = shell(&server).await;
    shell.text("true").await;
    let answer = shell.call(json!({"command": "true"})).await;
    assert!(answer.text().is_empty());
    let labels = shell.last_row().labels;
    assert!(labels.iter().any(|label| &**label == "web"), "{labels:?}");
}

#[tokio::test]
async fn commands_after_the_vault_are_denied() {
    let server = Server::start();
    let shell = Shell::with_fixture(fixture(&server)).await;
    fs::write(shell.fixture.workspace().join("vault/key"), "secret").expect("written");
    let copy = json!({"source_path": "/vault/key", "destination_path": "/tmp/key"});
    let copied = CallOutcome::run(&shell.registry, "vault_copyto", copy).await;
    assert!(copied.0.outcome.is_output(), "{copied:?}");
    let denied = shell.run(&format!("curl {}", server.url("page"))).await;
    denied.assert_refused(ToolErrorKind::Denied, "flow_denied");
    assert_eq!(shell.last_row().rule.as_deref(), Some("flow[vault -> network]"));
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_weaker_session_has_no_network_and_says_so() {
    let server = Server::start();
    let shell = shell_on(KernelEnvironment::StockContainer, fixture_with_posture(&server, "contained")).await;
    let answer = shell.run("echo \"proxy:$HTTPS_PROXY\"; exec 3<>/dev/tcp/127.0.0.1/3128").await;
    let text = answer.text();
    assert!(text.starts_with("proxy:\n"), "{text}");
    assert!(text.contains("Operation not permitted"), "{text}");
    assert!(text.contains("[no network: only sessions of the posture `strong` have a network]"), "{text}");
    assert!(shell.last_row().posture.is_some_and(|posture| posture.starts_with("contained(")));
    assert!(!shell.text("true").await.contains("no network"), "said once");
}

#[tokio::test]
async fn an_overlay_takes_the_network_away() {
    let server = Server::start();
    let fixture = fixture(&server);
    fs::write(fixture.workspace().join("portcullis.toml"), "[shell]\nhosts = []\n").expect("written");
    let shell = Shell::with_fixture(fixture).await;
    let text = shell.text("echo \"proxy:$HTTPS_PROXY\"; exec 3<>/dev/tcp/127.0.0.1/3128").await;
    assert!(text.contains("Operation not permitted") && text.starts_with("proxy:\n"), "{text}");
    assert!(!text.contains("no network"), "nothing was granted: {text}");
    assert!(!shell.last_row().labels.iter().any(|label| &**label == "web"));
}

#[tokio::test]
async fn the_description_of_the_tool_names_the_hosts() {
    let server = Server::start();
    let shell = shell(&server).await;
    let description = |shell: &Shell| {
        let tool = shell.registry.offered().into_iter().find(|tool| tool.decl().name == "shell_exec");
        tool.expect("offered").decl().description.clone().expect("described")
    };
    assert!(description(&shell).contains(&format!("`https://localhost:{}`", server.port())));
    assert!(description(&Shell::new().await).contains("There is no network."));
}

#[tokio::test]
async fn a_missing_file_of_certificates_means_no_network() {
    let server = Server::start();
    let shell = shell(&server).await;
    fs::remove_file(shell.fixture.root().join("authority.pem")).expect("removed");
    let text = shell.text("echo ran").await;
    assert!(text.starts_with("ran\n[no network: the certificates in "), "{text}");
}

#[test]
fn the_doctor_shows_the_hosts_or_why_there_are_none() {
    let server = Server::start();
    let fixture = fixture(&server);
    let stdout_text = stdout(&portcullis(&fixture, &["doctor"]));
    let line = format!("network      TLS to https://localhost:{}\n", server.port());
    assert!(stdout_text.contains(&line), "{stdout_text}");
    fs::remove_file(fixture.root().join("authority.pem")).expect("removed");
    let stdout_text = stdout(&portcullis(&fixture, &["doctor"]));
    assert!(stdout_text.contains("network      missing: the certificates in "), "{stdout_text}");
    let stdout_text = stdout(&portcullis(&Fixture::new(), &["doctor"]));
    assert!(stdout_text.contains("network      none\n"), "{stdout_text}");
}
