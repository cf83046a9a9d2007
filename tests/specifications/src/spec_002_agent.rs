//! Specification 002: its whole program, against a server that speaks the Messages API, and its other lines
//! that make an agent.

use std::sync::{atomic::Ordering, Arc, Mutex};

use portcullis_adapters::yoagent::{
    agent::{Agent, AgentEvents},
    provider::AnthropicProvider,
    types::{async_trait, AgentEvent, AgentTool, Content, StreamDelta, ToolExecutionStrategy, ToolResult},
};
use portcullis_agent::{AgentEnd, DeltaStream, ModelRequest, Provider, ProviderError, ScriptedProvider};
use portcullis_testing::{call_rows, Fixture};
use portcullis_tools::audit::{Decision, Outcome, Row, RowEvent};
use portcullis_types::ToolErrorKind;
use serde_json::{json, Value};

use super::spec_002::{data_processor, PROCESSED};
use crate::{
    alone::{is_separate_process, print_between_marks, run_in_separate_process},
    messages_api::{Block, Server},
};

/// The end-to-end example, unchanged.
#[expect(clippy::uninlined_format_args, reason = "the example is as it is")]
mod program {
    use portcullis_adapters::yoagent;

    /// A `sleep` that ends immediately.
    mod tokio {
        pub(super) use ::tokio::{main, runtime};

        pub(super) mod time {
            use ::tokio;

            pub(in super::super) async fn sleep(duration: std::time::Duration) {
                assert_eq!(duration.as_secs(), 2);
                tokio::task::yield_now().await;
            }
        }
    }

    example!("002_program.rs");

    pub(super) fn run() {
        main();
    }
}

/// The lines that make agents, in functions that return them.
#[expect(unused_variables, clippy::let_and_return, reason = "the lines are as they are")]
mod lines {
    use portcullis_adapters::yoagent;

    use super::{weather::WeatherTool, Agent, AnthropicProvider, Llm};

    example!("002_registered.rs");
    example!("002_strategies.rs");
}

mod weather {
    use portcullis_adapters::yoagent;

    #[expect(unreachable_pub, clippy::uninlined_format_args, reason = "the example is as it is")]
    mod example {
        use super::yoagent;

        example!("002_weather.rs");
    }

    pub(super) use example::WeatherTool;
}

type Llm = Arc<ScriptedProvider>;

/// The output that the specification shows under the program.
const TRANSCRIPT: &str = example_text!("002_transcript.txt");

/// Returns the rows of programs that keep their state in the default folder.
fn rows(fixture: &Fixture) -> Vec<Row> {
    call_rows(&fixture.state().join("portcullis/in-process"))
}

/// Starts a server for the program: its model deploys, then reports the deployment.
fn deploying_server() -> Server {
    let pieces = &["Successfully deployed to production.", " The deployment completed", " all 4 stages."];
    let call = Block::Call("toolu_01", "deploy", &["", "{\"env\": \"prod", "uction\"}"]);
    Server::start(vec![vec![call], vec![Block::Text(pieces)]])
}

fn environment(server: &Server) -> [(&'static str, String); 2] {
    [("ANTHROPIC_BASE_URL", server.url.clone()), ("ANTHROPIC_API_KEY", "sk-test-key".to_owned())]
}

fn run_program(test: &str, fixture: &Fixture, server: &Server) -> Option<String> {
    let environment = environment(server);
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    run_in_separate_process(module_path!(), test, fixture, &environment)
}

#[test]
fn the_program_prints_the_output_below_it() {
    if is_separate_process() {
        return print_between_marks(program::run);
    }
    let fixture = Fixture::new().with_policy("[tools.deploy]\nenabled = true\n");
    let server = deploying_server();
    let Some(printed) = run_program("the_program_prints_the_output_below_it", &fixture, &server) else {
        return;
    };
    assert_eq!(printed.trim(), TRANSCRIPT.trim());
    assert!(TRANSCRIPT.contains("🚀 Starting deploy...") && TRANSCRIPT.contains("✅"), "decoded");

    let requests = server.requests();
    for request in &requests {
        assert_eq!(request.line, "POST /v1/messages HTTP/1.1");
        assert!(request.headers.contains(&"x-api-key: sk-test-key".to_owned()), "{:?}", request.headers);
        assert_eq!(request.body["model"], "claude-sonnet-4-20250514");
        assert_eq!(request.body["tools"][0]["name"], "deploy");
        assert!(request.body["system"].to_string().contains("You are a deployment assistant."));
    }
    let [first, second] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!(texts(&first.body["messages"][0]), ["Deploy to production"]);
    // The model gets the result and none of the updates.
    let result_message = &second.body["messages"][2];
    let blocks = result_message["content"].as_array().expect("blocks");
    assert_eq!((&result_message["role"], blocks.len()), (&json!("user"), 1));
    assert_eq!((&blocks[0]["type"], &blocks[0]["tool_use_id"]), (&json!("tool_result"), &json!("toolu_01")));
    assert!(!blocks[0]["is_error"].as_bool().unwrap_or(false), "{result_message}");
    assert_eq!(texts(&blocks[0]), ["Successfully deployed to production"]);
    let all = second.body.to_string();
    for update in ["Building image", "[1/4]", "phase", "\"status\""] {
        assert!(!all.contains(update), "{update} in {all}");
    }
    let ended: Vec<_> = rows(&fixture).into_iter().filter(|row| row.event == RowEvent::End).collect();
    assert_eq!(ended.len(), 1);
    assert_eq!((&*ended[0].tool, ended[0].outcome), ("deploy", Some(Outcome::Ok)));
}

/// Returns the texts of a message's or a result's content, which is one string or blocks.
fn texts(value: &Value) -> Vec<&str> {
    match &value["content"] {
        Value::String(text) => vec![text],
        content => {
            let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
            blocks.iter().filter_map(|block| block["text"].as_str()).collect()
        }
    }
}

#[test]
fn without_the_operators_word_the_programs_tool_does_not_run() {
    if is_separate_process() {
        return print_between_marks(program::run);
    }
    let fixture = Fixture::new();
    let server = deploying_server();
    let test = "without_the_operators_word_the_programs_tool_does_not_run";
    let Some(printed) = run_program(test, &fixture, &server) else { return };
    assert!(printed.contains("❌ deploy failed") && !printed.contains("[1/4]"), "{printed}");
    let requests = server.requests();
    assert!(!requests[0].body["tools"].to_string().contains("\"deploy\""), "it is not offered");
    assert_eq!(requests[1].body["messages"][2]["content"][0]["is_error"], true);
    let rows = rows(&fixture);
    assert_eq!((rows.len(), rows[0].decision), (1, Some(Decision::Deny)));
}

/// Two runs. The first asks for the weather of a city and of no city, the time and an echo, and then answers.
/// The second answers immediately.
const WEATHER: &str = r#"
{"expect": {"tools": ["add", "divide", "echo", "get_current_time", "get_weather", "multiply", "output_read", "subtract"], "messages": 1}}
{"text": "Let me look. "}
{"call": {"index": 0, "id": "c1", "name": "get_weather", "arguments": "{\"city\":"}}
{"call": {"index": 0, "arguments": "\"Paris\"}"}}
{"call": {"index": 1, "id": "c2", "name": "get_weather", "arguments": "{}"}}
{"call": {"index": 2, "id": "c3", "name": "get_current_time", "arguments": "{\"format\":\"unix\"}"}}
{"call": {"index": 3, "id": "c4", "name": "echo", "arguments": "{\"message\":\"hi\"}"}}
{"end": "tool_calls"}
{"expect": {"messages": 6}}
{"text": "It is sunny."}
{"end": "stop"}
{"expect": {"messages": 8, "last": {"role": "user", "contains": "Thank you"}}}
{"text": "You are welcome."}
{"end": "stop"}
"#;

#[test]
fn own_tools_run_beside_the_default_tools() {
    if is_separate_process() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        return runtime.block_on(ask_about_the_weather());
    }
    let fixture = Fixture::new()
        .with_policy("[tools.get_weather]\nenabled = true\n[tools.get_current_time]\nenabled = true\n");
    let test = "own_tools_run_beside_the_default_tools";
    if run_in_separate_process(module_path!(), test, &fixture, &[]).is_none() {
        return;
    }
    let ended = rows(&fixture).into_iter().filter(|row| row.event == RowEvent::End);
    let mut ended: Vec<_> = ended.map(|row| (row.tool.to_string(), row.outcome)).collect();
    ended.sort_by_key(|(tool, outcome)| (tool.clone(), outcome.map(|outcome| format!("{outcome:?}"))));
    let failed = |kind| Some(Outcome::Error(kind));
    assert_eq!(
        ended,
        [
            ("echo".to_owned(), Some(Outcome::Ok)),
            ("get_current_time".to_owned(), Some(Outcome::Ok)),
            ("get_weather".to_owned(), failed(ToolErrorKind::InvalidArguments)),
            ("get_weather".to_owned(), Some(Outcome::Ok)),
        ]
    );
}

/// Runs the part of the test in the separate process.
async fn ask_about_the_weather() {
    let provider = Arc::new(ScriptedProvider::from_lines(WEATHER).expect("a script"));
    let mut agent = lines::registered(provider);
    let mut events = agent.prompt("How is the weather?").await;
    let received = collect_events(&mut events).await;
    assert_eq!(events.end(), Some(&AgentEnd::Answer { text: "It is sunny.".to_owned() }));

    let mut started = Vec::new();
    let mut ended = Vec::new();
    let mut text = String::new();
    for event in &received {
        match event {
            AgentEvent::ToolExecutionStart { tool_call_id, tool_name, .. } => {
                started.push((tool_call_id.as_str(), tool_name.as_str()));
            }
            AgentEvent::ToolExecutionEnd { tool_call_id, result, is_error, .. } => {
                let first_text = result.content.first().and_then(Content::as_text).unwrap_or_default();
                ended.push((tool_call_id.as_str(), *is_error, first_text));
            }
            AgentEvent::MessageUpdate { delta: StreamDelta::Text { delta }, .. } => text.push_str(delta),
            _ => {}
        }
    }
    ended.sort_unstable();
    assert_eq!(started.len(), 4, "{started:?}");
    assert_eq!(ended[0], ("c1", false, "Weather in Paris: 72°F, sunny"));
    assert_eq!(ended[1], ("c2", true, "missing required field 'city' in arguments"));
    assert!(ended[2].0 == "c3" && !ended[2].1 && ended[2].2.contains("timestamp"), "{ended:?}");
    assert!(ended[3].0 == "c4" && !ended[3].1, "shipped, and so served without an entry: {ended:?}");
    assert_eq!(text, "Let me look. It is sunny.");
    assert!(matches!(received.first(), Some(AgentEvent::AgentStart)));
    assert!(matches!(received.last(), Some(AgentEvent::AgentEnd { .. })));

    // The same conversation continues, with one run at a time.
    let mut events = agent.prompt("Thank you").await;
    let mut refused = agent.prompt("And now?").await;
    collect_events(&mut refused).await;
    assert!(matches!(refused.end(), Some(AgentEnd::Internal { .. })), "{:?}", refused.end());
    collect_events(&mut events).await;
    assert_eq!(events.end(), Some(&AgentEnd::Answer { text: "You are welcome.".to_owned() }));
}

/// A turn that processes rows, and an answer.
const ROWS: &str = r#"
{"text": "I process them. "}
{"call": {"index": 0, "id": "c1", "name": "process", "arguments": "{\"rows\": 250}"}}
{"end": "tool_calls"}
{"expect": {"messages": 3, "last": {"role": "tool", "contains": "Processed all 250 rows", "is_error": false}}}
{"text": "All are done."}
{"end": "stop"}
"#;

/// A scripted model that keeps its requests.
#[derive(Clone)]
struct RecordingProvider {
    script: Llm,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

#[async_trait]
impl Provider for RecordingProvider {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        self.requests.lock().expect("not poisoned").push(request.clone());
        self.script.stream(request).await
    }
}

#[test]
fn people_see_data_processor_progress_and_the_model_its_end() {
    if is_separate_process() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        return runtime.block_on(process_rows());
    }
    let fixture = Fixture::new().with_policy("[tools.process]\nenabled = true\n");
    let test = "people_see_data_processor_progress_and_the_model_its_end";
    if run_in_separate_process(module_path!(), test, &fixture, &[]).is_none() {
        return;
    }
    let rows: Vec<_> =
        rows(&fixture).into_iter().map(|row| (row.tool.to_string(), row.event, row.outcome)).collect();
    let process = || "process".to_owned();
    assert_eq!(rows, [(process(), RowEvent::Begin, None), (process(), RowEvent::End, Some(Outcome::Ok))]);
}

/// Runs the part of the test in the separate process.
async fn process_rows() {
    let script = Arc::new(ScriptedProvider::from_lines(ROWS).expect("a script"));
    let recording_provider = RecordingProvider { script, requests: Arc::default() };
    let requests = Arc::clone(&recording_provider.requests);
    let mut agent = Agent::new(recording_provider).with_tools(vec![Box::new(data_processor::tool())]);
    let mut events = agent.prompt("Process the rows").await;
    let received = collect_events(&mut events).await;
    assert_eq!(events.end(), Some(&AgentEnd::Answer { text: "All are done.".to_owned() }));
    assert_eq!(PROCESSED.load(Ordering::SeqCst), 250);

    let text = |result: &ToolResult| result.content.iter().filter_map(Content::as_text).collect::<String>();
    let event_texts = received.iter().filter_map(|event| match event {
        AgentEvent::ToolExecutionStart { tool_call_id, tool_name, args } => {
            Some(format!("{tool_call_id} {tool_name} starts {args}"))
        }
        AgentEvent::ToolExecutionUpdate { tool_call_id, tool_name, partial_result } => {
            let details = &partial_result.details;
            Some(format!("{tool_call_id} {tool_name} is at {} {details}", text(partial_result)))
        }
        AgentEvent::ToolExecutionEnd { tool_call_id, tool_name, result, is_error } => {
            Some(format!("{tool_call_id} {tool_name} ends {} {is_error}", text(result)))
        }
        AgentEvent::ProgressMessage { text, .. } => Some(text.clone()),
        _ => None,
    });
    assert_eq!(
        event_texts.collect::<Vec<_>>(),
        [
            r#"c1 process starts {"rows":250}"#,
            r#"c1 process is at Processed 0/250 rows {"progress":0.0}"#,
            r#"c1 process is at Processed 100/250 rows {"progress":0.4}"#,
            r#"c1 process is at Processed 200/250 rows {"progress":0.8}"#,
            "c1 process ends Processed all 250 rows false",
        ]
    );

    // The model gets the final result, and none of the updates.
    let requests = requests.lock().expect("not poisoned");
    let [_, second] = requests.as_slice() else { panic!("{requests:#?}") };
    let texts: Vec<_> = second.messages.iter().map(portcullis_types::Message::text).collect();
    assert_eq!(texts, ["Process the rows", "I process them. ", "Processed all 250 rows"]);
    let all = format!("{:?}", second.messages);
    assert!(!all.contains("/250") && !all.contains("progress"), "{all}");
}

async fn collect_events(events: &mut AgentEvents) -> Vec<AgentEvent> {
    let mut collected = Vec::new();
    while let Some(event) = events.recv().await {
        collected.push(event);
    }
    collected
}

#[test]
fn the_lines_about_strategies_make_agents() {
    let agent = lines::strategies(AnthropicProvider);
    assert!(format!("{agent:?}").starts_with("Agent"));
    assert_eq!(ToolExecutionStrategy::default(), ToolExecutionStrategy::Parallel);
}

#[test]
fn an_agent_that_cannot_begin_says_so_and_no_more() {
    if is_separate_process() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        return runtime.block_on(check_failed_start());
    }
    run_in_separate_process(
        module_path!(),
        "an_agent_that_cannot_begin_says_so_and_no_more",
        &Fixture::new(),
        &[],
    );
}

/// Runs the part of the test in the separate process.
async fn check_failed_start() {
    let tools: Vec<Box<dyn AgentTool>> = vec![Box::new(weather::WeatherTool), Box::new(weather::WeatherTool)];
    let mut agent = Agent::new(Arc::new(ScriptedProvider::new())).with_tools(tools);
    for _ in 0..2 {
        let mut events = agent.prompt("hello").await;
        let received = collect_events(&mut events).await;
        let Some(AgentEnd::Internal { message }) = events.end() else { panic!("{:?}", events.end()) };
        assert!(message.contains("get_weather"), "the operator learns which: {message}");
        let event_text: Vec<String> = received.iter().map(|event| json!(event).to_string()).collect();
        let event_text = event_text.join("\n");
        assert!(
            !event_text.contains("get_weather") && event_text.contains("an internal error"),
            "{event_text}"
        );
    }
}
