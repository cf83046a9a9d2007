//! Live view of a run for a person: the model's text, each call, and its outcome.

mod streamed;

use std::{
    io::{self, IsTerminal as _, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use console::{Style, colors_enabled, colors_enabled_stderr};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use portcullis_agent::{AgentEnd, AgentEvent};
use portcullis_tools::approval::{ApprovalAnswer, ApprovalRequest, Approver};
use portcullis_types::{Message, ToolEvent, ToolResult, async_trait};

use self::streamed::StreamedOutput;
use super::text;

/// The most lines of a result that are shown.
const SHOWN_LINES: usize = 8;

/// The most characters of a line, or of a call's arguments, that are shown.
const SHOWN_CHARS: usize = 160;

/// The most events that are held while an approver is asked; later ones are dropped, except those that must
/// arrive. A call that keeps reporting while the question is open must not fill the memory.
const HELD_EVENTS: usize = 1024;

/// The tick of the progress line.
const TICK: Duration = Duration::from_millis(100);

/// Shows the events of a run on one of the standard streams. On a terminal, a progress line at the bottom
/// tells what the run waits for, and characters that a terminal would act on are escaped.
pub(crate) struct Live {
    out: EventOutput,
    state: Mutex<LiveState>,
}

/// The stream of the events.
struct EventOutput {
    stream: Mutex<Box<dyn Write + Send>>,
    /// Whether it is a terminal, which acts on control characters.
    is_terminal: bool,
    /// Whether to use colours, by `NO_COLOR` and `CLICOLOR`.
    has_colours: bool,
    /// The draw target of the progress line.
    target: fn() -> ProgressDrawTarget,
}

#[derive(Default)]
struct LiveState {
    /// Whether the last output ended within a line.
    within_a_line: bool,
    /// The running calls, with their tools.
    running: Vec<(String, String)>,
    /// Whether calls run concurrently. Results must then name their tools.
    several: bool,
    /// Calls whose output was streamed.
    streamed: Vec<(String, StreamedOutput)>,
    /// The call that the current line of streamed output belongs to.
    streams: Option<String>,
    /// The progress line, while the run waits.
    waiting: Option<ProgressBar>,
    /// The number of open questions; while there are any, events are held.
    open_questions: usize,
    /// The held events.
    held: Vec<AgentEvent>,
}

impl Live {
    /// On standard error, beside an answer on standard output.
    pub(crate) fn to_stderr() -> Self {
        let stderr = io::stderr();
        Self::to(EventOutput {
            is_terminal: stderr.is_terminal(),
            has_colours: colors_enabled_stderr(),
            stream: Mutex::new(Box::new(stderr)),
            target: ProgressDrawTarget::stderr,
        })
    }

    /// On standard output, as the answer itself.
    pub(crate) fn to_stdout() -> Self {
        let stdout = io::stdout();
        Self::to(EventOutput {
            is_terminal: stdout.is_terminal(),
            has_colours: colors_enabled(),
            stream: Mutex::new(Box::new(stdout)),
            target: ProgressDrawTarget::stdout,
        })
    }

    fn to(out: EventOutput) -> Self {
        Self { out, state: Mutex::default() }
    }

    /// Shows an event.
    pub(crate) fn show(&self, event: &AgentEvent) {
        let mut state = self.state();
        if state.open_questions == 0 {
            self.show_now(&mut state, event);
        } else if state.held.len() < HELD_EVENTS || event.must_arrive() {
            state.held.push(event.clone());
        }
    }

    fn show_now(&self, state: &mut LiveState, event: &AgentEvent) {
        match event {
            AgentEvent::TurnStart { iteration } => {
                if *iteration > 1 {
                    self.line(state, "");
                }
                self.wait(state, "the model thinks");
            }
            AgentEvent::TextDelta { delta } => {
                // The model's text must not continue a line of a tool's output.
                if state.streams.is_some() {
                    self.end_line(state);
                }
                self.write(state, delta);
            }
            AgentEvent::Tool(event) => self.show_call(state, event),
            AgentEvent::ToolEnd { result } => self.show_result(state, result),
            AgentEvent::Steered { messages } => {
                for message in messages.iter() {
                    self.line(state, &format!("you: {}", cut(&Message::text(message))));
                }
            }
            AgentEvent::MessageEnd { .. } => self.end_line(state),
            AgentEvent::AgentEnd { end } => self.show_end(state, end),
            AgentEvent::AgentStart { .. } | AgentEvent::ThinkingDelta { .. } | AgentEvent::TurnEnd { .. } => {
            }
        }
    }

    /// Shows a text of the program itself.
    pub(crate) fn show_notice(&self, words: &str) {
        let mut state = self.state();
        self.end_line(&mut state);
        self.write(&mut state, words);
        self.end_line(&mut state);
    }

    /// Leaves the terminal to a question until the returned value is dropped.
    fn pause(&self) -> LivePause<'_> {
        let mut state = self.state();
        self.end_line(&mut state);
        state.open_questions += 1;
        LivePause(self)
    }

    fn show_call(&self, state: &mut LiveState, event: &ToolEvent) {
        match event {
            ToolEvent::Requested { call_id, tool, arguments } => {
                self.line(state, &format!("→ {} {}", cut(tool), cut(arguments)));
                state.running.push((call_id.clone(), tool.clone()));
                state.several = state.running.len() > 1;
                self.wait_for_calls(state);
            }
            // On a terminal the progress line shows it.
            ToolEvent::Heartbeat { call_id, elapsed } if !self.out.is_terminal => {
                let running = state.running.iter().find(|(call, _)| call == call_id && state.several);
                let name = running.map(|(_, tool)| format!("{}, ", cut(tool))).unwrap_or_default();
                self.line(state, &format!("  · {name}running for {} s", elapsed.as_secs()));
            }
            ToolEvent::Progress { text, .. } => {
                self.line(state, &format!("  · {}", cut(text.trim_end())));
                self.wait_for_calls(state);
            }
            ToolEvent::Update { call_id, partial } => {
                let shown = text::of_content(&partial.content);
                if partial.details.get("stream").is_some() {
                    self.stream(state, call_id, &shown);
                } else {
                    self.block(state, &shown, SHOWN_LINES);
                }
                self.wait_for_calls(state);
            }
            ToolEvent::ApprovalResolved { approved, .. } => {
                self.line(state, if *approved { "  approved" } else { "  not approved" });
                self.wait_for_calls(state);
            }
            ToolEvent::Pending { .. } => self.line(state, "  the result will come later"),
            // Other events add nothing to what is shown before or after.
            _ => {}
        }
    }

    fn show_result(&self, state: &mut LiveState, result: &ToolResult) {
        state.running.retain(|(call, _)| *call != result.call_id);
        let at = state.streamed.iter().position(|(call, _)| *call == result.call_id);
        let streamed = at.map(|at| state.streamed.swap_remove(at).1);
        let name = if state.several { format!("{}, ", cut(&result.tool)) } else { String::new() };
        let took = format!("{:.1} ms", result.duration.as_secs_f64() * 1000.0);
        match &result.outcome {
            Ok(output) => {
                let shown = text::of_content(&output.content);
                match streamed {
                    Some(streamed) => {
                        self.block(state, &streamed.unstreamed_notes(&shown).join("\n"), SHOWN_LINES);
                    }
                    None => self.block(state, &shown, SHOWN_LINES),
                }
                self.line(state, &format!("  ✓ {name}{took}"));
            }
            Err(error) => {
                let text_shown = text::inline(&error.for_model());
                self.line(state, &format!("  ✗ {name}{text_shown} [{}], {took}", text::inline(error.code())));
            }
        }
        state.several &= !state.running.is_empty();
        self.wait_for_calls(state);
    }

    /// Shows more of a call's output as it arrives. A piece may end within a line, and the next one goes on
    /// there.
    fn stream(&self, state: &mut LiveState, call: &str, shown: &str) {
        match state.streamed.iter_mut().find(|(known, _)| known == call) {
            Some((_, streamed)) => streamed.take(shown),
            None => {
                let mut streamed = StreamedOutput::default();
                streamed.take(shown);
                state.streamed.push((call.to_owned(), streamed));
            }
        }
        for piece in shown.split_inclusive('\n') {
            if !(state.within_a_line && state.streams.as_deref() == Some(call)) {
                self.end_line(state);
                self.put(state, "  │ ", style("  │ "));
            }
            self.write(state, &text::inline(piece.trim_end_matches('\n')));
            state.within_a_line = true;
            state.streams = Some(call.to_owned());
            if piece.ends_with('\n') {
                self.write(state, "\n");
            }
        }
    }

    fn show_end(&self, state: &mut LiveState, end: &AgentEnd) {
        state.running.clear();
        let text_shown = match end {
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
        if let Some(text_shown) = text_shown {
            self.line(state, &text_shown);
        }
    }

    /// Shows a text in whole lines, at most `most` of them.
    fn block(&self, state: &mut LiveState, shown: &str, most: usize) {
        if shown.is_empty() {
            return;
        }
        let lines: Vec<&str> = shown.lines().collect();
        // Always show the last line: it may say that there is more.
        let first = if lines.len() > most { most - 1 } else { lines.len() };
        for line in &lines[..first] {
            self.line(state, &format!("  │ {}", cut(line)));
        }
        if first < lines.len() {
            self.line(state, &format!("  ┆ {} more lines", lines.len() - most));
            self.line(state, &format!("  │ {}", cut(lines[lines.len() - 1])));
        }
    }

    fn wait_for_calls(&self, state: &mut LiveState) {
        let tools: Vec<&str> = state.running.iter().map(|(_, tool)| tool.as_str()).collect();
        if !tools.is_empty() {
            let tools = tools.join(", ");
            self.wait(state, &tools);
        }
    }

    /// Shows the progress line, on a terminal.
    fn wait(&self, state: &mut LiveState, what: &str) {
        if !self.out.is_terminal || state.within_a_line {
            return;
        }
        let bar = state.waiting.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, (self.out.target)());
            // Only a malformed template is an error; the default style will do.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        bar.set_message(text::inline(what));
    }

    fn line(&self, state: &mut LiveState, line: &str) {
        self.end_line(state);
        self.put(state, line, style(line));
        self.write(state, "\n");
    }

    /// Ends the current line, if there is one, and the progress line.
    fn end_line(&self, state: &mut LiveState) {
        if state.within_a_line {
            self.write(state, "\n");
        }
        if let Some(bar) = state.waiting.take() {
            bar.finish_and_clear();
        }
    }

    /// Writes uncoloured text, whatever it begins with, such as the model's.
    fn write(&self, state: &mut LiveState, words: &str) {
        self.put(state, words, None);
    }

    fn put(&self, state: &mut LiveState, words: &str, style: Option<Style>) {
        let Some(last) = words.chars().last() else { return };
        if let Some(bar) = state.waiting.take() {
            bar.finish_and_clear();
        }
        state.within_a_line = last != '\n';
        state.streams = None;
        let mut shown = words.to_owned();
        if self.out.is_terminal {
            shown = text::for_terminal(words);
            if let Some(style) = style.filter(|_| self.out.has_colours) {
                shown = style.force_styling(true).apply_to(shown).to_string();
            }
        }
        let mut stream = self.out.stream.lock().unwrap_or_else(PoisonError::into_inner);
        // Ignore write errors: there is no stream left to report them on.
        let _ = stream.write_all(shown.as_bytes()).and_then(|()| stream.flush());
    }

    fn state(&self) -> MutexGuard<'_, LiveState> {
        // Every change is complete in itself, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The colour of a line of ours, by its mark.
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

/// A text for one line: escaped, and cut to [`SHOWN_CHARS`].
fn cut(words: &str) -> String {
    let mut characters = words.chars();
    let shown: String = characters.by_ref().take(SHOWN_CHARS).collect();
    let more = if characters.next().is_some() { "…" } else { "" };
    format!("{}{more}", text::inline(&shown))
}

/// Holds events back while it lives. Dropping the last one shows them.
struct LivePause<'a>(&'a Live);

impl Drop for LivePause<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.open_questions -= 1;
        if state.open_questions == 0 {
            for event in std::mem::take(&mut state.held) {
                self.0.show_now(&mut state, &event);
            }
        }
    }
}

/// An approver that pauses the live view while it asks.
pub(crate) struct PausingApprover {
    approver: Arc<dyn Approver>,
    live: Arc<Live>,
}

impl PausingApprover {
    pub(crate) fn new(approver: Arc<dyn Approver>, live: Arc<Live>) -> Self {
        Self { approver, live }
    }
}

#[async_trait]
impl Approver for PausingApprover {
    async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        let _quiet = self.live.pause();
        self.approver.decide(request).await
    }
}

#[cfg(test)]
mod tests;
