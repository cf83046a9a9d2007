//! The requests of a call, as a row lists them.

use serde::{Deserialize, Serialize};

use super::{
    row::{
        SharedText,
        write::{MAX_NAME_BYTES, MAX_VALUE_BYTES, push_key},
    },
    text::push_string,
};

/// One request that the policy allowed, with its destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// The requested URL with its query, in the same form as a row's subjects.
    pub url: SharedText,
    /// The IP address and port that were last dialled for the request. `None` if no address was dialled.
    pub address: Option<SharedText>,
}

/// Writes one entry of the row's list of requests.
pub(super) fn push_request(out: &mut Vec<u8>, request: &RecordedRequest) {
    out.extend_from_slice(b"{\"url\":");
    push_string(out, &request.url, MAX_VALUE_BYTES);
    push_key(out, "address");
    match &request.address {
        Some(address) => push_string(out, address, MAX_NAME_BYTES),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}
