//! Tables for people: plain columns, so that a line can be searched for and cut.

use comfy_table::{ContentArrangement, Table, presets};

use super::{stream, text};

/// A table with a head. Cells are shown with deceptive characters escaped.
pub(crate) fn render<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    // Lines are only folded where a person sees their width.
    let arrangement =
        if stream::stdout_is_terminal() { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(arrangement).set_header(head);
    for row in rows {
        table.add_row(row.map(|cell| text::inline(&cell)));
    }
    let mut out = String::new();
    for line in table.lines() {
        out.push_str(line.trim());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cells_are_escaped() {
        let rows = [["file_read".to_owned(), "read_only".to_owned()], ["x\u{1b}[2J".into(), "–".into()]];
        assert_eq!(
            render(["name", "tier"], rows),
            "name        tier\nfile_read   read_only\nx\\u{1b}[2J  –\n"
        );
    }
}
