//! [`ToolCallAccumulator`]: rebuilds the calls of one turn from the pieces of a streamed answer.
//!
//! It runs no call and checks no arguments against a schema. It decides which calls there are, and which of
//! them are refused because they are incomplete, too many or too large.

use std::collections::HashMap;

use portcullis_types::{SafetyTier, ToolCall, ToolError, ToolErrorCode};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    OfferedTool, StopReason, ToolCallDelta,
    call_ids::CallIds,
    concatenated::{is_whole_object, split_objects},
};

/// The maximum number of calls that run in one turn. Each further call gets the error `resource_limit` as its
/// result. Without the limit, one response could occupy the machine indefinitely.
pub const MAX_CALLS_PER_TURN: usize = 128;

/// The maximum number of calls that are kept from one response. A response with more calls is refused as a
/// whole. Without the limit, one response could fill the memory with calls that never run.
pub const MAX_LISTED_CALLS: usize = 16_384;

/// The maximum length of one call's arguments, in bytes of their text: 1 MiB, the registry's limit too. Longer
/// arguments are dropped entirely.
pub const MAX_CALL_ARGUMENT_BYTES: usize = 1 << 20;

/// The maximum length of the arguments of all calls of a turn together, in bytes: 16 MiB. Calls past the limit do not
/// run, and their arguments are dropped.
pub const MAX_TURN_ARGUMENT_BYTES: usize = 16 << 20;

/// The maximum length of the tool name in a call, in bytes. No tool has a longer name.
pub const MAX_CALLED_NAME_BYTES: usize = 256;

/// Rebuilds the calls of one turn from their pieces.
///
/// ```
/// use portcullis_agent::{StopReason, ToolCallAccumulator, ToolCallDelta};
///
/// let mut accumulator = ToolCallAccumulator::new();
/// for (id, name, arguments) in [(Some("c1"), Some("echo"), None), (None, None, Some(r#"{"text":"\ud8"#)),
///     (None, None, Some(r#"3d\ude00"}"#))]
/// {
///     accumulator.push(ToolCallDelta {
///         index: 0,
///         id: id.map(str::to_owned),
///         name: name.map(str::to_owned),
///         arguments: arguments.map(str::to_owned),
///     })?;
/// }
/// let calls = accumulator.finish(&StopReason::ToolCalls, &[]);
/// assert_eq!(calls[0].call.arguments, r#"{"text":"\ud83d\ude00"}"#);
/// # Ok::<(), portcullis_agent::TooManyCalls>(())
/// ```
#[derive(Debug, Default)]
pub struct ToolCallAccumulator {
    ids: CallIds,
    calls: Vec<PartialCall>,
    /// Maps the provider's index to the call that its pieces belong to.
    current: HashMap<u64, usize>,
    argument_bytes: usize,
}

/// A rebuilt call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssembledCall {
    /// The call, with the tool's name and the arguments as the model gave them. Its id is unique in the
    /// conversation; the provider's id is kept where possible.
    pub call: ToolCall,
    /// Set when the call must not run: the error that the model reads as its result.
    pub refused: Option<ToolError>,
}

/// More of a call's arguments, for observers that follow a call as it grows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentsPiece {
    /// The call's id.
    pub call_id: String,
    /// The tool's name, as far as it has arrived.
    pub tool: String,
    /// The new part of the text.
    pub delta: String,
}

/// The error of a response with more than [`MAX_LISTED_CALLS`] calls in one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the model asks for more than {MAX_LISTED_CALLS} calls in one turn")]
pub struct TooManyCalls;

impl ToolCallAccumulator {
    /// Creates an accumulator for a conversation that has no calls yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an accumulator for a conversation in which these ids are taken.
    pub(super) fn with_taken_ids(ids: CallIds) -> Self {
        Self { ids, ..Self::default() }
    }

    /// Takes a piece. Returns the new text of the arguments once the call's id is known.
    ///
    /// # Errors
    /// [`TooManyCalls`]: the caller must discard the response.
    pub fn push(&mut self, delta: ToolCallDelta) -> Result<Option<ArgumentsPiece>, TooManyCalls> {
        let index = self.call_index(&delta)?;
        let call = &mut self.calls[index];
        if let Some(id) = delta.id.filter(|id| !id.is_empty())
            && call.id.is_none()
        {
            call.id = Some((self.ids.claim(&id), id));
        }
        if let Some(name) = &delta.name {
            call.name.push(name);
        }
        if let Some(arguments) = delta.arguments {
            let room = MAX_TURN_ARGUMENT_BYTES.saturating_sub(self.argument_bytes);
            self.argument_bytes += call.arguments.push(arguments, room);
        }
        Ok(call.take_unreported())
    }

    /// Returns whether no call has begun.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Ends the response and returns its calls, ordered by index.
    ///
    /// Calls run only if the response was neither cut off nor withheld ([`StopReason::Length`],
    /// [`StopReason::ContentFilter`]), because such a response may lack calls or parts of them. Missing
    /// arguments mean `{}` if the provider says that the model finished. If one call's arguments have several
    /// objects, each becomes a separate call, but only for a tool in `offers` that declares to be read-only.
    #[must_use]
    pub fn finish(self, stop: &StopReason, offers: &[OfferedTool]) -> Vec<AssembledCall> {
        self.finish_with_ids(stop, offers).0
    }

    /// Like [`ToolCallAccumulator::finish`], but also returns the ids that are now taken.
    pub(super) fn finish_with_ids(
        mut self,
        stop: &StopReason,
        offers: &[OfferedTool],
    ) -> (Vec<AssembledCall>, CallIds) {
        // Stable sort: calls that followed each other under one index keep their order.
        self.calls.sort_by_key(|call| call.index);
        let mut assembled = Vec::with_capacity(self.calls.len());
        for call in self.calls {
            assemble(call, stop, offers, &mut self.ids, &mut assembled);
        }
        // The limit applies after the split of concatenated objects, so the calls from a split count too.
        for call in assembled.iter_mut().skip(MAX_CALLS_PER_TURN) {
            call.call.arguments = String::new();
            call.refused = Some(ToolError::resource_limit(format!(
                "only the first {MAX_CALLS_PER_TURN} calls of one answer are run"
            )));
        }
        (assembled, self.ids)
    }

    /// Finds the call that a piece belongs to, and starts a call if there is none.
    ///
    /// Some providers send every call under one index. A new id together with a name under a known index
    /// therefore starts the next call if the arguments so far are complete. A new id alone starts no call,
    /// because other providers send a new id with every piece.
    fn call_index(&mut self, delta: &ToolCallDelta) -> Result<usize, TooManyCalls> {
        if let Some(&index) = self.current.get(&delta.index) {
            let call = &self.calls[index];
            let has_other_id = match (&call.id, &delta.id) {
                (Some((_, provider_id)), Some(id)) => !id.is_empty() && provider_id != id,
                _ => false,
            };
            let has_name = delta.name.as_ref().is_some_and(|name| !name.is_empty());
            if !(has_other_id && has_name && call.arguments.may_be_whole()) {
                return Ok(index);
            }
        }
        if self.calls.len() >= MAX_LISTED_CALLS {
            return Err(TooManyCalls);
        }
        self.calls.push(PartialCall { index: delta.index, ..PartialCall::default() });
        self.current.insert(delta.index, self.calls.len() - 1);
        Ok(self.calls.len() - 1)
    }
}

/// A call that is still being received.
#[derive(Debug, Default)]
struct PartialCall {
    index: u64,
    /// The id in use, and the id that the provider sent.
    id: Option<(String, String)>,
    name: NamePieces,
    arguments: ArgumentsText,
    /// The number of bytes of the arguments that were reported to observers.
    reported_bytes: usize,
}

impl PartialCall {
    /// Returns the arguments' text that observers have not seen, or `None` while the call has no id.
    fn take_unreported(&mut self) -> Option<ArgumentsPiece> {
        let (id, _) = self.id.as_ref()?;
        // Use `get`: arguments that were dropped as too long are shorter than `reported_bytes`.
        let delta =
            self.arguments.text.get(self.reported_bytes..).filter(|text| !text.is_empty())?.to_owned();
        self.reported_bytes = self.arguments.text.len();
        let tool = self.name.name(&[]).to_owned();
        Some(ArgumentsPiece { call_id: id.clone(), tool, delta })
    }
}

/// A name that arrives in pieces, or several times as a whole.
#[derive(Debug, Default)]
struct NamePieces {
    joined: String,
    /// Length of the first piece.
    first_length: usize,
    /// Whether some piece differs from the first.
    has_differing_pieces: bool,
    is_too_long: bool,
}

impl NamePieces {
    fn push(&mut self, piece: &str) {
        if piece.is_empty() || self.is_too_long {
            return;
        }
        // Compare every piece with the first one, which `joined` starts with.
        let differs = !self.joined.is_empty() && self.joined.get(..self.first_length) != Some(piece);
        self.has_differing_pieces |= differs;
        if self.joined.len() + piece.len() <= MAX_CALLED_NAME_BYTES {
            if self.joined.is_empty() {
                self.first_length = piece.len();
            }
            self.joined.push_str(piece);
        } else if self.has_differing_pieces || self.joined.is_empty() {
            self.is_too_long = true;
        }
        // Otherwise the piece repeats the whole name and can be dropped.
    }

    /// Returns the name. If it only repeats the name of an offered tool, returns that tool's name, unless the
    /// repeated text is itself the name of an offered tool.
    fn name(&self, offers: &[OfferedTool]) -> &str {
        let is_offered = |name: &str| offers.iter().any(|offer| offer.decl.name == name);
        let first_piece = &self.joined[..self.first_length];
        if !self.has_differing_pieces
            && first_piece.len() < self.joined.len()
            && is_offered(first_piece)
            && !is_offered(&self.joined)
        {
            return first_piece;
        }
        &self.joined
    }
}

/// The arguments' text so far.
#[derive(Debug, Default)]
struct ArgumentsText {
    text: String,
    is_too_long: bool,
}

impl ArgumentsText {
    /// Appends a piece, and returns how many of its bytes were kept. `room` is the number of bytes left in
    /// the turn's limit.
    fn push(&mut self, piece: String, room: usize) -> usize {
        if self.is_too_long || piece.is_empty() {
            return 0;
        }
        if piece.len() > room || self.text.len() + piece.len() > MAX_CALL_ARGUMENT_BYTES {
            self.is_too_long = true;
            self.text = String::new();
            return 0;
        }
        let added_bytes = piece.len();
        if self.text.is_empty() {
            self.text = piece;
        } else {
            self.text.push_str(&piece);
        }
        added_bytes
    }

    /// Returns whether the text can be complete: empty, a whole object, or dropped as too long.
    fn may_be_whole(&self) -> bool {
        self.is_too_long || self.text.trim().is_empty() || is_whole_object(&self.text)
    }
}

/// Turns the pieces of one call into one or more calls.
fn assemble(
    partial: PartialCall,
    stop: &StopReason,
    offers: &[OfferedTool],
    ids: &mut CallIds,
    assembled: &mut Vec<AssembledCall>,
) {
    let tool = partial.name.name(offers).to_owned();
    let room = MAX_LISTED_CALLS.saturating_sub(assembled.len());
    let id = partial.id.map_or_else(|| ids.claim_random_id(), |(id, _)| id);
    let mut add = |id: String, arguments: &str, refused: Option<ToolError>| {
        let call = ToolCall { id, tool: tool.clone(), arguments: arguments.to_owned() };
        assembled.push(AssembledCall { call, refused });
    };
    let text = partial.arguments.text.as_str();
    let refused = match stop {
        StopReason::Length => Some(cut_off("the answer reached the limit of tokens")),
        StopReason::ContentFilter => Some(cut_off("the provider withheld the rest of the answer")),
        StopReason::Stop | StopReason::ToolCalls => None,
        // An unknown stop reason does not say whether the response is complete. A whole object shows that it
        // is; empty text shows nothing.
        StopReason::Other(_) => {
            text.trim().is_empty().then(|| cut_off("the answer ended for a reason that is not known"))
        }
    };
    let refused = refused.or_else(|| {
        if partial.name.is_too_long {
            Some(ToolError::not_found(format!("the tool's name is longer than {MAX_CALLED_NAME_BYTES} bytes")))
        } else if tool.is_empty() {
            Some(ToolError::invalid_arguments("a call must name a tool"))
        } else if partial.arguments.is_too_long {
            Some(ToolError::resource_limit(format!(
                "arguments may be {MAX_CALL_ARGUMENT_BYTES} bytes long, and {MAX_TURN_ARGUMENT_BYTES} in all calls of \
                 one answer"
            )))
        } else {
            None
        }
    });
    if refused.is_some() {
        return add(id, text, refused);
    }
    if text.trim().is_empty() {
        return add(id, "{}", None);
    }
    let Some(objects) = split_objects(text) else { return add(id, text, None) };
    let only_reads =
        offers.iter().any(|offer| offer.decl.name == tool && offer.tier == Some(SafetyTier::ReadOnly));
    // A split must not exceed the limit of kept calls.
    if !only_reads || objects.len() > room {
        let several_objects = ToolError::invalid_arguments(format!(
            "arguments must be one object, but these are {}; make one call for each",
            objects.len()
        ));
        return add(id, text, Some(several_objects));
    }
    // The first call keeps the id, because the provider may know the call by that id.
    let mut id = Some(id);
    for object in objects {
        add(id.take().unwrap_or_else(|| ids.claim_random_id()), object, None);
    }
}

fn cut_off(why: &str) -> ToolError {
    ToolError::resource_limit(format!("{why} before this call was complete, so it was not run"))
        .with_code(ToolErrorCode::CutOff)
        .with_hint("make fewer or shorter calls in one answer")
}

#[cfg(test)]
mod tests;
