//! Enumerations: of names, with data, and with a tag.

use portcullis_sdk::{args, serde_json::json, testing::call, tool};

/// In which order.
#[args]
#[derive(Debug, Default)]
#[serde(rename_all = "snake_case")]
enum SortOrder {
    /// A to Z.
    #[default]
    ByName,
    /// Largest
    /// first.
    BySize,
}

#[args]
#[derive(Debug)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Shape {
    /// Round.
    Circle { radius: f64 },
    Square { side: f64 },
}

#[args]
#[derive(Debug)]
enum Size {
    Small,
    Exact(u32),
}

/// Takes enumerations.
#[tool]
async fn enums(
    order: SortOrder,
    /// How the rest is sorted.
    #[arg(default)]
    rest: SortOrder,
    #[arg(default = SortOrder::BySize)] last: SortOrder,
    shape: Option<Shape>,
    sizes: Option<Vec<Size>>,
) -> String {
    format!("{order:?} {rest:?} {last:?} {shape:?} {sizes:?}")
}

fn main() {
    let values = json!(["by_name", "by_size"]);
    assert_eq!(
        __tool_function_decl_enums().parameters.as_value(),
        &json!({
            "properties": {
                "order": {
                    "description": "In which order.\n- by_name: A to Z.\n- by_size: Largest first.",
                    "enum": values,
                    "type": "string",
                },
                "rest": {
                    "default": "by_name",
                    "description": "How the rest is sorted.\n- by_name: A to Z.\n- by_size: Largest first.",
                    "enum": values,
                    "type": "string",
                },
                "last": {
                    "default": "by_size",
                    "description": "In which order.\n- by_name: A to Z.\n- by_size: Largest first.",
                    "enum": values,
                    "type": "string",
                },
                "shape": {"anyOf": [
                    {
                        "description": "Round.",
                        "properties": {"kind": {"const": "circle", "type": "string"}, "radius": {"type": "number"}},
                        "required": ["kind", "radius"],
                        "type": "object",
                    },
                    {
                        "properties": {"kind": {"const": "square", "type": "string"}, "side": {"type": "number"}},
                        "required": ["kind", "side"],
                        "type": "object",
                    },
                ]},
                "sizes": {
                    "items": {"anyOf": [
                        {"enum": ["Small"], "type": "string"},
                        {
                            "additionalProperties": false,
                            "properties": {"Exact": {"type": "integer"}},
                            "required": ["Exact"],
                            "type": "object",
                        },
                    ]},
                    "type": "array",
                },
            },
            "required": ["order"],
            "type": "object",
        })
    );
    let arguments = r#"{"order":"by_size","shape":{"kind":"circle","radius":2},"sizes":["Small",{"Exact":5.0}]}"#;
    assert_eq!(
        call(&enums_tool(), arguments).unwrap().joined_text(),
        "BySize ByName BySize Some(Circle { radius: 2.0 }) Some([Small, Exact(5)])"
    );
    let error = call(&enums_tool(), r#"{"order":"size","shape":{"kind":"circle"},"sizes":[{"Small":null}]}"#);
    assert_eq!(
        error.unwrap_err().to_string(),
        "field 'order': \"size\" is not one of \"by_name\", \"by_size\"; missing required field 'radius' in 'shape'; field 'sizes/0': {\"Small\":null} fits none of the allowed forms (example: {\"order\":\"by_name\"})"
    );
}
