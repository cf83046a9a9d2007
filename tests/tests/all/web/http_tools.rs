//! Configured HTTP tools and internal tools, through the binary and through the registry.

mod hostile;

use std::{fs, path::PathBuf, process::Output};

use portcullis_adapters::hsafa::{ToolConfiguration, read_configurations};
use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{ToolRegistry, audit::RowEvent};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};

use super::{
    as_json, fixture,
    secrets::{self, VALUE},
    server::{self, Server},
    tls::Authority,
};
use crate::modules::{portcullis, stderr, stdout};

/// Creates a configuration of this name with this request. Its arguments may have any names.
pub(super) fn configuration(name: &str, execution: &Value) -> Value {
    json!({
        "name": name,
        "description": "Asks a server.",
        "inputSchema": {"type": "object", "additionalProperties": true},
        "executionType": "gateway",
        "execution": execution,
    })
}

/// Lets the tool make requests with the hosts of the profile `Web`, and with all methods.
pub(super) fn granted(fixture: Fixture, tool: &str) -> Fixture {
    let methods = "methods = [\"GET\", \"POST\", \"PUT\", \"PATCH\", \"DELETE\"]";
    fixture
        .with_policy_edit("methods = [\"GET\", \"HEAD\"]", methods)
        .with_policy(&format!("[tools.{tool}]\nprofile = \"Web\"\n"))
}

/// Creates a registry with this tool.
pub(super) async fn registry(fixture: &Fixture, configuration: &Value) -> ToolRegistry {
    let tool = ToolConfiguration::read(configuration).expect("no mistake").to_tool();
    fixture.builder().await.expect("bootstraps").configured_tool(tool).build().expect("builds")
}

fn tool_file(fixture: &Fixture, tools: &Value) -> PathBuf {
    let file = fixture.workspace().with_file_name("tools.json");
    fs::write(&file, tools.to_string()).expect("written");
    file
}

fn call(fixture: &Fixture, tools: &Value, name: &str, arguments: &Value) -> Output {
    let file = tool_file(fixture, tools);
    let file = file.to_str().expect("the path is UTF-8");
    portcullis(fixture, &["call", name, &arguments.to_string(), "--json", "--tool-file", file])
}

/// Returns the first line of the last request.
fn request_line(server: &Server) -> String {
    let requests = server.requests_seen();
    requests.last().and_then(|request| request.lines().next()).expect("a request").to_owned()
}

#[test]
fn a_call_of_the_command_line_is_a_request_with_a_row() {
    let server = Server::start(|_| server::json("{\"temperature\": 21.5}"));
    let fixture = granted(fixture(&server), "fetchWeather");
    let execution =
        json!({"url": server.url("/current?key=1"), "method": "GET", "headers": {"X-Client": "a b"}});
    let tool = configuration("fetchWeather", &execution);
    let arguments = json!({"city": "Paris & Rome", "days": 3, "at": {"lat": 1}, "none": null});
    let called = call(&fixture, &tool, "fetchWeather", &arguments);
    assert_eq!(called.status.code(), Some(0), "{}", stderr(&called));
    let result = as_json(&called);
    assert_eq!(result["structured"], json!({"temperature": 21.5}));
    assert_eq!(result["details"]["status"], 200);
    let path = "/current?key=1&at=%7B%22lat%22%3A1%7D&city=Paris+%26+Rome&days=3";
    assert_eq!(request_line(&server), format!("GET {path} HTTP/1.1"));
    let head = server.take_heads().concat();
    assert!(head.contains("x-client: a b") && head.contains("user-agent: portcullis/"), "{head}");

    let rows = fixture.rows();
    let row = rows.iter().rfind(|row| row.event == RowEvent::End).expect("a row");
    assert_eq!((&*row.tool, row.profile.as_deref()), ("fetchWeather", Some("Web")));
    assert_eq!(row.confinement.map(|confinement| confinement.as_str()), Some("egress"));
    assert_eq!(&*row.requests[0].url, server.url(path));
    assert_eq!(
        (row.subjects[0].source.as_str(), &*row.subjects[0].value),
        ("execution.url", &*server.url(path))
    );
    assert!(row.posture.as_deref().is_some_and(|posture| posture.contains("seccomp=enforced")), "{row:?}");

    assert!(!fixture.state().join("runs.db").exists(), "no call waits for a result, so nothing is kept");
    let file = tool_file(&fixture, &tool);
    let words = ["explain", "fetchWeather", "--tool-file", file.to_str().expect("the path is UTF-8")];
    let explained = portcullis(&fixture, &words);
    assert!(
        stdout(&explained).contains(&server.url("/current")),
        "{}{}",
        stdout(&explained),
        stderr(&explained)
    );
    let elsewhere = portcullis(&fixture, &[&words[..2], &["https://other.test/"], &words[2..]].concat());
    assert!(
        !elsewhere.status.success() && stderr(&elsewhere).contains("nothing else"),
        "{}",
        stderr(&elsewhere)
    );
    let replayed = as_json(&portcullis(&fixture, &[&["audit", "replay", "--json"], &words[2..]].concat()));
    assert_eq!(
        (&replayed["calls"], &replayed["same"], &replayed["undecided"]),
        (&json!(1), &json!(1), &json!(0))
    );
}

#[tokio::test]
async fn other_methods_send_their_arguments_as_a_json_body() {
    let server = Server::start(|_| server::answer("text/plain", b"made"));
    for method in ["POST", "PUT", "PATCH"] {
        let fixture = granted(fixture(&server), "createTicket");
        let execution = json!({"url": server.url("/tickets?a=b"), "method": method});
        let registry = registry(&fixture, &configuration("createTicket", &execution)).await;
        let answer = CallOutcome::run(&registry, "createTicket", json!({"title": "ä&b=c", "n": [1]})).await;
        assert_eq!(answer.text(), "made");
        let request = server.requests_seen().pop().expect("a request");
        assert!(request.starts_with(&format!("{method} /tickets?a=b HTTP/1.1\r\n")), "{request}");
        assert!(request.contains("content-type: application/json\r\n"), "{request}");
        let (_, body) = request.split_once("\r\n\r\n").expect("a body");
        assert_eq!(serde_json::from_str::<Value>(body).expect("JSON"), json!({"title": "ä&b=c", "n": [1]}));
    }
    let fixture = granted(fixture(&server), "deleteTicket");
    let execution = json!({"url": server.url("/tickets"), "method": "DELETE"});
    let registry = registry(&fixture, &configuration("deleteTicket", &execution)).await;
    assert_eq!(CallOutcome::run(&registry, "deleteTicket", json!({"id": 7})).await.text(), "made");
    assert_eq!(request_line(&server), "DELETE /tickets?id=7 HTTP/1.1");
}

#[tokio::test]
async fn without_an_entry_of_the_operator_nothing_is_requested() {
    let server = Server::start(|_| server::json("1"));
    let execution = json!({"url": server.url("/")});
    let without_entry = fixture(&server);
    let registry = registry(&without_entry, &configuration("fetchWeather", &execution)).await;
    let answer = CallOutcome::run(&registry, "fetchWeather", json!({})).await;
    let message = answer.assert_refused(ToolErrorKind::Denied, "egress_not_granted");
    assert!(message.contains("[profiles.fetchWeather]") && message.contains(&server.url("")), "{message}");
    assert_eq!(server.requests(), 0);

    let only_get = fixture(&server).with_policy("[tools.fetchWeather]\nprofile = \"Web\"\n");
    let execution = json!({"url": server.url("/"), "method": "POST"});
    let registry = self::registry(&only_get, &configuration("fetchWeather", &execution)).await;
    let answer = CallOutcome::run(&registry, "fetchWeather", json!({})).await;
    answer.assert_refused(ToolErrorKind::Denied, "method_not_granted");
    assert_eq!(server.requests(), 0);
}

#[test]
fn all_four_types_of_a_file_are_tools() {
    let server = Server::start(|_| server::json("{}"));
    let fixture = granted(fixture(&server), "fetchWeather");
    let of_type = |name: &str, kind: &str| json!({"name": name, "description": "d", "inputSchema": {"type": "object", "properties": {"n": {}}}, "executionType": kind});
    let tools = json!([
        configuration("fetchWeather", &json!({"url": server.url("/")})),
        of_type("fetchExternalData", "external"),
        of_type("confirmAction", "space"),
        of_type("displayChart", "internal"),
    ]);
    let file = tool_file(&fixture, &tools);
    let file = file.to_str().expect("the path is UTF-8");
    let listed = as_json(&portcullis(&fixture, &["tools", "--json", "--tool-file", file]));
    let fact = |name: &str, key: &str| {
        let tools = listed.as_array().expect("a list");
        tools.iter().find(|tool| tool["name"] == name).map_or(Value::Null, |tool| tool[key].clone())
    };
    for (name, origin, confinement, tier) in [
        ("fetchWeather", "http", "egress", "side_effecting"),
        ("fetchExternalData", "external", "external", "side_effecting"),
        ("confirmAction", "external", "external", "side_effecting"),
        ("displayChart", "internal", "internal", "read_only"),
    ] {
        assert_eq!(fact(name, "origin"), origin, "{name}");
        assert_eq!(
            (fact(name, "confinement"), fact(name, "tier")),
            (json!(confinement), json!(tier)),
            "{name}"
        );
    }
    assert_eq!(fact("fetchWeather", "request"), format!("GET {}", server.url("/")));
    assert_eq!(fact("displayChart", "profile"), "Nothing");
    let words = ["call", "displayChart", r#"{"n": [1, {"x": "é"}]}"#, "--json", "--tool-file", file];
    let called = as_json(&portcullis(&fixture, &words));
    assert_eq!(called["structured"], json!({"success": true, "args": {"n": [1, {"x": "é"}]}}));
    let row = fixture.rows().pop().expect("a row");
    assert_eq!(row.confinement.map(|confinement| confinement.as_str()), Some("internal"));
    assert!(row.labels.is_empty() && row.requests.is_empty(), "{row:?}");
    assert_eq!(server.requests(), 0);

    let near = portcullis(&fixture, &["call", "confirmaction", "{}", "--tool-file", file]);
    assert!(stderr(&near).contains("did you mean `confirmAction`?"), "{}", stderr(&near));
    let misspelt = super::fixture(&server).with_policy("[tools.confirmaction]\napproval = \"ask\"\n");
    let fault = portcullis(&misspelt, &["tools", "--tool-file", file]);
    assert_eq!(fault.status.code(), Some(2));
    assert!(stderr(&fault).contains("did you mean `confirmAction`?"), "{}", stderr(&fault));
}

#[tokio::test]
async fn a_secret_of_the_policy_reaches_the_tools_host_and_no_result() {
    let authority = Authority::new();
    let tls = authority.serve(|head| {
        server::answer("application/json", json!({"head": head}).to_string().as_bytes()).expect("an answer")
    });
    let fixture = secrets::fixture(&authority, &[&tls], "file:token");
    let fixture = fixture.with_policy_edit("tools = [\"web_fetch\"]", "tools = [\"fetchWeather\"]");
    let fixture = fixture.with_policy("[tools.fetchWeather]\nprofile = \"Web\"\n");
    secrets::put_token(&fixture, 0o600);
    let registry = registry(&fixture, &configuration("fetchWeather", &json!({"url": tls.url("/x")}))).await;
    let answer = CallOutcome::run(&registry, "fetchWeather", json!({"q": 1})).await;
    assert!(answer.text().contains("authorization: Bearer REDACTED"), "{}", answer.text());
    assert!(!format!("{answer:?}").contains(VALUE));
    assert!(tls.take_heads().concat().contains(&format!("authorization: Bearer {VALUE}\r\n")));
    let row = fixture.rows().pop().expect("a row");
    assert_eq!(row.secrets, ["api".into()]);
    assert!(row.labels.iter().all(|label| &**label != "web"), "the run had read nothing before: {row:?}");
}

#[tokio::test]
async fn tools_come_and_go_while_a_registry_serves() {
    let server = Server::start(|_| server::json("{\"a\": 1}"));
    let fixture = fixture(&server);
    let registry = fixture.registry().await;
    let text = json!([configuration("fetchWeather", &json!({"url": server.url("/")}))]).to_string();
    let configurations = read_configurations(&text).expect("no mistake");
    registry.add_configured_tool(configurations[0].to_tool()).expect("added");
    assert!(registry.offered().iter().any(|tool| tool.decl().name == "fetchWeather"));
    let again = registry.add_configured_tool(configurations[0].to_tool()).expect_err("taken");
    assert!(again.to_string().contains("two tools are named `fetchWeather`"), "{again}");
    assert!(registry.remove_tool("fetchWeather").is_some());
    let private = configuration("metadata", &json!({"url": "http://169.254.169.254/latest"}));
    let tool = ToolConfiguration::read(&private).expect("well-formed").to_tool();
    let refused = registry.add_configured_tool(tool).expect_err("never requested").to_string();
    assert!(refused.contains("`metadata`") && refused.contains("169.254.169.254"), "{refused}");
}
