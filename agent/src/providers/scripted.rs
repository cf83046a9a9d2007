//! [`ScriptedProvider`]: a model that follows a script, for tests and for the demonstration.
//!
//! # The format
//! One JSON text per line. Empty lines and lines that begin with `#` are skipped. A turn lasts until a line that
//! ends it; the next line starts the next turn.
//!
//! | line | meaning |
//! |---|---|
//! | `{"expect": {…}}` | first in its turn: requirements on the request, see below |
//! | `{"text": "…"}` | a piece of the text |
//! | `{"thinking": "…"}` | a piece of the thinking |
//! | `{"call": {"index": 0, "id": "…", "name": "…", "arguments": "…"}}` | a piece of a call; only `index` is required |
//! | `{"usage": {"input_tokens": 1, "output_tokens": 2}}` | tokens of the turn so far |
//! | `{"end": "stop"}` | the turn ends: `stop`, `tool_calls`, `length`, `content_filter`, `{"other": "…"}` |
//! | `{"fail": {"kind": "transport", "message": "…"}}` | the turn ends with an error; `kind` is a [`ProviderErrorKind`] |
//! | `"cut"` | the turn stops without an end |
//!
//! An `expect` may have `model`, `messages` (their number), `tools` (their names) and `last`. The checks of
//! `last` apply to the last message: its `role`, a text that it `contains`, and whether it `is_error`.

use std::{collections::VecDeque, fmt, time::Duration};

use futures_util::stream;
use parking_lot::{Mutex, MutexGuard};
use portcullis_types::{MessageRole, async_trait};
use serde::Deserialize;
use thiserror::Error;

use super::{ProviderKind, ProviderLimits, decoder::ResponseDecoder, failure::FailureContext};
use crate::{
    Delta, DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind, StopReason, ToolCallDelta,
    Usage,
};

/// A model that follows a script, turn by turn.
#[derive(Debug, Default)]
pub struct ScriptedProvider {
    state: Mutex<ScriptState>,
    pace: Duration,
}

/// A fault of a script, or a request that does not fit the script. In a run it is the source of a
/// [`ProviderError`] of the kind [`ProviderErrorKind::Configuration`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// A line is not in the format.
    #[error("line {line} of the script is not in its format")]
    Line {
        /// The number of the line, counted from 1.
        line: usize,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// An expectation comes after a piece of its turn.
    #[error("line {line} of the script: an expectation must be the first line of its turn")]
    Misplaced {
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// The script stops within a turn.
    #[error("the script stops within a turn; a turn ends with `end`, `fail` or \"cut\"")]
    NotFinished,
    /// More turns were asked for than the script has.
    #[error("the script has {turns} turns, and one more was asked for")]
    Over {
        /// The number of turns in the script.
        turns: usize,
    },
    /// A request differs from what the script expects.
    #[error("turn {turn} of the script expects {part} {expected}, and was asked with {actual}")]
    Unexpected {
        /// The number of the turn, counted from 1.
        turn: usize,
        /// The part of the request.
        part: &'static str,
        /// The expected value.
        expected: String,
        /// The actual value.
        actual: String,
    },
}

impl ScriptedProvider {
    /// Creates a script without turns.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a script.
    ///
    /// # Errors
    /// [`ScriptError`] for the first line that is wrong.
    ///
    /// # Examples
    /// ```
    /// use portcullis_agent::ScriptedProvider;
    ///
    /// let script = r#"
    /// {"call": {"index": 0, "id": "call-1", "name": "file_read", "arguments": "{\"path\":\"README.md\"}"}}
    /// {"end": "tool_calls"}
    /// {"expect": {"last": {"role": "tool", "contains": "Portcullis"}}}
    /// {"text": "It is a tool runtime."}
    /// {"end": "stop"}
    /// "#;
    /// assert_eq!(ScriptedProvider::from_lines(script)?.turns_left(), 2);
    /// # Ok::<(), portcullis_agent::ScriptError>(())
    /// ```
    pub fn from_lines(script: &str) -> Result<Self, ScriptError> {
        let mut turns = VecDeque::new();
        let mut open_turn: Option<ScriptedTurn> = None;
        for (number, text) in (1..).zip(script.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let line =
                serde_json::from_str(text).map_err(|source| ScriptError::Line { line: number, source })?;
            let turn = open_turn.get_or_insert_default();
            let turn_ends = match line {
                ScriptLine::Expect(expect) if turn.pieces.is_empty() && turn.expect.is_none() => {
                    turn.expect = Some(expect);
                    false
                }
                ScriptLine::Expect(_) => return Err(ScriptError::Misplaced { line: number }),
                ScriptLine::Cut => true,
                ScriptLine::Fail(fail) => {
                    turn.pieces.push_back(ScriptedItem::Fail { kind: fail.kind, message: fail.message });
                    true
                }
                ScriptLine::End(end) => {
                    turn.pieces.push_back(ScriptedItem::Delta(Delta::End(end.into())));
                    true
                }
                ScriptLine::Text(text) => turn.push_delta(Delta::Text(text)),
                ScriptLine::Thinking(text) => turn.push_delta(Delta::Thinking(text)),
                ScriptLine::Call(call) => turn.push_delta(Delta::ToolCall(ToolCallDelta {
                    index: call.index,
                    id: call.id,
                    name: call.name,
                    arguments: call.arguments,
                })),
                ScriptLine::Usage(usage) => turn.push_delta(Delta::Usage(Usage {
                    input_tokens: usage.input_tokens,
                    output_tokens: usage.output_tokens,
                })),
            };
            if turn_ends {
                turns.extend(open_turn.take());
            }
        }
        // Without this check, a truncated script would look like a model that stops without an end.
        if open_turn.is_some() {
            return Err(ScriptError::NotFinished);
        }
        Ok(Self { state: Mutex::new(ScriptState { turns, ..ScriptState::default() }), pace: Duration::ZERO })
    }

    /// Adds a turn with these pieces. Without a [`Delta::End`] the turn stops without an end.
    #[must_use]
    pub fn then(self, deltas: impl IntoIterator<Item = Delta>) -> Self {
        let pieces = deltas.into_iter().map(ScriptedItem::Delta).collect();
        self.state().turns.push_back(ScriptedTurn { expect: None, pieces });
        self
    }

    /// Adds a turn with the content of a recorded response body: server-sent events, or lines for
    /// [`ProviderKind::Ollama`]. The turn fails where the recorded response fails.
    #[must_use]
    pub fn then_recorded(self, kind: ProviderKind, body: &[u8]) -> Self {
        let identity = FailureContext { kind, key: None };
        let mut decoder = ResponseDecoder::new(identity.clone(), ProviderLimits::default().response_bytes);
        let mut deltas = VecDeque::new();
        let read = decoder.push(body, &mut deltas).and_then(|()| decoder.finish(&mut deltas));
        let failure = match read {
            Ok(true) => None,
            Ok(false) => Some(identity.cut_off_failure()),
            Err(fault) => Some(identity.decode_failure(fault)),
        };
        let mut pieces: VecDeque<ScriptedItem> = deltas.into_iter().map(ScriptedItem::Delta).collect();
        pieces.extend(failure.map(|failure| ScriptedItem::Fail {
            kind: failure.error.kind(),
            message: failure.error.to_string(),
        }));
        self.state().turns.push_back(ScriptedTurn { expect: None, pieces });
        self
    }

    /// Sets a pause before each piece, for demonstrations. Default: none.
    #[must_use]
    pub fn with_pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// Returns the requests so far, in order: at most one for each turn.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.state().requests.clone()
    }

    /// Returns the number of turns that remain.
    #[must_use]
    pub fn turns_left(&self) -> usize {
        self.state().turns.len()
    }

    fn state(&self) -> MutexGuard<'_, ScriptState> {
        self.state.lock()
    }

    fn next(&self, request: &ModelRequest) -> Result<VecDeque<ScriptedItem>, ScriptError> {
        let mut state = self.state();
        let script_over = ScriptError::Over { turns: state.requests.len() };
        let turn = state.turns.pop_front().ok_or(script_over)?;
        state.requests.push(request.clone());
        match turn.expect {
            Some(expect) => expect.check(state.requests.len(), request).map(|()| turn.pieces),
            None => Ok(turn.pieces),
        }
    }
}

#[async_trait]
impl Provider for ScriptedProvider {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        if request.cancel.is_cancelled() {
            return Err(cancelled());
        }
        let mut pieces = self.next(&request).map_err(|error| {
            ProviderError::new(ProviderErrorKind::Configuration, "the script does not fit what is asked")
                .with_source(error)
        })?;
        if let Some(ScriptedItem::Fail { kind, message }) =
            pieces.pop_front_if(|p| matches!(p, ScriptedItem::Fail { .. }))
        {
            return Err(ProviderError::new(kind, message));
        }
        let (pace, cancel) = (self.pace, request.cancel);
        Ok(Box::pin(stream::unfold(Some(pieces), move |pieces| {
            let cancel = cancel.clone();
            async move {
                let mut pieces = pieces?;
                let is_cancelled = if pace.is_zero() {
                    cancel.is_cancelled()
                } else {
                    cancel.run_until_cancelled(tokio::time::sleep(pace)).await.is_none()
                };
                if is_cancelled {
                    return Some((Err(cancelled()), None));
                }
                match pieces.pop_front()? {
                    ScriptedItem::Delta(delta) => Some((Ok(delta), Some(pieces))),
                    ScriptedItem::Fail { kind, message } => {
                        Some((Err(ProviderError::new(kind, message)), None))
                    }
                }
            }
        })))
    }
}

fn cancelled() -> ProviderError {
    ProviderError::new(ProviderErrorKind::Cancelled, "the request was cancelled")
}

#[derive(Debug, Default)]
struct ScriptState {
    turns: VecDeque<ScriptedTurn>,
    requests: Vec<ModelRequest>,
}

#[derive(Debug, Default)]
struct ScriptedTurn {
    expect: Option<Expect>,
    pieces: VecDeque<ScriptedItem>,
}

impl ScriptedTurn {
    /// Adds a piece. Returns `false`, because the turn continues.
    fn push_delta(&mut self, delta: Delta) -> bool {
        self.pieces.push_back(ScriptedItem::Delta(delta));
        false
    }
}

#[derive(Debug)]
enum ScriptedItem {
    Delta(Delta),
    Fail { kind: ProviderErrorKind, message: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptLine {
    Expect(Expect),
    Text(String),
    Thinking(String),
    Call(ScriptedCall),
    Usage(Tokens),
    End(ScriptedEnd),
    Fail(Fail),
    Cut,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    index: u64,
    id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokens {
    input_tokens: u64,
    output_tokens: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptedEnd {
    Stop,
    ToolCalls,
    Length,
    ContentFilter,
    Other(String),
}

impl From<ScriptedEnd> for StopReason {
    fn from(end: ScriptedEnd) -> Self {
        match end {
            ScriptedEnd::Stop => Self::Stop,
            ScriptedEnd::ToolCalls => Self::ToolCalls,
            ScriptedEnd::Length => Self::Length,
            ScriptedEnd::ContentFilter => Self::ContentFilter,
            ScriptedEnd::Other(reason) => Self::Other(reason),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    kind: ProviderErrorKind,
    message: String,
}

/// Requirements on a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    model: Option<String>,
    messages: Option<usize>,
    tools: Option<Vec<String>>,
    last: Option<ExpectLast>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectLast {
    role: Option<MessageRole>,
    contains: Option<String>,
    is_error: Option<bool>,
}

impl Expect {
    fn check(&self, turn: usize, request: &ModelRequest) -> Result<(), ScriptError> {
        let tools: Vec<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
        equal(turn, "the model", self.model.as_ref(), &request.model)?;
        equal(turn, "this many messages:", self.messages.as_ref(), &request.messages.len())?;
        equal(turn, "the tools", self.tools.as_ref(), &tools)?;
        let Some(expected) = &self.last else { return Ok(()) };
        let last = request.messages.last();
        equal(turn, "a last message of", expected.role.map(Some).as_ref(), &last.map(|last| last.role))?;
        equal(
            turn,
            "a last message that is an error:",
            expected.is_error.map(Some).as_ref(),
            &last.map(|last| last.is_error),
        )?;
        let text = last.map(portcullis_types::Message::text).unwrap_or_default();
        match &expected.contains {
            Some(part) if !text.contains(part.as_str()) => Err(ScriptError::Unexpected {
                turn,
                part: "a last message with",
                expected: format!("{part:?}"),
                actual: format!("{text:?}"),
            }),
            _ => Ok(()),
        }
    }
}

fn equal<T: PartialEq + fmt::Debug>(
    turn: usize,
    part: &'static str,
    expected: Option<&T>,
    got: &T,
) -> Result<(), ScriptError> {
    match expected {
        Some(expected) if expected != got => Err(ScriptError::Unexpected {
            turn,
            part,
            expected: format!("{expected:?}"),
            actual: format!("{got:?}"),
        }),
        _ => Ok(()),
    }
}
