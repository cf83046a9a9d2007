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
        self.0.lock().expect("not poisoned").write(bytes)
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

fn live_for(reader: Reader) -> (Live, Screen) {
    let screen = Screen::default();
    let live = Live::to(EventOutput {
        stream: Mutex::new(Box::new(screen.clone())),
        is_terminal: reader != Reader::Program,
        has_colours: reader == Reader::ColouredTerminal,
        target: ProgressDrawTarget::hidden,
    });
    (live, screen)
}

impl Screen {
    fn shown(&self) -> String {
        String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("text")
    }
}

/// The output of these events for a reader that is no terminal.
fn shown(events: &[AgentEvent]) -> String {
    shown_to(Reader::Program, events)
}

fn shown_to(reader: Reader, events: &[AgentEvent]) -> String {
    let (live, screen) = live_for(reader);
    for event in events {
        live.show(event);
    }
    screen.shown()
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
        outcome: outcome.map(ToolOutput::text),
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
    let seen = shown(&events);
    assert_eq!(seen, "  │ one\n  │ two\n  │ three\n  │ \n  │ \\u{9}four\\u{d}\n  │ five");
    let whole = shown(&[piece("a", &pieces.concat())]);
    assert_eq!(whole, seen, "however it is cut");
}

#[test]
fn two_calls_that_stream_in_turns_have_lines_of_their_own() {
    let seen = shown(&[
        piece("a", "a1"),
        piece("b", "b1"),
        piece("b", " goes on\n"),
        piece("a", "a2\na3"),
        piece("b", "b2"),
    ]);
    assert_eq!(seen, "  │ a1\n  │ b1 goes on\n  │ a2\n  │ a3\n  │ b2");
}

#[test]
fn event_between_two_pieces_ends_the_line() {
    let seen = shown(&[piece("a", "one"), progress("a", "half"), piece("a", "two"), words("So")]);
    assert_eq!(seen, "  │ one\n  · half\n  │ two\nSo");
}

#[test]
fn the_result_of_a_streamed_call_shows_only_notes_on_its_end() {
    let whole = "one\ntwo\n[exit code: 3]";
    let seen = shown(&[
        requested("a", "shell_exec", "{}"),
        piece("a", "one\ntw"),
        piece("a", "o"),
        ended("a", "shell_exec", Ok(whole)),
    ]);
    assert_eq!(seen, "→ shell_exec {}\n  │ one\n  │ two\n  │ [exit code: 3]\n  ✓ 1.5 ms\n");
    let silent = shown(&[piece("a", "one\n"), ended("a", "shell_exec", Ok("one\n"))]);
    assert_eq!(silent, "  │ one\n  ✓ 1.5 ms\n");
    let own =
        shown(&[piece("a", "[own]\n"), ended("a", "shell_exec", Ok("[own]\n[dropped]\n[exit code: 3]"))]);
    assert_eq!(own, "  │ [own]\n  │ [dropped]\n  │ [exit code: 3]\n  ✓ 1.5 ms\n");
    // A later call with the same id that streams nothing is shown whole.
    let (live, screen) = live_for(Reader::Program);
    for event in [piece("a", "one\n"), ended("a", "t", Ok("one\n")), ended("a", "t", Ok("one\ntwo\n"))] {
        live.show(&event);
    }
    assert_eq!(screen.shown(), "  │ one\n  ✓ 1.5 ms\n  │ one\n  │ two\n  ✓ 1.5 ms\n");
    assert!(live.state().streamed.is_empty());
}

#[test]
fn a_long_result_is_cut_and_its_last_line_shown() {
    let text = |lines: usize| (1..=lines).map(|number| format!("line {number}\n")).collect::<String>();
    let most: String = (1..=SHOWN_LINES).map(|number| format!("  │ line {number}\n")).collect();
    assert_eq!(shown(&[ended("a", "t", Ok(&text(SHOWN_LINES)))]), format!("{most}  ✓ 1.5 ms\n"));

    let first: String = (1..SHOWN_LINES).map(|number| format!("  │ line {number}\n")).collect();
    let lines = SHOWN_LINES + 5;
    let cut = format!("{first}  ┆ 5 more lines\n  │ line {lines}\n");
    assert_eq!(shown(&[ended("a", "t", Ok(&text(lines)))]), format!("{cut}  ✓ 1.5 ms\n"));
    // Partial results are cut alike, except streamed output.
    assert_eq!(shown(&[update("a", &text(lines), Value::Null)]), cut);
    assert_eq!(shown(&[piece("a", &text(lines))]).lines().count(), lines);

    let long = "x".repeat(SHOWN_CHARS + 1);
    let cut = format!("  │ {}…\n  ✓ 1.5 ms\n", "x".repeat(SHOWN_CHARS));
    assert_eq!(shown(&[ended("a", "t", Ok(&long))]), cut);
    assert_eq!(shown(&[ended("a", "t", Ok(""))]), "  ✓ 1.5 ms\n");
}

#[test]
fn an_error_is_shown_with_its_code() {
    let error = ToolError::denied("`/etc/passwd` is not below any mount").with_code("outside_mounts");
    assert_eq!(
        shown(&[
            requested("a", "file_read", "{}"),
            ended("a", "file_read", Err(error.with_hint("try /shared")))
        ]),
        "→ file_read {}\n  ✗ Tool execution failed: `/etc/passwd` is not below any mount (try /shared) \
         [outside_mounts], 1.5 ms\n"
    );
}

#[test]
fn results_name_their_tool_where_several_calls_run() {
    let seen = shown(&[
        requested("a", "file_read", "{}"),
        requested("b", "file_list", "{}"),
        ended("b", "file_list", Ok("")),
        ended("a", "file_read", Err(ToolError::failed("no"))),
        requested("c", "echo", "{}"),
        ended("c", "echo", Ok("")),
    ]);
    assert_eq!(
        seen,
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
fn assert_harmless(seen: &str) {
    let acts = |character: &char| (character.is_control() && *character != '\n') || *character == '\u{202e}';
    assert_eq!(seen.chars().find(acts), None, "{seen:?}");
}

#[test]
fn no_text_of_a_tool_reaches_a_terminal_unescaped() {
    // The model's own text and the provider's are passed unchanged to programs.
    for reader in [Reader::Program, Reader::Terminal] {
        let seen = shown_to(reader, &hostile_events());
        assert_harmless(&seen);
        assert!(seen.matches("\\u{1b}[2Jb\\u{d}c\\u{7}d\\u{202e}e\\u{9b}31mf").count() > 15, "{seen}");
    }
    let provider = AgentEnd::Provider { kind: ProviderErrorKind::Server, message: HOSTILE.to_owned() };
    let others = [words(HOSTILE), end(provider), end(AgentEnd::Repeated { tool: HOSTILE.to_owned() })];
    assert_harmless(&shown_to(Reader::Terminal, &others));
    assert!(shown(&others).contains('\u{1b}'), "a program is given what was said");
}

#[test]
fn in_colour_only_our_own_marks_bring_escapes() {
    let seen = shown_to(Reader::ColouredTerminal, &hostile_events());
    let ours = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[36m"];
    assert!(seen.contains("\u{1b}[32m  ✓ ") && seen.contains("\u{1b}[31m  ✗ "), "{seen:?}");
    assert_harmless(&ours.iter().fold(seen, |seen, ours| seen.replace(ours, "")));
    // A model's text that imitates our marks is not coloured.
    let posing = ["→ file_read {}", "  ✓ 1 ms\n", "  │ words\n"];
    for posing in posing {
        assert_eq!(shown_to(Reader::ColouredTerminal, &[words(posing)]), posing);
    }
}

#[test]
fn the_sign_of_life_says_what_is_waited_for_and_is_as_harmless() {
    let (live, _) = live_for(Reader::Terminal);
    let waits = || live.state().waiting.as_ref().map(ProgressBar::message);
    live.show(&AgentEvent::TurnStart { iteration: 1 });
    assert_eq!(waits().as_deref(), Some("the model thinks"));
    live.show(&words("I"));
    assert_eq!(waits(), None, "a line goes on there");
    live.show(&requested("a", HOSTILE, "{}"));
    live.show(&requested("b", "echo", "{}"));
    let said = waits().expect("waits");
    assert!(said.ends_with("f, echo"), "{said}");
    assert_harmless(&said);
    live.show(&piece("a", "half a line"));
    assert_eq!(waits(), None);
    live.show(&ended("a", "x", Ok("")));
    assert_eq!(waits().as_deref(), Some("echo"));
    live.show(&end(AgentEnd::Cancelled));
    assert_eq!(waits(), None, "nothing is left behind");

    let (live, _) = live_for(Reader::Program);
    live.show(&AgentEvent::TurnStart { iteration: 1 });
    assert!(live.state().waiting.is_none(), "a program needs none");
}

#[test]
fn each_end_but_an_answer_is_said() {
    let text = || "so far".to_owned();
    let provider = AgentEnd::Provider { kind: ProviderErrorKind::RateLimited, message: "wait".to_owned() };
    for (how, said) in [
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
        assert_eq!(shown(&[words("so far"), end(how)]), format!("so far\n{said}"));
    }
}

#[test]
fn an_approval_a_later_turn_and_steering_are_shown() {
    let resolved =
        |approved| AgentEvent::Tool(ToolEvent::ApprovalResolved { call_id: "a".to_owned(), approved });
    let pending = AgentEvent::Tool(ToolEvent::Pending { call_id: "a".to_owned() });
    assert_eq!(
        shown(&[
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
    assert_eq!(screen.shown(), "I write\n", "the question has a line of its own");
    for event in [piece("a", "on"), piece("b", "other"), piece("b", " one"), piece("a", "e\n")] {
        live.show(&event);
    }
    live.show_notice("and this is asked");
    drop(first);
    assert_eq!(screen.shown(), "I write\nand this is asked\n", "another question is still open");
    drop(second);
    live.show(&words("Done"));
    assert_eq!(
        screen.shown(),
        "I write\nand this is asked\n  │ on\n  │ other one\n  │ e\nDone",
        "in the order in which it happened"
    );
}

#[test]
fn no_more_is_held_back_than_the_limit() {
    let (live, screen) = live_for(Reader::Program);
    let paused = live.pause();
    for number in 0..HELD_EVENTS + 5 {
        live.show(&progress("a", &number.to_string()));
    }
    assert_eq!(live.state().held.len(), HELD_EVENTS);
    drop(paused);
    assert!(live.state().held.is_empty() && live.state().open_questions == 0);
    let shown: String = (0..HELD_EVENTS).map(|number| format!("  · {number}\n")).collect();
    assert_eq!(screen.shown(), shown, "the first of them");
}

#[test]
fn a_line_is_cut_and_cannot_act_on_a_terminal() {
    assert_eq!(cut("short"), "short");
    assert_eq!(cut(&"x".repeat(SHOWN_CHARS + 1)), format!("{}…", "x".repeat(SHOWN_CHARS)));
    assert!(!cut("a\u{1b}[2Kb\nc").contains(['\u{1b}', '\n']));
}

#[test]
fn a_heartbeat_is_shown_where_there_is_no_progress_line() {
    let elapsed = std::time::Duration::from_millis(10_003);
    let events = [
        requested("c", "slow", "{}"),
        AgentEvent::Tool(ToolEvent::Heartbeat { call_id: "c".into(), elapsed }),
    ];
    assert_eq!(shown(&events), "→ slow {}\n  · running for 10 s\n");
    assert_eq!(shown_to(Reader::Terminal, &events), "→ slow {}\n");
}
