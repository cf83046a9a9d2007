//! `RepeatGuard`: stops a model that repeats the same call.

use portcullis_types::{Message, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// After this number of identical calls in a row (same tool, same arguments), the model is told that it
/// repeats itself.
pub const REPEATS_UNTIL_HINT: u32 = 3;

/// After this number of identical calls in a row, the run ends.
pub const REPEATS_UNTIL_END: u32 = 5;

/// The loop's reaction to a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Repeat {
    /// None: the call is not a repetition.
    No,
    /// A hint, which the model reads after the results of the turn.
    Hint(Message),
    /// The run ends after the results of the turn.
    End {
        /// The tool's name.
        tool: String,
    },
}

/// Counts identical calls in a row, across turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RepeatGuard {
    last: Option<(String, ComparedArguments)>,
    count: u32,
}

/// Arguments in a form whose comparison ignores white space and the order of keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum ComparedArguments {
    Object(Map<String, Value>),
    Text(String),
}

impl RepeatGuard {
    /// Counts the calls of a turn, in order.
    pub(super) fn count_calls<'a>(&mut self, calls: impl Iterator<Item = &'a ToolCall>) -> Repeat {
        let mut repeat = Repeat::No;
        for call in calls {
            match (self.count_call(call), &repeat) {
                // An end outweighs a later hint of the same turn.
                (Repeat::No, _) | (Repeat::Hint(_), Repeat::End { .. }) => {}
                (call_repeat, _) => repeat = call_repeat,
            }
        }
        repeat
    }

    /// Counts the next call.
    fn count_call(&mut self, call: &ToolCall) -> Repeat {
        let arguments = match serde_json::from_str(&call.arguments) {
            Ok(object) => ComparedArguments::Object(object),
            Err(_) => ComparedArguments::Text(call.arguments.clone()),
        };
        match &self.last {
            Some((tool, last)) if *tool == call.tool && *last == arguments => self.count += 1,
            _ => {
                self.last = Some((call.tool.clone(), arguments));
                self.count = 1;
            }
        }
        if self.count >= REPEATS_UNTIL_END {
            Repeat::End { tool: call.tool.clone() }
        } else if self.count == REPEATS_UNTIL_HINT {
            Repeat::Hint(Message::user(format!(
                "You have called `{}` {REPEATS_UNTIL_HINT} times in a row with the same arguments. Use the result \
                 that you have, do something else, or give your answer.",
                call.tool.escape_default(),
            )))
        } else {
            Repeat::No
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, arguments: &str) -> ToolCall {
        ToolCall { id: "c".into(), tool: tool.into(), arguments: arguments.into() }
    }

    #[test]
    fn the_third_equal_call_gives_a_hint_and_the_fifth_ends_the_run() {
        let mut guard = RepeatGuard::default();
        let equal_calls = [
            r#"{"a":1,"b":2}"#,
            r#"{"b":2,"a":1}"#,
            r#" { "a" : 1, "b":2}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":1,"b":2}"#,
        ];
        let repeats: Vec<Repeat> =
            equal_calls.iter().map(|text| guard.count_call(&call("t", text))).collect();
        assert!(
            matches!(&repeats[..], [Repeat::No, Repeat::No, Repeat::Hint(_), Repeat::No, Repeat::End { tool }] if tool == "t"),
            "{repeats:?}"
        );
    }

    #[test]
    fn another_tool_or_other_arguments_restart_the_count() {
        let mut guard = RepeatGuard::default();
        for _ in 0..10 {
            for (tool, text) in [("t", "{}"), ("t", "{}"), ("u", "{}"), ("u", "nonsense"), ("u", "nonsense")]
            {
                assert_eq!(guard.count_call(&call(tool, text)), Repeat::No);
            }
        }
    }
}
