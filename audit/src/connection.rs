//! The connections of a command, as a row has them.

use serde::{Deserialize, Serialize};

use super::{
    row::{MAX_NAME_BYTES, Text, field_number, push_key},
    text::push_string,
};

/// The most bytes of all connections and requests of a row together.
pub(super) const MAX_CONNECTIONS_BYTES: usize = 8 * 1024;

/// Connections of a command that are alike in host, port, address and end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedConnection {
    /// The host that was asked for; none if the request could not be read.
    pub host: Option<Text>,
    /// The port that was asked for, likewise.
    pub port: Option<u16>,
    /// The judged address that was connected to; none if none was.
    pub address: Option<Text>,
    /// How many connections they are.
    pub count: u64,
    /// Bytes that they sent, together.
    pub sent: u64,
    /// Bytes that they received, together.
    pub received: u64,
    /// How they ended: `closed`, `idle`, `cancelled`, `broken`, `open`, or the code of a refusal.
    pub end: Text,
}

/// Writes one entry of the row's list.
pub(super) fn push_connection(out: &mut Vec<u8>, connection: &RecordedConnection) {
    let text = |out: &mut Vec<u8>, text: Option<&Text>| match text {
        Some(text) => push_string(out, text, MAX_NAME_BYTES),
        None => out.extend_from_slice(b"null"),
    };
    out.extend_from_slice(b"{\"host\":");
    text(out, connection.host.as_ref());
    field_number(out, "port", connection.port.map(u64::from));
    push_key(out, "address");
    text(out, connection.address.as_ref());
    field_number(out, "count", Some(connection.count));
    field_number(out, "sent", Some(connection.sent));
    field_number(out, "received", Some(connection.received));
    push_key(out, "end");
    text(out, Some(&connection.end));
    out.push(b'}');
}
