//! What a command shows: text, tables and JSON are made here; `stream` is the only file that writes.

pub(crate) mod diagnostics;
pub(crate) mod json;
pub(crate) mod live;
pub(crate) mod stream;
pub(crate) mod table;

pub(crate) use portcullis_types::display::text;
