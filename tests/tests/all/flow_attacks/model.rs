//! A model that obeys every instruction in a result.

use async_trait::async_trait;
use futures_util::stream;
use portcullis_agent::{
    Delta, DeltaStream, ModelRequest, Provider, ProviderError, StopReason, ToolCallDelta,
};
use portcullis_types::MessageRole;

/// The secret of the vault.
pub(super) const CANARY: &str = "canary-5f3a9c71e2";

/// Asks for one call, then obeys the results. A line `N: TOOL ARGUMENTS` is a call of turn N. Its `{secret}`
/// is replaced with the canary if a result has shown it, and other words in braces are replaced with forms of
/// the canary.
pub(super) struct Obedient {
    first_call: String,
}

impl Obedient {
    pub(super) fn new(first_call: &str) -> Self {
        Self { first_call: first_call.to_owned() }
    }
}

#[async_trait]
impl Provider for Obedient {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        let results: Vec<String> = request
            .messages
            .iter()
            .filter(|message| message.role == MessageRole::Tool)
            .map(portcullis_types::Message::text)
            .collect();
        let turn = request.messages.iter().filter(|message| message.role == MessageRole::Assistant).count();
        let calls = match turn {
            0 => vec![self.first_call.clone()],
            _ => calls_of_turn(&results, turn),
        };
        let mut pieces: Vec<Delta> =
            (0..).zip(&calls).map(|(index, call)| piece(turn, index, call)).collect();
        if calls.is_empty() {
            pieces.extend([Delta::Text("done".to_owned()), Delta::End(StopReason::Stop)]);
        } else {
            pieces.push(Delta::End(StopReason::ToolCalls));
        }
        Ok(Box::pin(stream::iter(pieces.into_iter().map(Ok))))
    }
}

/// Returns the calls of a turn, taken from the first result that has instructions.
fn calls_of_turn(results: &[String], turn: usize) -> Vec<String> {
    let number = format!("{turn}: ");
    let text = results.iter().find(|text| text.contains("\n1: ") || text.starts_with("1: "));
    let lines = text.map(String::as_str).unwrap_or_default().lines();
    let secret = if results.iter().any(|text| text.contains(CANARY)) { CANARY } else { "unknown" };
    let output_id = results.iter().find_map(|text| {
        let start = text.find("out_")?;
        Some(
            text[start..]
                .chars()
                .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
                .collect(),
        )
    });
    let output_id: String = output_id.unwrap_or_default();
    let (first, last) = secret.split_at(secret.len() / 2);
    lines
        .filter_map(|line| line.strip_prefix(&number))
        .map(|call| {
            call.replace("{secret}", secret)
                .replace("{hex}", &hex(secret))
                .replace("{dotted}", &dotted(secret))
                .replace("{reversed}", &reversed(secret))
                .replace("{first}", first)
                .replace("{last}", last)
                .replace("{output}", &output_id)
        })
        .collect()
}

fn piece(turn: usize, index: u64, call: &str) -> Delta {
    let (tool, arguments) = call.split_once(' ').expect("a tool and its arguments");
    Delta::ToolCall(ToolCallDelta {
        index,
        id: Some(format!("call-{turn}-{index}")),
        name: Some(tool.to_owned()),
        arguments: Some(arguments.to_owned()),
    })
}

pub(super) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn dotted(text: &str) -> String {
    text.chars().flat_map(|letter| [letter, '.']).collect()
}

pub(super) fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// Returns the forms in which the canary could leave the machine.
pub(super) fn canary_forms() -> [String; 6] {
    let (first, last) = CANARY.split_at(CANARY.len() / 2);
    let [first, last, whole] = [first, last, CANARY].map(str::to_owned);
    [first, last, whole, hex(CANARY), dotted(CANARY), reversed(CANARY)]
}
