//! Every primitive type.

use portcullis_sdk::{tool, serde_json};

/// Reads the contents of a file at the given path.
#[tool]
async fn file_read(path: String) -> String {
    path
}

#[allow(deprecated)]
#[tool]
#[allow(clippy::too_many_arguments)]
async fn all(
    a: String, b: &str, c: bool, d: i8, e: i16, f: i32, g: i64, h: i128, i: isize, j: u8, k: u16, l: u32,
    m: u64, n: u128, o: usize, p: f32, q: f64,
) -> String {
    format!("{a} {b} {c} {d} {e} {f} {g} {h} {i} {j} {k} {l} {m} {n} {o} {p} {q}")
}

fn main() {
    assert_eq!(
        serde_json::to_string(&__tool_function_decl_file_read()).unwrap(),
        r#"{"name":"file_read","description":"Reads the contents of a file at the given path.","parameters":{"properties":{"path":{"type":"string"}},"required":["path"],"type":"object"}}"#
    );
    let decl = __tool_function_decl_all();
    assert_eq!(decl.description, None);
    let schema = decl.parameters.as_value();
    assert_eq!(schema["required"], serde_json::json!(["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"]));
    for name in ["d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"] {
        assert_eq!(schema["properties"][name], serde_json::json!({"type": "integer"}));
    }
    assert_eq!(schema["properties"]["p"], serde_json::json!({"type": "number"}));
    assert_eq!(schema["properties"]["c"], serde_json::json!({"type": "boolean"}));
}
