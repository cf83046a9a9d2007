//! Three mistakes together: all are reported.

use portcullis_sdk::tool;

#[tool(tier = Readonly)]
fn several_mistakes(path: std::path::PathBuf, (a, b): (u8, u8)) -> String {
    format!("{path:?} {a} {b}")
}

#[test]
fn users_of_the_tool_are_not_reported() {
    let _ = several_mistakes_tool();
}

fn main() {}
