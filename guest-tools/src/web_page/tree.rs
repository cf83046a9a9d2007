//! The tree of a page: an arena of nodes, built from tokens with the implied end tags of HTML.
//!
//! Simpler than a browser's builder (no foster parents, no adoption agency), and bounded in exchange: depth and
//! number of nodes have limits, past which tags are skipped and texts stay. The time is linear.

use super::tokens::{Attribute, Token, Tokens};

/// The deepest nesting of elements. Deeper tags are skipped, their text goes to the deepest element.
pub(super) const MAX_DEPTH: usize = 200;

/// The most nodes of a tree, which takes up to 300 bytes for each. Past it tags are skipped, and texts stay.
pub(super) const MAX_NODES: usize = 100_000;

/// A node's index in the arena.
pub(crate) type NodeId = u32;

/// The root, an element without a name.
pub(crate) const ROOT: NodeId = 0;

/// A tree.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// Whether a bound was met, so that the tree lacks tags of the page.
    pub(super) cut: bool,
}

#[derive(Debug)]
struct Node {
    data: NodeData,
    parent: NodeId,
    children: Vec<NodeId>,
}

/// A node's content.
#[derive(Debug)]
pub(super) enum NodeData {
    Element { name: String, attributes: Vec<Attribute> },
    Text(String),
}

/// A step of a walk over a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A node begins.
    Open(NodeId),
    /// An element ends.
    Close(NodeId),
}

impl Tree {
    /// Builds the tree of a page.
    pub(crate) fn parse(html: &str) -> Self {
        let mut builder = Builder::new();
        for token in Tokens::new(html) {
            builder.take(token);
        }
        builder.tree
    }

    pub(super) fn data(&self, id: NodeId) -> &NodeData {
        &self.nodes[id as usize].data
    }

    pub(super) fn data_mut(&mut self, id: NodeId) -> &mut NodeData {
        &mut self.nodes[id as usize].data
    }

    pub(super) fn parent(&self, id: NodeId) -> NodeId {
        self.nodes[id as usize].parent
    }

    pub(super) fn children(&self, id: NodeId) -> &[NodeId] {
        &self.nodes[id as usize].children
    }

    /// The element's name; empty for a text.
    pub(crate) fn name(&self, id: NodeId) -> &str {
        match self.data(id) {
            NodeData::Element { name, .. } => name,
            NodeData::Text(_) => "",
        }
    }

    /// An attribute's value.
    pub(crate) fn attribute(&self, id: NodeId, wanted: &str) -> Option<&str> {
        let NodeData::Element { attributes, .. } = self.data(id) else { return None };
        attributes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    /// Every node below and with this one, in the order of the page, with the ends of elements. Never recurses.
    pub(super) fn walk(&self, from: NodeId) -> Walk<'_> {
        Walk { tree: self, steps: vec![Step::Open(from)] }
    }

    /// The elements in the order of the page.
    pub(crate) fn elements(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.walk(ROOT).filter_map(|step| match step {
            Step::Open(id) if !self.name(id).is_empty() => Some(id),
            _ => None,
        })
    }

    /// The text of a node and of all below it, at most about this many bytes. The number of steps has a bound as
    /// well: elements may be empty.
    pub(crate) fn text(&self, id: NodeId, max_bytes: usize) -> String {
        let mut text = String::new();
        for step in self.walk(id).take(64 + max_bytes * 2) {
            if text.len() >= max_bytes {
                break;
            }
            if let Step::Open(id) = step
                && let NodeData::Text(part) = self.data(id)
            {
                text.push_str(part);
            }
        }
        text
    }

    /// Takes a node out of the tree, with all below it.
    pub(super) fn remove(&mut self, id: NodeId) {
        self.nodes[id as usize].children.clear();
        self.nodes[id as usize].data = NodeData::Text(String::new());
    }

    /// Puts other nodes in place of an element's children.
    pub(super) fn set_children(&mut self, id: NodeId, children: Vec<NodeId>) {
        self.nodes[id as usize].children = children;
    }

    /// Adds a node below another, as its last child.
    pub(super) fn append(&mut self, parent: NodeId, data: NodeData) -> NodeId {
        let id = self.create(parent, data);
        self.nodes[parent as usize].children.push(id);
        id
    }

    /// Makes a node that is a child of no element yet.
    pub(super) fn create(&mut self, parent: NodeId, data: NodeData) -> NodeId {
        // Bounded by `MAX_NODES` and the few that later steps add.
        let id = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        self.nodes.push(Node { data, parent, children: Vec::new() });
        id
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// The steps of a walk.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    tree: &'a Tree,
    steps: Vec<Step>,
}

impl Walk<'_> {
    /// Leaves out what lies below the element that was just opened, and its end.
    pub(super) fn leave(&mut self, id: NodeId) {
        let children = self.tree.children(id).len();
        self.steps.truncate(self.steps.len() - children - 1);
    }
}

impl Iterator for Walk<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let step = self.steps.pop()?;
        if let Step::Open(id) = step
            && let NodeData::Element { .. } = self.tree.data(id)
        {
            self.steps.push(Step::Close(id));
            self.steps.extend(self.tree.children(id).iter().rev().map(|child| Step::Open(*child)));
        }
        Some(step)
    }
}

struct Builder {
    tree: Tree,
    /// The open elements, the root first.
    open: Vec<NodeId>,
    /// How many tags past the depth limit are open.
    overflow: usize,
}

impl Builder {
    fn new() -> Self {
        let root = NodeData::Element { name: String::new(), attributes: Vec::new() };
        let root = Node { data: root, parent: ROOT, children: Vec::new() };
        Self { tree: Tree { nodes: vec![root], cut: false }, open: vec![ROOT], overflow: 0 }
    }

    fn current(&self) -> NodeId {
        self.open.last().copied().unwrap_or(ROOT)
    }

    fn take(&mut self, token: Token) {
        match token {
            Token::Text(text) => self.text(&text),
            Token::End(name) => self.end(&name),
            Token::Start { name, attributes, closed } => self.start(name, attributes, closed),
        }
    }

    fn text(&mut self, text: &str) {
        let parent = self.current();
        let last = self.tree.children(parent).last().copied();
        // Neighbouring texts are one node: skipped tags and lone `<` would make many.
        if let Some(last) = last
            && let NodeData::Text(before) = self.tree.data_mut(last)
        {
            before.push_str(text);
            return;
        }
        self.tree.append(parent, NodeData::Text(text.to_owned()));
    }

    fn start(&mut self, name: String, attributes: Vec<Attribute>, closed: bool) {
        if matches!(name.as_str(), "html" | "body" | "head") {
            // Their attributes matter (hidden bodies do not: a page shows its body by a script).
            return;
        }
        self.close_implied(&name);
        let void = VOID.contains(&name.as_str()) || (closed && self.in_foreign());
        if self.tree.len() >= MAX_NODES || self.open.len() >= MAX_DEPTH {
            self.tree.cut = true;
            self.overflow += usize::from(!void);
            return;
        }
        let id = self.tree.append(self.current(), NodeData::Element { name, attributes });
        if !void {
            self.open.push(id);
        }
    }

    /// Whether an open element is of SVG or MathML, where `/>` ends an element.
    fn in_foreign(&self) -> bool {
        self.open.iter().rev().take(16).any(|id| matches!(self.tree.name(*id), "svg" | "math"))
    }

    /// Closes what a start tag closes without an end tag.
    fn close_implied(&mut self, name: &str) {
        let (closed, barriers): (&[&str], &[&str]) = match name {
            "li" => (&["li"], &["ul", "ol", "menu", "table"]),
            "dt" | "dd" => (&["dt", "dd"], &["dl", "table"]),
            "td" | "th" => (&["td", "th"], &["table", "tr"]),
            "tr" => (&["tr"], &["table"]),
            "thead" | "tbody" | "tfoot" => (&["thead", "tbody", "tfoot", "caption", "colgroup"], &["table"]),
            "option" => (&["option"], &["select", "datalist"]),
            "optgroup" => (&["optgroup", "option"], &["select"]),
            "a" => (&["a"], &["table", "td", "th", "li", "div", "section", "article"]),
            "rt" | "rp" => (&["rt", "rp"], &["ruby"]),
            _ if ENDS_PARAGRAPH.contains(&name) => (&["p"], &["table", "td", "th", "button", "li", "div"]),
            _ => return,
        };
        for (at, id) in self.open.iter().enumerate().rev() {
            let name = self.tree.name(*id);
            if closed.contains(&name) {
                self.open.truncate(at.max(1));
                return;
            }
            if barriers.contains(&name) {
                return;
            }
        }
    }

    fn end(&mut self, name: &str) {
        if self.overflow > 0 && !matches!(name, "html" | "body") {
            self.overflow -= 1;
            return;
        }
        match name {
            "br" => self.start("br".to_owned(), Vec::new(), false),
            "html" | "body" | "head" => {}
            _ => {
                // A cell's content cannot close what is around the table.
                let found = self.open.iter().enumerate().skip(1).rev();
                let found = found
                    .map(|(at, id)| (at, self.tree.name(*id)))
                    .take_while(|(_, open)| *open == name || !is_cell(open) || is_table_part(name))
                    .find(|(_, open)| *open == name)
                    .map(|(at, _)| at);
                if let Some(at) = found {
                    self.open.truncate(at);
                }
            }
        }
    }
}

fn is_cell(name: &str) -> bool {
    matches!(name, "td" | "th")
}

fn is_table_part(name: &str) -> bool {
    matches!(name, "td" | "th" | "tr" | "thead" | "tbody" | "tfoot" | "table")
}

/// Elements without content.
pub(super) const VOID: [&str; 17] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr", "frame", "keygen", "basefont",
];

/// Elements whose start ends a paragraph.
const ENDS_PARAGRAPH: [&str; 32] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "center",
    "details",
    "dialog",
    "dir",
    "div",
    "dl",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hgroup",
    "hr",
    "main",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "ul",
];
