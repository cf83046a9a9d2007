//! The macros find their facade under the name that the author gave it, here `gate_sdk`.

use gate_sdk::{Json, Tool, ToolContext, ToolError, args, testing, tool};

/// Adds.
#[tool(tier = ReadOnly)]
async fn add(_ctx: &ToolContext, a: u64, #[arg(default = 1)] b: u64) -> Result<String, ToolError> {
    a.checked_add(b).map(|sum| sum.to_string()).ok_or_else(|| ToolError::failed("too large"))
}

#[test]
fn a_renamed_facade_is_found() {
    assert_eq!(add_tool().schema().name, "add");
    assert_eq!(testing::call(&add_tool(), r#"{"a":2}"#).expect("a sum").joined_text(), "3");
}

#[test]
fn a_tool_of_a_renamed_facade_runs_by_the_trait() {
    assert_eq!(pollster::block_on(add_tool().execute(r#"{"a":2,"b":3}"#)).expect("a sum"), "5");
    let text = serde_json::to_string(&__tool_function_decl_add()).expect("serializes");
    assert!(text.contains(r#""required":["a"],"type":"object""#), "{text}");
}

/// A filter.
#[args(deny_unknown)]
struct Filter {
    glob: String,
    #[serde(default)]
    order: Order,
}

#[args]
#[derive(Default)]
enum Order {
    #[default]
    Up,
    Down,
}

/// Gives the filter back.
#[tool]
async fn echo(filter: Filter) -> Json<Filter> {
    Json(filter)
}

#[test]
fn argument_types_find_a_renamed_facade_too() {
    let output = testing::call(&echo_tool(), r#"{"filter":{"glob":"*"}}"#).expect("decodes");
    assert_eq!(output.joined_text(), r#"{"glob":"*","order":"Up"}"#);
    assert!(echo_tool().output_schema().is_some());
}

mod exported {
    gate_sdk::export_tools![super::add];

    #[test]
    fn export_tools_defines_main() {
        let _: fn() -> std::process::ExitCode = main;
    }
}
