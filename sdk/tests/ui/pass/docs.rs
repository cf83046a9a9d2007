//! Documentation before and after the attribute, in lines and in a block.

use portcullis_sdk::tool;

/// First line.
///   Second line.
#[tool]
async fn before() {}

#[tool]
/// First line.
/// Second line.
async fn after() {}

/// First line.
#[tool]
/// Second line.
async fn around() {}

/**
 * First line.
 * Second line.
 */
#[tool]
async fn block() {}

#[doc(hidden)]
#[allow(deprecated)]
#[tool]
async fn none(
    /// Of a parameter.
    /// In two lines.
    value: u8,
) {
    let _ = value;
}

fn main() {
    for decl in [
        __tool_function_decl_before(),
        __tool_function_decl_after(),
        __tool_function_decl_around(),
        __tool_function_decl_block(),
    ] {
        assert_eq!(decl.description.as_deref(), Some("First line.\nSecond line."), "{}", decl.name);
    }
    let none = __tool_function_decl_none();
    assert_eq!(none.description, None);
    let value = &none.parameters.as_value()["properties"]["value"];
    assert_eq!(value["description"], "Of a parameter.\nIn two lines.");
}
