//! The output of commands: text, tables and JSON. Only `stream` and `live_view` write to the standard streams.

pub(crate) mod diagnostics;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod list;
pub(crate) mod live_view;
pub(crate) mod stream;
pub(crate) mod table;

pub(crate) use portcullis_types::display::text;
