//! Documentation before and after the attribute, in lines, paragraphs and a block.

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

///
/// First paragraph.
///
///   Second paragraph,
/// in two lines.
///
#[tool]
async fn paragraphs(
    /// First paragraph.
    ///
    /// Second paragraph,
    /// in two lines.
    ///
    value: u8,
) {
    let _ = value;
}

/**
 * First paragraph.
 *
 * Second paragraph,
 * in two lines.
 */
#[tool]
async fn paragraphs_in_a_block() {}

/// First paragraph.
///
#[tool]
/// Second paragraph,
/// in two lines.
async fn paragraphs_around() {}

///
#[allow(deprecated)]
#[tool]
async fn blank() {}

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
    let paragraphs = "First paragraph.\n\nSecond paragraph,\nin two lines.";
    for decl in [
        __tool_function_decl_paragraphs(),
        __tool_function_decl_paragraphs_in_a_block(),
        __tool_function_decl_paragraphs_around(),
    ] {
        assert_eq!(decl.description.as_deref(), Some(paragraphs), "{}", decl.name);
    }
    let decl = __tool_function_decl_paragraphs();
    assert_eq!(decl.parameters.as_value()["properties"]["value"]["description"], paragraphs);
    assert_eq!(__tool_function_decl_blank().description, None);
    let none = __tool_function_decl_none();
    assert_eq!(none.description, None);
    let value = &none.parameters.as_value()["properties"]["value"];
    assert_eq!(value["description"], "Of a parameter.\nIn two lines.");
}
