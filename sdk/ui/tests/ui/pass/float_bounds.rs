//! Bounds of floating-point numbers.

use portcullis_sdk::{serde_json::json, testing::call, tool};

/// Mixes.
#[tool]
async fn mix(
    #[arg(min = 0.0, max = 1.0)] share: f64,
    #[arg(default = 0.5, min = -0.5, max = 0.7)] tilt: f32,
) -> String {
    format!("{share} {tilt}")
}

fn main() {
    let answer_text = |arguments: &str| match call(&mix_tool(), arguments) {
        Ok(output) => output.joined_text(),
        Err(error) => error.message().to_owned(),
    };
    assert_eq!(answer_text(r#"{"share":0}"#), "0 0.5");
    assert_eq!(answer_text(r#"{"share":1.0,"tilt":0.7}"#), "1 0.7");
    assert!(answer_text(r#"{"share":-0.1}"#).contains("field 'share': -0.1 is less than the minimum of 0.0"));
    assert!(answer_text(r#"{"share":1e3}"#).contains("field 'share': 1e3 is greater than the maximum of 1.0"));
    assert!(answer_text(r#"{"share":0,"tilt":0.71}"#).contains("greater than the maximum of 0.7"));
    assert_eq!(
        __tool_function_decl_mix().parameters.as_value(),
        &json!({
            "properties": {
                "share": {"maximum": 1.0, "minimum": 0.0, "type": "number"},
                "tilt": {"default": 0.5, "maximum": 0.7, "minimum": -0.5, "type": "number"},
            },
            "required": ["share"],
            "type": "object",
        })
    );
}
