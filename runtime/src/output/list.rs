//! Lists of rows that have an id: as a table, as JSON, or only as ids.

use serde_json::Value;

use super::{json, stream, table};
use crate::{cli::ListOutput, error::CliError};

/// A list with its output formats.
pub(crate) struct List<T, const N: usize> {
    pub(crate) items: Vec<T>,
    /// The text to print instead of an empty table, with its newline.
    pub(crate) empty_text: &'static str,
    pub(crate) head: [&'static str; N],
    pub(crate) row: fn(&T) -> [String; N],
    pub(crate) id: fn(&T) -> &str,
    pub(crate) as_json: fn(&T) -> Result<Value, CliError>,
}

impl<T, const N: usize> List<T, N> {
    /// Writes the list to standard output.
    pub(crate) fn write(&self, options: &ListOutput) -> Result<(), CliError> {
        let Self { items, empty_text: empty, head, row, id, as_json } = self;
        if options.json {
            return json::write_output(&items.iter().map(as_json).collect::<Result<Vec<_>, _>>()?);
        }
        let text = if options.ids {
            items.iter().map(|item| format!("{}\n", id(item))).collect()
        } else if items.is_empty() {
            (*empty).to_owned()
        } else {
            table::render(*head, items.iter().map(row))
        };
        stream::write_output(&text)
    }
}
