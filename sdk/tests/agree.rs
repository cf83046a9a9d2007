//! Schema and decoder agree: for every type here and any JSON, both accept or both refuse.
//!
//! There are two intended exceptions. Only the decoder refuses a number too large for its type (a schema does
//! not limit the width), so all integers here fit every type; `numbers_too_large_are_the_decoders` tests that
//! side. And null for something optional means absence, which a schema cannot express: it is removed before
//! validation, as in the registry.

mod agree {
    pub(crate) mod generate;
    pub(crate) mod oracle;
    pub(crate) mod types;
}

use agree::{generate::Choices, oracle, types};
use portcullis_sdk::{
    DeclaredTool, ParamKind, ToolErrorKind,
    serde_json::{Value, json},
    testing,
};
use proptest::prelude::*;

/// Whether the tool's decoder accepts the arguments.
fn decodes(tool: &dyn DeclaredTool, text: &str) -> bool {
    match testing::call(tool, text) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{error}");
            false
        }
    }
}

#[track_caller]
fn agree(tool: &dyn DeclaredTool, arguments: &Value) {
    let schema = tool.spec().parameters().into_value();
    let fits = oracle::fits(&schema, arguments);
    let decodes = decodes(tool, &arguments.to_string());
    assert_eq!(
        fits,
        decodes,
        "{}: the schema says {fits}, the decoder {decodes}\nof {arguments}\n{:?}\nschema: {schema}",
        tool.spec().name,
        testing::call(tool, &arguments.to_string()).err().map(|error| error.to_string()),
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn schema_and_decoder_agree(choices in proptest::collection::vec(any::<u16>(), 0..120)) {
        for tool in types::tools() {
            let mut choices = Choices::new(&choices);
            let schema = tool.spec().parameters().into_value();
            let mut value = choices.fitting(&schema, &schema);
            agree(tool, &value);
            choices.spoil(&mut value);
            agree(tool, &value);
            choices.spoil(&mut value);
            agree(tool, &value);
        }
    }

    #[test]
    fn they_agree_on_what_has_nothing_to_do_with_the_schema(choices in proptest::collection::vec(any::<u16>(), 0..60)) {
        for tool in types::tools() {
            let mut choices = Choices::new(&choices);
            let value = choices.any(3);
            agree(tool, &json!({"value": value}));
        }
    }
}

#[test]
fn generator_mostly_yields_values_that_fit() {
    let mut taken = 0;
    for tool in types::tools() {
        let schema = tool.spec().parameters().into_value();
        for seed in 0..50_u16 {
            let entropy: Vec<u16> =
                (0..100).map(|step: u16| seed.wrapping_mul(7919).wrapping_add(step * 31)).collect();
            let value = Choices::new(&entropy).fitting(&schema, &schema);
            taken += usize::from(oracle::fits(&schema, &value));
        }
    }
    let all = types::tools().len() * 50;
    assert!(taken * 10 > all * 9, "{taken} of {all}");
}

#[test]
fn numbers_too_large_are_the_decoders() {
    let tool = types::tools().into_iter().find(|tool| tool.spec().name == "take_plain").expect("there");
    let schema = tool.spec().parameters().into_value();
    let arguments = json!({"value": {"text": "t", "count": 256}});
    assert!(oracle::fits(&schema, &arguments));
    let error = testing::call(tool, &arguments.to_string()).expect_err("u8");
    assert_eq!(error.message(), "field 'value': invalid value: integer `256`, expected u8");
}

#[test]
fn numbers_keep_every_digit_within_a_type() {
    let tool = types::tools().into_iter().find(|tool| tool.spec().name == "take_wide").expect("there");
    assert!(decodes(tool, r#"{"value":{"number":340282366920938463463374607431768211455}}"#));
    assert!(decodes(tool, r#"{"value":{"number":340282366920938463463374607431768211455.0}}"#));
    assert!(!decodes(tool, r#"{"value":{"number":340282366920938463463374607431768211456}}"#));
}

#[test]
fn a_key_twice_is_refused_wherever_it_is() {
    for tool in types::tools() {
        let error = testing::call(tool, r#"{"value":{"a":{"x":1,"x":1}}}"#).expect_err("twice");
        let takes_text =
            tool.spec().params.iter().any(|it| it.name == "value" && matches!(it.kind, ParamKind::String));
        // An object is never a text, whatever its content.
        let expected = if takes_text { "is not a string" } else { "key 'x' is given twice" };
        assert!(error.message().contains(expected), "{}: {error}", tool.spec().name);
    }
}
