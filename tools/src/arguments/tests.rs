//! Tests of the argument check from the outside: accepted texts, repairs, and the messages of refusals.

use portcullis_types::{Access, ArgumentRole, JsonSchema, ToolErrorKind};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{decode::decode_strict, *};

fn compile(schema: Value) -> ArgumentSchema {
    ArgumentSchema::compile(&JsonSchema::new(schema)).expect("compiles")
}

/// The schema of most cases: a path, two optional numbers, a choice, a list of objects, a switch.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "maxLength": 1000},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "ratio": {"type": "number"},
            "mode": {"type": "string", "enum": ["create", "overwrite", "append"]},
            "filters": {"type": "array", "items": {"$ref": "#/$defs/filter"}},
            "recursive": {"type": "boolean"},
            "depth": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
        },
        "required": ["path"],
        "additionalProperties": false,
        "$defs": {"filter": {
            "type": "object",
            "properties": {"size": {"type": "integer"}, "name": {"type": "string"}},
            "required": ["size"],
            "additionalProperties": false,
        }},
    })
}

#[track_caller]
fn check_refused(schema: Value, text: &str, repairs: Repairs, message: &str) {
    let error = compile(schema).check(text, repairs).expect_err("must be refused");
    assert_eq!(error.kind(), ToolErrorKind::InvalidArguments);
    assert_eq!(error.to_string(), message);
}

#[track_caller]
fn repaired(text: &str, expected: &str, locations: &[&str]) {
    let compiled = compile(schema());
    let checked = compiled.check(text, Repairs::Allowed).expect("can be repaired");
    assert_eq!(checked.args.text(), expected);
    assert_eq!(checked.args.value(), &serde_json::from_str::<Value>(expected).expect("JSON"));
    assert_eq!(checked.repaired, locations);
    if let Ok(checked) = compiled.check(text, Repairs::Off) {
        // The arguments fit unchanged, because JSON Schema counts 5.0 as an integer.
        assert_eq!((checked.args.text(), checked.repaired.len()), (text, 0), "repairs are off");
    }
}

#[test]
fn valid_arguments_keep_their_text() {
    let text = "{ \"path\" : \"a\\u0041\",  \"ratio\": 1.50, \"depth\": null }";
    for repairs in [Repairs::Allowed, Repairs::Off] {
        let checked = compile(schema()).check(text, repairs).expect("fits");
        assert_eq!(checked.args.text(), text);
        assert_eq!((checked.repaired.len(), checked.ignored.len()), (0, 0));
    }
}

#[test]
fn an_empty_text_is_an_empty_object() {
    let none = compile(json!({"type": "object", "properties": {}}));
    for text in ["", " \n\t"] {
        let checked = none.check(text, Repairs::Off).expect("fits");
        assert_eq!((checked.args.text(), checked.args.value()), ("{}", &json!({})));
        assert!(checked.repaired.is_empty());
    }
    for text in ["null", "\"\"", "\"{}\"", "\" { } \""] {
        let checked = none.check(text, Repairs::Allowed).expect("repaired");
        assert_eq!((checked.args.value(), checked.repaired), (&json!({}), vec!["arguments".to_owned()]));
        assert!(none.check(text, Repairs::Off).is_err());
    }
    check_refused(schema(), "", Repairs::Off, "missing required field 'path' in arguments");
}

#[test]
fn invalid_json_is_refused_with_its_location() {
    #[track_caller]
    fn check(text: &str, message: &str) {
        check_refused(schema(), text, Repairs::Allowed, message);
    }
    check(
        "{\"path\": 1} x",
        "the arguments are not valid JSON at line 1 column 13: trailing characters, found `x`",
    );
    check(
        "{\"path\":\n NaN}",
        "the arguments are not valid JSON at line 2 column 2: expected value, found `NaN}`",
    );
    check(
        "{'path': 1}",
        "the arguments are not valid JSON at line 1 column 2: key must be a string, found `'path': 1}`",
    );
    check(
        "{\"path\": \"x\"",
        "the arguments are not complete JSON: EOF while parsing an object at line 1 column 12",
    );
    check("[1]", "the arguments must be a JSON object, not an array");
    check("5", "the arguments must be a JSON object, not a number");
    check(
        "{\"limit\": 1e999}",
        "the arguments are not valid JSON at line 1 column 15: number out of range, found `9}`",
    );
    let error = compile(schema()).check("{\"path\":\"a\",\"x\":[{\"k\":1,\"k\":2}]}", Repairs::Allowed);
    assert!(error.expect_err("refused").message().contains("duplicate key 'k' at line 1 column "));
    let error = compile(schema()).check("{\"path\":\"a\",\"p\\u0061th\":\"b\"}", Repairs::Allowed);
    assert!(error.expect_err("refused").message().contains("duplicate key 'path'"));
    for lone in ["{\"path\":\"\\ud800\"}", "{\"path\":\"\\udc00 x\"}", "{\"path\":\"\\ud800\\u0041\"}"] {
        assert!(compile(schema()).check(lone, Repairs::Allowed).is_err(), "{lone}");
    }
    for word in
        ["Infinity", "-Infinity", "nan", "undefined", "{\"path\":tru}", "{\"path\":\"a\tb\"}", "\u{feff}{}"]
    {
        assert!(compile(schema()).check(word, Repairs::Allowed).is_err(), "{word}");
    }
}

#[test]
fn depth_and_size_are_bounded() {
    let any = compile(json!({"type": "object"}));
    let nested = |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert!(any.check(&nested(MAX_ARGUMENT_DEPTH), Repairs::Off).is_ok());
    let message = any.check(&nested(MAX_ARGUMENT_DEPTH + 1), Repairs::Off).expect_err("too deep").to_string();
    assert!(message.contains("nested deeper than 64 levels"), "{message}");
    for deep in ["[".repeat(100_000), "{\"a\":".repeat(100_000)] {
        assert!(any.check(&deep, Repairs::Allowed).is_err());
    }
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_ARGUMENT_BYTES));
    let message = any.check(&large, Repairs::Off).expect_err("too large").to_string();
    assert!(message.starts_with("the arguments are too large: 1048584 bytes"), "{message}");
}

#[test]
fn lossless_repairs_are_made_and_listed() {
    repaired(r#"{"path":"a","limit":"5"}"#, r#"{"limit":5,"path":"a"}"#, &["limit"]);
    repaired(r#"{"path":"a","limit":5.0}"#, r#"{"limit":5,"path":"a"}"#, &["limit"]);
    repaired(r#"{"path":"a","depth":5e0}"#, r#"{"depth":5,"path":"a"}"#, &["depth"]);
    repaired(r#"{"path":"a","depth":"5"}"#, r#"{"depth":5,"path":"a"}"#, &["depth"]);
    repaired(r#"{"path":"a","ratio":"5.5"}"#, r#"{"path":"a","ratio":5.5}"#, &["ratio"]);
    repaired(r#"{"path":"a","ratio":"-5"}"#, r#"{"path":"a","ratio":-5}"#, &["ratio"]);
    repaired(r#"{"path":"a","recursive":"true"}"#, r#"{"path":"a","recursive":true}"#, &["recursive"]);
    repaired(r#"{"path":"a","limit":null}"#, r#"{"path":"a"}"#, &["limit"]);
    repaired(
        r#"{"path":"a","filters":[{"size":1},{"size":"2","name":null}]}"#,
        r#"{"filters":[{"size":1},{"size":2}],"path":"a"}"#,
        &["filters/1/name", "filters/1/size"],
    );
    repaired(
        r#"{"path":"a","filters":"[{\"size\":\"2\"}]"}"#,
        r#"{"filters":[{"size":2}],"path":"a"}"#,
        &["filters", "filters/0/size"],
    );
    repaired(r#""{\"path\":\"a\",\"limit\":\"5\"}""#, r#"{"limit":5,"path":"a"}"#, &["arguments", "limit"]);
}

#[test]
fn lossy_repair_is_refused() {
    #[track_caller]
    fn check(member: &str, message: &str) {
        check_refused(schema(), &format!("{{\"path\":\"a\",{member}}}"), Repairs::Allowed, message);
    }
    check(r#""limit":"05""#, r#"field 'limit': "05" is not an integer"#);
    check(r#""limit":"5.5""#, r#"field 'limit': "5.5" is not an integer"#);
    check(r#""limit":" 5""#, r#"field 'limit': " 5" is not an integer"#);
    check(r#""limit":5.5"#, "field 'limit': 5.5 is not an integer");
    check(r#""limit":true"#, "field 'limit': true is not an integer");
    check(r#""ratio":"5.50""#, r#"field 'ratio': "5.50" is not a number"#);
    check(r#""ratio":"NaN""#, r#"field 'ratio': "NaN" is not a number"#);
    check(r#""recursive":"True""#, r#"field 'recursive': "True" is not a boolean"#);
    check(r#""recursive":1"#, "field 'recursive': 1 is not a boolean");
    check(
        r#""filters":"[1,{\"a\":1,\"a\":2}]""#,
        r#"field 'filters': "[1,{\"a\":1,\"a\":2}]" is not an array"#,
    );
    check(r#""mode":5"#, "field 'mode': 5 is not one of \"create\", \"overwrite\", \"append\"");
    check_refused(
        schema(),
        r#"{"path":5}"#,
        Repairs::Allowed,
        "field 'path': 5 is not a string (example: {\"path\":\"x\"})",
    );
    check_refused(
        schema(),
        r#"{"path":null}"#,
        Repairs::Allowed,
        "field 'path': null is not a string (example: {\"path\":\"x\"})",
    );
}

#[test]
fn without_repairs_only_the_schema_decides() {
    let text = r#"{"path":"a","limit":5.0}"#;
    let checked = compile(schema()).check(text, Repairs::Off).expect("5.0 is an integer to JSON Schema");
    assert_eq!((checked.args.text(), checked.repaired.len()), (text, 0));
    let refusal = compile(schema()).ensure_whole_numbers(&checked.args).expect_err("a decoder refuses it");
    assert_eq!(refusal.to_string(), "field 'limit': 5.0 is not an integer");
    let checked =
        compile(schema()).check(r#"{"path":"a","limit":5,"ratio":5.0}"#, Repairs::Off).expect("fits");
    assert_eq!(compile(schema()).ensure_whole_numbers(&checked.args), Ok(()));
    let message = "missing required field 'path' in arguments; field 'limit': \"5\" is not an integer";
    check_refused(schema(), r#"{"limit":"5"}"#, Repairs::Off, message);
}

#[test]
fn formats_are_checked_unless_the_schema_names_its_dialect() {
    let mut schema = json!({"type": "object", "properties": {"day": {"format": "date"}}});
    let text = r#"{"day":"tomorrow"}"#;
    check_refused(schema.clone(), text, Repairs::Off, "field 'day': \"tomorrow\" is not in the format date");
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    assert!(compile(schema.clone()).check(text, Repairs::Off).is_ok());
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    assert!(compile(schema).check(text, Repairs::Off).is_err());
}

#[test]
fn names_within_a_schema_can_be_referred_to() {
    let compiled = compile(json!({
        "type": "object",
        "properties": {"a": {"$ref": "#size"}, "b": {"$ref": "sizes.json#/$defs/small"}},
        "$defs": {
            "size": {"$anchor": "size", "type": "integer"},
            "sizes": {"$id": "sizes.json", "$defs": {"small": {"type": "integer", "maximum": 9}}},
        },
    }));
    let checked = compiled.check(r#"{"a":"5","b":"6"}"#, Repairs::Allowed).expect("repaired");
    assert_eq!((checked.args.text(), checked.repaired), (r#"{"a":5,"b":6}"#, vec!["a".into(), "b".into()]));
    let message = compiled.check(r#"{"b":10}"#, Repairs::Off).expect_err("too large").to_string();
    assert_eq!(message, "field 'b': 10 is greater than the maximum 9");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    check_refused(
        schema(),
        r#"{"pth":"a","limit":"x","mode":"x","filters":[{"sise":1}],"ratio":{}}"#,
        Repairs::Allowed,
        "missing required field 'path' in arguments; missing required field 'size' in 'filters/0'; \
         unknown field 'pth' in arguments; did you mean 'path'?; \
         unknown field 'sise' in 'filters/0'; did you mean 'size'?; \
         field 'limit': \"x\" is not an integer; \
         field 'mode': \"x\" is not one of \"create\", \"overwrite\", \"append\"; \
         field 'ratio': {} is not a number",
    );
    check_refused(
        schema(),
        r#"{"path":"a","limit":500,"depth":-1}"#,
        Repairs::Allowed,
        "field 'depth': -1 is less than the minimum 0; field 'limit': 500 is greater than the maximum 100",
    );
    check_refused(
        schema(),
        r#"{"path":"a","limit":"500","depth":"x"}"#,
        Repairs::Allowed,
        "field 'depth': \"x\" is not an integer or null; \
         field 'limit': 500 is greater than the maximum 100",
    );
    let many = json!({"path": "a", "filters": vec![json!("x"); 12]}).to_string();
    let message = compile(schema()).check(&many, Repairs::Off).expect_err("refused").to_string();
    assert!(message.starts_with("field 'filters/0': \"x\" is not an object; field 'filters/1'"), "{message}");
    assert!(message.ends_with("field 'filters/9': \"x\" is not an object; and 2 more"), "{message}");
}

#[test]
fn every_keyword_has_its_error_text() {
    #[track_caller]
    fn check(property: &Value, value: &str, problem: &str) {
        let schema = json!({"type": "object", "properties": {"x": property}});
        check_refused(schema, &format!("{{\"x\":{value}}}"), Repairs::Off, &format!("field 'x': {problem}"));
    }
    check(&json!({"minLength": 3}), r#""ab""#, r#""ab" is shorter than 3 characters"#);
    check(&json!({"maxLength": 1}), r#""ab""#, r#""ab" is longer than 1 character"#);
    check(&json!({"pattern": "^a+$"}), r#""b""#, r#""b" does not match the pattern ^a+$"#);
    check(&json!({"format": "date"}), r#""b""#, r#""b" is not in the format date"#);
    check(&json!({"exclusiveMinimum": 0}), "0", "0 is not greater than 0");
    check(&json!({"exclusiveMaximum": 5}), "5", "5 is not less than 5");
    check(&json!({"multipleOf": 2}), "3", "3 is not a multiple of 2");
    check(&json!({"const": "a"}), r#""b""#, r#""b" is not "a""#);
    check(&json!({"minItems": 1}), "[]", "has fewer than 1 item");
    check(&json!({"maxItems": 1}), "[1,2]", "has more than 1 item");
    check(&json!({"uniqueItems": true}), "[1,1]", "has an item twice");
    check(&json!({"contains": {"const": 1}}), "[2]", "lacks an item that it must contain");
    check(&json!({"minProperties": 1}), "{}", "has fewer than 1 field");
    check(&json!({"maxProperties": 0}), r#"{"a":1}"#, "has more than 0 fields");
    check(
        &json!({"propertyNames": {"maxLength": 1}}),
        r#"{"ab":1}"#,
        r#"has a field whose name "ab" is not allowed"#,
    );
    check(&json!({"not": {"type": "null"}}), "null", "null is not allowed");
    check(&json!(false), "1", "1 is not allowed");
    check(&json!({"type": ["string", "null"]}), "1", "1 is not null or a string");
    check(&json!({"oneOf": [{"enum": ["a"]}, {"const": "b"}]}), r#""c""#, r#""c" is not one of "a", "b""#);
    check(
        &json!({"oneOf": [{"minimum": 1}, {"maximum": 5}]}),
        "3",
        "3 fits more than one of the allowed forms",
    );
}

#[test]
fn a_number_format_is_a_range() {
    #[track_caller]
    fn check(format: &str, value: &str, problem: &str) {
        let x = json!({"type": "integer", "format": format});
        let schema = json!({"type": "object", "properties": {"x": x, "format": {"type": "integer"}}});
        check_refused(schema, &format!("{{\"x\":{value}}}"), Repairs::Off, &format!("field 'x': {problem}"));
    }
    check("uint8", "256", "256 is greater than the maximum 255");
    check("uint32", "-1", "-1 is less than the minimum 0");
    check(
        "int64",
        "9223372036854775808",
        "9223372036854775808 is greater than the maximum 9223372036854775807",
    );
    check(
        "uint64",
        "18446744073709551616",
        "1.8446744073709552e+19 is greater than the maximum 18446744073709551615",
    );
}

#[test]
fn values_are_shown_short_and_escaped() {
    let long = json!({"path": "a", "limit": "é\u{202e}\u{9b}".repeat(100)}).to_string();
    let message = compile(schema()).check(&long, Repairs::Allowed).expect_err("refused").to_string();
    assert!(message.chars().count() < 900 && message.contains("é\\u{202e}\\u{9b}é"), "{message}");
    assert!(message.contains("… is not an integer"), "{message}");
    let key = json!({"path": "a", "k\u{1b}[2J": 1}).to_string();
    let message = compile(schema()).check(&key, Repairs::Allowed).expect_err("refused").to_string();
    assert!(message.starts_with("unknown field 'k\\u{1b}[2J' in arguments"), "{message}");
    // A name of a megabyte is neither shown nor compared.
    let key = json!({"path": "a", "k".repeat(900_000): 1}).to_string();
    let message = compile(schema()).check(&key, Repairs::Allowed).expect_err("refused").to_string();
    assert!(message.len() < 200, "{message}");
}

#[test]
fn unknown_keys_are_left_out_where_the_schema_is_silent() {
    let silent =
        compile(json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["m"]}));
    for repairs in [Repairs::Allowed, Repairs::Off] {
        let checked = silent.check(r#"{"z":{"a":1.50}, "n": 1,"m":2,"a":3}"#, repairs).expect("fits");
        assert_eq!(checked.args.text(), r#"{"m":2,"n":1}"#);
        assert_eq!(checked.args.value(), &json!({"m": 2, "n": 1}));
        assert_eq!((checked.ignored, checked.repaired.len()), (vec!["a".to_owned(), "z".to_owned()], 0));
    }
    for open in [
        json!({"type": "object", "additionalProperties": true}),
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        json!({"type": "object", "patternProperties": {"^x": {}}}),
    ] {
        let checked = compile(open).check(r#"{"x":1}"#, Repairs::Allowed).expect("fits");
        assert_eq!((checked.args.text(), checked.ignored.len()), (r#"{"x":1}"#, 0));
    }
}

#[test]
fn large_numbers_keep_their_digits() {
    const BIG: &str = "340282366920938463463374607431768211455";
    let compiled = compile(json!({
        "type": "object",
        "properties": {"big": {"type": "integer"}, "n": {"type": "integer"}, "f": {"type": "number"}},
    }));
    for repairs in [Repairs::Allowed, Repairs::Off] {
        let text = format!("{{\"big\": {BIG}}}");
        assert_eq!(compiled.check(&text, repairs).expect("fits").args.text(), text);
    }
    let text =
        format!("{{\"big\": {BIG}, \"n\": \"5\", \"f\": 0.1000000000000000055511151231257827, \"z\": 1}}");
    let checked = compiled.check(&text, Repairs::Allowed).expect("repaired");
    let expected = format!("{{\"big\":{BIG},\"f\":0.1000000000000000055511151231257827,\"n\":5}}");
    assert_eq!(checked.args.text(), expected);
    let checked = compiled.check(&format!("{{\"big\":\"{BIG}\"}}"), Repairs::Allowed).expect("repaired");
    assert_eq!(checked.args.text(), format!("{{\"big\":{BIG}}}"));
}

#[test]
fn tagged_alternatives_are_repaired_and_explained() {
    let schema = json!({"type": "object", "properties": {"step": {"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "wait"}, "ms": {"type": "integer"}}, "required": ["kind", "ms"]},
        {"type": "object", "properties": {"kind": {"const": "say"}, "text": {"type": "string"}}, "required": ["kind", "text"]},
    ]}}});
    let checked = compile(schema.clone()).check(r#"{"step":{"kind":"wait","ms":"5"}}"#, Repairs::Allowed);
    let checked = checked.expect("repaired");
    assert_eq!(checked.args.text(), r#"{"step":{"kind":"wait","ms":5}}"#);
    assert_eq!(checked.repaired, ["step/ms"]);
    check_refused(
        schema.clone(),
        r#"{"step":{"kind":"say"}}"#,
        Repairs::Allowed,
        "missing required field 'text' in 'step'",
    );
    check_refused(
        schema,
        r#"{"step":{"kind":"run"}}"#,
        Repairs::Allowed,
        "field 'step': {\"kind\":\"run\"} fits none of the allowed forms",
    );
}

#[test]
fn schemas_that_cannot_be_trusted_are_refused() {
    #[track_caller]
    fn check(schema: Value, expected: fn(&SchemaError) -> bool) {
        let error = ArgumentSchema::compile(&JsonSchema::new(schema)).expect_err("must be refused");
        assert!(expected(&error), "{error:?}");
    }
    check(json!(true), |e| matches!(e, SchemaError::NotAnObject));
    check(json!({}), |e| matches!(e, SchemaError::NotAnObject));
    check(json!({"type": ["object", "null"]}), |e| matches!(e, SchemaError::NotAnObject));
    check(json!({"type": "string"}), |e| matches!(e, SchemaError::NotAnObject));
    for reference in ["https://example.com/s.json", "file:///etc/passwd", "#anchor", "#/$defs/none", "other"]
    {
        let schema = json!({"type": "object", "properties": {"default": {"$ref": reference}}});
        check(schema, |e| matches!(e, SchemaError::Reference { .. }));
    }
    let pattern = |p: &str| json!({"type": "object", "properties": {"a": {"pattern": p}}});
    check(pattern("(?=a)b"), |e| matches!(e, SchemaError::Malformed { .. }));
    check(pattern("(a)\\1"), |e| matches!(e, SchemaError::Malformed { .. }));
    check(pattern("((((a{99}){99}){99}){99})"), |e| matches!(e, SchemaError::Malformed { .. }));
    check(json!({"type": "object", "required": "a"}), |e| matches!(e, SchemaError::Malformed { .. }));
    check(json!({"type": "object", "description": "x".repeat(MAX_SCHEMA_BYTES)}), |e| {
        matches!(e, SchemaError::TooLarge { .. })
    });
    let patterns: serde_json::Map<_, _> =
        (0..200).map(|n| (n.to_string(), json!({"pattern": "a"}))).collect();
    check(json!({"type": "object", "properties": patterns}), |e| matches!(e, SchemaError::TooManyPatterns));
    let mut deep = json!({"type": "integer"});
    for _ in 0..200 {
        deep = json!({"items": deep});
    }
    check(json!({"type": "object", "properties": {"x": deep}}), |e| matches!(e, SchemaError::TooDeep));
    let mut defs = serde_json::Map::new();
    for index in 0..30 {
        let next = json!({"$ref": format!("#/$defs/d{}", index + 1)});
        defs.insert(format!("d{index}"), json!({"anyOf": [next, next]}));
    }
    defs.insert("d30".into(), json!({"type": "integer"}));
    let multiplying = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs});
    check(multiplying, |e| matches!(e, SchemaError::TooComplex));
    let mut defs = serde_json::Map::new();
    for index in 0..30 {
        let next = json!({"$dynamicRef": format!("#d{}", index + 1)});
        let name = format!("d{index}");
        defs.insert(name.clone(), json!({"$dynamicAnchor": name, "anyOf": [next, next]}));
    }
    defs.insert("d30".into(), json!({"$anchor": "d30", "type": "integer"}));
    let schema = json!({"type": "object", "properties": {"x": {"$ref": "#d0"}}, "$defs": defs});
    check(schema, |e| matches!(e, SchemaError::TooComplex));
}

#[test]
fn a_schema_that_refers_to_itself_works() {
    let tree = compile(json!({
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {
            "size": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
        }}},
    }));
    let checked = tree.check(r#"{"root":{"children":[{"children":[{"size":"3"}]}]}}"#, Repairs::Allowed);
    assert_eq!(checked.expect("repaired").repaired, ["root/children/0/children/0/size"]);
    for circle in
        [json!({"type": "object", "$ref": "#"}), json!({"type": "object", "allOf": [{"$ref": "#"}]})]
    {
        assert!(compile(circle).check("{\"a\":\"5\"}", Repairs::Allowed).is_ok());
    }
}

/// Values in the form that a program would write.
fn ordinary() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Texts that nearly fit the schema, both right and wrong ones.
fn near_miss() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("\"false\"".to_owned()),
        any::<i8>().prop_map(|n| n.to_string()),
        any::<i8>().prop_map(|n| format!("{n}.0")),
        any::<i8>().prop_map(|n| format!("\"{n}\"")),
        any::<f32>().prop_filter("finite", |n| n.is_finite()).prop_map(|n| format!("\"{n}\"")),
        Just("\"append\"".to_owned()),
        Just("[{\"size\":\"1\",\"name\":null},{\"size\":2.0}]".to_owned()),
        Just("\"[{\\\"size\\\":\\\"1\\\"}]\"".to_owned()),
        Just("340282366920938463463374607431768211455".to_owned()),
    ];
    let key =
        prop::sample::select(vec!["path", "limit", "ratio", "mode", "filters", "recursive", "depth", "x"]);
    prop::collection::btree_map(key, value, 0..8).prop_map(|map| {
        let members: Vec<_> = map.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
        format!("{{{}}}", members.join(", "))
    })
}

proptest! {
    #[test]
    fn ordinary_json_decodes_as_serde_json_decodes_it(value in ordinary()) {
        let text = value.to_string();
        prop_assert_eq!(decode_strict(&text).expect("strict JSON"), serde_json::from_str::<Value>(&text).expect("JSON"));
    }

    #[test]
    fn nothing_panics(text in "[\\[\\]{}\",:0-9eE.+\\\\u-z \n]*|.*") {
        let compiled = compile(schema());
        let _ = compiled.check(&text, Repairs::Allowed);
        let _ = compiled.check(&format!("{{\"path\":{text}}}"), Repairs::Allowed);
        let _ = compiled.check(&format!("{{\"filters\":[{{\"size\":{text}}}]}}"), Repairs::Off);
    }

    #[test]
    fn accepted_arguments_are_valid_without_more_repairs(text in near_miss()) {
        let mut loose = schema();
        loose.as_object_mut().expect("object").remove("required");
        loose.as_object_mut().expect("object").remove("additionalProperties");
        loose["properties"]["path"] = json!({});
        let compiled = compile(loose);
        if let Ok(checked) = compiled.check(&text, Repairs::Allowed) {
            let rechecked = compiled.check(checked.args.text(), Repairs::Off).expect("fits as it stands");
            prop_assert_eq!(&rechecked.args, &checked.args);
            prop_assert!(rechecked.repaired.is_empty() && rechecked.ignored.is_empty());
            prop_assert_eq!(checked.args.value(), &serde_json::from_str::<Value>(checked.args.text()).expect("JSON"));
        }
    }
}

#[test]
fn a_wrong_value_gets_a_fitting_example_and_a_missing_one_none() {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "mode": {"enum": ["create", "append"]},
            "lines": {"type": "array", "items": {"type": "integer", "minimum": 7}},
            "other": {"type": "string"},
        },
        "required": ["path", "mode", "lines"],
    });
    let schema = compile(schema).with_roles(&[ArgumentRole::path("path", Access::Read)]);
    let hint = |text: &str| {
        let error = schema.check(text, Repairs::Allowed).expect_err("is wrong");
        error.hint().map(str::to_owned)
    };
    let example = r#"{"lines":[7],"mode":"create","path":"/shared/file.txt"}"#;
    assert_eq!(hint(r#"{"path":"a","mode":"creat","lines":[]}"#), Some(format!("example: {example}")));
    assert!(schema.check(example, Repairs::Off).is_ok());
    assert_eq!(hint(r#"{"mode":"create","lines":[]}"#), None);
    // An example without the wrong field is not shown.
    assert_eq!(hint(r#"{"path":"a","mode":"create","lines":[7],"other":5}"#), None);
}

#[test]
fn an_example_that_would_not_fit_or_deceives_is_not_shown() {
    for property in [
        json!({"type": "string", "pattern": "^[0-9]{4}$"}),
        json!({"enum": ["a\u{202e}b"]}),
        json!({"enum": ["x".repeat(2000)]}),
    ] {
        let schema = compile(json!({"type": "object", "properties": {"p": property}, "required": ["p"]}));
        let error = schema.check(r#"{"p":[]}"#, Repairs::Allowed).expect_err("is wrong");
        assert_eq!(error.hint(), None, "{property}");
    }
}
