//! A session from its beginning to its end: the tools offered, the results of calls, and the rows of the log.

use portcullis_testing::{Fixture, kernel_environment::KernelEnvironment};
use portcullis_tools::{audit::RowEvent, policy::DEFAULT_POLICY};
use portcullis_types::{Content, JsonSchema, ToolError, ToolMeta, ToolOutput};
use serde_json::{Value, json};

use super::client::{Client, Setup, end_rows, native_registry, text};
use crate::{
    modules::{portcullis, stdout},
    support::{Spy, enabling_entry, fixture_enabling},
};

#[test]
fn a_session_begins_lists_calls_and_ends_with_its_rows_written() {
    let fixture = Fixture::new();
    fixture.put("note.txt", "seen");
    let mut client = Client::start_program(&fixture, &[]);
    let answer = client.request(
        "initialize",
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a\u{202e}b", "version": "1"}}),
    );
    let result = &answer["result"];
    assert_eq!(result["protocolVersion"], "2025-06-18");
    assert_eq!(result["serverInfo"]["name"], "portcullis");
    assert_eq!(result["capabilities"], json!({"logging": {}, "tools": {"listChanged": true}}));
    client.notify("notifications/initialized", json!({}));
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    let read = client.call("file_read", json!({"path": "note.txt"}));
    assert_eq!((text(&read), &read["isError"]), ("seen", &json!(false)), "{read}");
    assert_eq!(read.get("_meta"), None);
    assert!(client.leave().is_empty());
    let rows = end_rows(&fixture, "file_read");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].agent.as_deref(), Some("mcp:a\\u{202e}b"));
    assert!(rows[0].run_id.as_deref().is_some_and(|run| run.starts_with("mcp_")));
}

#[test]
fn clients_are_offered_what_the_command_line_prints() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &[]).begin(json!({}));
    let listed = client.request("tools/list", json!({}));
    let printed: Value =
        serde_json::from_str(&stdout(&portcullis(&fixture, &["tools", "--mcp"]))).expect("JSON");
    assert_eq!(listed["result"]["tools"], printed["tools"]);
    let tools = printed["tools"].as_array().expect("a list");
    let tool_named = |name: &str| tools.iter().find(|tool| tool["name"] == name).expect(name);
    assert_eq!(
        tool_named("file_read")["annotations"],
        json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false})
    );
    assert_eq!(tool_named("file_delete")["annotations"]["destructiveHint"], true);
    assert_eq!(tool_named("shell_exec")["annotations"]["openWorldHint"], true);
    let cursor = client.request("tools/list", json!({"cursor": "x"}));
    assert_eq!(cursor["error"]["code"], -32602);
}

#[test]
fn tool_without_its_backend_is_offered_to_no_client() {
    let fixture = Fixture::new();
    let runtime = super::guests::runtime();
    // A registry without a shell sidecar.
    let registry = runtime.block_on(fixture.registry());
    let shell = registry.get("shell_exec").expect("it is known all the same");
    assert_eq!(registry.unavailable_reason(&shell), Some("this program was given no shell sidecar"));
    assert!(registry.offered().iter().all(|tool| tool.decl().name != "shell_exec"));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().expect("a list").clone();
    assert!(tools.iter().any(|tool| tool["name"] == "file_read"));
    assert!(tools.iter().all(|tool| tool["name"] != "shell_exec"), "{tools:?}");
}

#[test]
fn tool_found_unavailable_leaves_the_list() {
    let fixture = Fixture::new().with_policy_key("shell.posture", "\"strong\"");
    // On a machine without namespaces, the server detects this only when a session is requested.
    let mut client = KernelEnvironment::StockContainer
        .start(|| Client::start_program(&fixture, &["--approve"]))
        .begin(json!({}));
    let has_shell =
        |client: &mut Client| client.request("tools/list", json!({})).to_string().contains("\"shell_exec\"");
    assert!(has_shell(&mut client));
    let id = client.ask("tools/call", json!({"name": "shell_exec", "arguments": {"command": "true"}}));
    // The call's result and the notification come in any order.
    let (mut refused, mut is_told) = (None, false);
    while refused.is_none() || !is_told {
        let message = client.next();
        is_told |= message["method"] == "notifications/tools/list_changed";
        if message["id"] == id {
            refused = Some(message["result"].clone());
        }
    }
    let refused = refused.unwrap_or_default();
    assert!(text(&refused).contains("cannot confine the shell"), "{refused}");
    assert!(!has_shell(&mut client));
    client.leave();
}

#[test]
fn an_unknown_revision_is_answered_with_one_that_has_sessions() {
    let fixture = Fixture::new();
    for (requested_version, expected_version) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = Client::start(native_registry(&fixture, |builder| builder), Setup::default());
        let params = json!({"protocolVersion": requested_version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        assert_eq!(client.request("initialize", params)["result"]["protocolVersion"], expected_version);
        client.leave();
    }
}

#[test]
fn a_request_before_initialization_is_refused() {
    let fixture = Fixture::new();
    let mut client = Client::start(native_registry(&fixture, |builder| builder), Setup::default());
    // A message that needs no answer does not end the session.
    client.notify("notifications/initialized", json!({}));
    client.send(&json!({"jsonrpc": "2.0", "id": 70, "result": {}}).to_string());
    for (method, params) in [
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "echo", "arguments": {"message": "x"}})),
        ("server/discover", json!({})),
        ("none/such", json!({})),
        // A call that names a protocol revision with sessions does not start one.
        (
            "tools/call",
            json!({"name": "echo", "arguments": {"message": "x"}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2025-11-25",
                "io.modelcontextprotocol/clientCapabilities": {},
            }}),
        ),
    ] {
        let answer = client.request(method, params);
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        let words = answer["error"]["message"].as_str().expect("words");
        assert!(words.contains("`initialize`") && !words.contains("_meta"), "{answer}");
    }
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    let mut client = client.begin(json!({}));
    assert_eq!(client.call("echo", json!({"message": "x"}))["isError"], false);
    client.leave();
    assert_eq!(end_rows(&fixture, "echo").len(), 1);
}

#[test]
fn an_unknown_tool_is_a_protocol_error_and_on_record() {
    let fixture = Fixture::new();
    let mut client =
        Client::start(native_registry(&fixture, |builder| builder), Setup::default()).begin(json!({}));
    let answer = client.request("tools/call", json!({"name": "ecko", "arguments": {}}));
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().expect("a text").contains("echo"), "{answer}");
    client.leave();
    assert_eq!(end_rows(&fixture, "ecko").len(), 1);
}

#[test]
fn failures_and_denials_are_results_that_a_model_can_read() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &[]).begin(json!({}));
    let failed = client.call("file_read", json!({"path": "/shared/none"}));
    assert_eq!(failed["isError"], true);
    assert!(text(&failed).starts_with("Tool execution failed: "), "{failed}");
    let missing = client.call("file_read", json!({}));
    assert_eq!(text(&missing), "Tool execution failed: missing required field 'path' in arguments");
    let denied = client.call("file_write", json!({"path": "/vault/x", "content": "x"}));
    assert_eq!(denied["isError"], true);
    assert!(!fixture.workspace().join("vault/x").exists());
    client.leave();
    assert_eq!(end_rows(&fixture, "file_write").len(), 1);
}

#[test]
fn arguments_reach_the_pipeline_as_they_were_written() {
    let fixture = Fixture::new();
    let mut client =
        Client::start(native_registry(&fixture, |builder| builder), Setup::default()).begin(json!({}));
    client.send(
        r#"{"jsonrpc":"2.0","id":"twice","method":"tools/call","params":{"name":"echo","arguments":{"message":"a","message":"b"}}}"#,
    );
    let answer = client.wait_for_message(|message| message["id"] == "twice");
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(text(&answer["result"]).contains("message"), "{answer}");
    let once = client.call("echo", json!({"message": "b"}));
    assert_eq!(once["isError"], false);
}

#[test]
fn every_kind_of_content_arrives_and_details_do_not() {
    let fixture = fixture_enabling(&["kinds"]);
    let spy = Spy::new("kinds", |_, _| async {
        let content = vec![
            Content::text("t"),
            Content::Image { data: "AA==".into(), mime_type: "image/png".into() },
            Content::ResourceLink { uri: "x:1".into(), name: "n".into(), description: None, mime_type: None },
        ];
        let details = json!({"secret": "for people"});
        Ok(ToolOutput { content, details, structured: Some(json!({"n": 1})) })
    });
    let mut client = Client::start(native_registry(&fixture, |builder| builder.tool(spy)), Setup::default())
        .begin(json!({}));
    let result = client.call("kinds", json!({}));
    assert_eq!(
        result,
        json!({"isError": false, "structuredContent": {"n": 1}, "content": [
            {"type": "text", "text": "t"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "x:1", "name": "n"},
        ]})
    );
}

#[test]
fn a_hidden_tool_is_not_offered_and_can_be_called() {
    let fixture = fixture_enabling(&["hidden"]);
    let spy = Spy::repeating("hidden").meta(ToolMeta { hidden: true, ..ToolMeta::default() });
    let mut client = Client::start(native_registry(&fixture, |builder| builder.tool(spy)), Setup::default())
        .begin(json!({}));
    let listed = client.request("tools/list", json!({}));
    let names = listed["result"]["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]);
    assert!(names.clone().count() > 3 && !names.clone().any(|name| name == "hidden"));
    assert_eq!(client.call("hidden", json!({}))["isError"], false);
}

#[test]
fn tool_output_is_not_a_protocol_message() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &["--approve"]).begin(json!({}));
    let stray = "echo '{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}'";
    let arguments = json!({"command": format!("{stray}; {stray} >&2")});
    let id = client.ask("tools/call", json!({"name": "shell_exec", "arguments": arguments}));
    // Collect the messages up to the answer, and then all later ones.
    let mut messages = Vec::new();
    while messages.last().is_none_or(|message: &Value| message["id"] != id) {
        messages.push(client.next());
    }
    assert!(text(&messages[messages.len() - 1]["result"]).contains("jsonrpc"), "{messages:?}");
    messages.extend(client.leave());
    assert!(messages.iter().all(|message| message["id"] != 99), "{messages:?}");
}

#[test]
fn output_of_the_servers_process_is_not_part_of_the_protocol() {
    let fixture = Fixture::new();
    let mut server = super::client::serve(&fixture, &[])
        .env("PORTCULLIS_TEST_PRINTS", "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    drop(server.stdin.take());
    let output = server.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("printed by the process"), "{output:?}");
}

#[test]
fn clients_are_notified_when_a_hangup_changes_the_tools() {
    let fixture = Fixture::new();
    let mut client = Client::start_program(&fixture, &[]).begin(json!({}));
    // Only an answer proves that the server has seen the session begin.
    client.request("ping", json!({}));
    let policy = format!("{DEFAULT_POLICY}\n[tools.get_current_time]\nenabled = false\n");
    std::fs::write(fixture.root().join("policy.toml"), policy).expect("written");
    client.hang_up();
    client.wait_for_message(|message| message["method"] == "notifications/tools/list_changed");
    let listed = client.request("tools/list", json!({}));
    assert!(!listed.to_string().contains("\"get_current_time\""), "{listed}");
    assert_eq!(client.call("get_current_time", json!({}))["isError"], true);
    std::fs::write(fixture.root().join("policy.toml"), "version = 1\nmistake = true\n").expect("written");
    client.hang_up();
    let policy_rows = || {
        let rows = fixture.all_rows().into_iter();
        rows.filter(|row| row.event == RowEvent::Policy).collect::<Vec<_>>()
    };
    // The row is written after the refusal, and no client is notified, so poll for it.
    while policy_rows().len() < 2 {
        client.request("ping", json!({}));
    }
    let changes = policy_rows();
    assert!(changes.iter().all(|row| row.cause.as_deref() == Some("hangup")), "{changes:?}");
    assert!(changes[0].refused.is_none() && changes[0].old_digest.is_some());
    assert_eq!((&changes[1].old_digest, &changes[1].new_digest), (&changes[0].new_digest, &None));
    assert!(changes[1].refused.as_deref().is_some_and(|reason| reason.contains("mistake")), "{changes:?}");
}

#[test]
fn a_hangup_keeps_the_policy_if_the_new_one_is_not_as_expected() {
    let fixture = Fixture::new();
    let expectations =
        "[[expect]]\ntool = \"file_list\"\npath = \"/shared\"\naccess = \"read\"\nverdict = \"allow\"\n";
    std::fs::write(fixture.root().join("portcullis.expect.toml"), expectations).expect("written");
    let mut client = Client::start_program(&fixture, &[]).begin(json!({}));
    client.request("ping", json!({}));
    let policy =
        format!("{DEFAULT_POLICY}\n").replace("[tools.file_list]", "[tools.file_list]\nenabled = false #");
    std::fs::write(fixture.root().join("policy.toml"), policy).expect("written");
    client.hang_up();
    let refused = || fixture.all_rows().into_iter().find(|row| row.event == RowEvent::Policy);
    let row = loop {
        client.request("ping", json!({}));
        if let Some(row) = refused() {
            break row;
        }
    };
    let reason = row.refused.expect("a reason");
    assert!(reason.contains("FAILS  expect") && reason.contains("tool_disabled"), "{reason}");
    assert_eq!(client.call("file_list", json!({}))["isError"], json!(false), "the old policy holds");
}

#[test]
fn a_hangup_keeps_the_labels_of_a_session() {
    let fixture = Fixture::new();
    std::fs::write(fixture.workspace().join("vault/key"), "secret").expect("writable");
    let mut client = Client::start_program(&fixture, &["--approve"]).begin(json!({}));
    assert_eq!(text(&client.call("file_read", json!({"path": "/vault/key"}))), "secret");
    let policy = format!("{DEFAULT_POLICY}\n[tools.get_current_time]\nenabled = false\n");
    std::fs::write(fixture.root().join("policy.toml"), policy).expect("written");
    client.hang_up();
    client.wait_for_message(|message| message["method"] == "notifications/tools/list_changed");
    let answer = client.call("web_fetch", json!({"url": "https://example.com/?secret"}));
    assert_eq!(answer["isError"], true, "{answer}");
    let row = end_rows(&fixture, "web_fetch").pop().expect("a row");
    assert_eq!(row.flow_rule.as_deref(), Some("flow[vault -> network]"));
}

#[test]
fn clients_are_notified_of_added_and_removed_tools() {
    let fixture = crate::support::fixture_enabling(&["late"]);
    let late = portcullis_types::ToolName::parse("late").expect("a name");
    let registry =
        std::sync::Arc::new(native_registry(&fixture, |builder| builder.declare_late_tools([late])));
    let mut client = Client::start(std::sync::Arc::clone(&registry), Setup::default()).begin(json!({}));
    let has_late_tool =
        |client: &mut Client| client.request("tools/list", json!({})).to_string().contains("\"late\"");
    assert!(!has_late_tool(&mut client));
    registry.add_tool(std::sync::Arc::new(crate::support::Spy::repeating("late"))).expect("added");
    client.wait_for_message(|message| message["method"] == "notifications/tools/list_changed");
    assert!(has_late_tool(&mut client));
    assert_eq!(client.call("late", json!({}))["isError"], false);
    registry.remove_tool("late").expect("the tool is registered");
    client.wait_for_message(|message| message["method"] == "notifications/tools/list_changed");
    assert!(!has_late_tool(&mut client));
    client.leave();
}

#[test]
fn a_tool_that_promises_data_gives_it() {
    struct Promising;
    #[async_trait::async_trait]
    impl portcullis_types::Tool for Promising {
        fn schema(&self) -> portcullis_types::FunctionDecl {
            let parameters = JsonSchema::empty_object();
            portcullis_types::FunctionDecl { name: "promising".into(), description: None, parameters }
        }
        async fn execute(&self, _: &str) -> Result<String, ToolError> {
            Err(ToolError::failed("the registry uses `call`"))
        }
        fn timeout(&self) -> std::time::Duration {
            portcullis_types::DEFAULT_TIMEOUT
        }
        fn safety_tier(&self) -> portcullis_types::SafetyTier {
            portcullis_types::SafetyTier::ReadOnly
        }
        fn output_schema(&self) -> Option<JsonSchema> {
            Some(JsonSchema::new(json!({"type": "object", "properties": {"n": {"type": "integer"}}})))
        }
        async fn call(
            &self,
            _: &portcullis_types::ToolContext,
            _: &portcullis_types::ToolArgs,
        ) -> Result<ToolOutput, ToolError> {
            Ok(ToolOutput::structured(json!({"n": 7})))
        }
    }
    let fixture = Fixture::new().with_policy(&enabling_entry("promising"));
    let mut client =
        Client::start(native_registry(&fixture, |builder| builder.tool(Promising)), Setup::default())
            .begin(json!({}));
    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().expect("a list");
    let declaration = tools.iter().find(|tool| tool["name"] == "promising").expect("listed");
    assert_eq!(declaration["outputSchema"]["type"], "object");
    assert_eq!(client.call("promising", json!({}))["structuredContent"], json!({"n": 7}));
}

/// The protocol requires a schema for structured data, data that matches it, and an object as the schema's
/// type.
#[test]
fn data_comes_with_its_schema_and_a_schema_is_an_objects() {
    use portcullis_sdk::{args, tool};

    /// Statistics.
    #[args]
    struct Stats {
        rows: u64,
    }

    /// Counts.
    #[tool(tier = ReadOnly)]
    async fn counts() -> Result<Stats, ToolError> {
        Ok(Stats { rows: 3 })
    }

    /// Lists; the protocol has no schema for a list.
    #[tool(tier = ReadOnly)]
    async fn lists() -> Vec<Stats> {
        vec![Stats { rows: 1 }]
    }

    let fixture =
        Fixture::new().with_policy(&format!("{}{}", enabling_entry("counts"), enabling_entry("lists")));
    let registry = native_registry(&fixture, |builder| builder.tool(counts_tool()).tool(lists_tool()));
    let mut client = Client::start(registry, Setup::default()).begin(json!({}));
    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().expect("a list").clone();
    for (name, arguments) in [
        ("counts", json!({})),
        ("lists", json!({})),
        ("add", json!({"a": 1, "b": 2})),
        ("echo", json!({"message": "x"})),
        ("get_current_time", json!({})),
    ] {
        let declaration = tools.iter().find(|tool| tool["name"] == name).expect(name);
        let answer = client.call(name, arguments);
        assert_eq!(answer["isError"], false, "{name}: {answer}");
        let is_object = declaration["outputSchema"]["type"] == "object";
        assert_eq!(is_object, name != "lists", "{declaration}");
        assert_eq!(answer["structuredContent"].is_object(), is_object, "{name}: {answer}");
        assert!(is_object || declaration.get("outputSchema").is_none(), "{declaration}");
    }
}

#[test]
fn a_client_is_configured_by_paths_that_hold_anywhere() {
    let fixture = Fixture::new();
    let printed = portcullis(&fixture, &["serve", "--print-config", "claude-code"]);
    let config: Value = serde_json::from_str(&stdout(&printed)).expect("JSON");
    let server = &config["mcpServers"]["portcullis"];
    assert_eq!(server["command"], portcullis_testing::binary().to_str().expect("the path is UTF-8"));
    let arguments: Vec<_> =
        server["args"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(arguments[..2], ["serve", "--workspace"]);
    assert_eq!(arguments[2], fixture.workspace().to_str().expect("the path is UTF-8"));
    assert!(!fixture.state().join("audit.jsonl").exists(), "no registry is made");
    let unknown = portcullis(&fixture, &["serve", "--print-config", "emacs"]);
    assert_eq!(unknown.status.code(), Some(2));
}
