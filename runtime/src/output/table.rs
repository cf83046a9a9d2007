//! Tables for people, in plain columns, so that lines can be searched and cut.

use comfy_table::{ContentArrangement, Table, presets};
use portcullis_types::is_right_to_left;

use super::{stream, text};

/// Renders a table with a head. Deceptive characters in cells are escaped.
pub(crate) fn render<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    render_columns(head.map(str::to_owned).into(), rows.into_iter().map(Vec::from))
}

/// Like [`render`], for a number of columns that is known only at run time. Each row has as many cells as the
/// head.
pub(crate) fn render_columns(head: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    // Wrap lines only on a terminal, whose width is visible to a person.
    let columns = stream::stdout_is_terminal().then(|| console::Term::stdout().size_checked()).flatten();
    render_within(head, rows, columns.map(|(_, columns)| columns))
}

/// Renders a table of at most `columns` columns, if given.
fn render_within(
    head: Vec<String>,
    rows: impl IntoIterator<Item = Vec<String>>,
    columns: Option<u16>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head);
    if let Some(columns) = columns {
        // Allow one column more: the space before the first cell is removed below.
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns.saturating_add(1));
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| text::inline(cell)));
    }
    let mut out = String::new();
    for line in table.lines() {
        // Remove only the space before the first cell: further spaces align the continuation of a folded cell.
        out.push_str(&keep_column_order(line.strip_prefix(' ').unwrap_or(&line).trim_end()));
        out.push('\n');
    }
    out
}

/// Inserts left-to-right marks (U+200E) between the columns of a line with right-to-left letters, so that its
/// columns keep their order.
fn keep_column_order(line: &str) -> String {
    if line.chars().any(is_right_to_left) { line.replace("  ", "\u{200e}  ") } else { line.to_owned() }
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
    #[test]
    fn a_folded_cell_continues_below_its_beginning_at_every_width() {
        let names = ["file_read", "get_current_time", "vault_copyto_write"];
        let row = |name: &str| {
            let confined = "landlock=enforced(abi 9),seccomp=enforced and some more words of it";
            [name, "read_only", "WorkspaceRead", "ask every time", confined].map(str::to_owned)
        };
        for columns in 60..=200 {
            let rendered = render_within(
                ["tool", "tier", "profile", "approval", "confinement"].map(str::to_owned).into(),
                names.map(|name| row(name).into()),
                Some(columns),
            );
            let head = rendered.lines().next().expect("a head");
            let second = head.find("tier").expect("a column");
            for line in rendered.lines().skip(1) {
                assert!(line.chars().count() <= usize::from(columns), "{columns}: {line}\n{rendered}");
                // The first column contains a name or a part of a name. A wrapped cell continues in its own
                // column.
                let first = line.split(' ').next().unwrap_or(line);
                let is_name = !first.is_empty() && names.iter().any(|name| name.contains(first));
                let continues_row = line.get(..second).unwrap_or(line).trim().is_empty();
                assert!(is_name || continues_row, "{columns}: {line}\n{rendered}");
            }
        }
    }

    #[test]
    fn columns_stay_in_their_order_whatever_is_written_in_them() {
        let rendered = render_within(
            vec!["a".to_owned(), "b".to_owned()],
            [vec!["שלום".to_owned(), "עולם".to_owned()]],
            None,
        );
        assert!(rendered.contains("שלום\u{200e}  עולם"), "{rendered:?}");
    }
}
