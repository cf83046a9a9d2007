//! Tests each rule of each dialect separately. The goldens of `portcullis-sdk` cover whole tools.

use serde_json::{Value, json};

use super::SchemaDialect;
use crate::JsonSchema;

fn object(property: &Value) -> JsonSchema {
    JsonSchema::new(json!({"properties": {"p": property}, "required": ["p"], "type": "object"}))
}

#[track_caller]
fn check(dialect: SchemaDialect, property: &Value, expected: &Value) {
    let rendered = dialect.render(&object(property)).expect("the dialect has a form for it");
    assert_eq!(&rendered.as_value()["properties"]["p"], expected);
}

#[track_caller]
fn check_refused(dialect: SchemaDialect, property: &Value, pointer: &str) {
    let error = dialect.render(&object(property)).expect_err("has no place");
    assert_eq!(error.pointer, pointer, "{error}");
}

#[test]
fn mcp_is_the_normal_form() {
    let schema = object(&json!({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/x"}]}));
    assert_eq!(SchemaDialect::Mcp.render(&schema).expect("always"), schema);
}

#[test]
fn openai_requires_every_property_and_makes_optional_ones_null() {
    let schema = JsonSchema::new(json!({
        "properties": {
            "b": {"default": 1, "description": "Count.", "type": "integer"},
            "a": {"enum": ["x"], "type": "string"},
            "c": {"type": "boolean"},
        },
        "required": ["c"],
        "type": "object",
    }));
    assert_eq!(
        SchemaDialect::OpenAiStrict.render(&schema).expect("the dialect has a form for it").into_value(),
        json!({
            "additionalProperties": false,
            "properties": {
                "a": {"enum": ["x", null], "type": ["string", "null"]},
                "b": {"description": "Count.\n(default: 1)", "type": ["integer", "null"]},
                "c": {"type": "boolean"},
            },
            "required": ["c", "a", "b"],
            "type": "object",
        })
    );
}

#[test]
fn tuples_become_lists() {
    let tuple = json!({"maxItems": 2, "minItems": 2, "prefixItems": [{"type": "string"}, {"type": "integer"}], "type": "array"});
    let items = json!({"anyOf": [{"type": "string"}, {"type": "integer"}]});
    check(
        SchemaDialect::OpenAiStrict,
        &tuple,
        &json!({"items": items, "maxItems": 2, "minItems": 2, "type": "array"}),
    );
    check(
        SchemaDialect::Anthropic,
        &tuple,
        &json!({"description": "(at least 2 items, at most 2 items)", "items": items, "type": "array"}),
    );
    check_refused(SchemaDialect::Gemini, &tuple, "/properties/p/prefixItems");
}

#[test]
fn only_mcp_supports_maps_and_untyped_values() {
    for dialect in [SchemaDialect::OpenAiStrict, SchemaDialect::Gemini, SchemaDialect::Anthropic] {
        check_refused(
            dialect,
            &json!({"additionalProperties": {"type": "string"}, "type": "object"}),
            "/properties/p",
        );
        check_refused(dialect, &json!({"description": "Anything."}), "/properties/p");
        check_refused(dialect, &json!({"type": "array", "items": {}}), "/properties/p/items");
    }
}

#[test]
fn recursion_is_supported_where_references_are() {
    let schema = JsonSchema::new(json!({
        "$defs": {"Node": {
            "properties": {"next": {"$ref": "#/$defs/Node", "description": "The next one."}},
            "required": [],
            "type": "object",
        }},
        "properties": {"p": {"$ref": "#/$defs/Node"}},
        "required": ["p"],
        "type": "object",
    }));
    let rendered =
        SchemaDialect::OpenAiStrict.render(&schema).expect("the dialect has a form for it").into_value();
    assert_eq!(
        rendered["$defs"]["Node"]["properties"]["next"],
        json!({"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]})
    );
    assert!(SchemaDialect::Gemini.render(&schema).is_err());
    assert!(SchemaDialect::Anthropic.render(&schema).is_err());
}

#[test]
fn anthropic_says_bounds_in_words_and_keeps_defaults() {
    check(
        SchemaDialect::Anthropic,
        &json!({"default": 2, "description": "Count.", "maximum": 9, "minimum": 1, "type": "integer"}),
        &json!({"default": 2, "description": "Count.\n(at least 1, at most 9)", "type": "integer"}),
    );
}

#[test]
fn gemini_flattens_a_union_of_objects() {
    let branch = |kind: &str, field: &str| {
        json!({
            "properties": {"kind": {"const": kind, "type": "string"}, field: {"type": "number"}},
            "required": ["kind", field],
            "type": "object",
        })
    };
    check(
        SchemaDialect::Gemini,
        &json!({"anyOf": [branch("circle", "radius"), branch("square", "side")], "description": "A shape."}),
        &json!({
            "description": "A shape.\nExactly one of these forms:\n- `kind` = \"circle\", `radius`\n- `kind` = \"square\", `side`",
            "properties": {
                "kind": {"enum": ["circle", "square"], "type": "string"},
                "radius": {"type": "number"},
                "side": {"type": "number"},
            },
            "required": ["kind"],
            "type": "object",
        }),
    );
}

#[test]
fn gemini_has_one_kind_of_value_that_may_be_null() {
    check(
        SchemaDialect::Gemini,
        &json!({"type": ["string", "null"]}),
        &json!({"nullable": true, "type": "string"}),
    );
    check(
        SchemaDialect::Gemini,
        &json!({"anyOf": [{"type": "integer"}, {"type": "number"}]}),
        &json!({"type": "number"}),
    );
    check_refused(
        SchemaDialect::Gemini,
        &json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        "/properties/p",
    );
}
