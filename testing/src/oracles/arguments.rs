//! Properties of any call's arguments, under any schema.

use std::sync::LazyLock;

use portcullis_tools::arguments::{ArgumentSchema, Repairs};
use portcullis_types::{JsonSchema, ToolErrorKind, is_deceptive};
use serde_json::{Value, json};

/// The maximum length of an error message, in bytes. A model reads the whole message.
const MAX_MESSAGE_BYTES: usize = 16 << 10;

/// Checks arguments against one of several schemas; the first byte selects it.
pub fn check_arguments(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let schema = &SCHEMAS[usize::from(*first) % SCHEMAS.len()];
    assert_check_is_consistent(schema, text);
}

/// Checks a schema against a few arguments.
pub fn check_schema(input: &[u8]) {
    let Ok(schema) = serde_json::from_slice::<Value>(input) else { return };
    let Ok(schema) = ArgumentSchema::compile(&JsonSchema::new(schema)) else { return };
    for text in ["{}", r#"{"a":1,"b":"2","c":[3.0,null],"d":{"a":"x"},"e":true}"#, r#"{"a":"{\"a\":\"1\"}"}"#]
    {
        assert_check_is_consistent(&schema, text);
    }
}

fn assert_check_is_consistent(schema: &ArgumentSchema, text: &str) {
    let unrepaired = schema.check(text, Repairs::Off);
    let repaired = schema.check(text, Repairs::Allowed);
    for checked in [&unrepaired, &repaired] {
        match checked {
            Ok(checked) => {
                let value: Value = serde_json::from_str(checked.args.text()).expect("JSON");
                assert_eq!(checked.args.value(), &value, "text and value differ");
                assert!(value.is_object(), "arguments are an object");
            }
            Err(error) => {
                assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{error:?}");
                assert!(error.message().len() <= MAX_MESSAGE_BYTES, "{} bytes", error.message().len());
                assert!(!error.message().chars().any(is_deceptive), "{:?}", error.message());
            }
        }
    }
    if let Ok(checked) = &unrepaired {
        assert!(checked.repaired.is_empty(), "repairs are off");
        let is_unchanged = checked.ignored.is_empty() && !text.trim_ascii().is_empty();
        assert!(!is_unchanged || checked.args.text() == text, "the text is the caller's own");
        assert!(repaired.is_ok(), "valid arguments are not refused after a repair: {repaired:?}");
    }
    if let Ok(checked) = &repaired {
        let checked_again =
            schema.check(checked.args.text(), Repairs::Off).expect("repaired arguments are valid");
        assert_eq!(checked_again.args, checked.args, "repaired twice");
        assert!(checked_again.ignored.is_empty());
    }
}

static SCHEMAS: LazyLock<Vec<ArgumentSchema>> = LazyLock::new(|| {
    let schemas = [
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "maxLength": 1000},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "mode": {"enum": ["create", "overwrite"]},
                "recursive": {"type": "boolean"},
            },
            "required": ["path"],
            "additionalProperties": false,
        }),
        json!({
            "type": "object",
            "properties": {
                "root": {"$ref": "#node"},
                "ratio": {"type": "number"},
                "depth": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            },
            "$defs": {"node": {
                "$anchor": "node",
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "format": "uint64"},
                    "children": {"type": "array", "items": {"$ref": "#node"}, "uniqueItems": true},
                },
            }},
        }),
        json!({
            "type": "object",
            "properties": {"step": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "wait"}, "ms": {"type": "integer"}}},
                {"type": "object", "properties": {"kind": {"const": "say"}, "text": {"type": "string"}}},
            ]}},
            "patternProperties": {"^x_": {"type": ["integer", "string"]}},
            "unevaluatedProperties": {"pattern": "^[a-z]+$", "format": "date"},
        }),
    ];
    let compile = |schema| ArgumentSchema::compile(&JsonSchema::new(schema)).expect("compiles");
    schemas.into_iter().map(compile).collect()
});
