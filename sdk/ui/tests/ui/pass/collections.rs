//! Lists, tuples, maps, any JSON.

use std::collections::{BTreeMap, HashMap};

use portcullis_sdk::{serde_json, serde_json::json, testing::call, tool};

/// Takes collections.
#[tool]
async fn collections(
    /// Which ones.
    list: Vec<String>,
    array: [u8; 2],
    tuple: (String, Option<bool>),
    map: HashMap<String, Vec<f64>>,
    sorted: Option<BTreeMap<String, u128>>,
    any: Option<serde_json::Value>,
    #[arg(default)] tags: Vec<String>,
    #[arg(default = vec![1, 2])] numbers: Vec<u8>,
    deep: Option<Vec<Vec<Option<i8>>>>,
) -> String {
    format!("{list:?} {array:?} {tuple:?} {map:?} {sorted:?} {any:?} {tags:?} {numbers:?} {deep:?}")
}

fn main() {
    assert_eq!(
        __tool_function_decl_collections().parameters.as_value(),
        &json!({
            "properties": {
                "list": {"description": "Which ones.", "items": {"type": "string"}, "type": "array"},
                "array": {"items": {"type": "integer"}, "maxItems": 2, "minItems": 2, "type": "array"},
                "tuple": {
                    "maxItems": 2,
                    "minItems": 2,
                    "prefixItems": [{"type": "string"}, {"type": ["boolean", "null"]}],
                    "type": "array",
                },
                "map": {"additionalProperties": {"items": {"type": "number"}, "type": "array"}, "type": "object"},
                "sorted": {"additionalProperties": {"type": "integer"}, "type": "object"},
                "any": {},
                "tags": {"default": [], "items": {"type": "string"}, "type": "array"},
                "numbers": {"default": [1, 2], "items": {"type": "integer"}, "type": "array"},
                "deep": {
                    "items": {"items": {"type": ["integer", "null"]}, "type": "array"},
                    "type": "array",
                },
            },
            "required": ["list", "array", "tuple", "map"],
            "type": "object",
        })
    );
    let arguments = r#"{"list":["a"],"array":[1,2.0],"tuple":["t",null],"map":{"k":[1]},
        "sorted":{"n":340282366920938463463374607431768211455},"any":{"x":[1]},"deep":[[1,null]]}"#;
    assert_eq!(
        call(&collections_tool(), arguments).unwrap().joined_text(),
        r#"["a"] [1, 2] ("t", None) {"k": [1.0]} Some({"n": 340282366920938463463374607431768211455}) Some(Object {"x": Array [Number(1)]}) [] [1, 2] Some([[Some(1), None]])"#
    );
    let error = call(&collections_tool(), r#"{"list":["a",5],"array":[1],"tuple":[],"map":[]}"#).unwrap_err();
    assert_eq!(
        error.message(),
        "field 'list/1': 5 is not a string; field 'array': 1 items where there must be 2; field 'tuple': 0 items where there must be 2; field 'map': [] is not an object"
    );
    assert_eq!(
        error.hint(),
        Some(r#"example: {"array":[1,1],"list":["text"],"map":{"key":[1.5]},"tuple":["text",true]}"#)
    );
}
