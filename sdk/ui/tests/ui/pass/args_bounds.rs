//! Bounds of fields appear in the schema, and the decoder checks them.
#![deny(warnings)]

use portcullis_sdk::{DeclaredTool, args, testing, tool};

/// A page.
#[args]
struct Page {
    /// Which one.
    #[arg(min = 1)]
    number: u32,
    #[arg(min = 0, max = 100)]
    size: Option<u8>,
    #[serde(default = "half")]
    #[arg(max = 0.1)]
    ratio: f32,
}

fn half() -> f32 {
    0.5
}

/// Shows pages.
#[tool]
async fn show(pages: Vec<Page>) -> String {
    pages.iter().map(|page| format!("{} {:?} {}", page.number, page.size, page.ratio)).collect()
}

#[track_caller]
fn check_refused(page: &str, message: &str) {
    let error = testing::call(&show_tool(), &format!(r#"{{"pages":[{page}]}}"#)).unwrap_err();
    assert_eq!(error.message(), format!("field 'pages/0/{message}"));
}

fn main() {
    assert_eq!(
        properties(),
        r#"{"number":{"description":"Which one.","minimum":1,"type":"integer"},"ratio":{"default":0.5,"maximum":0.1,"type":"number"},"size":{"maximum":100,"minimum":0,"type":"integer"}}"#
    );
    // A default is the author's, whatever the bounds; what is written as 0.1 is 0.1.
    for (page, expected) in [
        (r#"{"number":1}"#, "1 None 0.5"),
        (r#"{"number":2.0,"size":100,"ratio":0.1}"#, "2 Some(100) 0.1"),
        (r#"{"number":3,"size":null,"ratio":null}"#, "3 None 0.5"),
    ] {
        let output = testing::call(&show_tool(), &format!(r#"{{"pages":[{page}]}}"#)).unwrap();
        assert_eq!(output.joined_text(), expected);
    }
    check_refused(r#"{"number":0}"#, "number': 0 is less than the minimum of 1");
    check_refused(r#"{"number":1,"size":101}"#, "size': 101 is greater than the maximum of 100");
    check_refused(r#"{"number":1,"ratio":0.2}"#, "ratio': 0.2 is greater than the maximum of 0.1");
}

fn properties() -> String {
    show_tool().spec().parameters().as_value()["properties"]["pages"]["items"]["properties"].to_string()
}
