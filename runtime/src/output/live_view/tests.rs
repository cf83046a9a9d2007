//! The live view of a run, on a terminal and elsewhere.

use portcullis_agent::ProviderErrorKind;
use portcullis_types::{ToolError, ToolOutput};
use serde_json::{Value, json};

use super::*;

/// Text of a tool or a model that a terminal would act on, or that deceives the eye.
const HOSTILE: &str = "a\u{1b}[2Jb\rc\u{7}d\u{202e}e\u{9b}31mf";

/// A stream that keeps its output.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reader {
    Program,
    Terminal,
    ColouredTerminal,
}

fn live_for(reader: Reader) -> (LiveView, Screen) {
    let screen = Screen::default();
    let live = LiveView::with_output(EventOutput {
        stream: Mutex::new(Box::new(screen.clone())),
        is_terminal: reader != Reader::Program,
        has_colours: reader == Reader::ColouredTerminal,
        draw_target: ProgressDrawTarget::hidden,
    });
    (live, screen)
}

impl Screen {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("the output is UTF-8")
    }
}

/// The output of these events for a reader that is not a terminal.
fn render_events(events: &[AgentEvent]) -> String {
    render_events_for(Reader::Program, events)
}

fn render_events_for(reader: Reader, events: &[AgentEvent]) -> String {
    let (live, screen) = live_for(reader);
    for event in events {
        live.show(event);
    }
    screen.text()
}

fn words(delta: &str) -> AgentEvent {
    AgentEvent::TextDelta { delta: delta.to_owned() }
}

fn requested(call: &str, tool: &str, arguments: &str) -> AgentEvent {
    let [call_id, tool, arguments] = [call, tool, arguments].map(str::to_owned);
    AgentEvent::Tool(ToolEvent::Requested { call_id, tool, arguments })
}

fn progress(call: &str, text: &str) -> AgentEvent {
    AgentEvent::Tool(ToolEvent::Progress { call_id: call.to_owned(), text: text.to_owned() })
}

fn update(call: &str, text: &str, details: Value) -> AgentEvent {
    let partial = ToolOutput::text(text).with_details(details);
    AgentEvent::Tool(ToolEvent::Update { call_id: call.to_owned(), partial })
}

/// A piece of a call's output, as the shell sends it.
fn piece(call: &str, text: &str) -> AgentEvent {
    update(call, text, json!({"stream": "output"}))
}

fn ended(call: &str, tool: &str, outcome: Result<&str, ToolError>) -> AgentEvent {
    let result = ToolResult {
        call_id: call.to_owned(),
        tool: tool.to_owned(),
        outcome: outcome.map(ToolOutput::text).into(),
        details: Value::Null,
        truncated: false,
        original_bytes: 0,
        duration: Duration::from_micros(1500),
    };
    AgentEvent::ToolEnd { result: Arc::new(result) }
}

fn end(end: AgentEnd) -> AgentEvent {
    AgentEvent::AgentEnd { end }
}

#[test]
fn output_that_is_cut_within_lines_goes_on_in_the_same_line() {
    let pieces = ["on", "e\n", "two\nth", "r", "ee\n", "\n", "\tfour\r", "\nfi", "ve"];
    let events: Vec<AgentEvent> = pieces.iter().map(|text| piece("a", text)).collect();
    let output = render_events(&events);
    assert_eq!(output, "  │ one\n  │ two\n  │ three\n  │ \n  │ \\u{9}four\\u{d}\n  │ five");
    let unsplit_output = render_events(&[piece("a", &pieces.concat())]);
    assert_eq!(unsplit_output, output, "however it is cut");
}

#[test]
fn two_calls_that_stream_in_turns_have_lines_of_their_own() {
    let output = render_events(&[
        piece("a", "a1"),
        piece("b", "b1"),
        piece("b", " goes on\n"),
        piece("a", "a2\na3"),
        piece("b", "b2"),
    ]);
    assert_eq!(output, "  │ a1\n  │ b1 goes on\n  │ a2\n  │ a3\n  │ b2");
}

#[test]
fn event_between_two_pieces_ends_the_line() {
    let output = render_events(&[piece("a", "one"), progress("a", "half"), piece("a", "two"), words("So")]);
    assert_eq!(output, "  │ one\n  · half\n  │ two\nSo");
}

#[test]
fn the_result_of_a_streamed_call_shows_only_notes_on_its_end() {
    let result_text = "one\ntwo\n[exit code: 3]";
    let output = render_events(&[
        requested("a", "shell_exec", "{}"),
        piece("a", "one\ntw"),
        piece("a", "o"),
        ended("a", "shell_exec", Ok(result_text)),
    ]);
    assert_eq!(output, "→ shell_exec {}\n  │ one\n  │ two\n  │ [exit code: 3]\n  ✓ 1.5 ms\n");
    let output_without_notes = render_events(&[piece("a", "one\n"), ended("a", "shell_exec", Ok("one\n"))]);
    assert_eq!(output_without_notes, "  │ one\n  ✓ 1.5 ms\n");
    let output_with_brackets = render_events(&[
        piece("a", "[own]\n"),
        ended("a", "shell_exec", Ok("[own]\n[dropped]\n[exit code: 3]")),
    ]);
    assert_eq!(output_with_brackets, "  │ [own]\n  │ [dropped]\n  │ [exit code: 3]\n  ✓ 1.5 ms\n");
    // A later call with the same id that streams nothing is shown whole.
    let (live, screen) = live_for(Reader::Program);
    for event in [piece("a", "one\n"), ended("a", "t", Ok("one\n")), ended("a", "t", Ok("one\ntwo\n"))] {
        live.show(&event);
    }
    assert_eq!(screen.text(), "  │ one\n  ✓ 1.5 ms\n  │ one\n  │ two\n  ✓ 1.5 ms\n");
    assert!(live.state().streamed_outputs.is_empty());
}

#[test]
fn a_long_result_is_cut_and_its_last_line_shown() {
    let text = |lines: usize| (1..=lines).map(|number| format!("line {number}\n")).collect::<String>();
    let all_lines: String = (1..=MAX_SHOWN_LINES).map(|number| format!("  │ line {number}\n")).collect();
    assert_eq!(
        render_events(&[ended("a", "t", Ok(&text(MAX_SHOWN_LINES)))]),
        format!("{all_lines}  ✓ 1.5 ms\n")
    );

    let first_lines: String = (1..MAX_SHOWN_LINES).map(|number| format!("  │ line {number}\n")).collect();
    let lines = MAX_SHOWN_LINES + 5;
    let cut_output = format!("{first_lines}  ┆ 5 more lines\n  │ line {lines}\n");
    assert_eq!(render_events(&[ended("a", "t", Ok(&text(lines)))]), format!("{cut_output}  ✓ 1.5 ms\n"));
    // Partial results are cut alike, except streamed output.
    assert_eq!(render_events(&[update("a", &text(lines), Value::Null)]), cut_output);
    assert_eq!(render_events(&[piece("a", &text(lines))]).lines().count(), lines);

    let long = "x".repeat(MAX_SHOWN_CHARS + 1);
    let cut_output = format!("  │ {}…\n  ✓ 1.5 ms\n", "x".repeat(MAX_SHOWN_CHARS));
    assert_eq!(render_events(&[ended("a", "t", Ok(&long))]), cut_output);
    assert_eq!(render_events(&[ended("a", "t", Ok(""))]), "  ✓ 1.5 ms\n");
}

#[test]
fn an_error_is_shown_with_its_code() {
    let error = ToolError::denied("`/etc/passwd` is not below any mount").with_code("outside_mounts");
    assert_eq!(
        render_events(&[
            requested("a", "file_read", "{}"),
            ended("a", "file_read", Err(error.with_hint("try /shared")))
        ]),
        "→ file_read {}\n  ✗ Tool execution failed: `/etc/passwd` is not below any mount (try /shared) \
         [outside_mounts], 1.5 ms\n"
    );
}

#[test]
fn results_name_their_tool_where_several_calls_run() {
    let output = render_events(&[
        requested("a", "file_read", "{}"),
        requested("b", "file_list", "{}"),
        ended("b", "file_list", Ok("")),
        ended("a", "file_read", Err(ToolError::failed("no"))),
        requested("c", "echo", "{}"),
        ended("c", "echo", Ok("")),
    ]);
    assert_eq!(
        output,
        "→ file_read {}\n→ file_list {}\n  ✓ file_list, 1.5 ms\n  ✗ file_read, Tool execution failed: no [failed], \
         1.5 ms\n→ echo {}\n  ✓ 1.5 ms\n"
    );
}

/// Every text in an event that a model, a tool or a provider may choose.
fn hostile_events() -> Vec<AgentEvent> {
    vec![
        AgentEvent::TurnStart { iteration: 1 },
        requested("a", HOSTILE, HOSTILE),
        progress("a", HOSTILE),
        piece("a", HOSTILE),
        update("a", HOSTILE, Value::Null),
        ended("a", HOSTILE, Ok(HOSTILE)),
        requested("b", HOSTILE, HOSTILE),
        requested("c", HOSTILE, HOSTILE),
        piece("b", HOSTILE),
        ended("b", HOSTILE, Ok(&format!("x\n[{HOSTILE}"))),
        ended("c", HOSTILE, Err(ToolError::failed(HOSTILE).with_code(HOSTILE).with_hint(HOSTILE))),
        AgentEvent::Steered { messages: Arc::new(vec![Message::user(HOSTILE)]) },
    ]
}

#[track_caller]
fn assert_harmless(output: &str) {
    let is_harmful =
        |character: &char| (character.is_control() && *character != '\n') || *character == '\u{202e}';
    assert_eq!(output.chars().find(is_harmful), None, "{output:?}");
}

#[test]
fn no_text_of_a_tool_reaches_a_terminal_unescaped() {
    // The model's own text and the provider's are passed unchanged to programs.
    for reader in [Reader::Program, Reader::Terminal] {
        let output = render_events_for(reader, &hostile_events());
        assert_harmless(&output);
        assert!(output.matches("\\u{1b}[2Jb\\u{d}c\\u{7}d\\u{202e}e\\u{9b}31mf").count() > 15, "{output}");
    }
    let provider = AgentEnd::Provider { kind: ProviderErrorKind::Server, message: HOSTILE.to_owned() };
    let other_events = [words(HOSTILE), end(provider), end(AgentEnd::Repeated { tool: HOSTILE.to_owned() })];
    assert_harmless(&render_events_for(Reader::Terminal, &other_events));
    assert!(render_events(&other_events).contains('\u{1b}'), "a program is given what was said");
}

#[test]
fn only_our_marks_have_colour_escapes() {
    let output = render_events_for(Reader::ColouredTerminal, &hostile_events());
    let own_escapes = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[36m"];
    assert!(output.contains("\u{1b}[32m  ✓ ") && output.contains("\u{1b}[31m  ✗ "), "{output:?}");
    assert_harmless(&own_escapes.iter().fold(output, |output, escape| output.replace(escape, "")));
    // A model's text that imitates our marks is not coloured.
    let imitations = ["→ file_read {}", "  ✓ 1 ms\n", "  │ words\n"];
    for imitation in imitations {
        assert_eq!(render_events_for(Reader::ColouredTerminal, &[words(imitation)]), imitation);
    }
}

#[test]
fn the_progress_line_names_what_it_waits_for_with_escapes() {
    let (live, _) = live_for(Reader::Terminal);
    let progress_text = || live.state().progress_bar.as_ref().map(ProgressBar::message);
    live.show(&AgentEvent::TurnStart { iteration: 1 });
    assert_eq!(progress_text().as_deref(), Some("the model thinks"));
    live.show(&words("I"));
    assert_eq!(progress_text(), None, "a line goes on there");
    live.show(&requested("a", HOSTILE, "{}"));
    live.show(&requested("b", "echo", "{}"));
    let waiting_text = progress_text().expect("waits");
    assert!(waiting_text.ends_with("f, echo"), "{waiting_text}");
    assert_harmless(&waiting_text);
    live.show(&piece("a", "half a line"));
    assert_eq!(progress_text(), None);
    live.show(&ended("a", "x", Ok("")));
    assert_eq!(progress_text().as_deref(), Some("echo"));
    live.show(&end(AgentEnd::Cancelled));
    assert_eq!(progress_text(), None, "nothing is left behind");

    let (live, _) = live_for(Reader::Program);
    live.show(&AgentEvent::TurnStart { iteration: 1 });
    assert!(live.state().progress_bar.is_none(), "a program needs none");
}

#[test]
fn each_end_except_an_answer_is_shown() {
    let text = || "so far".to_owned();
    let provider = AgentEnd::Provider { kind: ProviderErrorKind::RateLimited, message: "wait".to_owned() };
    for (end_state, expected_line) in [
        (AgentEnd::Answer { text: text() }, ""),
        (AgentEnd::MaxIterations { limit: 3 }, "the model was asked 3 times without giving a final answer\n"),
        (AgentEnd::Length { text: text() }, "the limit of tokens cut the answer off\n"),
        (
            AgentEnd::Repeated { tool: "echo".to_owned() },
            "the model made the same call of echo over and over\n",
        ),
        (AgentEnd::Cancelled, "given up\n"),
        (provider, "the provider failed (rate_limited): wait\n"),
        (AgentEnd::Internal { message: "lost".to_owned() }, "internal error: lost\n"),
    ] {
        assert_eq!(render_events(&[words("so far"), end(end_state)]), format!("so far\n{expected_line}"));
    }
}

#[test]
fn an_approval_a_later_turn_and_steering_are_shown() {
    let resolved =
        |approved| AgentEvent::Tool(ToolEvent::ApprovalResolved { call_id: "a".to_owned(), approved });
    let pending =
        AgentEvent::Tool(ToolEvent::Pending { call_id: "a".to_owned(), id: "call_1".to_owned(), expires: 1 });
    assert_eq!(
        render_events(&[
            AgentEvent::TurnStart { iteration: 1 },
            resolved(true),
            resolved(false),
            pending,
            AgentEvent::Steered { messages: Arc::new(vec![Message::user("stop"), Message::user("now")]) },
            AgentEvent::TurnStart { iteration: 2 },
        ]),
        "  approved\n  not approved\n  the result will come later\nyou: stop\nyou: now\n\n"
    );
}

#[test]
fn events_during_a_question_are_shown_after_it_in_order() {
    let (live, screen) = live_for(Reader::Program);
    live.show(&words("I write"));
    let (first, second) = (live.pause(), live.pause());
    assert_eq!(screen.text(), "I write\n", "the question has a separate line");
    for event in [piece("a", "on"), piece("b", "other"), piece("b", " one"), piece("a", "e\n")] {
        live.show(&event);
    }
    live.show_notice("and this is asked");
    drop(first);
    assert_eq!(screen.text(), "I write\nand this is asked\n", "another question is still open");
    drop(second);
    live.show(&words("Done"));
    assert_eq!(
        screen.text(),
        "I write\nand this is asked\n  │ on\n  │ other one\n  │ e\nDone",
        "in the order in which it happened"
    );
}

#[test]
fn no_more_is_held_back_than_the_limit() {
    let (live, screen) = live_for(Reader::Program);
    let paused = live.pause();
    for number in 0..MAX_HELD_EVENTS + 5 {
        live.show(&progress("a", &number.to_string()));
    }
    assert_eq!(live.state().held_events.len(), MAX_HELD_EVENTS);
    drop(paused);
    assert!(live.state().held_events.is_empty() && live.state().open_questions == 0);
    let held_lines: String = (0..MAX_HELD_EVENTS).map(|number| format!("  · {number}\n")).collect();
    assert_eq!(screen.text(), held_lines, "the first of them");
}

#[test]
fn a_line_is_cut_and_cannot_act_on_a_terminal() {
    assert_eq!(truncate_to_line("short"), "short");
    assert_eq!(
        truncate_to_line(&"x".repeat(MAX_SHOWN_CHARS + 1)),
        format!("{}…", "x".repeat(MAX_SHOWN_CHARS))
    );
    assert!(!truncate_to_line("a\u{1b}[2Kb\nc").contains(['\u{1b}', '\n']));
}

#[test]
fn a_heartbeat_is_shown_where_there_is_no_progress_line() {
    let elapsed = std::time::Duration::from_millis(10_003);
    let events = [
        requested("c", "slow", "{}"),
        AgentEvent::Tool(ToolEvent::Heartbeat { call_id: "c".into(), elapsed }),
    ];
    assert_eq!(render_events(&events), "→ slow {}\n  · running for 10 s\n");
    assert_eq!(render_events_for(Reader::Terminal, &events), "→ slow {}\n");
}
