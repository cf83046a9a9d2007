//! A live view of a run for a person: the model's text, each call, and each outcome.

mod streamed;

use std::{
    io::{self, IsTerminal as _, Write},
    sync::Arc,
    time::Duration,
};

use console::{Style, colors_enabled, colors_enabled_stderr};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::{Mutex, MutexGuard};
use portcullis_agent::{AgentEnd, AgentEvent};
use portcullis_tools::approval::{ApprovalRequest, Approver, AttributedAnswer};
use portcullis_types::{Message, ToolEvent, ToolOutcome, ToolResult, async_trait};

use self::streamed::StreamedOutput;
use super::text;

/// The maximum number of lines of a result that are shown.
const MAX_SHOWN_LINES: usize = 8;

/// The maximum number of characters that are shown of a line, or of a call's arguments.
const MAX_SHOWN_CHARS: usize = 160;

/// The maximum number of events that are buffered while an approver is asked. Later events are dropped unless
/// they must arrive. Otherwise a call that keeps reporting during an open question could fill the memory.
const MAX_HELD_EVENTS: usize = 1024;

/// The interval at which the progress line is drawn.
const TICK: Duration = Duration::from_millis(100);

/// Shows the events of a run on one of the standard streams. On a terminal, a progress line at the bottom
/// shows what the run is waiting for, and control characters are escaped.
pub(crate) struct LiveView {
    output: EventOutput,
    state: Mutex<LiveState>,
}

struct EventOutput {
    stream: Mutex<Box<dyn Write + Send>>,
    /// Whether the stream is a terminal, which interprets control characters.
    is_terminal: bool,
    /// Whether to use colours, as `NO_COLOR` and `CLICOLOR` decide.
    has_colours: bool,
    /// The draw target of the progress line.
    draw_target: fn() -> ProgressDrawTarget,
}

#[derive(Default)]
struct LiveState {
    /// Whether the last output ended within a line.
    is_mid_line: bool,
    /// The running calls, with their tools.
    running: Vec<(String, String)>,
    /// Whether calls run concurrently. Results then name their tools.
    runs_concurrently: bool,
    /// Calls whose output was streamed.
    streamed_outputs: Vec<(String, StreamedOutput)>,
    /// The call that the current line of streamed output belongs to.
    streaming_call: Option<String>,
    /// The progress line, while the run waits.
    progress_bar: Option<ProgressBar>,
    /// The number of open questions. Events are held while there are any.
    open_questions: usize,
    held_events: Vec<AgentEvent>,
}

impl LiveView {
    /// Creates a view on standard error, beside an answer on standard output.
    pub(crate) fn to_stderr() -> Self {
        let stderr = io::stderr();
        Self::with_output(EventOutput {
            is_terminal: stderr.is_terminal(),
            has_colours: colors_enabled_stderr(),
            stream: Mutex::new(Box::new(stderr)),
            draw_target: ProgressDrawTarget::stderr,
        })
    }

    /// Creates a view on standard output, where it is the answer itself.
    pub(crate) fn to_stdout() -> Self {
        let stdout = io::stdout();
        Self::with_output(EventOutput {
            is_terminal: stdout.is_terminal(),
            has_colours: colors_enabled(),
            stream: Mutex::new(Box::new(stdout)),
            draw_target: ProgressDrawTarget::stdout,
        })
    }

    fn with_output(out: EventOutput) -> Self {
        Self { output: out, state: Mutex::default() }
    }

    pub(crate) fn show(&self, event: &AgentEvent) {
        let mut state = self.state();
        if state.open_questions == 0 {
            self.show_event(&mut state, event);
        } else if state.held_events.len() < MAX_HELD_EVENTS || event.must_arrive() {
            state.held_events.push(event.clone());
        }
    }

    fn show_event(&self, state: &mut LiveState, event: &AgentEvent) {
        match event {
            AgentEvent::TurnStart { iteration } => {
                if *iteration > 1 {
                    self.show_line(state, "");
                }
                self.show_waiting(state, "the model thinks");
            }
            AgentEvent::TextDelta { delta } => {
                // The model's text must not continue a line of a tool's output.
                if state.streaming_call.is_some() {
                    self.end_line(state);
                }
                self.write(state, delta);
            }
            AgentEvent::Tool(event) => self.show_call(state, event),
            AgentEvent::ToolEnd { result } => self.show_result(state, result),
            AgentEvent::Steered { messages } => {
                for message in messages.iter() {
                    self.show_line(state, &format!("you: {}", truncate_to_line(&Message::text(message))));
                }
            }
            AgentEvent::MessageEnd { .. } => self.end_line(state),
            AgentEvent::AgentEnd { end } => self.show_end(state, end),
            AgentEvent::AgentStart { .. } | AgentEvent::ThinkingDelta { .. } | AgentEvent::TurnEnd { .. } => {
            }
        }
    }

    /// Shows a text from the program itself.
    pub(crate) fn show_notice(&self, words: &str) {
        let mut state = self.state();
        self.end_line(&mut state);
        self.write(&mut state, words);
        self.end_line(&mut state);
    }

    /// Releases the terminal for a question until the returned value is dropped.
    fn pause(&self) -> LivePause<'_> {
        let mut state = self.state();
        self.end_line(&mut state);
        state.open_questions += 1;
        LivePause(self)
    }

    fn show_call(&self, state: &mut LiveState, event: &ToolEvent) {
        match event {
            ToolEvent::Requested { call_id, tool, arguments } => {
                self.show_line(
                    state,
                    &format!("→ {} {}", truncate_to_line(tool), truncate_to_line(arguments)),
                );
                state.running.push((call_id.clone(), tool.clone()));
                state.runs_concurrently = state.running.len() > 1;
                self.show_waiting_for_calls(state);
            }
            // On a terminal the progress line shows the running time.
            ToolEvent::Heartbeat { call_id, elapsed } if !self.output.is_terminal => {
                let running =
                    state.running.iter().find(|(call, _)| call == call_id && state.runs_concurrently);
                let name =
                    running.map(|(_, tool)| format!("{}, ", truncate_to_line(tool))).unwrap_or_default();
                self.show_line(state, &format!("  · {name}running for {} s", elapsed.as_secs()));
            }
            ToolEvent::Progress { text, .. } => {
                self.show_line(state, &format!("  · {}", truncate_to_line(text.trim_end())));
                self.show_waiting_for_calls(state);
            }
            ToolEvent::Update { call_id, partial } => {
                let update_text = text::of_content(&partial.content);
                if partial.details.get("stream").is_some() {
                    self.show_stream_piece(state, call_id, &update_text);
                } else {
                    self.show_block(state, &update_text, MAX_SHOWN_LINES);
                }
                self.show_waiting_for_calls(state);
            }
            ToolEvent::ApprovalResolved { approved, .. } => {
                self.show_line(state, if *approved { "  approved" } else { "  not approved" });
                self.show_waiting_for_calls(state);
            }
            ToolEvent::Pending { .. } => self.show_line(state, "  the result will come later"),
            // The other events add nothing to the events that are shown.
            _ => {}
        }
    }

    fn show_result(&self, state: &mut LiveState, result: &ToolResult) {
        state.running.retain(|(call, _)| *call != result.call_id);
        // Output that was streamed is not repeated with the result.
        let index = state.streamed_outputs.iter().position(|(call, _)| *call == result.call_id);
        let streamed = index.map(|index| state.streamed_outputs.swap_remove(index).1);
        let name = if state.runs_concurrently {
            format!("{}, ", truncate_to_line(&result.tool))
        } else {
            String::new()
        };
        let duration_text = format!("{:.1} ms", result.duration.as_secs_f64() * 1000.0);
        match &result.outcome {
            ToolOutcome::Output(output) => {
                let result_text = text::of_content(&output.content);
                match streamed {
                    Some(streamed) => {
                        self.show_block(
                            state,
                            &streamed.unstreamed_notes(&result_text).join("\n"),
                            MAX_SHOWN_LINES,
                        );
                    }
                    None => self.show_block(state, &result_text, MAX_SHOWN_LINES),
                }
                self.show_line(state, &format!("  ✓ {name}{duration_text}"));
            }
            ToolOutcome::Pending { id, .. } => {
                let id = text::inline(id);
                self.show_line(
                    state,
                    &format!("  … {name}the result will come later, as {id}, {duration_text}"),
                );
            }
            ToolOutcome::Error(error) => {
                let error_text = text::inline(&error.for_model());
                self.show_line(
                    state,
                    &format!("  ✗ {name}{error_text} [{}], {duration_text}", text::inline(error.code())),
                );
            }
        }
        state.runs_concurrently &= !state.running.is_empty();
        self.show_waiting_for_calls(state);
    }

    /// Shows more of a call's output as it arrives. A piece may end within a line, which the next piece
    /// continues.
    fn show_stream_piece(&self, state: &mut LiveState, call: &str, piece_text: &str) {
        match state.streamed_outputs.iter_mut().find(|(call_id, _)| call_id == call) {
            Some((_, streamed)) => streamed.append(piece_text),
            None => {
                let mut streamed = StreamedOutput::default();
                streamed.append(piece_text);
                state.streamed_outputs.push((call.to_owned(), streamed));
            }
        }
        for piece in piece_text.split_inclusive('\n') {
            if !(state.is_mid_line && state.streaming_call.as_deref() == Some(call)) {
                self.end_line(state);
                self.write_styled(state, "  │ ", style("  │ "));
            }
            self.write(state, &text::inline(piece.trim_end_matches('\n')));
            state.is_mid_line = true;
            state.streaming_call = Some(call.to_owned());
            if piece.ends_with('\n') {
                self.write(state, "\n");
            }
        }
    }

    fn show_end(&self, state: &mut LiveState, end: &AgentEnd) {
        state.running.clear();
        let notice = match end {
            AgentEnd::Answer { .. } => None,
            AgentEnd::MaxIterations { limit } => {
                Some(format!("the model was asked {limit} times without giving a final answer"))
            }
            AgentEnd::Length { .. } => Some("the limit of tokens cut the answer off".to_owned()),
            AgentEnd::Repeated { tool } => {
                Some(format!("the model made the same call of {tool} over and over"))
            }
            AgentEnd::Cancelled => Some("given up".to_owned()),
            AgentEnd::Provider { kind, message } => Some(format!("the provider failed ({kind}): {message}")),
            AgentEnd::Internal { message } => Some(format!("internal error: {message}")),
        };
        self.end_line(state);
        if let Some(notice) = notice {
            self.show_line(state, &notice);
        }
    }

    /// Shows a text in whole lines, at most `max_lines` of them.
    fn show_block(&self, state: &mut LiveState, block_text: &str, max_lines: usize) {
        if block_text.is_empty() {
            return;
        }
        let lines: Vec<&str> = block_text.lines().collect();
        // Always show the last line, because it may report that there is more.
        let shown_count = if lines.len() > max_lines { max_lines - 1 } else { lines.len() };
        for line in &lines[..shown_count] {
            self.show_line(state, &format!("  │ {}", truncate_to_line(line)));
        }
        if shown_count < lines.len() {
            self.show_line(state, &format!("  ┆ {} more lines", lines.len() - max_lines));
            self.show_line(state, &format!("  │ {}", truncate_to_line(lines[lines.len() - 1])));
        }
    }

    fn show_waiting_for_calls(&self, state: &mut LiveState) {
        let tools: Vec<&str> = state.running.iter().map(|(_, tool)| tool.as_str()).collect();
        if !tools.is_empty() {
            let tools = tools.join(", ");
            self.show_waiting(state, &tools);
        }
    }

    /// Shows the progress line on a terminal.
    fn show_waiting(&self, state: &mut LiveState, activity: &str) {
        if !self.output.is_terminal || state.is_mid_line {
            return;
        }
        let bar = state.progress_bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, (self.output.draw_target)());
            // Only a malformed template is an error. The default style is then kept.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        bar.set_message(text::inline(activity));
    }

    fn show_line(&self, state: &mut LiveState, line: &str) {
        self.end_line(state);
        self.write_styled(state, line, style(line));
        self.write(state, "\n");
    }

    /// Ends the current line, if there is one, and the progress line.
    fn end_line(&self, state: &mut LiveState) {
        if state.is_mid_line {
            self.write(state, "\n");
        }
        if let Some(bar) = state.progress_bar.take() {
            bar.finish_and_clear();
        }
    }

    /// Writes text without colour. The model's text is never coloured, even if it imitates one of this view's
    /// marks.
    fn write(&self, state: &mut LiveState, words: &str) {
        self.write_styled(state, words, None);
    }

    fn write_styled(&self, state: &mut LiveState, words: &str, style: Option<Style>) {
        let Some(last_character) = words.chars().last() else { return };
        if let Some(bar) = state.progress_bar.take() {
            bar.finish_and_clear();
        }
        state.is_mid_line = last_character != '\n';
        state.streaming_call = None;
        let mut styled = words.to_owned();
        if self.output.is_terminal {
            styled = text::for_terminal(words);
            if let Some(style) = style.filter(|_| self.output.has_colours) {
                styled = style.force_styling(true).apply_to(styled).to_string();
            }
        }
        let mut stream = self.output.stream.lock();
        // Ignore write errors: there is no stream left to report them on.
        let _ = stream.write_all(styled.as_bytes()).and_then(|()| stream.flush());
    }

    fn state(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock()
    }
}

/// Returns the colour of one of this view's own lines, which its mark decides.
fn style(line: &str) -> Option<Style> {
    let styles = [
        ("→ ", Style::new().cyan().bold()),
        ("  ✓ ", Style::new().green()),
        ("  ✗ ", Style::new().red()),
        ("  │ ", Style::new().dim()),
        ("  ┆ ", Style::new().dim()),
        ("  · ", Style::new().dim()),
    ];
    styles.into_iter().find(|(mark, _)| line.starts_with(mark)).map(|(_, style)| style)
}

/// Formats a text for one line: escaped, and truncated to [`MAX_SHOWN_CHARS`].
fn truncate_to_line(words: &str) -> String {
    let mut characters = words.chars();
    let shown_part: String = characters.by_ref().take(MAX_SHOWN_CHARS).collect();
    let ellipsis = if characters.next().is_some() { "…" } else { "" };
    format!("{}{ellipsis}", text::inline(&shown_part))
}

/// Holds events back until the last pause is dropped, which shows the held events.
struct LivePause<'a>(&'a LiveView);

impl Drop for LivePause<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open_questions -= 1;
        if state.open_questions == 0 {
            for event in std::mem::take(&mut state.held_events) {
                self.0.show_event(&mut state, &event);
            }
        }
    }
}

/// An approver that pauses the live view while it asks.
pub(crate) struct PausingApprover {
    approver: Arc<dyn Approver>,
    live: Arc<LiveView>,
}

impl PausingApprover {
    pub(crate) fn new(approver: Arc<dyn Approver>, live: Arc<LiveView>) -> Self {
        Self { approver, live }
    }
}

#[async_trait]
impl Approver for PausingApprover {
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
        let _quiet = self.live.pause();
        self.approver.decide(request).await
    }
}

#[cfg(test)]
mod tests;
