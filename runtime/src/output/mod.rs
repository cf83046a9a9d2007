//! The output of commands: text, tables and JSON are made here; only `stream` writes.

pub(crate) mod diagnostics;
pub(crate) mod json;
pub(crate) mod live;
pub(crate) mod stream;
pub(crate) mod table;

pub(crate) use portcullis_types::display::text;
