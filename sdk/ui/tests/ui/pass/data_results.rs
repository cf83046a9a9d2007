//! Results with data, and errors of every kind.

use portcullis_sdk::{Json, ToolErrorKind, args, serde, serde_json::json, testing::call, tool};

#[derive(serde::Serialize)]
#[serde(crate = "portcullis_sdk::serde")]
struct Plain {
    n: u8,
}

/// Hits.
#[args]
struct Hits {
    /// Where.
    paths: Vec<String>,
    more: Option<bool>,
}

#[derive(Debug)]
struct Secret;

impl std::fmt::Display for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("secret")
    }
}

impl std::error::Error for Secret {}

type Outcome<T> = Result<T, Secret>;

/// A number.
#[tool]
async fn number() -> u32 {
    5
}

/// A list.
#[tool]
async fn plain() -> Vec<Plain> {
    vec![Plain { n: 1 }]
}

/// Perhaps a text.
#[tool]
async fn maybe() -> Option<String> {
    None
}

/// Described data.
#[tool]
async fn declared() -> Json<Hits> {
    Json(Hits { paths: vec!["a".to_owned()], more: None })
}

/// Described data, under an alias.
#[tool]
async fn aliased() -> Outcome<Json<Hits>> {
    Err(Secret)
}

/// Described data, without `Json`.
#[tool]
async fn bare() -> Hits {
    Hits { paths: Vec::new(), more: None }
}

/// Described data or an error, without `Json`.
#[tool]
async fn fallible() -> Result<Hits, &'static str> {
    Ok(Hits { paths: Vec::new(), more: None })
}

/// The same under an alias, with an error that is described as well.
#[tool]
async fn both_described() -> Both {
    Ok(Hits { paths: Vec::new(), more: None })
}

type Both = Result<Hits, String>;

/// Described data that is not an object.
#[tool]
async fn list() -> Result<Vec<Hits>, Secret> {
    Ok(Vec::new())
}

/// A text, which is described, too.
#[tool]
async fn text() -> Result<String, Secret> {
    Ok(String::new())
}

/// Data, or a text for an error.
#[tool]
async fn data_or_text() -> Result<Plain, &'static str> {
    Err("told")
}

/// Data, or any error.
#[tool]
async fn any_error() -> Result<Plain, Box<dyn std::error::Error + Send + Sync>> {
    Err("secret")?
}

fn main() {
    assert_eq!(call(&number_tool(), "").unwrap().structured, Some(json!(5)));
    assert_eq!(call(&plain_tool(), "").unwrap().joined_text(), r#"[{"n":1}]"#);
    assert_eq!(call(&maybe_tool(), "").unwrap().joined_text(), "null");
    assert_eq!(call(&declared_tool(), "").unwrap().structured, Some(json!({"paths": ["a"], "more": null})));
    let schema = json!({
        "description": "Hits.",
        "properties": {
            "more": {"type": ["boolean", "null"]},
            "paths": {"description": "Where.", "items": {"type": "string"}, "type": "array"},
        },
        "required": ["paths", "more"],
        "type": "object",
    });
    for declaration in [
        __tool_declaration_declared(),
        __tool_declaration_aliased(),
        __tool_declaration_bare(),
        __tool_declaration_fallible(),
        __tool_declaration_both_described(),
    ] {
        assert_eq!(declaration.output_schema.unwrap().into_value(), schema);
    }
    for declaration in [
        __tool_declaration_number(),
        __tool_declaration_plain(),
        __tool_declaration_maybe(),
        __tool_declaration_list(),
        __tool_declaration_text(),
        __tool_declaration_data_or_text(),
    ] {
        assert_eq!(declaration.output_schema, None, "{}", declaration.name);
    }
    assert_eq!(call(&fallible_tool(), "").unwrap().structured, Some(json!({"paths": [], "more": null})));
    assert_eq!(call(&list_tool(), "").unwrap().structured, Some(json!([])));
    assert_eq!(call(&text_tool(), "").unwrap().structured, None);
    assert_eq!(call(&data_or_text_tool(), "").unwrap_err().message(), "told");
    for error in [call(&aliased_tool(), "").unwrap_err(), call(&any_error_tool(), "").unwrap_err()] {
        assert_eq!(error.kind(), ToolErrorKind::Internal);
        assert!(!error.to_string().contains("secret"));
        assert_eq!(error.operator_detail(), Some("secret"));
    }
}
