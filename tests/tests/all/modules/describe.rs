//! A module with a wrong description, in every field.

use portcullis_testing::CallOutcome;
use serde_json::{Value, json};

use super::{fixture, module, refused_modules};
use crate::hostile::wat_guest::WatGuest;

fn valid_description() -> Value {
    json!({"v": 1, "tools": [{
        "name": "mine", "label": "Mine", "description": "d", "tier": "read_only", "policy": "auto",
        "timeout_ms": 1000, "profile": "P", "hosts": [], "output_schema": {"type": "object"},
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        "roles": [{"argument": "path", "role": {"path": "read"}}],
    }]})
}

async fn check(describe: &str, is_valid: bool) {
    let fixture =
        fixture(&[("m.wasm", &WatGuest::describing(describe).bytes()), ("z.wasm", &module("other"))]);
    let registry = fixture.registry().await;
    let refusals = refused_modules(&registry);
    let excerpt: String = describe.chars().take(300).collect();
    assert_eq!(refusals.is_empty(), is_valid, "{excerpt}: {refusals:?}");
    assert_eq!(registry.get("mine").is_some(), is_valid, "{excerpt}");
    assert_eq!(CallOutcome::run(&registry, "other", json!({})).await.text(), "done", "others are served");
}

#[tokio::test]
async fn a_description_that_is_wrong_in_any_field_is_refused() {
    check(&valid_description().to_string(), true).await;
    for (field, values) in [
        ("name", vec![json!(null), json!(3), json!(""), json!("a.b"), json!("a".repeat(65)), json!(["a"])]),
        ("label", vec![json!(3), json!(["x"])]),
        ("description", vec![json!(3), json!({"text": "x"})]),
        ("tier", vec![json!("readonly"), json!("READ_ONLY"), json!("none"), json!(0), json!("")]),
        ("policy", vec![json!("allow"), json!(null), json!("never"), json!(true)]),
        ("timeout_ms", vec![json!(-1), json!(1.5), json!("5s"), json!(1e300)]),
        ("profile", vec![json!(1), json!(["P"])]),
        ("hosts", vec![json!(null), json!("https://x"), json!([1])]),
        ("output_schema", vec![json!(3), json!("object")]),
        (
            "parameters",
            vec![
                json!(null),
                json!("object"),
                json!([]),
                json!({"type": "nonsense"}),
                json!({"type": "object", "properties": {"path": {"$ref": "https://example.org/s"}}}),
                json!({"type": "object", "properties": {"path": {"pattern": "("}}}),
                json!({"type": "object", "properties": {"path": {"pattern": "(a{1000}){1000}"}}}),
            ],
        ),
        (
            "roles",
            vec![
                json!(null),
                json!({}),
                json!([{"argument": "path"}]),
                json!([{"argument": "nowhere", "role": {"path": "read"}}]),
                json!([{"argument": "path", "role": {"path": "execute"}}]),
                json!([{"argument": "path", "role": "path"}]),
                json!([{"argument": "path", "role": "url", "extra": 1}]),
            ],
        ),
        ("trusted", vec![json!(true)]),
        ("enabled", vec![json!(true)]),
    ] {
        for value in values {
            let mut describe = valid_description();
            describe["tools"][0][field] = value;
            check(&describe.to_string(), false).await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_a_description_is_refused() {
    let mut repeated_description = valid_description();
    repeated_description["tools"] = json!([valid_description()["tools"][0], valid_description()["tools"][0]]);
    let mut newer_description = valid_description();
    newer_description["v"] = json!(2);
    let mut extended_description = valid_description();
    extended_description["approved"] = json!(true);
    for describe in [
        String::new(),
        "{".to_owned(),
        "null".to_owned(),
        "{\"v\":1}".to_owned(),
        "{\"v\":1,\"tools\":[]}".to_owned(),
        "{\"v\":1,\"tools\":{}}".to_owned(),
        "[".repeat(2000),
        format!("{} {}", valid_description(), valid_description()),
        repeated_description.to_string(),
        newer_description.to_string(),
        extended_description.to_string(),
        valid_description().to_string().replacen("\"v\":1", "\"v\":1,\"v\":1", 1),
    ] {
        check(&describe, false).await;
    }
}
