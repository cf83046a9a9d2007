//! The requests of a call, as a row has them.

use serde::{Deserialize, Serialize};

use super::{
    row::{MAX_NAME_BYTES, MAX_VALUE_BYTES, Text, push_key},
    text::push_string,
};

/// One request that the policy let through, and where it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// The requested address, with its query, as in a row's subjects.
    pub url: Text,
    /// The address and port that were dialled last for it; none if its host's name led to none.
    pub address: Option<Text>,
}

/// Writes one entry of the row's list.
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
