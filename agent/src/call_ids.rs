//! Call ids: unique in a conversation, whatever ids the provider sends.

use std::collections::HashSet;

use portcullis_types::Message;

/// Limit of a call's id, in bytes. A longer one is replaced by a random id; nothing depends on the original.
pub const MAX_CALL_ID_BYTES: usize = 1024;

/// The ids of a conversation's calls. Providers refuse a conversation that repeats an id.
#[derive(Debug, Default)]
pub(super) struct CallIds {
    taken: HashSet<String>,
}

impl CallIds {
    /// Collects the ids of a conversation so far.
    pub(super) fn of(messages: &[Message]) -> Self {
        let calls = messages.iter().flat_map(|message| &message.tool_calls);
        Self { taken: calls.map(|call| call.id.clone()).collect() }
    }

    /// Claims an id for a new call: the wanted one if it is usable and free, else a random one.
    pub(super) fn claim(&mut self, wanted: &str) -> String {
        let usable = (1..=MAX_CALL_ID_BYTES).contains(&wanted.len())
            && !wanted.chars().any(|c| c.is_control() || c.is_whitespace());
        if usable && self.taken.insert(wanted.to_owned()) {
            return wanted.to_owned();
        }
        self.fresh()
    }

    /// Claims a random id.
    pub(super) fn fresh(&mut self) -> String {
        loop {
            let id = random_id("call");
            if self.taken.insert(id.clone()) {
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
    fn an_id_is_taken_as_it_is_once_and_replaced_after_that() {
        let call = ToolCall { id: "old".into(), tool: "t".into(), arguments: "{}".into() };
        let mut ids = CallIds::of(&[Message::assistant("", vec![call])]);
        assert_eq!(ids.claim("new"), "new");
        for taken in ["new", "old"] {
            let id = ids.claim(taken);
            assert_ne!(id, taken);
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
