//! Writes a tree as Markdown, or as plain text of the same shape.
//!
//! The tree is walked without recursion. An element that changes the form of its content (a quote, a list item, a cell)
//! opens an element that collects the content. Elements of one kind have a bounded depth, so that the work is linear.
//!
//! Text is escaped when it is read, and code when its element ends. No element opens inside code, because the nested
//! content would bypass the escaping of code.

use super::{
    characters::visible,
    elements::{is_block, is_line_of_code, language},
    escape::{code, escape_line, escape_target, longest_run, push_escaped, separate_marks},
    links::Links,
    lists::List,
    open_element::{ElementForm, OpenElement},
    table::{HtmlTable, is_layout},
    tree::{HtmlTree, NodeData, NodeId, WalkEvent},
};

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Markdown,
    /// Words, line breaks, lists and tables, without the marks of Markdown.
    Text,
}

/// The deepest nesting of quotes and lists that is shown.
const MAX_QUOTES: usize = 12;

/// The indentation of a term's definition.
const DEFINITION: &str = "  ";

/// Writes the content of a tree.
pub(super) fn write(tree: &HtmlTree, root: NodeId, links: &Links, style: Style) -> String {
    let page = OpenElement::new(NodeId::MAX, ElementForm::Page);
    let mut writer =
        Writer { tree, links, style, open_elements: vec![page], lists: Vec::new(), tables: Vec::new() };
    for step in tree.walk(root) {
        match step {
            WalkEvent::Open(id) => writer.open(id),
            WalkEvent::Close(id) => writer.close(id),
        }
    }
    let mut text = writer.open_elements.swap_remove(0).text;
    text.truncate(text.trim_end().len());
    text
}

struct Writer<'a> {
    tree: &'a HtmlTree,
    links: &'a Links,
    style: Style,
    open_elements: Vec<OpenElement>,
    lists: Vec<List>,
    tables: Vec<(NodeId, HtmlTable)>,
}

impl Writer<'_> {
    fn open(&mut self, id: NodeId) {
        let (name, _) = match self.tree.data(id) {
            NodeData::Text(text) => return self.text(text),
            NodeData::Element { name, attributes } => (name.as_str(), attributes),
        };
        match name {
            "br" => self.line_break(),
            _ if self.is_in_code() => self.open_in_code(name),
            "hr" => self.rule(),
            "img" => self.image(id),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.paragraph();
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.push(id, ElementForm::Heading(level));
            }
            "blockquote" => {
                self.paragraph();
                if self.count(|kind| matches!(kind, ElementForm::Quote)) < MAX_QUOTES {
                    self.push(id, ElementForm::Quote);
                }
            }
            "ul" | "ol" | "menu" | "dir" => self.open_list(id, name),
            "li" => self.open_item(id),
            "dd" => {
                self.line();
                // Indent by one step only: Markdown recognizes no mark after four or more columns of
                // indentation.
                if self.count(|kind| matches!(kind, ElementForm::Item { marker } if marker == DEFINITION))
                    == 0
                {
                    self.push(id, ElementForm::Item { marker: DEFINITION.to_owned() });
                }
            }
            "dt" => {
                self.line();
                self.inline(id, "**");
            }
            "pre" | "xmp" | "listing" | "plaintext" => {
                self.paragraph();
                self.push(id, ElementForm::Code { language: language(self.tree, id) });
            }
            "code" | "kbd" | "samp" | "tt" => self.push(id, ElementForm::CodeSpan),
            "strong" | "b" => self.inline(id, "**"),
            "em" | "i" | "cite" | "dfn" | "var" => self.inline(id, "*"),
            "del" | "s" | "strike" => self.inline(id, "~~"),
            "a" => self.open_link(id),
            "table" => self.open_table(id),
            "tr" => self.open_row(),
            "td" | "th" => self.open_cell(id, name),
            "caption" => self.push(id, ElementForm::Caption),
            _ if is_block(name) => self.paragraph(),
            _ => {}
        }
    }

    fn close(&mut self, id: NodeId) {
        if self.open_elements.last().is_some_and(|element| element.id == id && self.open_elements.len() > 1) {
            self.pop();
        }
        if self.lists.last().is_some_and(|list| list.id == id) {
            self.lists.pop();
        }
        if self.tables.last().is_some_and(|(table, _)| *table == id)
            && let Some((_, table)) = self.tables.pop()
        {
            let rendered = table.write(self.style);
            self.paragraph();
            self.raw(&rendered);
            self.top().has_blocks = true;
        }
        let name = self.tree.name(id);
        if is_block(name) || (self.is_in_code() && is_line_of_code(name)) {
            self.paragraph();
        }
    }

    /// In code only lines are kept, and no other structure.
    fn open_in_code(&mut self, name: &str) {
        if is_block(name) || is_line_of_code(name) {
            self.paragraph();
        } else if matches!(name, "td" | "th")
            && !self.top().text.is_empty()
            && !self.top().text.ends_with('\n')
        {
            self.raw("\t");
        }
    }

    fn open_list(&mut self, id: NodeId, name: &str) {
        if self.lists.is_empty() {
            self.paragraph();
        } else {
            self.line();
        }
        self.lists.push(List::new(id, name == "ol", self.tree.attribute(id, "start")));
    }

    fn open_item(&mut self, id: NodeId) {
        let number = self.lists.last_mut().and_then(List::number);
        let marker = number.map_or_else(|| "- ".to_owned(), |number| format!("{number}. "));
        let after_item = self.top().text.len() == self.top().item_end;
        match number {
            // Directly after a line of text, only the number 1 starts a list (CommonMark, section 5.3).
            Some(2..) | Some(0) if !after_item => self.paragraph(),
            Some(_) | None => self.line(),
        }
        if self.count(|kind| matches!(kind, ElementForm::Item { .. })) < MAX_QUOTES {
            self.push(id, ElementForm::Item { marker });
        }
    }

    fn open_link(&mut self, id: NodeId) {
        if self.count(|kind| {
            matches!(kind, ElementForm::Link { .. } | ElementForm::Code { .. } | ElementForm::CodeSpan)
        }) > 0
        {
            return;
        }
        let target = self.tree.attribute(id, "href").and_then(|target| self.links.absolute(target));
        self.push(id, ElementForm::Link { target });
    }

    fn open_table(&mut self, id: NodeId) {
        self.paragraph();
        let in_cell = self.is_in_cell();
        if !in_cell && !is_layout(self.tree, id) {
            self.tables.push((id, HtmlTable::default()));
        }
    }

    fn open_row(&mut self) {
        let in_cell = self.is_in_cell();
        match self.tables.last_mut() {
            Some((_, table)) if !in_cell => table.begin_row(),
            _ => self.line(),
        }
    }

    fn open_cell(&mut self, id: NodeId, name: &str) {
        let in_cell = self.is_in_cell();
        if self.tables.is_empty() || in_cell {
            // The cells of a layout table are blocks.
            self.paragraph();
            return;
        }
        let columns =
            self.tree.attribute(id, "colspan").and_then(|span| span.trim().parse().ok()).unwrap_or(1);
        self.push(id, ElementForm::Cell { heading: name == "th", columns });
    }

    fn inline(&mut self, id: NodeId, mark: &'static str) {
        let encloses = |kind: &ElementForm| match kind {
            ElementForm::Code { .. } | ElementForm::CodeSpan | ElementForm::Heading(_) => true,
            ElementForm::Inline(open_mark) => *open_mark == mark,
            _ => false,
        };
        if self.style == Style::Markdown && self.count(encloses) == 0 {
            self.push(id, ElementForm::Inline(mark));
        }
    }

    fn image(&mut self, id: NodeId) {
        let alternative = visible(self.tree.attribute(id, "alt").unwrap_or_default());
        let alternative = alternative.split_whitespace().collect::<Vec<_>>().join(" ");
        if alternative.is_empty() {
            return;
        }
        let alternative = if self.style == Style::Markdown { escape_line(&alternative) } else { alternative };
        let target = self.tree.attribute(id, "src").and_then(|target| self.links.absolute(target));
        let is_in_link = self.count(|kind| matches!(kind, ElementForm::Link { .. })) > 0;
        self.word_break();
        match target {
            Some(target) if self.style == Style::Markdown && !is_in_link => {
                self.raw(&format!("![{alternative}]({})", escape_target(&target)));
            }
            _ => self.raw(&alternative),
        }
    }

    fn count(&self, counted: impl Fn(&ElementForm) -> bool) -> usize {
        self.open_elements.iter().filter(|element| counted(&element.kind)).count()
    }

    fn is_in_code(&self) -> bool {
        self.count(|kind| matches!(kind, ElementForm::Code { .. } | ElementForm::CodeSpan)) > 0
    }

    fn push(&mut self, id: NodeId, kind: ElementForm) {
        self.open_elements.push(OpenElement::new(id, kind));
    }

    fn top(&mut self) -> &mut OpenElement {
        // The page itself is never popped.
        let index = self.open_elements.len() - 1;
        &mut self.open_elements[index]
    }

    /// Writes a text. Its white space is collapsed unless the text is code.
    fn text(&mut self, text: &str) {
        let text = visible(text);
        let style = self.style;
        if self.count(|kind| matches!(kind, ElementForm::Code { .. })) > 0 {
            self.top().text.push_str(&text);
            return;
        }
        if text.starts_with(char::is_whitespace) {
            self.top().needs_space = true;
        }
        let code = self.is_in_code();
        for word in text.split_whitespace() {
            self.word_break();
            let element = self.top();
            let line = element.text.trim_end_matches(' ');
            let at_start = line.is_empty() || line.ends_with('\n');
            if code || style == Style::Text {
                element.text.push_str(word);
            } else {
                push_escaped(&mut element.text, word, at_start);
            }
            element.needs_space = true;
        }
        if !text.is_empty() && !text.ends_with(char::is_whitespace) {
            self.top().needs_space = false;
        }
    }

    /// Writes the space that was read before this word, if there was one.
    fn word_break(&mut self) {
        let element = self.top();
        let inline =
            matches!(element.kind, ElementForm::Inline(_) | ElementForm::Link { .. } | ElementForm::CodeSpan);
        if element.needs_space && (inline || !element.text.is_empty()) && !element.text.ends_with(['\n', ' '])
        {
            element.text.push(' ');
        }
        element.needs_space = false;
    }

    fn raw(&mut self, text: &str) {
        self.top().text.push_str(text);
    }

    /// Ends the line if it has any text.
    fn line(&mut self) {
        if self.is_in_code() {
            return;
        }
        let element = self.top();
        element.needs_space = false;
        let end = element.text.trim_end_matches(' ').len();
        element.text.truncate(end);
        if !element.text.is_empty() && !element.text.ends_with('\n') {
            element.text.push('\n');
        }
    }

    /// Ends the paragraph if it has any text.
    fn paragraph(&mut self) {
        if self.count(|kind| matches!(kind, ElementForm::Code { .. })) > 0 {
            let element = self.top();
            if !element.text.is_empty() && !element.text.ends_with('\n') {
                element.text.push('\n');
            }
            return;
        }
        self.line();
        let element = self.top();
        if !element.text.is_empty() && !element.text.ends_with("\n\n") {
            element.text.push('\n');
        }
    }

    fn line_break(&mut self) {
        let code = self.is_in_code();
        let element = self.top();
        if code || (!element.text.is_empty() && !element.text.ends_with("\n\n")) {
            let text_end = if code { element.text.len() } else { element.text.trim_end_matches(' ').len() };
            element.text.truncate(text_end);
            element.text.push('\n');
        }
        element.needs_space = false;
    }

    fn rule(&mut self) {
        self.paragraph();
        if self.style == Style::Markdown && !self.top().text.is_empty() {
            self.raw("---\n\n");
            self.top().has_blocks = true;
        }
    }

    /// Closes an element. Its content is appended to the element below, in the form of its kind.
    fn pop(&mut self) {
        let Some(OpenElement { kind, text, needs_space, has_blocks, .. }) = self.open_elements.pop() else {
            return;
        };
        let markdown = self.style == Style::Markdown;
        match kind {
            ElementForm::Page => {}
            ElementForm::Cell { heading, columns } => {
                if let Some((_, table)) = self.tables.last_mut() {
                    table.cell(&text, heading, columns);
                }
            }
            ElementForm::Quote
            | ElementForm::Item { .. }
            | ElementForm::Code { .. }
            | ElementForm::Heading(_)
            | ElementForm::Caption => {
                self.pop_block(&kind, &text);
            }
            ElementForm::Inline(_) | ElementForm::CodeSpan | ElementForm::Link { .. } => {
                self.pop_inline(&kind, &text, has_blocks, markdown);
                let element = self.top();
                element.needs_space = element.needs_space || needs_space || text.ends_with(' ');
            }
        }
    }

    fn pop_block(&mut self, kind: &ElementForm, text: &str) {
        let markdown = self.style == Style::Markdown;
        let content = text.trim_matches('\n');
        if content.trim().is_empty() {
            return;
        }
        let in_cell = self.is_in_cell();
        self.top().has_blocks = true;
        match kind {
            ElementForm::Quote if markdown => {
                self.paragraph();
                for line in content.trim_end().lines() {
                    self.raw(if line.is_empty() { ">" } else { "> " });
                    self.raw(line);
                    self.raw("\n");
                }
                self.raw("\n");
            }
            ElementForm::Item { marker } => self.item(marker, content.trim()),
            // A row of a table is one line, so write each line of code as a separate code span.
            ElementForm::Code { .. } if markdown && in_cell => {
                self.paragraph();
                for line in content.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
                    self.raw(&code(line, in_cell));
                    self.raw("\n");
                }
            }
            ElementForm::Code { language } if markdown => {
                let fence = "`".repeat(longest_run(content).max(2) + 1);
                self.paragraph();
                self.raw(&format!("{fence}{language}\n{}\n{fence}\n\n", content.trim_end()));
            }
            ElementForm::Heading(level) if markdown => {
                let line = content.split_whitespace().collect::<Vec<_>>().join(" ");
                self.paragraph();
                self.raw(&format!("{} {line}\n\n", "#".repeat(*level)));
            }
            _ => {
                self.paragraph();
                self.raw(content.trim_end());
                self.raw("\n\n");
            }
        }
    }

    fn item(&mut self, marker: &str, content: &str) {
        self.line();
        let indent = " ".repeat(marker.len());
        for (index, line) in content.lines().enumerate() {
            if index == 0 {
                self.raw(marker);
            } else if !line.is_empty() {
                self.raw(&indent);
            }
            self.raw(line);
            self.raw("\n");
        }
        let element = self.top();
        element.item_end = element.text.len();
    }

    fn pop_inline(&mut self, kind: &ElementForm, text: &str, has_blocks: bool, markdown: bool) {
        let content = text.trim();
        if content.is_empty() {
            return;
        }
        let (leading, in_cell) = (text.starts_with(' '), self.is_in_cell());
        // A mark such as `**` cannot enclose blocks, so content with blocks is written without it.
        let paragraphs = has_blocks || content.contains("\n\n");
        let parent = self.top();
        parent.needs_space = parent.needs_space || leading;
        parent.has_blocks |= has_blocks;
        // A block starts on a separate line, even if it comes first.
        if has_blocks {
            self.paragraph();
        } else {
            self.word_break();
        }
        let label = match kind {
            ElementForm::Inline(mark) if !paragraphs => format!("{mark}{content}{mark}"),
            ElementForm::CodeSpan if markdown => code(content, in_cell),
            ElementForm::Link { target: Some(target) } if markdown && !paragraphs => {
                format!("[{}]({})", content.replace('\n', " "), escape_target(target))
            }
            _ => content.to_owned(),
        };
        if markdown {
            separate_marks(&mut self.top().text, &label);
        }
        self.raw(&label);
        if paragraphs {
            self.paragraph();
        }
    }

    fn is_in_cell(&self) -> bool {
        self.count(|kind| matches!(kind, ElementForm::Cell { .. })) > 0
    }
}
