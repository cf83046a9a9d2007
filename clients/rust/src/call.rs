//! [`Call`]: a call of an agent whose result comes from outside.

use serde::Deserialize;
use serde_json::Value;

use crate::{ClientError, address::check_id};

/// A call whose result comes from outside, as in the list of calls and in the event `call.pending`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Call {
    /// The id under which the result is submitted.
    pub call_id: String,
    /// The run to which the call belongs.
    pub run_id: String,
    /// The agent of the run.
    pub agent_id: String,
    /// The name of the tool.
    #[serde(alias = "name")]
    pub tool_name: String,
    /// The arguments, as the tool's schema describes them.
    pub args: Value,
    /// Whether the run waits for the result.
    pub status: CallStatus,
    /// `external`, whose result a program submits, or `space`, whose result a person gives.
    pub execution_type: String,
    /// When the call expires, as RFC 3339 in UTC, or `None` if it never does.
    #[serde(default)]
    pub expires_at: Option<String>,
}

impl Call {
    /// Returns the call if its ids can be part of a path. Their length is limited too, because they are kept
    /// while the program runs.
    ///
    /// # Errors
    /// [`ClientError::Unreadable`] if the id of the call or of the run cannot be part of a path.
    pub(crate) fn checked(self, subject: &'static str) -> Result<Self, ClientError> {
        for (id_of, id) in [("call", &self.call_id), ("run", &self.run_id)] {
            check_id(id_of, id).map_err(|source| ClientError::unreadable(subject, source))?;
        }
        Ok(self)
    }
}

/// The status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CallStatus {
    /// The run waits for the result.
    Waiting,
    /// The agent has continued, and the result will go to its inbox.
    Pending,
    /// Any other status: the call already has a result, or no longer accepts one.
    #[serde(other)]
    Closed,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_read_from_the_list_and_from_an_event() {
        let mut data = json!({
            "callId": "cal_1", "runId": "run_1", "agentId": "agt_1", "args": {"query": "x"}, "executionType": "external",
            "status": "waiting", "expiresAt": "2026-11-28T10:00:00.000Z",
        });
        data["name"] = "fetch".into();
        let from_event: Call = serde_json::from_value(data.clone()).expect("a call");
        let object = data.as_object_mut().expect("an object");
        object.remove("name");
        object.insert("toolName".to_owned(), "fetch".into());
        object.insert("spaceId".to_owned(), Value::Null);
        let from_list: Call = serde_json::from_value(data.clone()).expect("a call");
        assert_eq!(from_event, from_list);
        assert_eq!(from_list.status, CallStatus::Waiting);
        data["status"] = "expired".into();
        data["expiresAt"] = Value::Null;
        let closed: Call = serde_json::from_value(data).expect("a call");
        assert_eq!((closed.status, closed.expires_at), (CallStatus::Closed, None));
    }
}
