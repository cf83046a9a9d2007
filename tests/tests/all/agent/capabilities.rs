//! Capabilities: an agent that has some gets only their tools, and their instructions.

use std::fs;

use portcullis_testing::Fixture;
use portcullis_tools::audit::{Outcome, Row};
use portcullis_types::ToolErrorKind;
use serde_json::Value;

use super::{
    durable::{answered, results},
    model::{Model, calls, text},
};
use crate::modules::{portcullis, stderr, stdout};

/// Returns the names of the tools that a request offers.
fn offered(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    tools.map(|tool| tool["function"]["name"].as_str().expect("a name").to_owned()).collect()
}

fn agent(fixture: &Fixture, model: &Model, words: &[&str]) -> std::process::Output {
    let options = ["agent", "Do it.", "--model", "m", "--base-url", model.address()];
    portcullis(fixture, &[&options[..], words].concat())
}

fn last_row(fixture: &Fixture, tool: &str) -> Row {
    fixture.rows().into_iter().rfind(|row| &*row.tool == tool).expect("a row")
}

#[test]
fn an_agent_has_only_the_tools_of_its_capabilities() {
    let fixture = Fixture::new();
    let read = r#"{"path": "/shared/a"}"#;
    let model = Model::answering(vec![
        calls(&[("get_current_time", "{}"), ("file_read", read), ("file_raed", read)]),
        text("Done."),
    ]);
    let ended = agent(&fixture, &model, &["--capability", "CurrentTime"]);
    assert_eq!(answered(&ended), "Done.\n");
    let requests = model.requests();
    assert_eq!(offered(&requests[0]), ["get_current_time"]);
    let system = requests[0]["messages"][0]["content"].as_str().expect("instructions");
    assert!(system.contains("/shared") && system.contains("Ask `get_current_time`"), "{system}");
    let told = results(&requests[1]);
    assert!(told[0].contains("20"), "{told:?}");
    assert!(
        told[1].contains("you do not have the tool `file_read` (you have `get_current_time`)"),
        "{told:?}"
    );
    assert!(
        told[2].contains("no tool is named `file_raed`") && !told[2].contains("did you mean"),
        "{told:?}"
    );

    let refused = last_row(&fixture, "file_read");
    assert_eq!(refused.outcome, Some(Outcome::Error(ToolErrorKind::Denied)));
    assert_eq!(
        (refused.code.as_deref(), refused.rule.as_deref()),
        (Some("tool_not_given"), Some("the caller's tools"))
    );
    assert_eq!(refused.agent.as_deref(), Some("agent"));
    assert_eq!(last_row(&fixture, "get_current_time").outcome, Some(Outcome::Ok));
}

#[test]
fn options_replace_the_capabilities_of_the_operators_file() {
    let fixture = Fixture::new();
    let config = fixture.root().join("config");
    fs::create_dir_all(config.join("portcullis")).expect("the folder can be made");
    fs::write(config.join("portcullis/agent.toml"), "[agent]\ncapabilities = [\"FileSystem\"]\n")
        .expect("written");
    let ask = |model: &Model, words: &[&str]| {
        let options = ["agent", "Do it.", "--model", "m", "--base-url", model.address()];
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut program = std::process::Command::new(portcullis_testing::binary());
        program.args(fixture.options()).args(options).args(words).env("XDG_CONFIG_HOME", &config);
        answered(&program.stdin(std::process::Stdio::null()).output().expect("starts"))
    };
    let model = Model::answering(vec![text("Done."), text("Done.")]);
    ask(&model, &[]);
    ask(&model, &["--capability", "CurrentTime", "--capability", "WebFetch"]);
    let requests = model.requests();
    let files =
        ["file_delete", "file_edit", "file_list", "file_read", "file_search", "file_write", "output_read"];
    assert_eq!(offered(&requests[0]), files);
    assert_eq!(offered(&requests[1]), ["get_current_time", "output_read", "web_fetch"]);
}

#[test]
fn unknown_empty_and_denied_capabilities_are_refused() {
    let fixture = Fixture::new();
    let model = Model::answering(Vec::new());
    for (name, words) in [
        ("webfetch", "did you mean `WebFetch`?"),
        ("Research", "`Research` has no tools yet"),
        ("", "there is no capability ``"),
    ] {
        let refused = agent(&fixture, &model, &["--capability", name]);
        assert_eq!(refused.status.code(), Some(2), "{name}");
        let told = stderr(&refused).replace('\n', " ");
        assert!(
            told.contains(words) && told.contains("CurrentTime, WebFetch, Sandbox, FileSystem"),
            "{told}"
        );
    }
    let denying = Fixture::new().with_policy("[tools.get_current_time]\napproval = \"deny\"\n");
    let refused = agent(&denying, &model, &["--capability", "CurrentTime"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("portcullis tools get_current_time"), "{}", stderr(&refused));
}

#[test]
fn the_capabilities_are_listed() {
    let fixture = Fixture::new();
    let listed = stdout(&portcullis(&fixture, &["tools", "--capabilities"]));
    let row = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(row("FileSystem").contains("Available") && row("FileSystem").contains("file_read"), "{listed}");
    assert!(row("Research").contains("ComingSoon"), "{listed}");
    let json: Value =
        serde_json::from_str(&answered(&portcullis(&fixture, &["tools", "--capabilities", "--json"])))
            .expect("JSON");
    assert_eq!((&json[0]["id"], &json[0]["tools"][0]), (&"CurrentTime".into(), &"get_current_time".into()));
}
