//! Schema and decoder agree: for every type here and any JSON, both accept or both refuse.
//!
//! There are two intended exceptions. The decoder alone refuses a number that is too large for its type, because a
//! schema does not limit the width. All integers here therefore fit every type, and
//! `numbers_too_large_are_refused_by_the_decoder` tests the refusal. And null for an optional value means absence,
//! which a schema cannot express, so null is removed before validation, as in the registry.

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
fn assert_agreement(tool: &dyn DeclaredTool, arguments: &Value) {
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
            let mut value = choices.fitting_value(&schema, &schema);
            assert_agreement(tool, &value);
            choices.mutate(&mut value);
            assert_agreement(tool, &value);
            choices.mutate(&mut value);
            assert_agreement(tool, &value);
        }
    }

    #[test]
    fn schema_and_decoder_agree_on_values_of_any_shape(choices in proptest::collection::vec(any::<u16>(), 0..60)) {
        for tool in types::tools() {
            let mut choices = Choices::new(&choices);
            let value = choices.any_value(3);
            assert_agreement(tool, &json!({"value": value}));
        }
    }
}

#[test]
fn generator_mostly_yields_values_that_fit() {
    let mut fitting_count = 0;
    for tool in types::tools() {
        let schema = tool.spec().parameters().into_value();
        for seed in 0..50_u16 {
            let entropy: Vec<u16> =
                (0..100).map(|step: u16| seed.wrapping_mul(7919).wrapping_add(step * 31)).collect();
            let value = Choices::new(&entropy).fitting_value(&schema, &schema);
            fitting_count += usize::from(oracle::fits(&schema, &value));
        }
    }
    let total = types::tools().len() * 50;
    assert!(fitting_count * 10 > total * 9, "{fitting_count} of {total}");
}

#[test]
fn numbers_too_large_are_refused_by_the_decoder() {
    let tool = types::tools()
        .into_iter()
        .find(|tool| tool.spec().name == "take_plain")
        .expect("the crate has the tool");
    let schema = tool.spec().parameters().into_value();
    let arguments = json!({"value": {"text": "t", "count": 256}});
    assert!(oracle::fits(&schema, &arguments));
    let error = testing::call(tool, &arguments.to_string()).expect_err("u8");
    assert_eq!(error.message(), "field 'value': invalid value: integer `256`, expected u8");
}

#[test]
fn numbers_keep_every_digit_within_a_type() {
    let tool = types::tools()
        .into_iter()
        .find(|tool| tool.spec().name == "take_wide")
        .expect("the crate has the tool");
    assert!(decodes(tool, r#"{"value":{"number":340282366920938463463374607431768211455}}"#));
    assert!(decodes(tool, r#"{"value":{"number":340282366920938463463374607431768211455.0}}"#));
    assert!(!decodes(tool, r#"{"value":{"number":340282366920938463463374607431768211456}}"#));
}

#[test]
fn a_key_twice_is_refused_wherever_it_is() {
    for tool in types::tools() {
        let error = testing::call(tool, r#"{"value":{"a":{"x":1,"x":1}}}"#).expect_err("twice");
        let takes_text = tool
            .spec()
            .params
            .iter()
            .any(|param| param.name == "value" && matches!(param.kind, ParamKind::String));
        // A text parameter refuses any object, whatever the object's content.
        let expected = if takes_text { "is not a string" } else { "key 'x' is given twice" };
        assert!(error.message().contains(expected), "{}: {error}", tool.spec().name);
    }
}
