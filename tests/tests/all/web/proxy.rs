//! Requests through the operator's proxy. A test server acts as the proxy.

use portcullis_testing::Fixture;
use portcullis_types::ToolErrorKind;

use super::{
    ARTICLE, fetch,
    server::{self, Server},
};
use crate::modules::{portcullis, stdout};

/// Creates a fixture with a proxy on this port of the machine.
fn fixture(proxy: u16, hosts: &str) -> Fixture {
    Fixture::new()
        .with_shared_modules()
        .with_policy_edit("hosts = [\"https://*\"]", &format!("hosts = [{hosts}]"))
        .with_policy_edit("[egress]    ", &format!("[egress]\nproxy = \"http://127.0.0.1:{proxy}\"\n#"))
}

#[tokio::test]
async fn a_page_comes_through_the_proxy() {
    let proxy = Server::start(|target| match target {
        "http://plain.example/gates" => server::html(ARTICLE),
        // The request target of a tunnel is host and port.
        "secure.example:443" => server::status("407 Proxy Authentication Required"),
        _ => server::status("403 Forbidden"),
    });
    let hosts = "\"http://plain.example\", \"https://secure.example\", \"https://other.example:8443\", \
                 \"http://127.0.0.1\", \"http://localhost\"";
    let fixture = fixture(proxy.port(), hosts);
    let registry = fixture.registry().await;
    let text = fetch(&registry, "http://plain.example/gates").await.text();
    assert!(text.contains("only one that still has its portcullis"), "{text}");
    let request = fixture.rows().into_iter().rfind(|row| &*row.tool == "web_fetch_request").expect("a row");
    let posture = request.posture.expect("proven");
    // The thread may connect only to the proxy's port, and not to the DNS port.
    let ports = posture.split_once(" tcp ").map_or("", |(_, ports)| ports);
    assert!(ports.starts_with(&proxy.port().to_string()) && !ports.contains('+'), "{posture}");

    let error = fetch(&registry, "https://secure.example/").await.0.into_result().expect_err("refused");
    assert_eq!(error.code(), "proxy_refused");
    assert!(error.message().contains("407") && error.message().contains("credentials"), "{error:?}");
    let error = fetch(&registry, "https://other.example:8443/").await.0.into_result().expect_err("refused");
    assert_eq!((error.kind(), error.code()), (ToolErrorKind::Failed, "proxy_refused"));

    let requests = proxy.requests();
    for (url, code) in [
        ("http://127.0.0.1/", "address_not_public"),
        ("http://localhost/", "address_not_public"),
        ("http://ungranted.example/", "host_not_granted"),
        ("http://169.254.169.254/", "host_not_granted"),
    ] {
        let error = fetch(&registry, url).await.0.into_result().expect_err("refused");
        assert_eq!(error.code(), code, "{url}");
    }
    assert_eq!(proxy.requests(), requests);
}

#[test]
fn the_proxy_is_shown_by_policy_check_and_doctor() {
    // Neither command sends a request to the proxy.
    let proxy = Server::start(|_| None);
    let fixture = fixture(proxy.port(), "\"https://example.com\"");
    let proxy_url = format!("http://127.0.0.1:{}", proxy.port());
    let checked = stdout(&portcullis(&fixture, &["policy", "check"]));
    assert!(checked.contains(&format!("proxy = \"{proxy_url}\"")), "{checked}");
    let doctor_text = stdout(&portcullis(&fixture, &["doctor"]));
    assert!(
        doctor_text.contains(&format!("{proxy_url}, which resolves the names of all connections")),
        "{doctor_text}"
    );
    assert_eq!(proxy.requests(), 0);
}
