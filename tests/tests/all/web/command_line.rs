//! The network on the command line: a call, the tools with their hosts, and the proof in `doctor`.

use portcullis_testing::Fixture;
use serde_json::{Value, json};

use super::{
    ARTICLE, as_json, fixture,
    server::{self, Server},
};
use crate::modules::{portcullis, stderr, stdout};

#[test]
fn a_call_of_web_fetch_prints_the_page() {
    let server = Server::start(|_| server::html(ARTICLE));
    let fixture = fixture(&server);
    let arguments = json!({ "url": server.url("/gates") }).to_string();
    let fetched = portcullis(&fixture, &["call", "web_fetch", &arguments, "--approve"]);
    assert_eq!(fetched.status.code(), Some(0), "{}", stderr(&fetched));
    assert!(stdout(&fetched).contains("only one that still has its portcullis"), "{}", stdout(&fetched));

    let unasked = portcullis(&fixture, &["call", "web_fetch", &arguments]);
    assert_eq!(unasked.status.code(), Some(3), "the shipped policy asks: {}", stdout(&unasked));
    assert!(stdout(&unasked).is_empty(), "{}", stdout(&unasked));
}

#[test]
fn a_refused_host_is_shown_with_the_line_that_would_grant_it() {
    let server = Server::start(|_| server::html(ARTICLE));
    let fixture = fixture(&server);
    let arguments = json!({ "url": "https://other.test/page" }).to_string();
    let refused = portcullis(&fixture, &["call", "web_fetch", &arguments, "--approve"]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    let stderr_text = stderr(&refused);
    assert!(stderr_text.contains("hosts") && stderr_text.contains("https://other.test"), "{stderr_text}");
    assert_eq!(server.requests(), 0);
}

#[test]
fn the_tools_are_listed_with_their_hosts_and_methods() {
    let fixture = Fixture::new().with_shared_modules();
    let listed: Vec<Value> =
        as_json(&portcullis(&fixture, &["tools", "--json"])).as_array().expect("a list").clone();
    let tool =
        |name: &str| listed.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}"));
    let step = |name: &str| {
        let steps = tool("web_fetch")["steps"].as_array().expect("steps");
        steps.iter().find(|step| step["name"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    let request = step("web_fetch_request");
    assert_eq!((&request["hosts"], &request["methods"]), (&json!(["https://*"]), &json!(["GET", "HEAD"])));
    // The step that reads the page has no network.
    let read = step("web_fetch_read");
    assert_eq!((read.get("hosts"), read.get("methods")), (None, None));
    assert_eq!(tool("file_read").get("hosts"), None);

    let table = stdout(&portcullis(&fixture, &["tools"]));
    let row = table.lines().find(|line| line.contains("web_fetch_request")).unwrap_or(&table);
    assert!(row.contains("https://*"), "{table}");
}

#[test]
fn the_doctor_proves_the_confinement_of_requests() {
    let fixture = Fixture::new().with_shared_modules();
    let report = as_json(&portcullis(&fixture, &["doctor", "--json"]));
    let egress = &report["egress"];
    // A machine without certificates has no HTTP client, and `doctor` gives the reason.
    if egress["reason"].is_string() {
        assert_eq!((&egress["ok"], &egress["layers"]), (&json!(false), &json!([])));
        return;
    }
    let layers = egress["layers"].as_array().expect("layers");
    assert!(!layers.is_empty());
    assert_eq!(
        egress["ok"],
        layers.iter().all(|layer| layer["proven"] == true || layer["required"] == false)
    );
    let stdout_text = stdout(&portcullis(&fixture, &["doctor"]));
    assert!(stdout_text.contains("requests, as tested by a thread of the HTTP client"), "{stdout_text}");

    let without = Fixture::new()
        .with_policy_edit("hosts = [\"https://*\"]", "# no hosts")
        .with_policy_edit("methods = [\"GET\", \"HEAD\"]", "");
    let report = as_json(&portcullis(&without, &["doctor", "--json"]));
    assert_eq!(report.get("egress").filter(|egress| !egress.is_null()), None, "{report}");
}
