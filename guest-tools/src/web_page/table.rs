//! Tables: whether they contain data, and how their rows are written.

use super::{
    markdown::Style,
    tree::{HtmlTree, NodeId, WalkEvent},
};

/// The maximum number of columns that a `colspan` fills.
const MAX_SPAN: usize = 20;

/// The maximum number of cells of a row that get a column.
const MAX_COLUMNS: usize = 64;

/// The maximum length of the text of a data cell, in bytes. A longer cell is a part of the page's layout.
const MAX_CELL_BYTES: usize = 2000;

#[derive(Debug, Default)]
pub(super) struct HtmlTable {
    rows: Vec<Vec<String>>,
    /// Whether all cells of the first row are header cells.
    has_header: bool,
}

impl HtmlTable {
    pub(super) fn begin_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn cell(&mut self, text: &str, heading: bool, columns: usize) {
        if self.rows.is_empty() {
            self.begin_row();
        }
        let is_first_row = self.rows.len() == 1;
        let Some(row) = self.rows.last_mut() else { return };
        if is_first_row {
            self.has_header = heading && (row.is_empty() || self.has_header);
        }
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        row.push(lines.join("\n"));
        for _ in 1..columns.clamp(1, MAX_SPAN) {
            if row.len() < MAX_COLUMNS {
                row.push(String::new());
            }
        }
    }

    /// Writes the rows as lines. The first row becomes the header, because Markdown requires one.
    pub(super) fn write(mut self, style: Style) -> String {
        self.rows.retain(|row| row.iter().any(|cell| !cell.is_empty()));
        let width = self.rows.iter().map(Vec::len).max().unwrap_or(0).min(MAX_COLUMNS);
        // Do not fill the rows of a sparse table: one long row in a long table would multiply the output.
        let cells: usize = self.rows.iter().map(Vec::len).sum();
        let filled = self.rows.len().saturating_mul(width) <= 4 * cells + 1000;
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            if style == Style::Text {
                let cells: Vec<String> = row.iter().map(|cell| cell.replace('\n', " ")).collect();
                text.push_str(cells.join("\t").trim_end());
                text.push('\n');
                continue;
            }
            text.push('|');
            for column in 0..if filled || index == 0 { width.max(row.len()) } else { row.len() } {
                let cell = row.get(column).map_or("", String::as_str);
                text.push(' ');
                text.push_str(&cell.replace('|', "\\|").replace('\n', "<br>"));
                text.push_str(" |");
            }
            text.push('\n');
            if index == 0 {
                text.push('|');
                text.push_str(&" --- |".repeat(width));
                text.push('\n');
            }
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// Whether a table only arranges parts of a page.
pub(super) fn is_layout(tree: &HtmlTree, id: NodeId) -> bool {
    if matches!(tree.attribute(id, "role"), Some("presentation" | "none")) {
        return true;
    }
    let (mut rows, mut cells, mut widest, mut bytes, mut headings) =
        (0_usize, 0_usize, 0_usize, 0_usize, 0_usize);
    for step in tree.walk(id) {
        let WalkEvent::Open(descendant) = step else { continue };
        match tree.name(descendant) {
            "table" if descendant != id => return true,
            "tr" => {
                rows += 1;
                cells = 0;
            }
            "td" | "th" => {
                headings += usize::from(tree.name(descendant) == "th");
                cells += 1;
                widest = widest.max(cells);
                bytes = 0;
            }
            "h1" | "h2" | "h3" | "article" | "section" | "blockquote" | "form" => return true,
            "" => {
                if let super::tree::NodeData::Text(text) = tree.data(descendant) {
                    bytes += text.len();
                }
                if bytes > MAX_CELL_BYTES {
                    return true;
                }
            }
            _ => {}
        }
    }
    headings == 0 && (rows < 2 || widest < 2)
}
