//! Native tools: the shipped tools, and tools that an embedder adds.

use std::sync::atomic::Ordering;

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{
    BootstrapError, RegistryError, ToolRegistry,
    arguments::{ArgumentSchema, Repairs},
    audit::Confinement,
    native::FailingTool,
    policy::{Operation, shipped_names},
};
use portcullis_types::ToolErrorKind::{Denied, Failed, Internal, InvalidArguments};
use serde_json::{Value, json};

use crate::support::{Spy, caller, enabling_entry, native_registry, raw_call};

async fn registry() -> (Fixture, ToolRegistry) {
    let fixture = Fixture::new().with_policy(
        "[search]\nprovider = \"brave\"\n[notify]\nslack = \"https://slack.com/api/chat.postMessage\"\n",
    );
    let registry = fixture.registry().await;
    (fixture, registry)
}

/// Returns the names of the shipped tools, without the steps of operations, which are not callable. The
/// searches of the web are listed only with a provider, and notifications only with a service.
fn callable_shipped_names() -> Vec<&'static str> {
    let is_step = |name: &str| Operation::ALL.iter().any(|operation| operation.steps.contains(&name));
    shipped_names().filter(|name| !is_step(name)).collect()
}

#[tokio::test]
async fn the_shipped_tools_are_registered_with_their_confinement() {
    let (_world, registry) = registry().await;
    let tools = registry.tools();
    let names: Vec<&str> = tools.iter().map(|tool| tool.descriptor().name.as_str()).collect();
    assert_eq!(names, callable_shipped_names(), "sorted, and every one of them is known");
    for tool in &tools {
        let name = tool.descriptor().name.as_str();
        let is_guest = name.starts_with("file_") || name == "vault_copyto";
        let confined = match name {
            _ if is_guest => Confinement::Wasm,
            "web_fetch" | "web_search" | "search_web" | "send_notification" => Confinement::Egress,
            "shell_exec" => Confinement::Shell,
            _ => Confinement::Native,
        };
        assert_eq!(tool.confinement(), confined, "{name}");
        assert_eq!(tool.decl().name, name);
        assert!(tool.decl().description.is_some(), "{name}");
        assert!(tool.decl().parameters.denies_unknown(), "{name}");
        registry.assignment(tool).expect("the shipped policy allows what is shipped");
    }
}

#[tokio::test]
async fn the_shipped_tools_answer_under_the_shipped_policy() {
    let (fixture, registry) = registry().await;
    for (tool, arguments, expected) in [
        ("echo", json!({"message": "añ€😀"}), json!({"echoed": "añ€😀", "length": 4})),
        ("echo", json!({"message": ""}), json!({"echoed": "", "length": 0})),
        ("add", json!({"a": 2, "b": 3}), json!({"result": 5})),
        ("add", json!({"a": 0.5, "b": 0.25}), json!({"result": 0.75})),
        (
            "add",
            json!({"a": 9_007_199_254_740_993_i64, "b": 1}),
            json!({"result": 9_007_199_254_740_994_i64}),
        ),
        ("subtract", json!({"a": 2, "b": 3}), json!({"result": -1})),
        ("multiply", json!({"a": -4, "b": 2.5}), json!({"result": -10})),
        ("divide", json!({"a": 1, "b": 4}), json!({"result": 0.25})),
        ("divide", json!({"a": 6, "b": 3}), json!({"result": 2})),
    ] {
        let answer = CallOutcome::run(&registry, tool, arguments.clone()).await;
        let value: Value = serde_json::from_str(&answer.text()).expect("JSON");
        assert_eq!(value, expected, "{tool} {arguments}");
        let structured = answer.0.into_result().expect("a result").structured;
        assert_eq!(structured, Some(expected), "{tool} {arguments}");
    }
    for row in fixture.rows() {
        assert_eq!(row.confinement, Some(Confinement::Native));
        assert_eq!(row.profile.as_deref(), Some("Nothing"));
    }
}

#[tokio::test]
async fn data_of_a_shipped_tool_fits_the_schema_that_it_declares() {
    let (fixture, registry) = registry().await;
    fixture.put("notes.md", "one\ntwo\n");
    std::fs::write(fixture.workspace().join("vault/key"), "k").expect("written");
    let calls = [
        ("add", json!({"a": 2, "b": 3})),
        ("divide", json!({"a": 1, "b": 3})),
        ("echo", json!({"message": "añ"})),
        ("failing_tool", json!({})),
        ("file_edit", json!({"path": "notes.md", "old_text": "one", "new_text": "three"})),
        ("file_list", json!({"path": "/shared"})),
        ("file_read", json!({"path": "notes.md"})),
        ("file_search", json!({"query": "two"})),
        ("file_write", json!({"path": "new.md", "content": "x"})),
        ("file_delete", json!({"path": "new.md"})),
        ("get_current_time", json!({})),
        ("get_current_time", json!({"format": "unix", "timezone": "Asia/Kolkata"})),
        ("get_current_time", json!({"format": "human"})),
        ("multiply", json!({"a": 1e300, "b": -2})),
        ("output_read", json!({"call_id": "none"})),
        ("shell_exec", json!({"command": "true"})),
        ("subtract", json!({"a": 0.5, "b": 2})),
        ("vault_copyto", json!({"source_path": "/vault/key", "destination_path": "/shared/key"})),
        // The call is refused before a connection is made.
        ("web_fetch", json!({"url": "https://127.0.0.1/"})),
        ("web_search", json!({"query": "q", "site": "https://127.0.0.1/"})),
        ("search_web", json!({"query": " "})),
        ("send_notification", json!({"recipient": "a@b.example", "subject": "s", "body": "b"})),
    ];
    for name in callable_shipped_names() {
        assert!(calls.iter().any(|(tool, _)| *tool == name), "{name} is not called here");
    }
    let mut data_count = 0;
    for (tool, arguments) in calls {
        let known = registry.get(tool).expect("shipped");
        let schema = known.output_schema();
        let Ok(output) = CallOutcome::run(&registry, tool, arguments).await.0.into_result() else { continue };
        assert_eq!(output.structured.is_some(), schema.is_some(), "{tool}: data and schema come together");
        let (Some(data), Some(schema)) = (output.structured, schema) else { continue };
        assert!(schema.describes_object(), "{tool}: clients take objects");
        let checked =
            ArgumentSchema::compile(schema).expect("a schema").check(&data.to_string(), Repairs::Off);
        let checked = checked.unwrap_or_else(|error| panic!("{tool}: {data}: {error}"));
        assert_eq!(checked.args.value(), &data, "{tool}");
        data_count += 1;
    }
    assert!(data_count >= 8, "only {data_count} gave data");
}

#[tokio::test]
async fn get_current_time_tells_the_time_in_each_format_and_zone() {
    let (_world, registry) = registry().await;
    let time = async |arguments: Value| -> Value {
        let answer = CallOutcome::run(&registry, "get_current_time", arguments).await;
        serde_json::from_str(&answer.text()).expect("JSON")
    };
    let now = time(json!({})).await;
    assert_eq!((&now["format"], &now["timezone"]), (&json!("iso8601"), &json!("UTC")));
    assert!(now["datetime"].as_str().is_some_and(|text| text.ends_with("+00:00")), "{now}");
    let unix = time(json!({"format": "unix", "timezone": "Asia/Kolkata"})).await;
    assert!(unix["timestamp"].as_i64().is_some_and(|seconds| seconds > 1_700_000_000), "{unix}");
    let in_kolkata = time(json!({"timezone": "Asia/Kolkata"})).await;
    assert!(in_kolkata["datetime"].as_str().is_some_and(|text| text.ends_with("+05:30")), "{in_kolkata}");
    let human = time(json!({"format": "human"})).await;
    assert!(human["datetime"].as_str().is_some_and(|text| text.ends_with("UTC")), "{human}");
    let refused_call = CallOutcome::run(&registry, "get_current_time", json!({"format": "roman"})).await;
    refused_call.assert_refused(InvalidArguments, "invalid_arguments");
    let refused_call =
        CallOutcome::run(&registry, "get_current_time", json!({"timezone": "Europe/Berln"})).await;
    assert!(
        refused_call
            .assert_refused(InvalidArguments, "invalid_arguments")
            .contains("did you mean 'Europe/Berlin'?")
    );
}

#[tokio::test]
async fn failures_of_the_shipped_tools_are_typed() {
    let (_world, registry) = registry().await;
    for (tool, arguments, kind, message) in [
        ("failing_tool", json!({}), Failed, "Tool execution failed"),
        ("divide", json!({"a": 1, "b": 0}), Failed, "division by zero"),
        ("add", json!({"a": 1}), InvalidArguments, "missing required field 'b' in arguments"),
        (
            "echo",
            json!({"message": "m", "mesage": "n"}),
            InvalidArguments,
            "unknown field 'mesage' in arguments; did you mean 'message'?",
        ),
    ] {
        let answer = CallOutcome::run(&registry, tool, arguments).await;
        assert_eq!(answer.assert_refused(kind, kind.as_str()), message);
    }
    let fixture = Fixture::new().with_policy(&enabling_entry("failing_tool"));
    let files = portcullis_tools::PolicyFiles::find(&fixture.envelope()).expect("files");
    let policy = files.load(portcullis_types::SandboxTier::Process).expect("a policy");
    let builder = ToolRegistry::builder().policy(policy).state(fixture.state());
    let registry = builder.tool(FailingTool::with_internal_error("a secret")).build().expect("builds");
    let answer = CallOutcome::run(&registry, "failing_tool", json!({})).await;
    let message = answer.assert_refused(Internal, "internal");
    assert_eq!(message, "An internal error occurred while executing the tool");
}

#[tokio::test]
async fn an_embedders_tool_is_denied_until_enabled_by_name() {
    for (policy, code) in [
        (String::new(), Some("native_not_enabled")),
        ("[tools.spy]\napproval = \"allow\"".to_owned(), Some("native_not_enabled")),
        ("[tools.other]\nenabled = true\noptional = true".to_owned(), Some("native_not_enabled")),
        ("[tools.spy]\nenabled = false".to_owned(), Some("tool_disabled")),
        (enabling_entry("spy"), None),
    ] {
        let fixture = Fixture::new().with_policy(&policy);
        let spy = Spy::repeating("spy");
        let calls = spy.calls();
        let registry = native_registry(&fixture, [spy]);
        let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await;
        match (result.into_result(), code) {
            (Ok(_), None) => assert_eq!(calls.load(Ordering::SeqCst), 1),
            (Err(error), Some(code)) => {
                assert_eq!((error.kind(), error.code()), (Denied, code), "{policy}");
                assert_eq!(calls.load(Ordering::SeqCst), 0, "{policy}");
            }
            (outcome, _) => panic!("{policy}: {outcome:?}"),
        }
        let row = fixture.rows().pop().expect("a row");
        assert_eq!(row.confinement, Some(Confinement::Native), "{policy}");
    }
}

#[tokio::test]
async fn a_taken_or_lookalike_name_is_refused_at_the_build() {
    for name in ["echo", "output_read", "file_read", "add"] {
        let builder = Fixture::new();
        let builder = builder.builder().await.expect("bootstraps");
        let error = builder.tool(Spy::repeating(name)).build().expect_err(name);
        let is_taken_name = matches!(&error, BootstrapError::Registry(RegistryError::Taken { name: taken_name, .. }) if taken_name.as_str() == name);
        assert!(is_taken_name, "{name}: {error:?}");
    }
    for name in ["Echo", "ECHO", "File_Read"] {
        let fixture = Fixture::new();
        let builder = fixture.builder().await.expect("bootstraps");
        let error = builder.tool(Spy::repeating(name)).build().expect_err(name);
        let is_other_case = matches!(&error, BootstrapError::Registry(RegistryError::DiffersInCase { name: refused, other_tool })
            if [refused.as_str(), other_tool.as_str()].contains(&&*name.to_lowercase()));
        assert!(is_other_case, "{name}: {error:?}");
    }
    let fixture = Fixture::new();
    for name in [
        "ech\u{43e}",
        "echo\u{200b}",
        "e\u{301}cho",
        "\u{ff45}cho",
        "echo ",
        " echo",
        "echo\n",
        "",
        "a.b",
        "a/b",
        &"x".repeat(65),
    ] {
        let error = ToolRegistry::builder()
            .state(fixture.state())
            .tool(Spy::repeating(name))
            .build()
            .expect_err(name);
        assert!(matches!(error, BootstrapError::Registry(RegistryError::Name { .. })), "{name:?}: {error:?}");
    }
    let twice =
        ToolRegistry::builder().state(fixture.state()).tool(Spy::repeating("a")).tool(Spy::repeating("a"));
    assert!(matches!(
        twice.build().expect_err("twice"),
        BootstrapError::Registry(RegistryError::Taken { .. })
    ));
}

#[tokio::test]
async fn two_modules_with_a_tool_of_one_name_are_refused() {
    let fixture = Fixture::new();
    let module = portcullis_testing::guest("progress_then_ok");
    let mut builder = fixture.builder().await.expect("bootstraps");
    for name in ["one", "other"] {
        let origin = portcullis_tools::policy::ToolOrigin::ForeignModule;
        builder = builder.module(name, module, origin).await.expect("describes itself");
    }
    let error = builder.build().expect_err("one name");
    assert!(matches!(error, BootstrapError::Registry(RegistryError::Taken { .. })), "{error:?}");
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_is_refused_at_the_build() {
    let fixture = Fixture::new();
    for schema in [
        json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}}),
        json!({"type": "object", "properties": {"a": {"type": "no such type"}}}),
        json!({"type": "object", "properties": {"a": {"pattern": "("}}}),
    ] {
        let spy = Spy::repeating("spy").parameters(schema.clone());
        let error = ToolRegistry::builder().state(fixture.state()).tool(spy).build().expect_err("unusable");
        assert!(
            matches!(error, BootstrapError::Registry(RegistryError::Schema { .. })),
            "{schema}: {error:?}"
        );
    }
}
