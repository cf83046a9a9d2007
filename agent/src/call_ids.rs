//! Call ids: unique in a conversation, whatever ids the provider sends.

use std::collections::HashSet;

use portcullis_types::Message;

/// The maximum length of a call's id, in bytes. A random id replaces a longer one. No code depends on the
/// original id.
pub const MAX_CALL_ID_BYTES: usize = 256;

/// The ids of a conversation's calls. Providers refuse a conversation that repeats an id.
#[derive(Debug, Default)]
pub(super) struct CallIds {
    taken_ids: HashSet<String>,
}

impl CallIds {
    /// Collects the ids of a conversation so far.
    pub(super) fn from_messages(messages: &[Message]) -> Self {
        let calls = messages.iter().flat_map(|message| &message.tool_calls);
        Self { taken_ids: calls.map(|call| call.id.clone()).collect() }
    }

    /// Claims an id for a new call: the wanted id if it is usable and free, else a random id.
    pub(super) fn claim(&mut self, requested_id: &str) -> String {
        let usable = (1..=MAX_CALL_ID_BYTES).contains(&requested_id.len())
            && !requested_id.chars().any(|c| c.is_control() || c.is_whitespace());
        if usable && self.taken_ids.insert(requested_id.to_owned()) {
            return requested_id.to_owned();
        }
        self.claim_random_id()
    }

    pub(super) fn claim_random_id(&mut self) -> String {
        loop {
            let id = random_id("call");
            if self.taken_ids.insert(id.clone()) {
                return id;
            }
        }
    }
}

/// Returns an unguessable id: a prefix and 128 random bits.
pub(super) fn random_id(prefix: &str) -> String {
    let bits: u128 = rand::random();
    format!("{prefix}_{bits:032x}")
}

#[cfg(test)]
mod tests {
    use portcullis_types::ToolCall;

    use super::*;

    #[test]
    fn the_first_use_of_an_id_keeps_it_and_later_uses_replace_it() {
        let call = ToolCall { id: "old".into(), tool: "t".into(), arguments: "{}".into() };
        let mut ids = CallIds::from_messages(&[Message::assistant("", vec![call])]);
        assert_eq!(ids.claim("new"), "new");
        for taken_id in ["new", "old"] {
            let id = ids.claim(taken_id);
            assert_ne!(id, taken_id);
            assert!(id.starts_with("call_"), "{id}");
        }
    }

    #[test]
    fn an_id_that_cannot_be_sent_back_is_replaced() {
        let mut ids = CallIds::default();
        let longest = "x".repeat(MAX_CALL_ID_BYTES);
        assert_eq!(ids.claim(&longest), longest);
        for bad in ["", "a b", "a\nb", "\u{0}", &"y".repeat(MAX_CALL_ID_BYTES + 1)] {
            assert!(ids.claim(bad).starts_with("call_"), "{bad:?}");
        }
    }
}
