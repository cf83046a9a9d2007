//! The tree of a page: an arena of nodes, built from tokens with the implied end tags of HTML.
//!
//! The builder is simpler than a browser's: it has no foster parents and no adoption agency. Depth and number of nodes
//! are limited. Beyond the limits, tags are skipped and texts are kept. The time is linear.

use super::tokens::{Attribute, HtmlToken, HtmlTokens};

/// The deepest nesting of elements. Deeper tags are skipped, and their text is added to the deepest element.
pub(super) const MAX_DEPTH: usize = 200;

/// The maximum number of nodes of a tree. A node takes up to 300 bytes. Beyond the limit, tags are skipped and texts
/// are kept.
pub(super) const MAX_NODES: usize = 100_000;

/// A node's index in the arena.
pub(crate) type NodeId = u32;

/// The root, an element without a name.
pub(crate) const ROOT: NodeId = 0;

#[derive(Debug)]
pub(crate) struct HtmlTree {
    nodes: Vec<Node>,
    /// Whether a limit was reached. Tags of the page are missing then.
    pub(super) is_cut: bool,
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

/// One event of a walk over a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkEvent {
    /// A node begins.
    Open(NodeId),
    /// An element ends.
    Close(NodeId),
}

impl HtmlTree {
    /// Builds the tree of a page.
    pub(crate) fn parse(html: &str) -> Self {
        let mut builder = Builder::new();
        for token in HtmlTokens::new(html) {
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

    /// The name of the element. Empty for a text.
    pub(crate) fn name(&self, id: NodeId) -> &str {
        match self.data(id) {
            NodeData::Element { name, .. } => name,
            NodeData::Text(_) => "",
        }
    }

    /// An attribute's value.
    pub(crate) fn attribute(&self, id: NodeId, attribute_name: &str) -> Option<&str> {
        let NodeData::Element { attributes, .. } = self.data(id) else { return None };
        attributes.iter().find(|(name, _)| name == attribute_name).map(|(_, value)| value.as_str())
    }

    /// All nodes from this one down, in the order of the page, with the ends of elements. The walk does not recurse.
    pub(super) fn walk(&self, root: NodeId) -> Walk<'_> {
        Walk { tree: self, steps: vec![WalkEvent::Open(root)] }
    }

    /// The elements in the order of the page.
    pub(crate) fn elements(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.walk(ROOT).filter_map(|step| match step {
            WalkEvent::Open(id) if !self.name(id).is_empty() => Some(id),
            _ => None,
        })
    }

    /// The text of a node and of all nodes below it, with about `max_bytes` at most. The number of events is also
    /// bounded, because elements can be empty.
    pub(crate) fn text(&self, id: NodeId, max_bytes: usize) -> String {
        let mut text = String::new();
        for step in self.walk(id).take(64 + max_bytes * 2) {
            if text.len() >= max_bytes {
                break;
            }
            if let WalkEvent::Open(id) = step
                && let NodeData::Text(part) = self.data(id)
            {
                text.push_str(part);
            }
        }
        text
    }

    /// Removes a node with everything below it.
    pub(super) fn remove(&mut self, id: NodeId) {
        self.nodes[id as usize].children.clear();
        self.nodes[id as usize].data = NodeData::Text(String::new());
    }

    /// Replaces an element's children.
    pub(super) fn set_children(&mut self, id: NodeId, children: Vec<NodeId>) {
        self.nodes[id as usize].children = children;
    }

    /// Adds a node as the last child of another node.
    pub(super) fn append(&mut self, parent: NodeId, data: NodeData) -> NodeId {
        let id = self.create(parent, data);
        self.nodes[parent as usize].children.push(id);
        id
    }

    /// Creates a node that is not yet the child of any element.
    pub(super) fn create(&mut self, parent: NodeId, data: NodeData) -> NodeId {
        // `MAX_NODES` bounds the number, except for the few nodes that later steps add.
        let id = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        self.nodes.push(Node { data, parent, children: Vec::new() });
        id
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

/// A walk over a tree.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    tree: &'a HtmlTree,
    steps: Vec<WalkEvent>,
}

impl Walk<'_> {
    /// Skips the content and the end of the element that was just opened.
    pub(super) fn skip_subtree(&mut self, id: NodeId) {
        let children = self.tree.children(id).len();
        self.steps.truncate(self.steps.len() - children - 1);
    }
}

impl Iterator for Walk<'_> {
    type Item = WalkEvent;

    fn next(&mut self) -> Option<WalkEvent> {
        let step = self.steps.pop()?;
        if let WalkEvent::Open(id) = step
            && let NodeData::Element { .. } = self.tree.data(id)
        {
            self.steps.push(WalkEvent::Close(id));
            self.steps.extend(self.tree.children(id).iter().rev().map(|child| WalkEvent::Open(*child)));
        }
        Some(step)
    }
}

struct Builder {
    tree: HtmlTree,
    /// The open elements. The root comes first.
    open_elements: Vec<NodeId>,
    /// The number of open tags beyond the depth limit.
    overflow_depth: usize,
}

impl Builder {
    fn new() -> Self {
        let root = NodeData::Element { name: String::new(), attributes: Vec::new() };
        let root = Node { data: root, parent: ROOT, children: Vec::new() };
        Self {
            tree: HtmlTree { nodes: vec![root], is_cut: false },
            open_elements: vec![ROOT],
            overflow_depth: 0,
        }
    }

    fn current(&self) -> NodeId {
        self.open_elements.last().copied().unwrap_or(ROOT)
    }

    fn take(&mut self, token: HtmlToken) {
        match token {
            HtmlToken::Text(text) => self.text(&text),
            HtmlToken::End(name) => self.end(&name),
            HtmlToken::Start { name, attributes, closed } => self.start(name, attributes, closed),
        }
    }

    fn text(&mut self, text: &str) {
        let parent = self.current();
        let last = self.tree.children(parent).last().copied();
        // Merge neighbouring texts into one node, because skipped tags and single `<` would make many nodes.
        if let Some(last_child) = last
            && let NodeData::Text(previous_text) = self.tree.data_mut(last_child)
        {
            previous_text.push_str(text);
            return;
        }
        self.tree.append(parent, NodeData::Text(text.to_owned()));
    }

    fn start(&mut self, name: String, attributes: Vec<Attribute>, closed: bool) {
        if matches!(name.as_str(), "html" | "body" | "head") {
            // Drop these elements' attributes. In particular, an attribute that hides the body must not count,
            // because scripts usually show the body again.
            return;
        }
        self.close_implied(&name);
        let is_void = VOID_ELEMENTS.contains(&name.as_str()) || (closed && self.is_in_foreign_content());
        if self.tree.len() >= MAX_NODES || self.open_elements.len() >= MAX_DEPTH {
            self.tree.is_cut = true;
            self.overflow_depth += usize::from(!is_void);
            return;
        }
        let id = self.tree.append(self.current(), NodeData::Element { name, attributes });
        if !is_void {
            self.open_elements.push(id);
        }
    }

    /// Whether an SVG or MathML element is open, in which `/>` ends an element.
    fn is_in_foreign_content(&self) -> bool {
        self.open_elements.iter().rev().take(16).any(|id| matches!(self.tree.name(*id), "svg" | "math"))
    }

    /// Closes the elements that a start tag closes implicitly.
    fn close_implied(&mut self, name: &str) {
        let (implied, barriers): (&[&str], &[&str]) = match name {
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
        for (index, id) in self.open_elements.iter().enumerate().rev() {
            let name = self.tree.name(*id);
            if implied.contains(&name) {
                self.open_elements.truncate(index.max(1));
                return;
            }
            if barriers.contains(&name) {
                return;
            }
        }
    }

    fn end(&mut self, name: &str) {
        if self.overflow_depth > 0 && !matches!(name, "html" | "body") {
            self.overflow_depth -= 1;
            return;
        }
        match name {
            "br" => self.start("br".to_owned(), Vec::new(), false),
            "html" | "body" | "head" => {}
            _ => {
                // The content of a cell cannot close elements around the table.
                let open_elements = self.open_elements.iter().enumerate().skip(1).rev();
                let matching_index = open_elements
                    .map(|(index, id)| (index, self.tree.name(*id)))
                    .take_while(|(_, open_name)| {
                        *open_name == name || !is_cell(open_name) || is_table_part(name)
                    })
                    .find(|(_, open_name)| *open_name == name)
                    .map(|(index, _)| index);
                if let Some(index) = matching_index {
                    self.open_elements.truncate(index);
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

/// Elements that cannot have content.
pub(super) const VOID_ELEMENTS: [&str; 17] = [
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
