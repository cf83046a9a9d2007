//! Nested and recursive structures, and an author's types under other names.

use portcullis_sdk::{args, serde_json::json, testing::call, tool};

/// Which files.
#[args(deny_unknown)]
struct Filter {
    /// A pattern.
    glob: String,
    max_size: Option<u64>,
    #[serde(default = "ten", rename = "maxHits")]
    max_hits: u8,
    within: Option<Range>,
}

fn ten() -> u8 {
    10
}

#[args]
#[derive(Clone, Copy)]
struct Range {
    least: i32,
    most: Option<i32>,
}

#[args]
struct Tree {
    name: String,
    #[serde(default)]
    children: Vec<Tree>,
}

impl Tree {
    fn depth(&self) -> usize {
        1 + self.children.iter().map(Tree::depth).max().unwrap_or(0)
    }
}

type Filters = Vec<Filter>;

/// Takes structures within each other.
#[tool(deny_unknown)]
async fn nested(
    /// What to look for.
    filter: Filter,
    more: Filters,
    tree: Option<Tree>,
) -> String {
    let range = filter.within.map(|range| (range.least, range.most));
    format!(
        "{} {:?} {} {range:?} {} {:?}",
        filter.glob, filter.max_size, filter.max_hits, more.len(), tree.map(|tree| tree.depth())
    )
}

fn main() {
    let filter = json!({
        "additionalProperties": false,
        "description": "Which files.",
        "properties": {
            "glob": {"description": "A pattern.", "type": "string"},
            "maxHits": {"default": 10, "type": "integer"},
            "max_size": {"type": "integer"},
            "within": {
                "properties": {"least": {"type": "integer"}, "most": {"type": "integer"}},
                "required": ["least"],
                "type": "object",
            },
        },
        "required": ["glob"],
        "type": "object",
    });
    let mut described = filter.clone();
    described["description"] = "What to look for.".into();
    assert_eq!(
        __tool_function_decl_nested().parameters.as_value(),
        &json!({
            "$defs": {"Tree": {
                "properties": {
                    "children": {"default": [], "items": {"$ref": "#/$defs/Tree"}, "type": "array"},
                    "name": {"type": "string"},
                },
                "required": ["name"],
                "type": "object",
            }},
            "additionalProperties": false,
            "properties": {
                "filter": described,
                "more": {"items": filter, "type": "array"},
                "tree": {"$ref": "#/$defs/Tree"},
            },
            "required": ["filter", "more"],
            "type": "object",
        })
    );
    let arguments = r#"{"filter":{"glob":"*","maxHits":null,"within":{"least":-1}},"more":[],
        "tree":{"name":"a","children":[{"name":"b"}]}}"#;
    assert_eq!(call(&nested_tool(), arguments).unwrap().joined_text(), "* None 10 Some((-1, None)) 0 Some(2)");
    let error = call(&nested_tool(), r#"{"filter":{"globb":"*","within":[1,2]},"more":[]}"#).unwrap_err();
    assert_eq!(
        error.message(),
        "missing required field 'glob' in 'filter'; unknown field 'globb' in 'filter' (fields: 'glob', 'maxHits', 'max_size', 'within'); field 'filter/within': [1,2] is not an object"
    );
}
