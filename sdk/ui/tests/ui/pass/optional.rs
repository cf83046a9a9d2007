//! `Option`, defaults, bounds and lists.

use portcullis_sdk::{serde_json::json, testing::call, tool};

/// Takes what may be left out.
#[tool]
async fn optional(
    a: Option<String>,
    b: Option<&str>,
    c: std::option::Option<u8>,
    #[arg(default = -3, min = -5, max = 5)] d: i8,
    #[arg(default = "x", one_of("x", "y"))] e: &str,
    #[arg(default = true)] f: bool,
    #[arg(default = 0.5)] g: f32,
) -> String {
    format!("{a:?} {b:?} {c:?} {d} {e} {f} {g}")
}

fn main() {
    assert_eq!(call(&optional_tool(), "{}").unwrap().joined_text(), "None None None -3 x true 0.5");
    let all = r#"{"a":"1","b":"2","c":3,"d":4,"e":"y","f":false,"g":2}"#;
    assert_eq!(call(&optional_tool(), all).unwrap().joined_text(), r#"Some("1") Some("2") Some(3) 4 y false 2"#);
    let nulls = r#"{"a":null,"b":null,"c":null,"d":null}"#;
    assert_eq!(call(&optional_tool(), nulls).unwrap().joined_text(), "None None None -3 x true 0.5");
    assert_eq!(
        __tool_function_decl_optional().parameters.as_value(),
        &json!({
            "properties": {
                "a": {"type": "string"},
                "b": {"type": "string"},
                "c": {"type": "integer"},
                "d": {"default": -3, "maximum": 5, "minimum": -5, "type": "integer"},
                "e": {"default": "x", "enum": ["x", "y"], "type": "string"},
                "f": {"default": true, "type": "boolean"},
                "g": {"default": 0.5, "type": "number"},
            },
            "required": [],
            "type": "object",
        })
    );
}
