//! The connections of a command, as a row lists them.

use serde::{Deserialize, Serialize};

use super::{
    row::{
        SharedText,
        write::{MAX_NAME_BYTES, field_number, push_key},
    },
    text::push_string,
};

/// The maximum size of all connections and requests in a row: 8 KiB.
pub(super) const MAX_CONNECTIONS_BYTES: usize = 8 * 1024;

/// Connections of a command that share host, port, address and end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedConnection {
    /// The requested host. `None` if the request could not be read.
    pub host: Option<SharedText>,
    /// The requested port. `None` if the request could not be read.
    pub port: Option<u16>,
    /// The judged address that was connected to. `None` if no connection was made.
    pub address: Option<SharedText>,
    /// The number of connections.
    pub count: u64,
    /// The bytes sent by all of these connections.
    pub sent: u64,
    /// The bytes received by all of these connections.
    pub received: u64,
    /// How the connections ended: `closed`, `idle`, `cancelled`, `broken`, `open`, or the code of a refusal.
    pub end: SharedText,
}

/// Writes one entry of the row's list of connections.
pub(super) fn push_connection(out: &mut Vec<u8>, connection: &RecordedConnection) {
    let text = |out: &mut Vec<u8>, text: Option<&SharedText>| match text {
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
